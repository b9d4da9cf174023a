//! The page: everything a process counts, as text for Prometheus.
//!
//! Shape: three parts, one after the other. Whole numbers of the catalog go through a recorder of this page's own and come out
//! of its `render_to_write`; so do, from theirs, the application's metrics; counters of seconds and histograms, which no
//! recorder takes ready-made, are written with the same crate's `formatting`.
//!
//! Who writes: [`Page::render`], under `&mut`. Handles into the recorder and label sets are made once and kept.
//!
//! Invariants. *No ghosts*: a recorder never forgets a series, so when runtimes come, go or are built anew under an old name,
//! the recorder and all handles are made afresh; a runtime that is gone leaves no last value behind that an alert would believe.
//! *One name, one runtime*: Prometheus takes no series twice; `volt` gives no two runtimes of a process the same name.
//! *One family, one place*: the application's recorder refuses the prefix `volt_` (see [`application`](crate::application)).
//!
//! Rejected: one recorder for Volt and the application (ghosts could not be dropped without dropping the application's counts);
//! histograms through `metrics::Histogram` (it takes single values; ours are counts already).

use std::io;

use metrics::{Counter, Gauge, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};
use metrics_exporter_prometheus::{LabelSet, PrometheusBuilder, PrometheusHandle};
use volt_telemetry::catalog::{self, BUCKETS_NS, Kind, METRICS, Metric, Sample, Value};
use volt_telemetry::snapshot::{Process, Snapshot};

/// What `/metrics` says it is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Renders processes as Prometheus text.
///
/// [`serve`](crate::serve) has one; this is for programs that have an HTTP server of their own and want one more route.
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
    series: Series,
}

impl Page {
    /// A page of Volt's metrics alone.
    pub fn new() -> Self {
        Self { application: None, series: Series::new(Shape::of(&[]), &[]) }
    }

    /// The same page with the metrics of `application`'s recorder on it.
    pub fn with_application(self, application: PrometheusHandle) -> Self {
        Self { application: Some(application), ..self }
    }

    /// The text for `process`, whose runtimes have names that differ, in the format of [`CONTENT_TYPE`].
    pub fn render(&mut self, process: &Process) -> String {
        let mut page = Vec::new();
        self.render_to_write(process, &mut page).expect("a Vec takes every write");
        String::from_utf8(page).expect("the format is UTF-8 throughout")
    }

    /// Writes the text for `process` to `output`, in the format of [`CONTENT_TYPE`].
    ///
    /// # Errors
    ///
    /// The first write that `output` refuses.
    pub fn render_to_write(&mut self, process: &Process, output: &mut impl io::Write) -> io::Result<()> {
        let runtimes = &process.runtimes;
        let shape = Shape::of(runtimes);
        if self.series.shape != shape {
            self.series = Series::new(shape, runtimes);
        }
        self.series.render_to_write(runtimes, output)?;
        match &self.application {
            Some(application) => application.render_to_write(output),
            None => Ok(()),
        }
    }
}

impl Default for Page {
    fn default() -> Self {
        Self::new()
    }
}

/// What the set of series depends on; see *no ghosts*.
#[derive(Debug, PartialEq)]
struct Shape(Vec<(String, u64, usize)>);

impl Shape {
    fn of(runtimes: &[Snapshot]) -> Self {
        let of = |runtime: &Snapshot| (runtime.runtime.clone(), runtime.started_at_ns, runtime.workers.len());
        Self(runtimes.iter().map(of).collect())
    }
}

/// Where the samples of one shape go.
#[derive(Debug)]
struct Series {
    shape: Shape,
    recorded: PrometheusHandle,
    /// For each metric of the catalog, for each of its samples.
    slots: Vec<Vec<Slot>>,
}

/// Where one sample goes.
enum Slot {
    Counter(Counter),
    Gauge(Gauge),
    Written(LabelSet),
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Slot::Counter(_) => "Counter",
            Slot::Gauge(_) => "Gauge",
            Slot::Written(_) => "Written",
        })
    }
}

impl Series {
    fn new(shape: Shape, runtimes: &[Snapshot]) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metadata = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));
        let slots = METRICS.iter().map(|metric| {
            let name = KeyName::from_const_str(metric.name);
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, metric.help.into()),
                _ => recorder.describe_gauge(name, None, metric.help.into()),
            }
            let slot = |sample: Sample| {
                let key = key(metric, &sample);
                match (metric.kind, sample.value) {
                    (Kind::Counter, Value::Count(_)) => Slot::Counter(recorder.register_counter(&key, &metadata)),
                    (Kind::Gauge, _) => Slot::Gauge(recorder.register_gauge(&key, &metadata)),
                    _ => Slot::Written(LabelSet::from_key_and_global(&key, &Default::default())),
                }
            };
            runtimes.iter().flat_map(|runtime| metric.samples(runtime)).map(slot).collect()
        });
        let slots = slots.collect();
        Self { shape, recorded: recorder.handle(), slots }
    }

    fn render_to_write(&self, runtimes: &[Snapshot], output: &mut impl io::Write) -> io::Result<()> {
        let mut written = String::new();
        for (metric, slots) in METRICS.iter().zip(&self.slots) {
            let mut has_head = false;
            let samples = runtimes.iter().flat_map(|runtime| metric.samples(runtime));
            for (slot, sample) in slots.iter().zip(samples) {
                match (slot, &sample.value) {
                    (Slot::Counter(counter), Value::Count(count)) => counter.absolute(*count),
                    (Slot::Gauge(gauge), value) => gauge.set(as_number(value)),
                    (Slot::Counter(_), _) => debug_assert!(false, "{} changed its type", metric.name),
                    (Slot::Written(labels), value) => {
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
    let labels = metric.labels.iter().zip(&sample.labels);
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
