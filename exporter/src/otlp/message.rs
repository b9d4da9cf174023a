//! Encodes collected programs as one OTLP request.
//!
//! # Shape
//!
//! Each program becomes a resource, which has every metric of the catalog that has samples of that
//! program.
//!
//! Invariant *a start does not move*: the time since which a counter counts is computed once for
//! each runtime and then kept. The clocks that it is computed from drift apart, and the receiver
//! would read a start that moves as a restart.

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
use volt_diagnosis::exposition::{Life, Origin, Samples};
use volt_telemetry::snapshot::Program;

use crate::discovery::Seen;

/// The name of the instrumentation scope.
const SCOPE: &str = "volt";

/// Encodes the successive requests of one collector.
pub(super) struct Messages {
    service_name: Option<String>,
    host: Option<String>,
    samples: Samples,
    /// When each current runtime was built, in ns since 1970.
    starts: HashMap<Life, u64>,
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
        let now = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let programs: Vec<_> = seen.iter().map(|seen| (seen.origin.clone(), seen.program.as_ref())).collect();
        let samples = self.samples.read(&programs);
        self.remember_starts(&programs, now);
        let resource_metrics = programs.iter().map(|(origin, program)| {
            let metrics = METRICS.iter().zip(&samples).filter_map(|(metric, samples)| {
                let its: Vec<_> = samples.iter().filter(|sample| sample.labels.ends_with(origin)).collect();
                let start = |sample: &Sample| self.start(metric, sample, origin, now);
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

    /// Stores the starts of new runtimes, and drops those of runtimes that no longer exist.
    fn remember_starts(&mut self, programs: &[(Origin, Option<&Program>)], now: u64) {
        let former = std::mem::take(&mut self.starts);
        for (origin, program) in programs {
            let Some(program) = program else {
                self.starts.extend(
                    former.iter().filter(|(life, _)| life.origin == *origin).map(|(life, at)| (life.clone(), *at)),
                );
                continue;
            };
            for (life, runtime) in Life::all(origin, program).zip(&program.runtimes) {
                let age = runtime.at_ns.saturating_sub(runtime.started_at_ns);
                let at = former.get(&life).copied().unwrap_or(now.saturating_sub(age));
                self.starts.insert(life, at);
            }
        }
    }

    /// Returns the time since which `sample` counts: the start of its runtime, or of the oldest
    /// runtime of its program.
    fn start(&self, metric: &catalog::Metric, sample: &Sample, origin: &Origin, now: u64) -> u64 {
        let name = metric.labels.iter().position(|label| *label == "runtime").map(|at| &sample.labels[at]);
        let its =
            self.starts.iter().filter(|(life, _)| life.origin == *origin && name.is_none_or(|name| life.name == *name));
        its.map(|(_, at)| *at).min().unwrap_or(now)
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
