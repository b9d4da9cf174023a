//! The application's own metrics: what it counts with `metrics::counter!` and its kin comes out on the same page.
//!
//! Shape: one recorder a process, installed as the global one by the first exporter and kept for good, since `metrics` lets
//! nobody take it back; later exporters find it here.
//!
//! Invariant *one family, one place*: names with the prefix `volt_` belong to the catalog; a metric of the application under
//! such a name is not recorded, and the first one is logged.
//!
//! Histograms named `…_seconds` get the buckets of Volt's own, so that they add up over instances; others are summaries.

use std::sync::{Mutex, Once, OnceLock, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_process::Collector;
use volt_telemetry::catalog::{self, BUCKETS_NS};

/// The prefix of the catalog's names.
const RESERVED: &str = "volt_";

/// The process's recorder for the application, installed now if none is; `None` when the application has installed another.
pub(crate) fn recorder() -> Option<PrometheusHandle> {
    static INSTALLED: Mutex<Option<PrometheusHandle>> = Mutex::new(None);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if installed.is_none() {
        let application = Application { recorder: with_buckets().build_recorder(), was_told: Once::new() };
        let handle = application.recorder.handle();
        *installed = metrics::set_global_recorder(application).ok().map(|()| handle);
    }
    installed.clone()
}

/// Brings `process_*` (processor time, memory, open files, threads) up to date in the process's recorder.
///
/// metrics-process, because it has the names and the units of Prometheus' own client libraries on every system.
pub(crate) fn collect_process() {
    static COLLECTOR: OnceLock<Collector> = OnceLock::new();
    let collector = COLLECTOR.get_or_init(|| {
        let collector = Collector::default();
        collector.describe();
        collector
    });
    collector.collect();
}

fn with_buckets() -> PrometheusBuilder {
    let limits = BUCKETS_NS.map(catalog::seconds);
    let seconds = Matcher::Suffix("_seconds".into());
    PrometheusBuilder::new().set_buckets_for_metric(seconds, &limits).unwrap_or_else(|_| PrometheusBuilder::new())
}

/// The recorder behind the application's macros.
struct Application {
    recorder: PrometheusRecorder,
    was_told: Once,
}

impl Application {
    fn is_reserved(&self, name: &str) -> bool {
        let is_reserved = name.starts_with(RESERVED);
        if is_reserved {
            self.was_told.call_once(|| {
                tracing::warn!(
                    metric = name,
                    "not recorded: names that begin with `{RESERVED}` are Volt's own; rename it"
                );
            });
        }
        is_reserved
    }
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
        if self.is_reserved(key.name()) { Counter::noop() } else { self.recorder.register_counter(key, metadata) }
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        if self.is_reserved(key.name()) { Gauge::noop() } else { self.recorder.register_gauge(key, metadata) }
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        if self.is_reserved(key.name()) { Histogram::noop() } else { self.recorder.register_histogram(key, metadata) }
    }
}
