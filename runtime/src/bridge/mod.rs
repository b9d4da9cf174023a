//! Integrations with other crates. Each is enabled by the feature of the same name, and uses only
//! Volt's public API.

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
