//! Serves the metrics of Volt runtimes to Prometheus, from inside the program.
//!
//! Call one function and keep the guard that it returns:
//!
//! ```
//! let exporter = volt_exporter::serve("127.0.0.1:0")?; // volt_exporter::DEFAULT_ADDRESS is 127.0.0.1:9464
//! println!("metrics http://{}/metrics", exporter.local_addr());
//! # Ok::<(), volt_exporter::ServeError>(())
//! ```
//!
//! The page contains the metrics of every runtime of the program, distinguished by the label
//! `runtime`, and everything that the application counts with `metrics::counter!`, `gauge!` and
//! `histogram!`.
//!
//! The exporter has a separate runtime with one worker, so that it responds even while all workers
//! of the application are stuck. That runtime is named `exporter` and is on the page too.
//!
//! The program `volt-exporter` in this package is a sidecar: it serves the same metrics for other
//! programs, which it finds by their control sockets ([`Builder::discover`]). Those programs need
//! neither link this crate nor open a port.
//!
//! If the application has its own recorder of the crate `metrics`, for statsd, OpenTelemetry or its
//! own page, [`publish_to_recorder`] publishes the same metrics into it.
//!
//! The feature `otlp` adds `Otlp`, which also pushes the metrics to an OpenTelemetry collector. The
//! feature `otlp-tls` adds TLS to it.
//!
//! [`volt_diagnosis::catalog`] and `docs/metrics.md` explain each metric.
#![forbid(unsafe_code)]

mod error;
mod runbooks;

mod application;
mod discovery;
mod live;
mod openmetrics;

mod page;
mod routes;

#[cfg(feature = "otlp")]
mod otlp;

mod exporter;

mod builder;

mod publish;

pub use builder::{Builder, DEFAULT_ADDRESS, serve};
pub use error::ServeError;
pub use exporter::Exporter;
#[cfg(feature = "otlp")]
pub use otlp::settings::Otlp;
pub use page::Page;
pub use publish::{Histograms, PublishError, Publisher, PublisherBuilder, publish_to_recorder};
pub use volt_diagnosis::exposition::CONTENT_TYPE;

// The example in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
