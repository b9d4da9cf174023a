//! Defines a metric, and how its samples are read from a snapshot.
//!
//! A row of the table contains a function that pushes samples into a `Reading` of one runtime, or
//! into a `ProgramReading` of one program. The methods of these two types cover the shapes that
//! metrics have: one value, one for each worker, one for each value of a label.

use volt_telemetry::finding::Severity;
use volt_telemetry::health::Health;
use volt_telemetry::histogram::Histogram;
use volt_telemetry::processes::States;
use volt_telemetry::routes::Route;
use volt_telemetry::snapshot::{Program, Snapshot, Worker};

use super::locations::{Location, Locations};
use crate::doctor::rule::{RULES, count_of};

/// How a metric's value changes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Only increases while its runtime lives; query its rate.
    Counter,
    /// A current value.
    Gauge,
    /// Counts by size, since the runtime started.
    Histogram,
}

impl Kind {
    /// Returns its name in Prometheus' text format.
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
    /// The kind of the number.
    pub kind: Kind,
    /// The unit: `seconds`, `tasks`, `polls`, ... or `1` for a ratio, a truth value or an info
    /// metric.
    pub unit: &'static str,
    /// One sentence for a reader who finds the name on a graph.
    pub help: &'static str,
    /// The labels of each sample, in this order.
    pub labels: &'static [&'static str],
    pub(super) read: Read,
}

/// The source of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) enum Read {
    /// Each runtime.
    Runtime(fn(&mut Reading<'_>)),
    /// Each known program, whether it responded or not.
    Program(fn(&mut ProgramReading<'_>)),
}

/// One value under a metric's name.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Values of [`Metric::labels`], in that order.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number, as in most counters.
    Count(u64),
    /// A number: gauges, and counters of seconds.
    Number(f64),
    /// A histogram in ns. It is exposed in seconds, with the limits of [`BUCKETS_NS`].
    Histogram(Histogram),
}

impl Metric {
    /// Reads this metric from `snapshot`.
    ///
    /// ```
    /// use volt_diagnosis::catalog;
    /// use volt_telemetry::Snapshot;
    ///
    /// let snapshot = Snapshot { runtime: "main".into(), ..Snapshot::default() };
    /// let alive = catalog::find("volt_tasks_alive").unwrap();
    /// assert_eq!(alive.samples(&snapshot)[0].labels, ["main"]);
    /// ```
    pub fn samples(&self, snapshot: &Snapshot) -> Vec<Sample> {
        let mut locations = Locations::default();
        locations.take(&snapshot.blame);
        self.samples_with(snapshot, &locations)
    }

    /// Like [`samples`](Self::samples), for a reader that has collected this runtime before.
    /// `locations` are the spawn locations that it has collected, including those of `snapshot`.
    pub fn samples_with(&self, snapshot: &Snapshot, locations: &Locations) -> Vec<Sample> {
        let mut reading = Reading { snapshot, locations, samples: Vec::new() };
        if let Read::Runtime(read) = self.read {
            read(&mut reading);
        }
        reading.samples
    }

    /// Returns the samples of a program, where `None` means that it did not respond. Returns no
    /// samples if the metric is about runtimes.
    ///
    /// ```
    /// use volt_diagnosis::catalog;
    /// use volt_telemetry::Program;
    ///
    /// let up = catalog::find("volt_program_up").unwrap();
    /// assert_eq!(up.samples_of_program(Some(&Program::default()))[0].value, catalog::Value::Count(1));
    /// assert_eq!(up.samples_of_program(None)[0].value, catalog::Value::Count(0));
    /// ```
    pub fn samples_of_program(&self, program: Option<&Program>) -> Vec<Sample> {
        let mut reading = ProgramReading { program, samples: Vec::new() };
        if let Read::Program(read) = self.read {
            read(&mut reading);
        }
        reading.samples
    }
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

/// Converts nanoseconds to seconds.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Collects the samples of one metric from one snapshot.
pub(super) struct Reading<'a> {
    pub(super) snapshot: &'a Snapshot,
    locations: &'a Locations,
    samples: Vec<Sample>,
}

/// Collects the samples of one metric from one program.
pub(super) struct ProgramReading<'a> {
    pub(super) program: Option<&'a Program>,
    samples: Vec<Sample>,
}

impl ProgramReading<'_> {
    pub(super) fn push(&mut self, labels: &[&str], value: impl Into<Value>) {
        self.samples.push(Sample { labels: labels.iter().map(|label| (*label).into()).collect(), value: value.into() });
    }

    /// Adds one sample for the observer, if the program reports it.
    pub(super) fn observer<V: Into<Value>>(&mut self, read: impl Fn(&Health) -> V) {
        if let Some(health) = self.program.and_then(|program| program.observer) {
            self.push(&[], read(&health));
        }
    }

    /// Adds one sample for each value of a label, if the program reports the observer.
    pub(super) fn observer_by<V: Into<Value>, const N: usize>(
        &mut self,
        read: impl Fn(&Health) -> [(&'static str, V); N],
    ) {
        for (of, value) in self.program.and_then(|program| program.observer).iter().flat_map(read) {
            self.push(&[of], value);
        }
    }
}

impl Reading<'_> {
    pub(super) fn push(&mut self, labels: &[&str], value: impl Into<Value>) {
        let all = std::iter::once(self.snapshot.runtime.as_str()).chain(labels.iter().copied());
        self.samples.push(Sample { labels: all.map(String::from).collect(), value: value.into() });
    }
}

impl<'a> Reading<'a> {
    /// Adds one sample for the runtime.
    pub(super) fn one<V: Into<Value>>(&mut self, read: impl Fn(&'a Snapshot) -> V) {
        self.push(&[], read(self.snapshot));
    }

    /// Adds one sample for the runtime, unless the snapshot lacks `field`, which it is read from.
    pub(super) fn one_of<V: Into<Value>>(&mut self, field: &str, read: impl Fn(&'a Snapshot) -> V) {
        if !self.snapshot.lacks(field) {
            self.one(read);
        }
    }

    /// Adds one sample for the runtime, if the value is known.
    pub(super) fn one_known<V: Into<Value>>(&mut self, read: impl Fn(&'a Snapshot) -> Option<V>) {
        if let Some(value) = read(self.snapshot) {
            self.push(&[], value);
        }
    }

    /// Adds one sample for each value of a label.
    pub(super) fn one_by<V: Into<Value>, const N: usize>(&mut self, read: impl Fn(&'a Snapshot) -> [(&'a str, V); N]) {
        for (of, value) in read(self.snapshot) {
            self.push(&[of], value);
        }
    }

    /// Adds one sample for each worker.
    pub(super) fn each<V: Into<Value>>(&mut self, read: impl Fn(&'a Worker) -> V) {
        for worker in &self.snapshot.workers {
            self.push(&[&worker.index.to_string()], read(worker));
        }
    }

    /// Adds one sample for each worker whose value is known.
    pub(super) fn each_known<V: Into<Value>>(&mut self, read: impl Fn(&'a Worker) -> Option<V>) {
        for worker in &self.snapshot.workers {
            if let Some(value) = read(worker) {
                self.push(&[&worker.index.to_string()], value);
            }
        }
    }

    /// Adds one sample for each spawn location with its own series, and one for all others.
    pub(super) fn each_location<V: Into<Value>>(&mut self, read: impl Fn(&Location) -> V) {
        for location in self.locations.shown() {
            self.push(&[&location.spawned_at], read(location));
        }
    }

    /// Adds one sample for each HTTP route.
    pub(super) fn each_route<V: Into<Value>>(&mut self, read: impl Fn(&'a Route) -> V) {
        for route in &self.snapshot.routes {
            self.push(&[&route.method, &route.path], read(route));
        }
    }

    /// Adds the histogram of each HTTP route, unless the snapshot lacks them.
    pub(super) fn each_route_duration(&mut self) {
        if !self.snapshot.lacks("routes.duration") {
            self.each_route(|route| route.duration.clone());
        }
    }

    /// Adds the ended requests of each HTTP route, by how they ended.
    pub(super) fn each_route_end(&mut self) {
        for route in &self.snapshot.routes {
            let ends = [("succeeded", route.succeeded), ("failed", route.failed), ("abandoned", route.abandoned)];
            for (reason, count) in ends {
                self.push(&[&route.method, &route.path, reason], count);
            }
        }
    }

    /// Adds two samples for each rule of the doctor.
    pub(super) fn each_rule(&mut self) {
        for entry in &RULES {
            for severity in [Severity::Warning, Severity::Critical] {
                let findings = self.snapshot.findings.as_deref().unwrap_or_default();
                let count = count_of(findings, entry.rule, severity);
                self.push(&[entry.name, severity.name()], count);
            }
        }
    }

    /// Adds the number of processes in each state, if it is known.
    pub(super) fn each_state(&mut self) {
        let states = self.snapshot.processes.as_ref().and_then(|all| all.states);
        for (state, count) in states.iter().flat_map(States::by_state) {
            self.push(&[state], count);
        }
    }

    /// Adds the number of exits by kind, if there is a process system.
    pub(super) fn each_end(&mut self) {
        if let Some(all) = &self.snapshot.processes {
            self.push(&["normal"], all.ended_normally);
            self.push(&["abnormal"], all.ended_abnormally);
        }
    }

    /// Adds one sample for each worker and value of a label, for workers that count it.
    pub(super) fn each_by_known<V: Into<Value>, const N: usize>(
        &mut self,
        read: impl Fn(&'a Worker) -> Option<[(&'a str, V); N]>,
    ) {
        for worker in &self.snapshot.workers {
            for (of, value) in read(worker).into_iter().flatten() {
                self.push(&[&worker.index.to_string(), of], value);
            }
        }
    }

    /// Adds one sample for each worker and value of a label.
    pub(super) fn each_by<V: Into<Value>, const N: usize>(&mut self, read: impl Fn(&'a Worker) -> [(&'a str, V); N]) {
        self.each_by_known(|worker| Some(read(worker)));
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
