//! Tests of the page of hand-made snapshots: the text format, and what must not appear on it.

use std::collections::{HashMap, HashSet};

use volt_diagnosis::catalog::{self, METRICS};
use volt_exporter::Page;
use volt_telemetry::processes::{Processes, States};
use volt_telemetry::routes::Route;
use volt_telemetry::snapshot::{GlobalChecks, Tokio};
use volt_telemetry::{Blame, Clock, Health, Histogram, Host, Program, Snapshot, Worker};

fn runtime(name: &str, workers: u32) -> Snapshot {
    let worker = |index| Worker {
        index,
        cpu_ns: Some(0),
        run_delay_ns: Some(0),
        global_checks: Some(GlobalChecks::default()),
        global_check_polls: Some(0),
        ..Worker::default()
    };
    let host = Host { processors: 2, throttles: Some(0), throttled_ns: Some(0) };
    let workers = (0..workers).map(worker).collect();
    let processes = Some(Processes { states: Some(States::default()), ..Processes::default() });
    let (tokio, clock) = (Some(Tokio::default()), Some(Clock::default()));
    let routes = vec![Route::default()];
    Snapshot { runtime: name.into(), workers, host: Some(host), processes, tokio, clock, routes, ..Snapshot::default() }
}

fn program(runtimes: Vec<Snapshot>) -> Program {
    Program { runtimes, observer: Some(Health::default()), ..Program::default() }
}

/// Returns the value of the one series with this name and these labels.
fn value(text: &str, series: &str) -> Option<f64> {
    let mut found = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = found.next()?.parse().expect("a number");
    assert_eq!(found.next(), None, "{series} stands twice");
    Some(value)
}

#[test]
fn each_catalog_metric_is_on_the_page_once_with_help_and_type() {
    let text = Page::new().render(&program(vec![runtime("main", 2), runtime("load", 1)]));
    for metric in METRICS {
        let kind = metric.kind.name();
        for head in [format!("# HELP {} {}", metric.name, metric.help), format!("# TYPE {} {kind}", metric.name)] {
            assert_eq!(text.lines().filter(|line| **line == *head).count(), 1, "{head}");
        }
    }
}

#[test]
fn the_text_follows_the_format_and_repeats_nothing() {
    let text = Page::new().render(&program(vec![runtime("main", 2), runtime("load", 1)]));
    let mut types = HashMap::new();
    let (mut series_seen, mut families_seen) = (HashSet::new(), HashSet::new());
    let mut family = "";
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').unwrap();
            assert_eq!(types.insert(name, kind), None, "{name} has two types");
        } else if !line.starts_with("# HELP ") {
            let (series, number) = line.rsplit_once(' ').unwrap();
            number.parse::<f64>().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(series_seen.insert(series), "{series} stands twice");
            let name = series.split('{').next().unwrap();
            let metric = catalog::find_series(name).unwrap_or_else(|| panic!("{name} is not in the catalog"));
            assert!(types.contains_key(metric.name), "{name} comes before its type");
            if metric.name != family {
                family = metric.name;
                assert!(families_seen.insert(family), "{family} is not in one piece");
            }
        }
    }
    assert_eq!(families_seen.len(), METRICS.len());
}

#[test]
fn values_are_those_of_the_snapshot_and_change_with_it() {
    let mut page = Page::new();
    let mut main = runtime("main", 2);
    main.workers[1].polls = (1 << 53) + 1;
    main.workers[1].parked_ns = 1_500_000_000;
    main.parked_bitmap = vec![0b10];
    main.global_queue.oldest_age_ns = Some(2_000_000);
    let text = page.render(&program(vec![main.clone()]));
    assert!(text.contains("volt_worker_polls_total{runtime=\"main\",worker=\"1\"} 9007199254740993\n"), "{text}");
    let time = r#"volt_worker_time_seconds_total{runtime="main",worker="1",state="parked"}"#;
    assert_eq!(value(&text, time), Some(1.5));
    assert_eq!(value(&text, r#"volt_worker_parked{runtime="main",worker="0"}"#), Some(0.0));
    assert_eq!(value(&text, r#"volt_worker_parked{runtime="main",worker="1"}"#), Some(1.0));
    assert_eq!(value(&text, r#"volt_global_queue_oldest_age_seconds{runtime="main"}"#), Some(0.002));

    main.workers[1].polls += 1;
    main.parked_bitmap = vec![0];
    let text = page.render(&program(vec![main]));
    assert!(text.contains("volt_worker_polls_total{runtime=\"main\",worker=\"1\"} 9007199254740994\n"));
    assert_eq!(value(&text, r#"volt_worker_parked{runtime="main",worker="1"}"#), Some(0.0));
}

#[test]
fn histograms_are_cumulative_in_seconds_and_end_with_all() {
    let mut main = runtime("main", 1);
    let mut polls = Histogram::default();
    [100, 300, 1_023, 1_024, 60_000_000_000].into_iter().for_each(|ns| polls.record(ns));
    main.workers[0].poll_time = polls;
    let text = Page::new().render(&program(vec![main]));
    let bucket = |le: &str| {
        value(&text, &format!(r#"volt_poll_duration_seconds_bucket{{runtime="main",le="{le}"}}"#))
            .unwrap_or_else(|| panic!("no bucket {le}"))
    };
    assert_eq!(bucket("0.000000256"), 1.0);
    assert_eq!(bucket("0.000001024"), 3.0);
    assert_eq!(bucket("0.000002048"), 4.0);
    assert_eq!(bucket("17.179869184"), 4.0);
    assert_eq!(bucket("+Inf"), 5.0);
    assert_eq!(value(&text, r#"volt_poll_duration_seconds_count{runtime="main"}"#), Some(5.0));
    assert_eq!(value(&text, r#"volt_poll_duration_seconds_sum{runtime="main"}"#), Some(60.000002447));
}

#[test]
fn an_ended_runtime_leaves_no_series() {
    let mut page = Page::new();
    let mut stuck = runtime("main", 1);
    stuck.workers[0].in_flight = Some(volt_telemetry::InFlight { for_ns: 9_000_000_000, ..Default::default() });
    let gauge = r#"volt_worker_in_flight_poll_seconds{runtime="main",worker="0"}"#;
    assert_eq!(value(&page.render(&program(vec![stuck, runtime("other", 1)])), gauge), Some(9.0));
    let text = page.render(&program(vec![runtime("other", 1)]));
    assert!(!text.contains(r#"runtime="main""#), "{text}");
    assert!(text.contains(r#"runtime="other""#));
}

#[test]
fn counters_start_anew_with_a_runtime_built_anew() {
    let mut page = Page::new();
    let series = r#"volt_tasks_spawned_total{runtime="main"}"#;
    let mut main = runtime("main", 1);
    main.tasks.spawned = 100;
    assert_eq!(value(&page.render(&program(vec![main.clone()])), series), Some(100.0));
    (main.started_at_ns, main.tasks.spawned) = (1, 3);
    assert_eq!(value(&page.render(&program(vec![main])), series), Some(3.0));
}

#[test]
fn series_follow_active_spares_and_available_cpu_clocks() {
    let mut page = Page::new();
    page.render(&program(vec![runtime("main", 1)]));
    let mut main = runtime("main", 2);
    (main.workers[1].is_spare, main.workers[1].cpu_ns, main.workers[1].polls) = (true, None, 7);
    let text = page.render(&program(vec![main.clone()]));
    assert_eq!(value(&text, r#"volt_worker_polls_total{runtime="main",worker="1"}"#), Some(7.0));
    assert_eq!(value(&text, r#"volt_runtime_workers{runtime="main"}"#), Some(1.0));
    assert_eq!(value(&text, r#"volt_worker_cpu_seconds_total{runtime="main",worker="0"}"#), Some(0.0));
    assert_eq!(value(&text, r#"volt_worker_cpu_seconds_total{runtime="main",worker="1"}"#), None);
    // The number of series is the same, but they are others.
    (main.workers[0].cpu_ns, main.workers[1].cpu_ns) = (None, Some(2_000_000_000));
    let text = page.render(&program(vec![main]));
    assert_eq!(value(&text, r#"volt_worker_cpu_seconds_total{runtime="main",worker="0"}"#), None);
    assert_eq!(value(&text, r#"volt_worker_cpu_seconds_total{runtime="main",worker="1"}"#), Some(2.0));
}

#[test]
fn incidents_are_counted_by_cause_with_zero_for_unseen_causes() {
    let mut main = runtime("main", 1);
    main.incidents.by_cause = vec![2, 3];
    let text = Page::new().render(&program(vec![main]));
    for (cause, count) in [("cpu", 2.0), ("sleep", 3.0), ("lock", 0.0), ("throttled", 0.0)] {
        let series = format!(r#"volt_incidents_total{{runtime="main",cause="{cause}"}}"#);
        assert_eq!(value(&text, &series), Some(count), "{series}");
    }
}

#[test]
fn spawn_location_series_are_stable_and_bounded() {
    let mut page = Page::new();
    let blame = |line: u64, ms: u64| Blame {
        spawned_at: format!("main.rs:{line}:1"),
        delay_caused_ns: ms * 1_000_000,
        ..Blame::default()
    };
    let caused = |text: &str, location: &str| {
        let labels = format!(r#"{{runtime="main",location="{location}"}}"#);
        value(text, &format!("volt_location_delay_caused_seconds_total{labels}"))
    };
    let mut main = runtime("main", 1);
    main.blame = vec![blame(1, 500), blame(2, 1)];
    let text = page.render(&program(vec![main.clone()]));
    assert_eq!((caused(&text, "main.rs:1:1"), caused(&text, "other")), (Some(0.5), Some(0.001)));

    // Many worse locations appear. The first one stays, and no counter falls.
    main.blame.extend((10..40).map(|line| blame(line, 1_000 * line)));
    let text = page.render(&program(vec![main.clone()]));
    assert_eq!(caused(&text, "main.rs:1:1"), Some(0.5));
    assert_eq!(caused(&text, "main.rs:39:1"), Some(39.0));
    assert!(caused(&text, "other") > Some(0.001));
    let series = text.lines().filter(|line| line.starts_with("volt_location_delay_caused_seconds_total{"));
    assert_eq!(series.count(), catalog::LOCATIONS_MAX + 1);

    // Another runtime of the same name starts again.
    (main.started_at_ns, main.blame) = (1, vec![blame(7, 100)]);
    let text = page.render(&program(vec![main]));
    assert_eq!((caused(&text, "main.rs:1:1"), caused(&text, "main.rs:7:1")), (None, Some(0.1)));
    assert_eq!(caused(&text, "other"), Some(0.0));
}

#[test]
fn a_page_of_many_workers_is_less_than_a_megabyte() {
    let mut main = runtime("main", 64);
    main.blame = (0..1_000)
        .map(|line| Blame {
            spawned_at: format!("crates/service/src/handlers/of/orders.rs:{line}:13"),
            stalls: 1,
            ..Blame::default()
        })
        .collect();
    for worker in &mut main.workers {
        (worker.polls, worker.busy_ns, worker.cpu_ns) = (u64::MAX, u64::MAX / 3, Some(u64::MAX / 7));
        (0..64).for_each(|bit| worker.poll_time.record(1 << bit));
    }
    let text = Page::new().render(&program(vec![main]));
    assert!(text.len() < 1_000_000, "{} bytes", text.len());
}

#[test]
fn a_runtime_may_have_any_name() {
    let text = Page::new().render(&program(vec![runtime("a\"b\nc{}", 1)]));
    // A line feed is escaped, like every other character that controls a terminal.
    assert!(text.contains(r#"volt_tasks_alive{runtime="a\"b\\u{a}c{}"} 0"#), "{text}");
}

#[test]
fn a_program_without_runtimes_is_up_and_no_more() {
    let text = Page::new().render(&Program::default());
    let series: Vec<_> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(series, ["volt_program_up 1"]);
}

#[test]
fn a_finding_leaves_the_page_after_a_while_without_recurrence() {
    let mut page = Page::new();
    let at = |second: u64, rescues: u64| {
        let mut main = runtime("main", 1);
        main.at_ns = second * 1_000_000_000;
        main.workers[0].lost_wakeup_rescues = rescues;
        program(vec![main])
    };
    let found = |text: &str, rule: &str| {
        let value = |severity: &str| {
            value(text, &format!(r#"volt_doctor_findings{{runtime="main",rule="{rule}",severity="{severity}"}}"#))
        };
        assert_eq!(value("warning"), Some(0.0));
        value("critical")
    };
    assert_eq!(found(&page.render(&at(1, 0)), "lost-wakeup"), Some(0.0));
    let sick = page.render(&at(16, 3));
    assert_eq!((found(&sick, "lost-wakeup"), found(&sick, "stalled-poll")), (Some(1.0), Some(0.0)));
    assert_eq!(found(&page.render(&at(31, 3)), "lost-wakeup"), Some(1.0), "15 s ago");
    assert_eq!(found(&page.render(&at(91, 3)), "lost-wakeup"), Some(0.0), "75 s ago");
}
