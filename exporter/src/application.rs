//! The metrics of the application itself: what it counts with `metrics::counter!`, `gauge!` and
//! `histogram!` is served on the same page as Volt's metrics.
//!
//! # Shape
//!
//! The `metrics` crate sends what these macros count to one global recorder. The first exporter of
//! the program installs that recorder, and later exporters find it here. It stays installed until
//! the program exits, because `metrics` has no way to uninstall a recorder.
//!
//! Invariant *one family, one place*: names that have the prefix `volt_` on the page belong to the
//! catalog. This module's recorder does not record an application metric with such a name. If the
//! application passes in a recorder that has one, the page leaves it out. The first such metric is
//! logged, unless it is one of the catalog: those are written by [`publish`](crate::publish).
//!
//! Histograms named `…_seconds` get the same buckets as Volt's, so that they can be summed over
//! instances. Other histograms become summaries.

use std::io;
use std::sync::{Mutex, Once, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use volt_diagnosis::catalog::{self, BUCKETS_NS};

/// The prefix of the catalog's names, without the `_` that follows it. The page turns many other
/// characters into `_` too: see [`is_reserved`].
const RESERVED: &str = "volt";

/// Returns the exporter's recorder for application metrics, and installs it if the program has
/// none. Returns `None` if the application has installed another recorder.
pub(crate) fn recorder() -> Option<PrometheusHandle> {
    static INSTALLED: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if installed.is_none() {
        let application = Application { recorder: with_buckets().build_recorder() };
        let handle = application.recorder.handle();
        *installed = metrics::set_global_recorder(application).ok().map(|()| handle);
        if installed.is_some() {
            tracing::debug!(
                "installed the recorder of the crate metrics, for the application's metrics on the page: an application \
                 that installs its own must do so before volt_exporter::serve, or use Builder::install_recorder(false)"
            );
        }
    }
    installed.clone()
}

/// Updates the `process_*` metrics (processor time, memory, open files, threads) in the program's
/// recorder.
///
/// Uses metrics-process, because it has the names and the units of Prometheus' client libraries.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
pub(crate) fn collect_process_metrics() {
    static COLLECTOR: std::sync::OnceLock<metrics_process::Collector> = std::sync::OnceLock::new();
    let collector = COLLECTOR.get_or_init(|| {
        let collector = metrics_process::Collector::default();
        collector.describe();
        collector
    });
    collector.collect();
}

/// Does nothing: see the dependency in `Cargo.toml`.
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
pub(crate) fn collect_process_metrics() {}

fn with_buckets() -> PrometheusBuilder {
    let limits = BUCKETS_NS.map(catalog::seconds);
    let seconds = Matcher::Suffix("_seconds".into());
    PrometheusBuilder::new().set_buckets_for_metric(seconds, &limits).unwrap_or_else(|_| PrometheusBuilder::new())
}

/// Writes the metrics of `recorder`, except families with reserved names.
pub(crate) fn write(recorder: &PrometheusHandle, output: &mut impl io::Write) -> io::Result<()> {
    for line in recorder.render().split_inclusive('\n') {
        let head = ["# HELP ", "# TYPE "].into_iter().find_map(|head| line.strip_prefix(head));
        let name = head.unwrap_or(line).split(['{', ' ']).next().unwrap_or_default();
        if !is_reserved(name) {
            output.write_all(line.as_bytes())?;
        }
    }
    Ok(())
}

/// Returns whether `name` begins with the prefix of the catalog's names on the page. The page
/// replaces each character that a name must not contain by `_`.
fn is_reserved(name: &str) -> bool {
    static WARNED: Once = Once::new();
    let behind = name.strip_prefix(RESERVED).and_then(|rest| rest.chars().next());
    let is_reserved = behind.is_some_and(|c| !c.is_ascii_alphanumeric() && c != ':');
    if is_reserved && !WARNED.is_completed() && catalog::find_series(name).is_none() {
        WARNED.call_once(|| {
            tracing::warn!(
                metric = name,
                "not exported: names that begin with `{RESERVED}_` are reserved for Volt; rename it"
            );
        });
    }
    is_reserved
}

/// The recorder that receives what the application's macros count.
struct Application {
    recorder: PrometheusRecorder,
}

impl Recorder for Application {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_counter(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_gauge(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.recorder.describe_histogram(name, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        if is_reserved(key.name()) { Counter::noop() } else { self.recorder.register_counter(key, metadata) }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        if is_reserved(key.name()) { Gauge::noop() } else { self.recorder.register_gauge(key, metadata) }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        if is_reserved(key.name()) { Histogram::noop() } else { self.recorder.register_histogram(key, metadata) }
    }
}

#[cfg(test)]
mod tests {
    use metrics::Level;
    use volt_telemetry::snapshot::{Program, Snapshot};

    use super::*;
    use crate::page::Page;

    const METADATA: Metadata<'_> = Metadata::new("", Level::INFO, None);

    fn count(recorder: &impl Recorder, name: &'static str) {
        recorder.register_counter(&Key::from_static_name(name), &METADATA).increment(1);
    }

    #[test]
    fn metric_names_that_map_to_reserved_ones_are_not_recorded() {
        let recorder = with_buckets().build_recorder();
        let handle = recorder.handle();
        let application = Application { recorder };
        for name in ["volt.tasks.alive", "volt x", "volt_y", "volts", "volt", "shop.volt.z"] {
            count(&application, name);
        }
        let text = handle.render();
        let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(names.len(), 3, "{text}");
        assert!(!text.contains("volt_tasks") && !text.contains("volt_x") && !text.contains("volt_y"), "{text}");
    }

    #[test]
    fn an_application_recorder_cannot_duplicate_volt_metrics() {
        let recorder = with_buckets().build_recorder();
        recorder.describe_counter("volt.tasks.alive".into(), None, "not Volt's".into());
        count(&recorder, "volt.tasks.alive");
        count(&recorder, "shop.orders");
        let program = Program { runtimes: vec![Snapshot::default()], ..Program::default() };
        let text = Page::new().with_application(recorder.handle()).render(&program);
        assert_eq!(text.matches("# TYPE volt_tasks_alive ").count(), 1, "{text}");
        assert_eq!(text.matches("not Volt's").count(), 0, "{text}");
        assert!(text.contains("\nshop_orders 1\n"), "{text}");
    }
}
