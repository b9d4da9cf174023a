//! Integrations with other crates. Each public module is enabled by the feature of the same name.
//! `stall` and `preface` are parts of `axum`.

#[cfg(feature = "axum")]
mod stall;

#[cfg(feature = "http2")]
mod preface;

#[cfg(feature = "hyper")]
pub mod hyper;

#[cfg(feature = "axum")]
pub mod axum;

#[cfg(feature = "futures-io")]
pub mod futures_io;
