//! Tests of publications of hand-made snapshots into the recorder of metrics-exporter-prometheus,
//! whose page is compared with Volt's own.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use metrics_util::MetricKindMask;
use volt_diagnosis::catalog::Kind;
use volt_telemetry::processes::{Processes, States};
use volt_telemetry::routes::Route;
use volt_telemetry::snapshot::{GlobalChecks, Tokio};
use volt_telemetry::{Blame, Clock, Health, Histogram, Host, InFlight, Program, Snapshot, Worker};

use super::*;
use crate::page::Page;

const MS: u64 = 1_000_000;

/// A recorder and what it has received.
struct Target {
    /// Stays at its address, as the recorder of a program does.
    recorder: Box<PrometheusRecorder>,
    handle: PrometheusHandle,
    published: Published,
    settings: Settings,
    pauses: usize,
}

impl Target {
    fn new() -> Self {
        Self::with(PrometheusBuilder::new())
    }

    fn with(builder: PrometheusBuilder) -> Self {
        let recorder = Box::new(builder.build_recorder());
        let handle = recorder.handle();
        Self { recorder, handle, published: Published::default(), settings: Settings::default(), pauses: 0 }
    }

    fn publish(&mut self, runtimes: &[Snapshot]) {
        let program = Program { runtimes: runtimes.to_vec(), observer: Some(Health::default()), ..Program::default() };
        self.published.publish(&program, &self.settings, &*self.recorder, &mut || self.pauses += 1);
    }

    fn value(&self, series: &str) -> Option<f64> {
        values(&self.handle.render()).remove(series)
    }
}

/// Returns the value of each series of a page, with its labels in alphabetical order.
fn values(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let all = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let mut labels: Vec<_> = labels.strip_suffix('}').unwrap().split(',').collect();
        labels.sort_unstable();
        (format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap())
    });
    all.collect()
}

/// Returns a runtime that has every metric of the catalog.
fn runtime(name: &str) -> Snapshot {
    let mut histogram = Histogram::default();
    [300, 2 * MS, 60_000 * MS].into_iter().for_each(|ns| histogram.record(ns));
    let worker = Worker {
        polls: 7,
        busy_ns: 1_500 * MS,
        cpu_ns: Some(MS),
        run_delay_ns: Some(MS),
        global_checks: Some(GlobalChecks::default()),
        global_check_polls: Some(3),
        poll_time: histogram.clone(),
        ..Worker::default()
    };
    Snapshot {
        runtime: name.into(),
        workers: vec![worker.clone(), Worker { index: 1, ..worker }],
        host: Some(Host { processors: 2, throttles: Some(4), throttled_ns: Some(5 * MS) }),
        processes: Some(Processes { states: Some(States::default()), ..Processes::default() }),
        tokio: Some(Tokio::default()),
        clock: Some(Clock::default()),
        routes: vec![Route { duration: histogram, ..Route::default() }],
        blame: vec![Blame { spawned_at: "main.rs:1:1".into(), stalls: 1, ..Blame::default() }],
        ..Snapshot::default()
    }
}

fn spawned(name: &str, started_at_ns: u64, spawned: u64) -> Snapshot {
    let mut runtime = Snapshot { runtime: name.into(), started_at_ns, ..Snapshot::default() };
    runtime.tasks.spawned = spawned;
    runtime
}

const SPAWNED: &str = r#"volt_tasks_spawned_total{runtime="main"}"#;

#[test]
fn the_recorder_has_the_same_series_as_the_page() {
    let runtimes = [runtime("main"), runtime("a\"b\n")];
    let mut own = Target::new();
    own.publish(&runtimes);
    let program = Program { runtimes: runtimes.to_vec(), observer: Some(Health::default()), ..Program::default() };
    let page = Page::new().render(&program);
    assert_eq!(values(&own.handle.render()), values(&page));
    for metric in METRICS {
        assert!(page.contains(&format!("# TYPE {} ", metric.name)), "the snapshots have no {}", metric.name);
    }
    // Every update is one of these series, so that a publication is bounded as the page is.
    assert_eq!(own.pauses, values(&page).len() / 100);
}

#[test]
fn the_recorder_has_the_descriptions_of_the_catalog() {
    let mut own = Target::new();
    own.publish(&[runtime("main")]);
    let page = own.handle.render();
    for metric in METRICS {
        let bucket = format!("{}_bucket", metric.name);
        let name = if metric.kind == Kind::Histogram { &bucket } else { metric.name };
        assert!(page.contains(&format!("# HELP {name} {}\n", metric.help)), "{name}: {page}");
    }
    assert!(page.contains("# TYPE volt_tasks_spawned_total counter\n"), "{page}");
    assert!(page.contains("# TYPE volt_worker_time_seconds_total gauge\n"), "{page}");
}

#[test]
fn recommended_naming_leaves_the_names_unchanged() {
    let (mut plain, mut named) = (Target::new(), Target::with(PrometheusBuilder::new().with_recommended_naming(true)));
    plain.publish(&[runtime("main")]);
    named.publish(&[runtime("main")]);
    assert_eq!(values(&named.handle.render()), values(&plain.handle.render()));
}

#[test]
fn counters_add_up_over_runtimes_of_one_name() {
    let mut own = Target::new();
    let mut after = |runtime: Snapshot| {
        own.publish(&[runtime]);
        own.value(SPAWNED).unwrap()
    };
    assert_eq!(after(spawned("main", 1, 100)), 100.0);
    assert_eq!(after(spawned("main", 1, 130)), 130.0);
    assert_eq!(after(spawned("main", 2, 200)), 330.0, "built anew, and has already spawned more than the first one");
    assert_eq!(after(spawned("main", 2, 3)), 333.0, "a counter that falls has restarted");
}

#[test]
fn a_recorder_that_is_installed_later_receives_all_counts() {
    let mut own = Target::new();
    own.publish(&[spawned("main", 1, 100)]);
    let later = Target::new();
    (own.recorder, own.handle) = (later.recorder, later.handle);
    own.publish(&[spawned("main", 1, 130)]);
    assert_eq!(own.value(SPAWNED), Some(130.0));
    assert!(own.handle.render().contains("# HELP volt_tasks_spawned_total "));
}

#[test]
fn gauges_of_an_ended_runtime_are_0_and_its_counters_stay() {
    let mut own = Target::new();
    let mut main = runtime("main");
    main.workers[0].in_flight = Some(InFlight { for_ns: 9_000 * MS, ..InFlight::default() });
    main.tasks.spawned = 5;
    own.publish(&[main, runtime("other")]);
    let (in_flight, workers) =
        (r#"volt_worker_in_flight_poll_seconds{runtime="main",worker="0"}"#, r#"volt_runtime_workers{runtime="main"}"#);
    assert_eq!((own.value(in_flight), own.value(workers)), (Some(9.0), Some(2.0)));
    own.publish(&[runtime("other")]);
    assert_eq!((own.value(in_flight), own.value(workers)), (Some(0.0), Some(0.0)));
    assert_eq!(own.value(SPAWNED), Some(5.0));
    let busy = r#"volt_poll_duration_seconds_count{runtime="main"}"#;
    assert_eq!(own.value(busy), Some(6.0), "a total counts, and is kept like a counter");
    assert_eq!(own.value(r#"volt_runtime_workers{runtime="other"}"#), Some(2.0));
    let kept = own.published.series.iter().flat_map(|series| series.keys()).flatten();
    assert_eq!(kept.filter(|label| *label == "main").count(), 0, "its counts are forgotten");
}

#[test]
fn an_idle_timeout_removes_only_ended_runtimes() {
    let timeout = Some(Duration::from_millis(1));
    let mut own = Target::with(PrometheusBuilder::new().idle_timeout(MetricKindMask::ALL, timeout));
    own.publish(&[spawned("main", 1, 5), spawned("other", 1, 5)]);
    loop {
        // Nothing changes, but the current series are updated.
        own.publish(&[spawned("other", 1, 5)]);
        let page = own.handle.render();
        assert!(page.contains("volt_tasks_spawned_total{runtime=\"other\"} 5\n"), "{page}");
        if !page.contains("runtime=\"main\"") {
            break;
        }
    }
}

#[test]
fn a_worker_that_comes_back_continues_its_counters() {
    let mut own = Target::new();
    let polls = |polls| {
        let mut main = runtime("main");
        main.workers[1].polls = polls;
        main
    };
    let mut without = runtime("main");
    without.workers.truncate(1);
    own.publish(&[polls(10)]);
    own.publish(std::slice::from_ref(&without));
    own.publish(&[without]);
    own.publish(&[polls(12)]);
    assert_eq!(own.value(r#"volt_worker_polls_total{runtime="main",worker="1"}"#), Some(12.0));
}

#[test]
fn quantiles_are_those_of_the_last_interval() {
    let mut own = Target::new();
    own.settings.histograms = Histograms::Quantiles;
    let mut main = Snapshot { workers: vec![Worker::default()], ..spawned("main", 1, 0) };
    let mut after = |ns: &[u64]| {
        ns.iter().for_each(|ns| main.workers[0].poll_time.record(*ns));
        own.publish(std::slice::from_ref(&main));
        let value = |quantile: &str| {
            let series = format!(r#"volt_poll_duration_seconds{{quantile="{quantile}",runtime="main"}}"#);
            own.value(&series).unwrap() * 1e3
        };
        let count = own.value(r#"volt_poll_duration_seconds_count{runtime="main"}"#);
        assert_eq!(own.value(r#"volt_poll_duration_seconds_bucket{le="+Inf",runtime="main"}"#), None);
        (value("0.5").round(), value("1").round(), count.unwrap())
    };
    assert_eq!(after(&[MS, MS, 9 * MS]), (1.0, 9.0, 3.0));
    assert_eq!(after(&[4 * MS]), (4.0, 4.0, 4.0));
    assert_eq!(after(&[]), (0.0, 0.0, 4.0));
}

#[test]
fn only_the_named_runtimes_are_published() {
    let mut own = Target::new();
    own.settings.runtimes = Some(vec!["a\nb".into()]);
    own.publish(&[spawned("a\nb", 1, 5), spawned("main", 1, 5)]);
    assert_eq!((own.value(r#"volt_tasks_spawned_total{runtime="a\\u{a}b"}"#), own.value(SPAWNED)), (Some(5.0), None));
    assert_eq!(own.value("volt_program_up{}"), Some(1.0));
    // The next publisher publishes all runtimes, and counts nothing twice.
    own.settings.runtimes = None;
    own.publish(&[spawned("a\nb", 1, 6), spawned("main", 1, 5)]);
    assert_eq!(own.value(r#"volt_tasks_spawned_total{runtime="a\\u{a}b"}"#), Some(6.0));
    assert_eq!(own.value(SPAWNED), Some(5.0));
}

#[test]
fn a_publisher_of_other_parts_leaves_no_old_quantiles() {
    let mut own = Target::new();
    own.settings.histograms = Histograms::Quantiles;
    own.publish(&[runtime("main")]);
    let median = r#"volt_poll_duration_seconds{quantile="0.5",runtime="main"}"#;
    assert!(own.value(median) > Some(0.0));
    own.settings.histograms = Histograms::Buckets;
    own.publish(&[runtime("main")]);
    assert_eq!(own.value(median), Some(0.0));
    assert_eq!(own.value(r#"volt_poll_duration_seconds_bucket{le="+Inf",runtime="main"}"#), Some(6.0));
}
