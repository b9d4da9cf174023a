//! Tests of the rules for every row of the catalog.

use std::collections::HashSet;

use volt_telemetry::health::Health;
use volt_telemetry::histogram::Histogram;
use volt_telemetry::incident::{Blame, Cause, Incident};
use volt_telemetry::processes::{Mailbox, Processes, States};
use volt_telemetry::routes::{MAX_ROUTES, Route};
use volt_telemetry::snapshot::{Clock, Duty, GlobalChecks, Host, InFlight, Tokio};
use volt_telemetry::snapshot::{Program, Snapshot, Worker};

use super::metric::Read;
use super::*;
use crate::doctor::rule::examine;

/// A snapshot of `workers` workers in which every field that is read has a different value.
fn filled(workers: u32) -> Snapshot {
    // Through JSON: every number becomes the next one, so that fields added later are filled too.
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
    let poll = InFlight { task_id: 1, spawned_at: "main.rs:1:1".into(), for_ns: 1, ..InFlight::default() };
    let worker = Worker {
        in_flight: Some(poll),
        cpu_ns: Some(1),
        run_delay_ns: Some(1),
        global_checks: Some(GlobalChecks::default()),
        global_check_polls: Some(1),
        ..Worker::default()
    };
    let mut snapshot = Snapshot {
        runtime: "main".into(),
        incomplete: vec!["timers".into()],
        workers: vec![worker; workers as usize],
        ..Snapshot::default()
    };
    snapshot.global_queue.oldest_age_ns = Some(1);
    snapshot.tokio = Some(Tokio::default());
    let deepest = vec![Mailbox::default()];
    snapshot.processes = Some(Processes { deepest, states: Some(States::default()), ..Processes::default() });
    snapshot.host = Some(Host { throttles: Some(1), throttled_ns: Some(1), ..Host::default() });
    snapshot.clock = Some(Clock::default());
    snapshot.driver.owner = Some(0);
    snapshot.config.io_backend = "epoll".into();
    snapshot.incidents.by_cause = vec![0; Cause::ALL.len()];
    snapshot.blame = vec![Blame { spawned_at: "main.rs:1:1".into(), ..Blame::default() }];
    snapshot.routes = vec![Route { method: "GET".into(), path: "/".into(), ..Route::default() }];
    let mut json = serde_json::to_value(&snapshot).unwrap();
    fill(&mut json, &mut 1_000);
    let mut snapshot: Snapshot = serde_json::from_value(json).unwrap();
    snapshot.parked_bitmap = vec![u64::MAX];
    snapshot.driver.owner = Some(0);
    // For the doctor: an incident in progress.
    snapshot.incidents.latest.push(Incident { for_ns: 1_000_000_000, ..Incident::default() });
    // The numbers above are ns too: makes the runtime older than 0.
    snapshot.at_ns = snapshot.started_at_ns + 5_000_000_000;
    for (index, worker) in snapshot.workers.iter_mut().enumerate() {
        worker.index = index as u32;
        worker.is_spare = false;
        worker.poll_time = histogram.clone();
        worker.schedule_delay = histogram.clone();
    }
    snapshot.routes[0].duration = histogram;
    snapshot
}

/// Returns a metric's samples of the program and of its runtime.
fn samples(metric: &Metric, runtime: &Snapshot) -> Vec<Sample> {
    let mut health = serde_json::to_value(Health::default()).unwrap();
    health.as_object_mut().unwrap().values_mut().zip(1_u64..).for_each(|(field, n)| *field = n.into());
    let observer = serde_json::from_value(health).unwrap();
    let program = Program { observer: Some(observer), ..Program::default() };
    let mut samples = metric.samples_of_program(Some(&program));
    samples.extend(metric.samples(runtime));
    samples
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Count(count) => *count as f64,
        Value::Number(number) => *number,
        Value::Histogram(histogram) => histogram.count() as f64,
    }
}

#[test]
fn names_are_valid_and_unique_and_have_kind_and_unit() {
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
        let is_of_program =
            METRICS.iter().any(|metric| metric.name == *name && matches!(metric.read, Read::Program(_)));
        assert_eq!(labels.first() == Some(&"runtime"), !is_of_program, "{name}");
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
fn the_limit_of_routes_is_in_the_help_and_on_the_page() {
    let requests = METRICS.iter().find(|metric| metric.name == "volt_route_requests_total").unwrap();
    assert!(requests.help.contains(&format!("at most {MAX_ROUTES} routes per runtime")), "{}", requests.help);
    assert!(markdown_page().contains(&format!("* At most {MAX_ROUTES} HTTP routes")));
}

#[test]
fn counters_missing_in_an_older_program_are_not_zero() {
    let older = Snapshot { workers: vec![Worker::default()], ..Snapshot::default() };
    for name in ["volt_worker_global_checks_total", "volt_worker_global_check_polls_total"] {
        let metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
        assert_eq!(samples(metric, &older), []);
    }
}

#[test]
fn every_metric_gives_a_value_above_zero_for_a_filled_snapshot() {
    let mut snapshot = filled(2);
    snapshot.findings = Some(examine(&snapshot, &snapshot));
    for metric in METRICS {
        let samples = samples(metric, &snapshot);
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
fn no_two_counters_read_the_same_field() {
    // All numbers in a filled snapshot differ, so two equal values come from one field.
    let snapshot = filled(1);
    let mut seen = std::collections::HashMap::new();
    for metric in METRICS.iter().filter(|metric| metric.kind == Kind::Counter) {
        // The series of all other locations is 0 in several metrics.
        for sample in samples(metric, &snapshot).into_iter().filter(|sample| number(&sample.value) > 0.0) {
            let key = format!("{:?}", sample.value);
            let label = format!("{}{:?}", metric.name, sample.labels);
            if let Some(other) = seen.insert(key, label.clone()) {
                panic!("{label} reads what {other} reads");
            }
        }
    }
}

#[test]
fn the_sample_count_of_a_metric_depends_only_on_the_header() {
    let known = Worker {
        cpu_ns: Some(0),
        run_delay_ns: Some(0),
        global_checks: Some(GlobalChecks::default()),
        global_check_polls: Some(0),
        ..Worker::default()
    };
    let host = Host { throttles: Some(0), throttled_ns: Some(0), ..Host::default() };
    let stalled = Blame { spawned_at: "main.rs:1:1".into(), stalls: 1, ..Blame::default() };
    let empty = Snapshot {
        workers: vec![known; 3],
        blame: vec![stalled],
        host: Some(host),
        clock: Some(Clock::default()),
        tokio: Some(Tokio::default()),
        processes: Some(Processes { states: Some(States::default()), ..Processes::default() }),
        routes: vec![Route::default()],
        ..Snapshot::default()
    };
    for metric in METRICS {
        assert_eq!(metric.samples(&empty).len(), metric.samples(&filled(3)).len(), "{}", metric.name);
    }
}

#[test]
fn values_that_the_kernel_lacks_are_absent_and_not_zero() {
    let mut snapshot = filled(3);
    snapshot.workers[1].run_delay_ns = None;
    let samples = find("volt_worker_run_delay_seconds_total").unwrap().samples(&snapshot);
    let workers: Vec<_> = samples.iter().map(|sample| sample.labels[1].as_str()).collect();
    assert_eq!(workers, ["0", "2"]);
}

#[test]
fn a_program_that_is_silent_is_down_and_has_no_numbers() {
    for metric in METRICS.iter().filter(|metric| matches!(metric.read, Read::Program(_))) {
        let samples = metric.samples_of_program(None);
        let is_up = metric.name == "volt_program_up";
        assert_eq!(
            samples.iter().map(|sample| number(&sample.value)).collect::<Vec<_>>(),
            [0.0; 1][..usize::from(is_up)]
        );
    }
}

#[test]
fn unused_parts_of_a_program_have_no_series() {
    let host = Host { processors: 2, ..Host::default() };
    let snapshot = Snapshot { host: Some(host), ..Snapshot::default() };
    let count = |prefix: &str| {
        let its = METRICS.iter().filter(|metric| metric.name.starts_with(prefix));
        its.map(|metric| metric.samples(&snapshot).len()).sum::<usize>()
    };
    assert_eq!((count("volt_host_processors"), count("volt_host_thrott"), count("volt_tokio_")), (1, 0, 0));
    assert_eq!((count("volt_processes_"), count("volt_mailbox_")), (0, 0));
}

#[test]
fn every_cause_has_its_series_before_it_was_ever_seen() {
    let samples = find("volt_incidents_total").unwrap().samples(&Snapshot::default());
    let causes: Vec<_> = samples.iter().map(|sample| sample.labels[1].as_str()).collect();
    assert_eq!(causes, Cause::ALL.map(Cause::name));
    assert!(samples.iter().all(|sample| sample.value == Value::Count(0)));
}

#[test]
fn a_worker_has_one_duty_and_spares_are_not_among_the_workers() {
    let mut snapshot = filled(3);
    (snapshot.workers[1].duty, snapshot.workers[2].duty) = (Duty::Stuck, Duty::Off);
    snapshot.workers[2].is_spare = true;
    let samples = find("volt_worker_duty").unwrap().samples(&snapshot);
    let on = samples.iter().filter(|sample| number(&sample.value) > 0.0);
    let on: Vec<_> = on.map(|sample| (sample.labels[1].as_str(), sample.labels[2].as_str())).collect();
    assert_eq!(on, [("0", "present"), ("1", "stuck"), ("2", "off")]);
    let workers = find("volt_runtime_workers").unwrap().samples(&snapshot);
    assert_eq!(workers[0].value, Value::Count(2));
}

#[test]
fn the_number_of_location_series_is_bounded() {
    let blame = |n: u64| Blame { spawned_at: format!("main.rs:{n}:1"), stalls: n, ..Blame::default() };
    let snapshot = Snapshot { blame: (1..=30).map(blame).collect(), ..Snapshot::default() };
    let samples = find("volt_location_stalls_total").unwrap().samples(&snapshot);
    assert_eq!(samples.len(), LOCATIONS_MAX + 1);
    assert_eq!(samples.last().unwrap().labels[1], OTHER);
    let sum: f64 = samples.iter().map(|sample| number(&sample.value)).sum();
    assert_eq!(sum, f64::from((1..=30).sum::<u32>()));
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
fn find_series_matches_histogram_suffixes_only_for_histograms() {
    assert_eq!(find_series("volt_poll_duration_seconds_bucket").unwrap().name, "volt_poll_duration_seconds");
    assert!(find_series("volt_worker_polls_total").is_some());
    assert!(find_series("volt_worker_polls_total_count").is_none());
}

#[test]
fn values_missing_in_a_snapshot_are_absent_and_not_0() {
    let mut cut = filled(2);
    for (field, name) in [
        ("poll_time", "volt_poll_duration_seconds"),
        ("schedule_delay", "volt_schedule_delay_seconds"),
        ("workers", "volt_runtime_workers"),
    ] {
        assert_eq!(find(name).unwrap().samples(&cut).len(), 1, "{name}");
        cut.incomplete.push(field.into());
        assert_eq!(find(name).unwrap().samples(&cut).len(), 0, "{name}");
    }
}
