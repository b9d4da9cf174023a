//! Integrations with other crates. Each is enabled by the feature of the same name, and uses only
//! Volt's public API.

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
