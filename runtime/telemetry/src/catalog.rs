//! The one table of metrics: what a number of a [`Snapshot`] is called outside, and how it is read from there.
//!
//! Shape: [`METRICS`] is a list of [`Metric`]s; [`Metric::samples`] reads one of them from one snapshot. How many samples that
//! gives depends on the number of workers only, so a reader may keep a handle for each.
//!
//! Who reads: the exporter (every line of `/metrics`), the table in `dashboards/README.md`, and the tests that hold dashboards
//! and alert rules against it.
//!
//! Names: prefix `volt_`; base units, named last (`_seconds`); counters end in `_total`, only grow, and start anew with their
//! runtime. Labels: `runtime` on everything, then `worker`, then at most one of `state`, `reason` and `queue` (or what an
//! info metric tells). Never a task's id, and no bit mask: the parked bitmap is a gauge of 0 or 1 for each worker.
//!
//! A gauge of a duration that is absent in the snapshot (no poll in flight, an empty queue) is 0 here: nothing has waited.
//!
//! Left out: thread ids and phases (identities, not numbers; time by state says more), and when the next timer is due.

mod table;

use crate::{Histogram, Snapshot, Worker};

pub use table::METRICS;

/// What a metric's value means over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Only grows while its runtime lives; worth a rate.
    Counter,
    /// What is true now.
    Gauge,
    /// Counts by size, since start.
    Histogram,
}

impl Kind {
    /// The word for it in Prometheus' text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric: a family of samples under one name.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in Prometheus.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// What one is: `seconds`, `tasks`, `polls`, ... or `1` for a ratio, a truth value or an info metric.
    pub unit: &'static str,
    /// A sentence for the person who meets the name on a graph.
    pub help: &'static str,
    /// The labels of each sample, in this order.
    pub labels: &'static [&'static str],
    read: fn(&mut Reading<'_>),
}

/// One value under a metric's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Values of [`Metric::labels`], in that order.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// What a sample holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number: most counters.
    Count(u64),
    /// A number: gauges, and counters of seconds.
    Number(f64),
    /// A histogram in ns, to be shown in seconds with the limits of [`BUCKETS_NS`].
    Histogram(Histogram),
}

impl Metric {
    /// Reads this metric from `snapshot`.
    ///
    /// ```
    /// use volt_telemetry::{Snapshot, catalog};
    ///
    /// let snapshot = Snapshot { runtime: "main".into(), ..Snapshot::default() };
    /// let alive = catalog::find("volt_tasks_alive").unwrap();
    /// assert_eq!(alive.samples(&snapshot)[0].labels, ["main"]);
    /// ```
    pub fn samples(&self, snapshot: &Snapshot) -> Vec<Sample> {
        let mut reading = Reading { snapshot, samples: Vec::new() };
        (self.read)(&mut reading);
        reading.samples
    }
}

/// The metric of this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// The metric that a series of this name belongs to: as [`find`], and a histogram's `_bucket`, `_sum` and `_count` too.
pub fn find_series(name: &str) -> Option<&'static Metric> {
    let histogram = || {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix))?;
        find(base).filter(|metric| metric.kind == Kind::Histogram)
    };
    find(name).or_else(histogram)
}

/// The table as Markdown, for a README.
pub fn markdown_table() -> String {
    let mut table = String::from("| Metric | Kind | Unit | Labels | What it says |\n|---|---|---|---|---|\n");
    for Metric { name, kind, unit, help, labels, .. } in METRICS {
        table += &format!("| `{name}` | {} | {unit} | {} | {help} |\n", kind.name(), labels.join(", "));
    }
    table
}

/// Upper limits of the buckets of every histogram, ns: powers of two, 256 ns to 17 s.
///
/// Each is the limit of a bucket in [`Histogram`], so [`Histogram::count_below`] is exact for them.
pub const BUCKETS_NS: [u64; 27] = {
    let mut limits = [0; 27];
    let mut index = 0;
    while index < limits.len() {
        limits[index] = 256 << index;
        index += 1;
    }
    limits
};

/// Nanoseconds as seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Collects the samples of one metric from one snapshot.
struct Reading<'a> {
    snapshot: &'a Snapshot,
    samples: Vec<Sample>,
}

impl Reading<'_> {
    fn push(&mut self, labels: &[&str], value: impl Into<Value>) {
        let all = std::iter::once(self.snapshot.runtime.as_str()).chain(labels.iter().copied());
        self.samples.push(Sample { labels: all.map(String::from).collect(), value: value.into() });
    }
}

impl<'a> Reading<'a> {
    /// One sample for the runtime.
    fn one<V: Into<Value>>(&mut self, read: impl Fn(&'a Snapshot) -> V) {
        self.push(&[], read(self.snapshot));
    }

    /// One for each value of a label.
    fn one_by<V: Into<Value>, const N: usize>(&mut self, read: impl Fn(&'a Snapshot) -> [(&'a str, V); N]) {
        for (of, value) in read(self.snapshot) {
            self.push(&[of], value);
        }
    }

    /// One for each worker.
    fn each<V: Into<Value>>(&mut self, read: impl Fn(&'a Worker) -> V) {
        for worker in &self.snapshot.workers {
            self.push(&[&worker.index.to_string()], read(worker));
        }
    }

    /// One for each worker and value of a label.
    fn each_by<V: Into<Value>, const N: usize>(&mut self, read: impl Fn(&'a Worker) -> [(&'a str, V); N]) {
        for worker in &self.snapshot.workers {
            for (of, value) in read(worker) {
                self.push(&[&worker.index.to_string(), of], value);
            }
        }
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Value::Count(u64::from(count))
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Value::Count(count as u64)
    }
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Value::Count(u64::from(is_so))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl From<Histogram> for Value {
    fn from(histogram: Histogram) -> Self {
        Value::Histogram(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A snapshot of `workers` workers in which every field that is read holds a value of its own.
    fn filled(workers: u32) -> Snapshot {
        // Through JSON: every number becomes the next one, so that a field added later is filled too.
        fn fill(value: &mut serde_json::Value, next: &mut u64) {
            match value {
                serde_json::Value::Number(number) => {
                    *next += 1;
                    *number = (*next).into();
                }
                serde_json::Value::Bool(truth) => *truth = true,
                serde_json::Value::Array(items) => items.iter_mut().for_each(|item| fill(item, next)),
                serde_json::Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, next)),
                serde_json::Value::Null | serde_json::Value::String(_) => {}
            }
        }
        let mut histogram = Histogram::default();
        histogram.record(1_000);
        let poll = crate::InFlight { task_id: 1, spawned_at: "main.rs:1:1".into(), for_ns: 1, task_name: None };
        let worker = Worker { in_flight: Some(poll), ..Worker::default() };
        let mut snapshot = Snapshot {
            runtime: "main".into(),
            incomplete: vec!["timers".into()],
            workers: vec![worker; workers as usize],
            ..Snapshot::default()
        };
        snapshot.global_queue.oldest_age_ns = Some(1);
        snapshot.driver.owner = Some(0);
        snapshot.config.io_backend = "epoll".into();
        let mut json = serde_json::to_value(&snapshot).unwrap();
        fill(&mut json, &mut 1_000);
        let mut snapshot: Snapshot = serde_json::from_value(json).unwrap();
        snapshot.parked_bitmap = vec![u64::MAX];
        snapshot.driver.owner = Some(0);
        // The numbers above are ns too: the runtime is older than nothing.
        snapshot.at_ns = snapshot.started_at_ns + 5_000_000_000;
        for (index, worker) in snapshot.workers.iter_mut().enumerate() {
            worker.index = index as u32;
            worker.poll_time = histogram.clone();
            worker.schedule_delay = histogram.clone();
        }
        snapshot
    }

    fn number(value: &Value) -> f64 {
        match value {
            Value::Count(count) => *count as f64,
            Value::Number(number) => *number,
            Value::Histogram(histogram) => histogram.count() as f64,
        }
    }

    #[test]
    fn names_are_valid_unique_and_say_kind_and_unit() {
        let mut seen = HashSet::new();
        for Metric { name, kind, unit, labels, .. } in METRICS {
            assert!(seen.insert(name), "{name} stands twice");
            assert!(name.starts_with("volt_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}: `_total` is for counters");
            let base = name.strip_suffix("_total").unwrap_or(name);
            assert_eq!(base.ends_with("_seconds"), *unit == "seconds", "{name}: unit {unit}");
            for suffix in ["_bucket", "_sum", "_count", "_ns", "_ms"] {
                assert!(!base.ends_with(suffix), "{name} ends in {suffix}");
            }
            assert_eq!(labels[0], "runtime", "{name}");
            assert!(labels.iter().all(|label| !["le", "task", "task_id"].contains(label)), "{name}");
        }
    }

    #[test]
    fn every_help_is_a_sentence() {
        for Metric { name, help, .. } in METRICS {
            assert!(help.ends_with('.') && !help.contains('\n') && !help.contains('|'), "{name}: {help}");
            assert!(help.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit()), "{name}: {help}");
        }
    }

    #[test]
    fn every_metric_gives_a_value_above_zero_for_a_filled_snapshot() {
        let snapshot = filled(2);
        for metric in METRICS {
            let samples = metric.samples(&snapshot);
            let named = samples.iter().any(|sample| number(&sample.value) > 0.0);
            assert!(named, "{} reads nothing: {samples:?}", metric.name);
            for sample in &samples {
                assert_eq!(sample.labels.len(), metric.labels.len(), "{}", metric.name);
                let is_histogram = matches!(sample.value, Value::Histogram(_));
                assert_eq!(is_histogram, metric.kind == Kind::Histogram, "{}", metric.name);
                let is_seconds_or_gauge = metric.unit == "seconds" || metric.kind == Kind::Gauge;
                assert!(!matches!(sample.value, Value::Number(_)) || is_seconds_or_gauge, "{}", metric.name);
            }
        }
    }

    #[test]
    fn no_two_metrics_read_the_same_field() {
        // Each number in a filled snapshot is another one, so equal values would be one field read twice.
        let snapshot = filled(1);
        let mut seen = std::collections::HashMap::new();
        for metric in METRICS.iter().filter(|metric| metric.kind == Kind::Counter) {
            for sample in metric.samples(&snapshot) {
                let key = format!("{:?}", sample.value);
                let label = format!("{}{:?}", metric.name, sample.labels);
                if let Some(other) = seen.insert(key, label.clone()) {
                    panic!("{label} reads what {other} reads");
                }
            }
        }
    }

    #[test]
    fn how_many_samples_there_are_depends_on_the_workers_only() {
        for metric in METRICS {
            let empty = Snapshot { workers: vec![Worker::default(); 3], ..Snapshot::default() };
            assert_eq!(metric.samples(&empty).len(), metric.samples(&filled(3)).len(), "{}", metric.name);
        }
    }

    #[test]
    fn the_bitmap_is_a_zero_or_one_for_each_worker() {
        let mut snapshot = filled(3);
        snapshot.parked_bitmap = vec![0b101];
        let samples = find("volt_worker_parked").unwrap().samples(&snapshot);
        let values: Vec<_> = samples.iter().map(|sample| (sample.labels[1].as_str(), number(&sample.value))).collect();
        assert_eq!(values, [("0", 1.0), ("1", 0.0), ("2", 1.0)]);
    }

    #[test]
    fn bucket_limits_are_exact_limits_of_the_histogram() {
        for limit in BUCKETS_NS {
            let mut histogram = Histogram::default();
            histogram.record(limit - 1);
            histogram.record(limit);
            assert_eq!(histogram.count_below(limit), 1, "{limit} ns");
        }
    }

    #[test]
    fn series_of_a_histogram_are_found_and_those_of_a_counter_are_not() {
        assert_eq!(find_series("volt_poll_duration_seconds_bucket").unwrap().name, "volt_poll_duration_seconds");
        assert!(find_series("volt_worker_polls_total").is_some());
        assert!(find_series("volt_worker_polls_total_count").is_none());
    }
}
