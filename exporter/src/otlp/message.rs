//! Encodes collected programs as one OTLP request.
//!
//! # Shape
//!
//! Each program becomes a resource, which has every metric of the catalog that has samples of that
//! program.
//!
//! Invariant *a start does not move*: the time since which a counter counts is computed once, for
//! each runtime and for each program, and then kept, also while the program does not reply. The
//! clocks that it is computed from drift apart, and the receiver would read a start that moves as a
//! restart.

use std::collections::HashMap;
use std::time::SystemTime;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Point;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use volt_diagnosis::catalog::{self, BUCKETS_NS, Kind, METRICS, Sample, Value};
use volt_diagnosis::exposition::{Life, Origin, Samples, origin_labels};
use volt_telemetry::snapshot::Program;

use crate::discovery::Seen;

/// The name of the instrumentation scope.
const SCOPE: &str = "volt";

/// Encodes the successive requests of one collector.
pub(super) struct Messages {
    service_name: Option<String>,
    host: Option<String>,
    samples: Samples,
    /// Of every program of the last request.
    starts: HashMap<Origin, Starts>,
}

/// The times since which the counters of one program count, in ns since 1970.
#[derive(Default)]
struct Starts {
    /// When the oldest of its first runtimes was built, or the time of the first request if it had
    /// none. Its own counters continue when that runtime is shut down. `None` until it has replied.
    /// A program that takes the name and the pid of another one between two requests keeps it.
    program: Option<u64>,
    /// When each runtime was built, by its label: on the clock of the program, which identifies it,
    /// and in ns since 1970.
    runtimes: HashMap<String, (u64, u64)>,
}

impl Starts {
    /// Adds what is new in `program`, and removes its runtimes that were shut down.
    fn update(&mut self, origin: &Origin, program: &Program, now: u64) {
        // A program that could not send a snapshot has no runtimes. It may reply the next time.
        if !program.runtimes.is_empty() {
            let former = std::mem::take(&mut self.runtimes);
            self.runtimes.extend(Life::all(origin, program).zip(&program.runtimes).map(|(life, runtime)| {
                let (label, built_at) = (life.label(), runtime.started_at_ns);
                let kept = former.get(&label).filter(|(former, _)| *former == built_at).map(|(_, start)| *start);
                let age = runtime.at_ns.saturating_sub(built_at);
                (label, (built_at, kept.unwrap_or(now.saturating_sub(age))))
            }));
        }
        let oldest = self.runtimes.values().map(|(_, start)| *start).min();
        self.program.get_or_insert(oldest.unwrap_or(now));
    }

    /// Returns the start of the runtime whose series `sample` belongs to, or of the program.
    fn of(&self, metric: &catalog::Metric, sample: &Sample) -> Option<u64> {
        match metric.labels.iter().position(|label| *label == "runtime") {
            Some(at) => self.runtimes.get(&sample.labels[at]).map(|(_, start)| *start),
            None => self.program,
        }
    }
}

impl Messages {
    /// Creates an encoder. The service name is that of the program unless one is given.
    pub(super) fn new(service_name: Option<String>) -> Self {
        // Without /proc, the collector adds the host name.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_string());
        Self { service_name, host, samples: Samples::default(), starts: HashMap::new() }
    }

    /// Encodes a request for what was just collected.
    pub(super) fn encode(&mut self, seen: &[Seen]) -> Vec<u8> {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.encode_at(seen, u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX))
    }

    fn encode_at(&mut self, seen: &[Seen], now: u64) -> Vec<u8> {
        let programs: Vec<_> = seen.iter().map(|seen| (seen.origin.clone(), seen.program.as_ref())).collect();
        let samples = self.samples.read(&programs);
        self.update_starts(&programs, now);
        let resource_metrics = programs.iter().map(|(origin, program)| {
            let (labels, starts) = (origin_labels(origin), &self.starts[origin]);
            let metrics = METRICS.iter().zip(&samples).filter_map(|(metric, samples)| {
                let its: Vec<_> = samples.iter().filter(|sample| sample.labels.ends_with(&labels)).collect();
                let start = |sample: &Sample| starts.of(metric, sample).unwrap_or(now);
                (!its.is_empty()).then(|| of_metric(metric, &its, start, now))
            });
            let scope = InstrumentationScope {
                name: SCOPE.into(),
                version: env!("CARGO_PKG_VERSION").into(),
                ..Default::default()
            };
            let scope_metrics = ScopeMetrics { scope: Some(scope), metrics: metrics.collect(), ..Default::default() };
            let resource = Some(self.resource(origin, *program));
            ResourceMetrics { resource, scope_metrics: vec![scope_metrics], ..Default::default() }
        });
        ExportMetricsServiceRequest { resource_metrics: resource_metrics.collect() }.encode_to_vec()
    }

    /// Updates the starts, and drops those of programs that no longer exist.
    fn update_starts(&mut self, programs: &[(Origin, Option<&Program>)], now: u64) {
        let mut former = std::mem::take(&mut self.starts);
        for (origin, program) in programs {
            let mut starts = former.remove(origin).unwrap_or_default();
            if let Some(program) = program {
                starts.update(origin, program, now);
            }
            self.starts.insert(origin.clone(), starts);
        }
    }

    fn resource(&self, origin: &Origin, program: Option<&Program>) -> Resource {
        let name = program.map(|program| &program.name).or(origin.first()).map_or("", String::as_str);
        let pid = program.map(|program| i64::from(program.pid)).or(origin.get(1).and_then(|pid| pid.parse().ok()));
        let service = self.service_name.as_deref().unwrap_or(name);
        let mut attributes = vec![attribute("service.name", Any::StringValue(service.into()))];
        if let Some(host) = &self.host {
            attributes.push(attribute("host.name", Any::StringValue(host.clone())));
        }
        if let Some(pid) = pid {
            let instance = self.host.iter().cloned().chain([pid.to_string()]).collect::<Vec<_>>().join(":");
            attributes.push(attribute("process.pid", Any::IntValue(pid)));
            attributes.push(attribute("service.instance.id", Any::StringValue(instance)));
        }
        Resource { attributes, ..Default::default() }
    }
}

fn of_metric(metric: &catalog::Metric, samples: &[&Sample], start: impl Fn(&Sample) -> u64, now: u64) -> Metric {
    let cumulative = AggregationTemporality::Cumulative.into();
    let attributes = |sample: &Sample| -> Vec<KeyValue> {
        let labels = metric.labels.iter().zip(&sample.labels);
        labels.map(|(name, value)| attribute(name, Any::StringValue(value.clone()))).collect()
    };
    let numbers = |is_counted: bool| -> Vec<NumberDataPoint> {
        let number = |sample: &&Sample| NumberDataPoint {
            attributes: attributes(sample),
            start_time_unix_nano: if is_counted { start(sample) } else { 0 },
            time_unix_nano: now,
            value: Some(point(&sample.value)),
            ..Default::default()
        };
        samples.iter().map(number).collect()
    };
    let data = match metric.kind {
        Kind::Counter => {
            Data::Sum(Sum { data_points: numbers(true), aggregation_temporality: cumulative, is_monotonic: true })
        }
        Kind::Histogram => {
            let points = samples.iter().filter_map(|sample| {
                let Value::Histogram(histogram) = &sample.value else { return None };
                Some(HistogramDataPoint {
                    attributes: attributes(sample),
                    start_time_unix_nano: start(sample),
                    time_unix_nano: now,
                    count: histogram.count(),
                    sum: Some(catalog::seconds(histogram.sum_ns())),
                    bucket_counts: buckets(histogram),
                    explicit_bounds: BUCKETS_NS.map(catalog::seconds).to_vec(),
                    ..Default::default()
                })
            });
            Data::Histogram(Histogram { data_points: points.collect(), aggregation_temporality: cumulative })
        }
        _ => Data::Gauge(Gauge { data_points: numbers(false) }),
    };
    Metric {
        name: metric.opentelemetry_name(),
        description: metric.help.into(),
        unit: metric.opentelemetry_unit(),
        data: Some(data),
        ..Default::default()
    }
}

/// Returns the count of each bucket: between the previous limit and each of [`BUCKETS_NS`], and
/// above the last.
fn buckets(histogram: &volt_telemetry::Histogram) -> Vec<u64> {
    let mut below = 0;
    let limits = BUCKETS_NS.iter().map(|limit| histogram.count_below(*limit)).chain([histogram.count()]);
    limits.map(|all| all - std::mem::replace(&mut below, all)).collect()
}

fn point(value: &Value) -> Point {
    match value {
        Value::Count(count) => Point::AsInt(i64::try_from(*count).unwrap_or(i64::MAX)),
        Value::Number(number) => Point::AsDouble(*number),
        Value::Histogram(histogram) => Point::AsInt(i64::try_from(histogram.count()).unwrap_or(i64::MAX)),
    }
}

fn attribute(key: &str, value: Any) -> KeyValue {
    KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::{Health, Snapshot};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns a program with runtimes that were built at these seconds. It is second 1,000.
    fn seen(name: &str, runtimes: &[(&str, u64)]) -> Seen {
        let runtime = |(name, second): &(&str, u64)| Snapshot {
            runtime: (*name).into(),
            at_ns: 1_000 * SECOND,
            started_at_ns: second * SECOND,
            ..Snapshot::default()
        };
        let runtimes = runtimes.iter().map(runtime).collect();
        let program = Program { runtimes, observer: Some(Health::default()), ..Program::default() };
        Seen { origin: vec![name.into(), "7".into()], program: Some(program) }
    }

    /// Pushes at this second since 1970. Returns the seconds at which the sums of this name start.
    fn starts(messages: &mut Messages, second: u64, seen: Seen, name: &str) -> Vec<u64> {
        let request = messages.encode_at(&[seen], second * SECOND);
        let request = ExportMetricsServiceRequest::decode(&*request).unwrap();
        let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
        let sums = metrics.iter().filter(|metric| metric.name == name).filter_map(|metric| match &metric.data {
            Some(Data::Sum(sum)) => Some(sum),
            _ => None,
        });
        sums.flat_map(|sum| &sum.data_points).map(|point| point.start_time_unix_nano / SECOND).collect()
    }

    #[test]
    fn the_start_of_a_program_stays_when_its_oldest_runtime_ends() {
        let mut messages = Messages::new(None);
        let mut program = |second, runtimes: &[(&str, u64)]| {
            starts(&mut messages, second, seen("shop", runtimes), "volt.observer.throttles")
        };
        assert_eq!(program(2_000, &[("old", 100), ("new", 900)]), [1_100]);
        assert_eq!(program(2_001, &[("new", 900)]), [1_100]);
        assert_eq!(program(2_002, &[]), [1_100]);
    }

    #[test]
    fn a_program_without_selected_runtimes_has_one_start() {
        let mut messages = Messages::new(None);
        let mut program = |second| starts(&mut messages, second, seen("shop", &[]), "volt.observer.throttles");
        assert_eq!([program(2_000), program(2_001)], [[2_000], [2_000]]);
    }

    #[test]
    fn a_missing_snapshot_does_not_move_a_start() {
        let mut messages = Messages::new(None);
        let mut runtime = |second, seen| starts(&mut messages, second, seen, "volt.tasks.spawned");
        assert_eq!(runtime(2_000, seen("shop", &[("main", 100)])), [1_100]);
        assert!(runtime(2_001, seen("shop", &[])).is_empty(), "it replied with an error");
        assert!(runtime(2_002, Seen { program: None, ..seen("shop", &[]) }).is_empty(), "it did not reply");
        assert_eq!(runtime(2_003, seen("shop", &[("main", 100)])), [1_100]);
        assert_eq!(runtime(2_004, seen("shop", &[("main", 900)])), [1_904], "another runtime of the name");
    }

    #[test]
    fn escaped_names_keep_their_metrics_and_starts() {
        let mut messages = Messages::new(None);
        let mut runtime =
            |second| starts(&mut messages, second, seen("a\u{1b}b", &[("c\nd", 100)]), "volt.tasks.spawned");
        assert_eq!([runtime(2_000), runtime(2_001)], [[1_100], [1_100]]);
    }
}
