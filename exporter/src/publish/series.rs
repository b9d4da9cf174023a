//! Which handles of the crate `metrics` a metric of the catalog has, and how they are updated.
//!
//! A *series* is one sample of the catalog. It has one key for each of its handles: one for a
//! counter or a gauge, and several for a histogram. A *total* is a gauge of which only the growth
//! is of interest: a counter of seconds, or a part of a histogram. Invariant *one update*:
//! publishing a series updates each of its handles once.

use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit};
use volt_diagnosis::catalog::{BUCKETS_NS, Kind, METRICS, Metric, Value, seconds};
use volt_telemetry::Histogram;

/// The quantiles of [`Histograms::Quantiles`], as they are in the label.
const QUANTILES: [(f64, &str); 4] = [(0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (1.0, "1")];

/// The number of updates between two pauses: less than half of the smallest queue of a known
/// recorder, that of metrics-exporter-statsd with 256 places.
const BATCH: usize = 100;

/// The metadata of every series. No known recorder uses it.
const METADATA: Metadata<'static> = Metadata::new("volt", Level::INFO, Some(module_path!()));

/// The parts of a histogram that a [`Publisher`](crate::Publisher) publishes.
///
/// A recorder of `metrics` accepts single values only, and Volt has counts of millions of values.
/// Therefore the parts are gauges, with the names that they have in Prometheus. Their number
/// depends neither on the interval nor on the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Histograms {
    /// The buckets since the runtime started, with the label `le`, as on the page of
    /// [`serve`](crate::serve): exact, and 30 series for each histogram. For Prometheus, where
    /// `histogram_quantile` and the dashboards work unchanged.
    #[default]
    Buckets,
    /// The quantiles 0.5, 0.9, 0.99 and 1 (the maximum) of the last interval, in seconds, with the
    /// label `quantile`. The error is at most 3 %, and each histogram has 6 series. The value is 0
    /// if nothing was recorded in the interval. For statsd and other systems that do not compute
    /// quantiles from buckets.
    ///
    /// The quantiles of several programs cannot be combined into quantiles of all of them.
    Quantiles,
}

/// Describes every metric of the catalog to `recorder`.
pub(super) fn describe(recorder: &dyn Recorder, histograms: Histograms) {
    for metric in METRICS {
        let (name, help) = (KeyName::from_const_str(metric.name), SharedString::const_str(metric.help));
        let unit = unit(metric);
        let part = |suffix: &str, unit| recorder.describe_gauge(part_name(metric, suffix).into(), unit, help.clone());
        match (Form::of(metric), histograms) {
            (Form::Counter, _) => recorder.describe_counter(name, unit, help),
            (Form::Total | Form::Gauge, _) => recorder.describe_gauge(name, unit, help),
            (Form::Histogram, histograms) => {
                match histograms {
                    Histograms::Buckets => part("bucket", Some(Unit::Count)),
                    Histograms::Quantiles => recorder.describe_gauge(name, unit, help.clone()),
                }
                part("sum", unit);
                part("count", Some(Unit::Count));
            }
        }
    }
}

fn unit(metric: &Metric) -> Option<Unit> {
    match metric.unit {
        "1" => None,
        "seconds" => Some(Unit::Seconds),
        _ => Some(Unit::Count),
    }
}

fn part_name(metric: &Metric, suffix: &str) -> String {
    format!("{}_{suffix}", metric.name)
}

/// How a metric of the catalog is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Counter,
    Total,
    Gauge,
    Histogram,
}

impl Form {
    fn of(metric: &Metric) -> Self {
        match metric.kind {
            Kind::Counter if metric.unit == "seconds" => Self::Total,
            Kind::Counter => Self::Counter,
            Kind::Histogram => Self::Histogram,
            _ => Self::Gauge,
        }
    }
}

/// The keys of one series.
#[derive(Debug)]
pub(super) enum Keys {
    Counter(Key),
    Total(Key),
    Gauge(Key),
    /// The keys of the buckets, in the order of their limits and the last one without, then those
    /// of sum and count.
    Buckets(Vec<Key>, [Key; 2]),
    /// The keys of [`QUANTILES`], then those of sum and count.
    Quantiles(Vec<Key>, [Key; 2]),
}

impl Keys {
    /// Returns the keys of the series of `metric` with these values of its labels.
    pub(super) fn new(metric: &Metric, values: &[String], histograms: Histograms) -> Self {
        let labels: Vec<_> =
            metric.labels.iter().zip(values).map(|(name, value)| Label::new(*name, value.clone())).collect();
        let key = || Key::from_parts(metric.name, labels.clone());
        let part = |suffix: &str| Key::from_parts(part_name(metric, suffix), labels.clone());
        match (Form::of(metric), histograms) {
            (Form::Counter, _) => Self::Counter(key()),
            (Form::Total, _) => Self::Total(key()),
            (Form::Gauge, _) => Self::Gauge(key()),
            (Form::Histogram, Histograms::Buckets) => {
                let limits = BUCKETS_NS.iter().map(|limit| seconds(*limit).to_string()).chain(["+Inf".to_string()]);
                let bucket = |limit| part("bucket").with_extra_labels(vec![Label::new("le", limit)]);
                Self::Buckets(limits.map(bucket).collect(), [part("sum"), part("count")])
            }
            (Form::Histogram, Histograms::Quantiles) => {
                let quantile = |(_, label)| key().with_extra_labels(vec![Label::new("quantile", label)]);
                Self::Quantiles(QUANTILES.map(quantile).into(), [part("sum"), part("count")])
            }
        }
    }

    /// Publishes `value`. `last` is the value that was published before, of which the new one is a
    /// continuation.
    pub(super) fn publish(&self, value: &Value, last: Option<&Value>, to: &mut Output<'_>) {
        match (self, value) {
            (Self::Counter(key), Value::Count(now)) => {
                let Some(Value::Count(last)) = last else { return to.add(key, *now) };
                // A counter that fell has restarted. Prometheus reads it in the same way.
                to.add(key, now.checked_sub(*last).unwrap_or(*now));
            }
            (Self::Total(key) | Self::Gauge(key), Value::Count(count)) => to.set(key, *count as f64),
            (Self::Total(key) | Self::Gauge(key), Value::Number(number)) => to.set(key, *number),
            (Self::Buckets(buckets, parts), Value::Histogram(now)) => {
                let counts = BUCKETS_NS.iter().map(|limit| now.count_below(*limit)).chain([now.count()]);
                buckets.iter().zip(counts).for_each(|(key, count)| to.set(key, count as f64));
                publish_parts(parts, now, to);
            }
            (Self::Quantiles(quantiles, parts), Value::Histogram(now)) => {
                let grown = match last {
                    Some(Value::Histogram(last)) if last.count() <= now.count() => &now.since(last),
                    _ => now,
                };
                for (key, (quantile, _)) in quantiles.iter().zip(QUANTILES) {
                    to.set(key, grown.quantile_ns(quantile).map_or(0.0, seconds));
                }
                publish_parts(parts, now, to);
            }
            // The kinds of values are those of the metric: a test reads the whole catalog.
            _ => {}
        }
    }

    /// Returns whether the series is a histogram.
    pub(super) fn is_histogram(&self) -> bool {
        matches!(self, Self::Buckets(..) | Self::Quantiles(..))
    }

    /// Returns whether the next publication needs the value of this one.
    pub(super) fn needs_last(&self) -> bool {
        matches!(self, Self::Counter(_) | Self::Quantiles(..))
    }

    /// Sets the gauges to 0, except totals.
    pub(super) fn clear(&self, to: &mut Output<'_>) {
        match self {
            Self::Gauge(key) => to.set(key, 0.0),
            Self::Quantiles(quantiles, _) => quantiles.iter().for_each(|key| to.set(key, 0.0)),
            Self::Counter(_) | Self::Total(_) | Self::Buckets(..) => {}
        }
    }
}

fn publish_parts([sum, count]: &[Key; 2], now: &Histogram, to: &mut Output<'_>) {
    to.set(sum, seconds(now.sum_ns()));
    to.set(count, now.count() as f64);
}

/// Writes to a recorder, and pauses after every [`BATCH`] updates.
pub(super) struct Output<'a> {
    recorder: &'a dyn Recorder,
    pause: &'a mut dyn FnMut(),
    updates: usize,
}

impl<'a> Output<'a> {
    pub(super) fn new(recorder: &'a dyn Recorder, pause: &'a mut dyn FnMut()) -> Self {
        Self { recorder, pause, updates: 0 }
    }

    fn add(&mut self, counter: &Key, count: u64) {
        self.recorder.register_counter(counter, &METADATA).increment(count);
        self.count();
    }

    fn set(&mut self, gauge: &Key, value: f64) {
        self.recorder.register_gauge(gauge, &METADATA).set(value);
        self.count();
    }

    fn count(&mut self) {
        self.updates += 1;
        if self.updates.is_multiple_of(BATCH) {
            (self.pause)();
        }
    }
}
