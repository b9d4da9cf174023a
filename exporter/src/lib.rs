//! Serves what Volt runtimes count as Prometheus metrics, from inside the program.
//!
//! One call, and a guard to keep:
//!
//! ```
//! let exporter = volt_exporter::serve("127.0.0.1:0")?; // the usual port is volt_exporter::DEFAULT_ADDRESS's, 9464
//! println!("metrics http://{}/metrics", exporter.local_addr());
//! # Ok::<(), volt_exporter::ServeError>(())
//! ```
//!
//! The page has every runtime of the process on it, told apart by the label `runtime`, and whatever
//! the application counts with `metrics::counter!`, `gauge!` and `histogram!`. It is served by axum
//! on a runtime of the exporter's own with one worker, so that an application whose workers are all
//! stuck still answers; that runtime is called `exporter` and is on the page too.
//!
//! The program `volt-exporter` of this package serves the same for other processes, by their
//! control sockets ([`Builder::discover`]), so that those need not link this nor open a port.
//!
//! With the feature `otlp` the same numbers are pushed to a collector of OpenTelemetry's besides:
//! `Otlp`.
//!
//! What the names mean: [`volt_diagnosis::catalog`], and `docs/metrics.md`.
#![forbid(unsafe_code)]

mod error;

mod application;
mod discovery;
mod live;
mod openmetrics;
mod samples;

mod page;

#[cfg(feature = "otlp")]
mod otlp;

mod routes;
mod runbooks;

mod exporter;

mod builder;

pub use builder::{Builder, DEFAULT_ADDRESS, serve};
pub use error::ServeError;
pub use exporter::Exporter;
#[cfg(feature = "otlp")]
pub use otlp::settings::Otlp;
pub use page::{CONTENT_TYPE, Page};
