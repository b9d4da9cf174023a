//! Tests of the exporter: the contents of a page, how it is served and pushed, and the dashboards
//! that show it.

#[path = "../../../runtime/tests/forked/mod.rs"]
mod forked;
#[path = "../../../runtime/tests/watchdog/mod.rs"]
mod watchdog;

mod serve;
mod tasks;

#[cfg(feature = "cli")]
mod sidecar;

mod dashboards;
#[cfg(feature = "cli")]
mod help;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod publish;
mod recorder;
