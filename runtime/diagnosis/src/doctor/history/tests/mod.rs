//! Tests of the history: how long findings last, their severity, and findings that replace others.

mod late;

use std::ops::Range;

use volt_telemetry::finding::Place;
use volt_telemetry::incident::{Blame, Cause, Frame, Incident, MainAwait};
use volt_telemetry::snapshot::{Driver, InFlight, Sentinel, Tasks, Worker};

use super::*;
use crate::doctor::course::{Course, Turn};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn at(second: u64) -> Snapshot {
    Snapshot { at_ns: second * SECOND, ..Snapshot::default() }
}

/// A poll of the task spawned at `line` that blocked for 30 ms in the second before `second`.
fn blocked(second: u64, line: u32, is_line_known: bool) -> Incident {
    let frame = Frame { file: Some("src/pay.rs".into()), line: Some(line), is_user_code: true, ..Frame::default() };
    Incident {
        id: second,
        began_at_ns: second * SECOND - SECOND / 2,
        for_ns: 30 * MS,
        is_over: true,
        cause: Cause::Sleep,
        spawned_at: format!("src/main.rs:{line}:1"),
        stack: if is_line_known { vec![frame] } else { Vec::new() },
        ..Incident::default()
    }
}

/// No worker polls the driver.
fn held(second: u64) -> Snapshot {
    let driver = Driver { registrations: 1, idle_ns: SECOND / 10, ..Driver::default() };
    Snapshot { driver, workers: vec![Worker::default()], ..at(second) }
}

/// Returns the severity of the worst finding at each second, if it is current.
fn course(history: &mut History, seconds: Range<u64>, now: impl Fn(u64) -> Snapshot) -> Vec<Option<Severity>> {
    let mut course = Vec::new();
    for second in seconds {
        history.check(&now(second));
        let findings = history.findings(second * SECOND);
        course.push(findings.first().filter(|finding| finding.seen.is_current).map(|finding| finding.severity));
    }
    course
}

fn is(severity: Severity) -> impl Fn(&Option<Severity>) -> bool {
    move |found| *found == Some(severity)
}

#[test]
fn a_line_that_blocks_again_and_again_is_a_warning_meanwhile() {
    // For three minutes, every 4 seconds; incidents are removed from the list.
    let now = |second: u64| {
        let mut now = at(second);
        let last = (second.min(200) / 4) * 4;
        now.incidents.latest.extend((last > 20).then(|| blocked(last, 7, true)));
        now
    };
    let mut history = History::default();
    let course = course(&mut history, 1..300, now);
    assert!(course[..20].iter().all(Option::is_none), "{course:?}");
    assert!(course[31..228].iter().all(is(Severity::Warning)), "at no check anything else: {course:?}");
    assert!(course[232..].iter().all(Option::is_none), "{course:?}");
    let past = &history.findings(299 * SECOND)[0];
    assert_eq!((past.severity, past.seen.worst, past.seen.is_current), (Severity::Info, Severity::Warning, false));
    assert_eq!((past.seen.first_at_ns / SECOND, past.seen.last_at_ns / SECOND), (23, 199));
    assert_eq!(past.seen.count, 45);
}

#[test]
fn a_line_that_blocks_every_25_seconds_does_not_flicker() {
    let now = |second: u64| {
        let mut now = at(second);
        now.incidents.latest.extend((second >= 25).then(|| blocked(second / 25 * 25, 7, true)));
        now
    };
    let course = course(&mut History::default(), 1..600, now);
    let first = course.iter().position(is(Severity::Warning)).unwrap();
    assert!(first < 80, "{first}");
    assert!(course[first..].iter().all(is(Severity::Warning)), "{course:?}");
}

#[test]
fn a_short_stall_and_many_in_one_second_are_no_warning() {
    let now = |second: u64| {
        let mut now = at(second);
        // Incidents from the start of the program.
        now.incidents.latest.extend((0..20).map(|line| blocked(second.min(3), line % 2, true)));
        now
    };
    let course = course(&mut History::default(), 3..100, now);
    assert!(course[0].is_some() && !course.iter().any(is(Severity::Warning)), "{course:?}");
}

#[test]
fn an_outage_is_critical_from_its_start_until_a_while_after_it() {
    let now = |second: u64| {
        let mut now = at(second);
        let stuck = Incident {
            for_ns: second.min(12).saturating_sub(10) * SECOND,
            is_over: second > 12,
            ..blocked(10, 7, true)
        };
        now.incidents.latest.extend((second > 10).then_some(stuck));
        now
    };
    let mut history = History::default();
    let course = course(&mut history, 1..100, now);
    assert!(course[10..40].iter().all(is(Severity::Critical)), "{course:?}");
    assert!(course[45..].iter().all(Option::is_none), "{course:?}");
}

#[test]
fn a_finding_of_rates_has_to_be_seen_twice_in_a_row() {
    let odd = course(&mut History::default(), 1..60, |second| if second % 2 == 0 { held(second) } else { at(second) });
    assert!(odd.iter().all(Option::is_none), "{odd:?}");
    let now = |second: u64| if matches!(second, 4 | 5) { held(second) } else { at(second) };
    let twice = course(&mut History::default(), 1..60, now);
    assert_eq!(twice.iter().position(is(Severity::Warning)), Some(4));
    assert!(twice[4..34].iter().all(is(Severity::Warning)) && twice[34..].iter().all(Option::is_none), "{twice:?}");
}

#[test]
fn a_sighting_that_is_not_sure_is_not_when_it_was_last_seen() {
    let mut history = History::default();
    course(&mut history, 1..201, |second| if matches!(second, 4 | 5 | 200) { held(second) } else { at(second) });
    let findings = history.findings(200 * SECOND);
    let past = findings.iter().find(|finding| finding.rule == Rule::DriverHeld).expect("it is remembered");
    assert!(!past.seen.is_current && past.seen.last_at_ns < 6 * SECOND, "{:?}", past.seen);
}

#[test]
fn lines_of_one_spawn_location_are_separate_findings() {
    let mut history = History::default();
    let mut now = at(9);
    history.check(&now);
    now = at(10);
    for line in [22, 67] {
        now.incidents.latest.push(Incident { spawned_at: "src/main.rs:1:1".into(), ..blocked(10, line, true) });
    }
    history.check(&now);
    let lines: Vec<_> =
        history.findings(now.at_ns).iter().map(|finding| finding.locations[0].at().to_owned()).collect();
    assert_eq!(lines, ["src/pay.rs:22", "src/pay.rs:67"]);
}

#[test]
fn a_line_that_is_read_a_moment_later_replaces_the_spawn_line() {
    let mut history = History::default();
    history.check(&at(9));
    for (second, is_line_known) in [(10, false), (11, true), (12, true)] {
        let mut now = at(second);
        now.incidents.latest.push(Incident { for_ns: 400 * MS, is_over: false, ..blocked(10, 7, is_line_known) });
        history.check(&now);
        let findings = history.findings(now.at_ns);
        assert_eq!((findings.len(), findings[0].severity), (1, Severity::Critical), "{findings:#?}");
        assert_eq!(lines(&findings[0]).contains(&"src/pay.rs:7"), is_line_known, "{findings:#?}");
    }
}

#[test]
fn a_finding_is_no_milder_once_its_stack_is_read() {
    // At the next check, and between two checks.
    for read_after_ms in [1_000, 100] {
        let mut history = History::default();
        history.check(&at(9));
        let mut now = at(10);
        now.incidents.latest.push(Incident { for_ns: 400 * MS, is_over: false, ..blocked(10, 7, false) });
        history.check(&now);
        now.at_ns += read_after_ms * MS;
        now.incidents.latest = vec![Incident { for_ns: 450 * MS, ..blocked(10, 7, true) }];
        history.check(&now);
        let findings = history.findings(now.at_ns);
        let found = (findings.len(), findings[0].severity, findings[0].seen.worst, lines(&findings[0])[0]);
        assert_eq!(found, (1, Severity::Critical, Severity::Critical, "src/pay.rs:7"), "{findings:#?}");
        let at_second = |second| history.findings(second * SECOND)[0].clone();
        assert_eq!(at_second(39).severity, Severity::Critical, "held for 30 s");
        assert!(!at_second(41).seen.is_current);
    }
}

#[test]
fn each_line_inherits_the_severity_of_its_own_poll() {
    let mut history = History::default();
    history.check(&at(9));
    let of_task = |task_id: u64, for_ms: u64, line, is_read| Incident {
        task_id,
        for_ns: for_ms * MS,
        spawned_at: "src/main.rs:1:1".into(),
        ..blocked(10, line, is_read)
    };
    let mut now = at(10);
    let stuck = Incident { is_over: false, ..of_task(7, 400, 22, false) };
    now.incidents.latest.extend([of_task(8, 30, 67, false), stuck]);
    history.check(&now);
    now.at_ns = 11 * SECOND;
    // A later poll at the line of the outage is the one that is shown.
    let later = Incident { began_at_ns: 10 * SECOND, ..of_task(9, 20, 22, true) };
    now.incidents.latest = vec![of_task(8, 30, 67, true), of_task(7, 450, 22, true), later];
    history.check(&now);
    let findings = history.findings(now.at_ns);
    let found: Vec<_> = findings.iter().map(|finding| (finding.severity, lines(finding)[0])).collect();
    assert_eq!(found, [(Severity::Critical, "src/pay.rs:22"), (Severity::Info, "src/pay.rs:67")]);
}

#[test]
fn a_short_outage_is_reported_though_its_stack_is_read_late() {
    let (mut history, mut course) = (History::default(), Course::default());
    let mut began = Vec::new();
    for second in 9..25 {
        let mut now = at(second);
        let outage = Incident { for_ns: 150 * MS, ..blocked(10, 7, second >= 18) };
        now.incidents.latest.extend((second >= 10).then_some(outage));
        history.judge(&mut now);
        for turn in course.check(&now) {
            let Turn::Began { finding, .. } = turn else { continue };
            began.push((finding.severity, lines(&finding)[0].to_owned()));
        }
    }
    assert_eq!(began, [(Severity::Warning, "src/pay.rs:7".to_owned())]);
}

#[test]
fn the_worst_of_several_stalls_at_a_line_is_shown_once() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    now.incidents.latest.push(blocked(10, 7, true));
    now.incidents.latest.push(Incident { for_ns: 500 * MS, is_over: false, cause: Cause::Io, ..blocked(10, 7, true) });
    now.incidents.latest.push(Incident { cause: Cause::Lock, ..blocked(10, 7, true) });
    history.check(&now);
    let findings = history.findings(now.at_ns);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(findings[0].severity == Severity::Critical && findings[0].title.contains("cause: io"), "{findings:#?}");
    assert_eq!(findings[0].seen.count, 1);
}

#[test]
fn a_leak_is_a_finding_with_its_line() {
    let main_await = |second: u64| {
        (second > 150).then(|| MainAwait {
            awaits: "room".into(),
            awaits_at: "src/a.rs:7:3".into(),
            tasks: 20 * second,
        })
    };
    let blame = |second| Blame {
        spawned_at: "src/feed.rs:8:9".into(),
        alive: Some(28 * second),
        main_await: main_await(second),
        ..Blame::default()
    };
    let now = |second: u64| Snapshot {
        tasks: Tasks { spawned: 28 * second, alive: 28 * second, ..Tasks::default() },
        blame: vec![blame(second)],
        ..at(second)
    };
    let mut history = History::default();
    let course = course(&mut history, 1..181, now);
    assert!(course.last().is_some_and(is(Severity::Warning)), "{course:?}");
    let finding = &history.findings(180 * SECOND)[0];
    assert_eq!((finding.rule, finding.locations[0].at()), (Rule::TaskLeak, "src/feed.rs:8:9"));
    assert!(
        finding.title.ends_with("more per second; at least half await room in a channel at src/a.rs:7:3"),
        "{finding:#?}"
    );
    assert!(finding.figure("awaiting_count") > Some(3_000) && finding.advice.contains("receiver"), "{finding:#?}");
}

#[test]
fn rows_stay_in_their_order_while_they_are_as_bad() {
    let mut history = History::default();
    let mut orders = std::collections::BTreeSet::new();
    for second in 10..100 {
        let mut now = at(second);
        let line = if second % 2 == 0 { 7 } else { 8 };
        now.incidents.latest.push(blocked(second, line, true));
        history.check(&now);
        if second >= 20 {
            let findings = history.findings(now.at_ns);
            orders.insert(findings.iter().map(|finding| finding.locations[0].at().to_owned()).collect::<Vec<_>>());
        }
    }
    assert_eq!(orders.len(), 1, "{orders:?}");
}

#[test]
fn a_late_reader_has_no_earlier_finding_as_current() {
    let mut over = at(3);
    over.incidents.latest.push(Incident { for_ns: 300 * MS, ..blocked(3, 7, true) });
    let mut history = History::default();
    history.check(&over);
    assert_eq!(history.findings(over.at_ns)[0].severity, Severity::Warning);
    over.at_ns += 40 * SECOND;
    let mut late = History::default();
    late.check(&over);
    assert!(late.findings(over.at_ns).iter().all(|finding| !finding.seen.is_current));
}

#[test]
fn another_runtime_of_that_name_has_its_own_history() {
    let mut history = History::default();
    history.check(&at(100));
    let mut now = at(101);
    now.sentinel = Sentinel { pauses: 3, ..Sentinel::default() };
    history.check(&now);
    assert_eq!(history.findings(now.at_ns).len(), 1);
    (now.at_ns, now.started_at_ns) = (200 * SECOND, 150 * SECOND);
    history.check(&now);
    assert_eq!(history.findings(now.at_ns), []);
}

#[test]
fn the_history_of_stuck_locations_is_bounded() {
    let mut history = History::default();
    for second in 1..=300 {
        let mut now = at(second);
        now.incidents.latest.push(Incident { for_ns: 400 * MS, ..blocked(second, second as u32, true) });
        history.check(&now);
        assert!(history.known.len() <= KNOWN_MAX);
    }
    assert_eq!(history.left_out(), 0, "those of 30 seconds fit");
    for second in 301..=303 {
        let mut now = at(second);
        let many = (0..40).map(|line| blocked(second, 1_000 * second as u32 + line, true));
        now.incidents.latest.extend(many.map(|one| Incident { for_ns: 400 * MS, ..one }));
        history.check(&now);
    }
    assert!(history.known.len() == KNOWN_MAX && history.left_out() > 0);
}

#[test]
fn findings_left_out_are_counted_by_check_not_for_ever() {
    let mut history = History::default();
    for second in 1..=4 {
        let mut now = at(second);
        let many = (0..16).map(|line| blocked(second, 100 * second as u32 + line, true));
        now.incidents.latest.extend(many.map(|one| Incident { for_ns: 400 * MS, ..one }));
        history.check(&now);
    }
    assert_eq!((history.known.len(), history.left_out()), (KNOWN_MAX, 0));
    let stuck = |index| {
        let poll = InFlight { spawned_at: format!("src/main.rs:{index}:1"), for_ns: SECOND, ..InFlight::default() };
        Worker { index, in_flight: Some(poll), ..Worker::default() }
    };
    let left_out = (5..10).map(|second| {
        let mut now = Snapshot { workers: (0..3).map(stuck).collect(), ..at(second) };
        history.check(&now);
        // Between two checks, because there is another incident.
        now.at_ns += 100 * MS;
        now.incidents.by_cause = vec![1];
        history.check(&now);
        history.left_out()
    });
    assert_eq!(left_out.collect::<Vec<_>>(), [3; 5]);
}

/// A poll of a task spawned at `src/main.rs:1:1` whose line could not be read.
fn of_unknown_line(second: u64, for_ms: u64) -> Incident {
    Incident {
        for_ns: for_ms * MS,
        spawned_at: "src/main.rs:1:1".into(),
        stack_error: Some("the poll ended before its stack could be captured".into()),
        ..blocked(second, 1, false)
    }
}

fn lines(finding: &Finding) -> Vec<&str> {
    finding.locations.iter().map(Place::at).collect()
}

#[test]
fn a_stall_of_an_unknown_line_is_charged_to_no_known_line() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    now.incidents.latest.push(Incident { spawned_at: "src/main.rs:1:1".into(), ..blocked(10, 22, true) });
    history.check(&now);
    now.at_ns = 11 * SECOND;
    now.incidents.latest.push(Incident { is_over: false, ..of_unknown_line(11, 400) });
    history.check(&now);
    let findings = history.findings(now.at_ns);
    assert_eq!(findings.len(), 2, "{findings:#?}");
    assert_eq!((findings[0].severity, lines(&findings[0])), (Severity::Critical, vec!["src/main.rs:1:1"]));
    assert!(
        findings[0].evidence.iter().any(|evidence| evidence.key == "line"),
        "the line is missing in the evidence: {findings:#?}"
    );
    let known = (findings[1].severity, lines(&findings[1]), findings[1].seen.count);
    assert_eq!(known, (Severity::Info, vec!["src/pay.rs:22", "src/main.rs:1:1"], 1));
    // A line that is read later does not take over earlier counts either.
    now.at_ns = 12 * SECOND;
    now.incidents.latest.push(Incident { spawned_at: "src/main.rs:1:1".into(), ..blocked(12, 67, true) });
    history.check(&now);
    let counts: Vec<_> = history.findings(now.at_ns).iter().map(|finding| finding.seen.count).collect();
    assert_eq!(counts, [1, 1, 1]);
}

#[test]
fn an_unrecorded_poll_has_no_line_of_another() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    now.incidents.latest.push(Incident { spawned_at: "src/main.rs:1:1".into(), ..blocked(10, 22, true) });
    let spawned_at = "src/main.rs:1:1".to_owned();
    let poll = InFlight { task_id: 9, spawned_at, for_ns: 300 * MS, ..InFlight::default() };
    now.workers = vec![Worker { in_flight: Some(poll), ..Worker::default() }];
    history.check(&now);
    let findings = history.findings(now.at_ns);
    assert_eq!((findings[0].severity, lines(&findings[0])), (Severity::Critical, vec!["src/main.rs:1:1"]));
    assert!(!findings[0].title.contains("pay.rs"), "{findings:#?}");
    assert_eq!((findings[1].severity, lines(&findings[1])[0]), (Severity::Info, "src/pay.rs:22"));
}

#[test]
fn a_kept_stall_whose_poll_ended_is_in_the_past_tense() {
    let mut history = History::default();
    let mut now = at(20);
    let poll = InFlight {
        task_id: 9,
        task_name: Some("it has blocked".into()),
        spawned_at: "src/main.rs:1:1".into(),
        for_ns: 300 * MS,
        ..InFlight::default()
    };
    now.workers = vec![Worker { in_flight: Some(poll), ..Worker::default() }];
    history.check(&now);
    let stuck = history.findings(now.at_ns).remove(0);
    assert!(stuck.title.starts_with("task 9 \"it has blocked\" has blocked worker 0 for 300 ms"), "{stuck:#?}");
    now.workers[0].in_flight = None;
    now.at_ns = 22 * SECOND;
    history.check(&now);
    let held = history.findings(now.at_ns).remove(0);
    assert!(held.seen.is_current && held.severity == Severity::Critical, "{held:#?}");
    assert!(held.title.starts_with("task 9 \"it has blocked\" blocked worker 0 for 300 ms"), "{held:#?}");
    assert!(held.evidence.iter().any(|evidence| evidence.text == "duration: 300 ms"), "{held:#?}");
}

#[test]
fn computing_at_ever_new_lines_of_a_function_is_one_warning() {
    let now = |second: u64, function: Option<&str>| {
        let mut now = at(second);
        now.incidents.latest.extend((10..=second).step_by(10).map(|began| {
            let mut incident = Incident {
                cause: Cause::Cpu,
                spawned_at: "src/main.rs:1:1".into(),
                ..blocked(began, began as u32, true)
            };
            incident.stack[0].function = function.map(str::to_owned);
            incident
        }));
        now
    };
    for function in [Some("pay::hash"), None] {
        let mut history = History::default();
        (1..60).for_each(|second| history.check(&now(second, function)));
        let findings = history.findings(59 * SECOND);
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!((findings[0].severity, findings[0].seen.count), (Severity::Warning, 5), "{findings:#?}");
        assert_eq!(lines(&findings[0])[0], "src/pay.rs:50", "the line of the last sample");
        let lines = findings[0].evidence.iter().find(|evidence| evidence.key == "sampled_lines").unwrap();
        assert!(lines.text.ends_with("src/pay.rs:50, src/pay.rs:40, src/pay.rs:30"), "{lines:?}");
    }
}

#[test]
fn stalls_that_come_in_pairs_do_not_flicker() {
    // At 50, 52, 100, 102, and so on.
    let now = |second: u64| {
        let mut now = at(second);
        let last = if second % 50 < 2 { second / 50 * 50 } else { second / 50 * 50 + 2 };
        now.incidents.latest.extend((second >= 50).then(|| blocked(last, 7, true)));
        now
    };
    let course = course(&mut History::default(), 1..600, now);
    let first = course.iter().position(is(Severity::Warning)).unwrap();
    assert!(first < 110, "{first}");
    assert!(course[first..].iter().all(is(Severity::Warning)), "{course:?}");
}
