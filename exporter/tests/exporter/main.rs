//! Tests of the exporter: the contents of a page, how it is served and pushed, and the dashboards
//! that show it.

mod dashboards;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod recorder;
mod serve;
#[cfg(feature = "cli")]
mod sidecar;
#[path = "../../../runtime/tests/watchdog/mod.rs"]
mod watchdog;
