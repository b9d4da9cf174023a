//! The Prometheus page: all metrics of one or several programs as text.
//!
//! # Shape
//!
//! The page has three parts, one after the other. Whole numbers of the catalog go through a
//! recorder that belongs to this page, and its `render_to_write` writes them. Counters of seconds
//! and histograms are written with the `formatting` functions of the same crate, because no
//! recorder accepts such values ready-made. The application's metrics come from the application's
//! recorder.
//!
//! Ownership: [`Page::render`] has `&mut` access. It creates handles into the recorder and label
//! sets once, and keeps them as long as the series stay the same. It also keeps what [`Samples`]
//! keeps between collections.
//!
//! # Invariants
//!
//! *No ghosts*: a recorder never removes a series. When a series comes or goes, or a runtime is
//! built anew under an old name, the page therefore creates a new recorder and new handles. A
//! runtime that no longer exists leaves no last value behind that could mislead an alert. *One
//! name, one runtime*: Prometheus rejects duplicate series. `volt` gives no two runtimes of a
//! program the same name, and on a page of several programs each series also has their labels
//! ([`ORIGIN_LABELS`]). *One family, one place*: no metric of the application has the prefix
//! `volt_` (see [`application`](crate::application)).
//!
//! Rejected: one recorder for Volt and the application (ghosts could not be removed without
//! removing the application's counts); histograms through `metrics::Histogram` (it accepts single
//! values; Volt's are counts already).

use std::io;

use metrics::{Counter, Gauge, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};
use metrics_exporter_prometheus::{LabelSet, PrometheusBuilder, PrometheusHandle};
use volt_diagnosis::catalog::{self, BUCKETS_NS, Kind, METRICS, Metric, Sample, Value};
use volt_telemetry::snapshot::Process;

use crate::application;
use crate::samples::{Life, ORIGIN_LABELS, Origin, Samples};

/// The content type of `/metrics`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders programs as Prometheus text.
///
/// [`serve`](crate::serve) uses one. Use it directly if the program already has an HTTP server and
/// needs one more route.
///
/// ```
/// use volt_telemetry::{Process, Snapshot};
///
/// let process = Process { runtimes: vec![Snapshot { runtime: "main".into(), ..Snapshot::default() }], ..Process::default() };
/// let text = volt_exporter::Page::new().render(&process);
/// assert!(text.contains(r#"volt_tasks_alive{runtime="main"} 0"#));
/// ```
#[derive(Debug)]
pub struct Page {
    application: Option<PrometheusHandle>,
    samples: Samples,
    series: Series,
}

impl Page {
    /// Creates a page with Volt's metrics only.
    pub fn new() -> Self {
        Self { application: None, samples: Samples::default(), series: Series::new(Vec::new(), &[]) }
    }

    /// Adds the metrics of `application`'s recorder to the page.
    pub fn with_application(self, application: PrometheusHandle) -> Self {
        Self { application: Some(application), ..self }
    }

    pub(crate) fn has_application(&self) -> bool {
        self.application.is_some()
    }

    /// Returns the text for `process` in the format of [`CONTENT_TYPE`]. The names of its runtimes
    /// must differ.
    pub fn render(&mut self, process: &Process) -> String {
        let mut page = Vec::new();
        self.render_to_write(process, &mut page).expect("a Vec takes every write");
        String::from_utf8(page).expect("the format is UTF-8 throughout")
    }

    /// Writes the text for `process` to `output`, in the format of [`CONTENT_TYPE`].
    ///
    /// # Errors
    ///
    /// Returns the error of the first write to `output` that fails.
    pub fn render_to_write(&mut self, process: &Process, output: &mut impl io::Write) -> io::Result<()> {
        self.render_all(&[(Origin::new(), Some(process))], output)
    }

    /// Renders several programs, whose origins must differ; `None` stands for one that did not
    /// reply.
    pub(crate) fn render_all(
        &mut self,
        processes: &[(Origin, Option<&Process>)],
        output: &mut impl io::Write,
    ) -> io::Result<()> {
        let samples = self.samples.read(processes);
        let answered = processes.iter().filter_map(|(origin, process)| Some((origin, (*process)?)));
        let lives = answered.flat_map(|(origin, process)| Life::all(origin, process)).collect::<Vec<_>>();
        if !self.series.fits(&lives, &samples) {
            self.series = Series::new(lives, &samples);
        }
        self.series.render_to_write(&samples, output)?;
        match &self.application {
            Some(application) => application::write(application, output),
            None => Ok(()),
        }
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

/// Maps each sample to its slot; see *no ghosts*.
#[derive(Debug)]
struct Series {
    lives: Vec<Life>,
    recorded: PrometheusHandle,
    /// One list for each metric of the catalog, with a slot for each of its samples.
    slots: Vec<Vec<Slot>>,
}

/// The destination of one sample.
#[derive(Debug)]
struct Slot {
    /// The values of its labels.
    labels: Vec<String>,
    sink: Sink,
}

enum Sink {
    Counter(Counter),
    Gauge(Gauge),
    Written(LabelSet),
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Sink::Counter(_) => "Counter",
            Sink::Gauge(_) => "Gauge",
            Sink::Written(_) => "Written",
        })
    }
}

impl Series {
    /// Creates the slots. `samples` has one list per metric of the catalog, in its order.
    fn new(lives: Vec<Life>, samples: &[Vec<Sample>]) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metadata = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
        let slots = METRICS.iter().zip(samples).map(|(metric, samples)| {
            let name = KeyName::from_const_str(metric.name);
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, metric.help.into()),
                _ => recorder.describe_gauge(name, None, metric.help.into()),
            }
            let slot = |sample: &Sample| {
                let key = key(metric, sample);
                let sink = match (metric.kind, &sample.value) {
                    (Kind::Counter, Value::Count(_)) => Sink::Counter(recorder.register_counter(&key, &metadata)),
                    (Kind::Gauge, _) => Sink::Gauge(recorder.register_gauge(&key, &metadata)),
                    _ => Sink::Written(LabelSet::from_key_and_global(&key, &Default::default())),
                };
                Slot { labels: sample.labels.clone(), sink }
            };
            samples.iter().map(slot).collect()
        });
        let slots = slots.collect();
        Self { lives, recorded: recorder.handle(), slots }
    }

    /// Returns whether there is a slot for each of `samples`, and no other slot.
    fn fits(&self, lives: &[Life], samples: &[Vec<Sample>]) -> bool {
        let is_same = |slots: &[Slot], samples: &[Sample]| {
            let labels = slots.iter().map(|slot| &slot.labels);
            labels.eq(samples.iter().map(|sample| &sample.labels))
        };
        self.lives == lives
            && self.slots.len() == samples.len()
            && self.slots.iter().zip(samples).all(|(slots, samples)| is_same(slots, samples))
    }

    fn render_to_write(&self, samples: &[Vec<Sample>], output: &mut impl io::Write) -> io::Result<()> {
        let mut written = String::new();
        for ((metric, slots), samples) in METRICS.iter().zip(&self.slots).zip(samples) {
            let mut has_head = false;
            for (slot, sample) in slots.iter().zip(samples) {
                match (&slot.sink, &sample.value) {
                    (Sink::Counter(counter), Value::Count(count)) => counter.absolute(*count),
                    (Sink::Gauge(gauge), value) => gauge.set(as_number(value)),
                    (Sink::Counter(_), _) => debug_assert!(false, "{} changed its type", metric.name),
                    (Sink::Written(labels), value) => {
                        if !std::mem::replace(&mut has_head, true) {
                            write_help_line(&mut written, metric.name, None, None, metric.help);
                            write_type_line(&mut written, metric.name, None, None, metric.kind.name());
                        }
                        write_value(&mut written, metric.name, labels, value);
                    }
                }
            }
            if has_head {
                written.push('\n');
            }
        }
        self.recorded.render_to_write(output)?;
        output.write_all(written.as_bytes())
    }
}

fn key(metric: &Metric, sample: &Sample) -> Key {
    let labels = metric.labels.iter().chain(&ORIGIN_LABELS).zip(&sample.labels);
    let labels: Vec<_> = labels.map(|(name, value)| Label::new(*name, value.clone())).collect();
    Key::from_parts(metric.name, labels)
}

fn as_number(value: &Value) -> f64 {
    match value {
        Value::Count(count) => *count as f64,
        Value::Number(number) => *number,
        Value::Histogram(histogram) => histogram.count() as f64,
    }
}

fn write_value(text: &mut String, name: &str, labels: &LabelSet, value: &Value) {
    let Value::Histogram(histogram) = value else {
        return write_metric_line::<&str, _>(text, name, None, labels, None, as_number(value), None);
    };
    for limit in BUCKETS_NS {
        let le = Some(("le", catalog::seconds(limit)));
        write_metric_line(text, name, Some("bucket"), labels, le, histogram.count_below(limit), None);
    }
    write_metric_line(text, name, Some("bucket"), labels, Some(("le", "+Inf")), histogram.count(), None);
    write_metric_line::<&str, _>(text, name, Some("sum"), labels, None, catalog::seconds(histogram.sum_ns()), None);
    write_metric_line::<&str, _>(text, name, Some("count"), labels, None, histogram.count(), None);
}

#[cfg(test)]
mod tests {
    use volt_telemetry::{Blame, Snapshot};

    use super::*;

    #[test]
    fn a_process_that_was_silent_for_a_page_counts_on_where_it_was() {
        let mut page = Page::new();
        let origin = vec!["shop".to_string(), "7".to_string()];
        let mut render = |blame: Option<Vec<Blame>>| {
            let runtimes = |blame| vec![Snapshot { runtime: "main".into(), blame, ..Snapshot::default() }];
            let process = blame.map(|blame| Process { runtimes: runtimes(blame), ..Process::default() });
            let mut text = Vec::new();
            page.render_all(&[(origin.clone(), process.as_ref())], &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let up = text.lines().find_map(|line| line.strip_prefix(r#"volt_program_up{program="shop",pid="7"} "#));
            let caused = r#"volt_location_delay_caused_seconds_total{runtime="main",location="a.rs:1:1",program="shop",pid="7"} "#;
            let caused = text.lines().find_map(|line| line.strip_prefix(caused));
            (up.map(String::from), caused.map(String::from))
        };
        let blame =
            |at: &str, ms: u64| Blame { spawned_at: at.into(), delay_caused_ns: ms * 1_000_000, ..Blame::default() };
        let is = |up: &str, caused: Option<&str>| (Some(up.to_string()), caused.map(String::from));
        assert_eq!(render(Some(vec![blame("b.rs:1:1", 1_000), blame("a.rs:1:1", 1)])), is("1", None));
        assert_eq!(render(Some(vec![blame("b.rs:1:1", 1_000), blame("a.rs:1:1", 501)])), is("1", Some("0.5")));
        assert_eq!(render(None), is("0", None));
        assert_eq!(render(Some(vec![blame("b.rs:1:1", 1_000), blame("a.rs:1:1", 601)])), is("1", Some("0.6")));
    }
}
