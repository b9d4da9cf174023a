//! Bridges to other people's crates, each behind a feature of its name; they use nothing of Volt
//! that users could not.

#[cfg(feature = "futures-io")]
pub mod futures_io;

#[cfg(feature = "hyper")]
pub mod hyper;

#[cfg(feature = "axum")]
pub mod axum;

#[cfg(feature = "http2")]
mod preface;

#[cfg(feature = "axum")]
mod stall;
