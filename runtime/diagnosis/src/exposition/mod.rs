//! The page of Volt's metrics: which samples it has, and their text in Prometheus' format.
//!
//! The exporter and the page of `VOLT_METRICS`, which the runtime serves itself, use this module.
//! It opens no socket and needs no further crate, so that a program on Volt need not compile an
//! HTTP library or a metrics library for its page.
//!
//! # Shape
//!
//! [`Samples`] reads every metric of the [catalog](crate::catalog) from one or several programs,
//! and keeps what must last from one page to the next. [`write()`] turns the samples into text.
//! [`is_local_host`] is the check that protects a page on a loopback address.

mod host;
mod samples;
mod text;

pub use host::is_local_host;
pub use samples::{Life, ORIGIN_LABELS, Origin, Samples, origin_labels};
pub use text::{CONTENT_TYPE, write};
