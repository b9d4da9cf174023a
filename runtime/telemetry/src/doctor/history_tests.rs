use super::*;
use crate::incident::{Blame, Cause, Frame, Incident};
use crate::snapshot::{Driver, Sentinel, Tasks, Worker};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;

fn at(second: u64) -> Snapshot {
    Snapshot { at_ns: second * SECOND, ..Snapshot::default() }
}

/// A poll of the task spawned at `line` blocked for 30 ms in the second before `second`.
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

/// Nobody looks after sockets.
fn held(second: u64) -> Snapshot {
    let driver = Driver { registrations: 1, idle_ns: SECOND / 10, ..Driver::default() };
    Snapshot { driver, workers: vec![Worker::default()], ..at(second) }
}

/// The severity of the worst finding at each second, if it is current.
fn course(
    history: &mut History,
    seconds: std::ops::Range<u64>,
    now: impl Fn(u64) -> Snapshot,
) -> Vec<Option<Severity>> {
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
    // For three minutes, every 4 seconds, and the list of incidents forgets.
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
        // Of the start.
        now.incidents.latest.extend((0..20).map(|line| blocked(second.min(3), line % 2, true)));
        now
    };
    let course = course(&mut History::default(), 3..100, now);
    assert!(course[0].is_some() && !course.iter().any(is(Severity::Warning)), "{course:?}");
}

#[test]
fn an_outage_is_critical_at_once_and_for_a_while_after_it() {
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
    let twice = course(
        &mut History::default(),
        1..60,
        |second| if matches!(second, 4 | 5) { held(second) } else { at(second) },
    );
    assert_eq!(twice.iter().position(is(Severity::Warning)), Some(4));
    assert!(twice[4..34].iter().all(is(Severity::Warning)) && twice[34..].iter().all(Option::is_none), "{twice:?}");
}

#[test]
fn lines_of_one_spawn_location_are_findings_of_their_own() {
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
fn a_line_that_is_known_a_moment_later_is_the_same_finding() {
    let mut history = History::default();
    for second in 10..30 {
        let mut now = at(second);
        // One of the start, whose stack could not be read, stays in the list.
        now.incidents.latest.push(blocked(10, 7, false));
        now.incidents.latest.extend((second > 10).then(|| blocked(second, 7, second % 3 != 0)));
        history.check(&now);
        let findings = history.findings(now.at_ns);
        assert_eq!(findings.len(), 1, "{findings:#?}");
    }
    assert_eq!(history.findings(30 * SECOND)[0].seen.count, 20);
}

#[test]
fn of_several_stalls_at_one_line_the_worst_is_shown_and_counted_once() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    now.incidents.latest.push(blocked(10, 7, true));
    now.incidents.latest.push(Incident { for_ns: 500 * MS, is_over: false, cause: Cause::Io, ..blocked(10, 7, true) });
    now.incidents.latest.push(Incident { cause: Cause::Cpu, ..blocked(10, 7, true) });
    history.check(&now);
    let findings = history.findings(now.at_ns);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert!(findings[0].severity == Severity::Critical && findings[0].title.contains("I/O"), "{findings:#?}");
    assert_eq!(findings[0].seen.count, 1);
}

#[test]
fn a_leak_is_a_finding_with_its_line_and_a_history() {
    let now = |second: u64| Snapshot {
        tasks: Tasks { spawned: 28 * second, alive: 28 * second, ..Tasks::default() },
        blame: vec![Blame { spawned_at: "src/feed.rs:8:9".into(), alive: Some(28 * second), ..Blame::default() }],
        ..at(second)
    };
    let mut history = History::default();
    let course = course(&mut history, 1..181, now);
    assert!(course.last().is_some_and(is(Severity::Warning)), "{course:?}");
    let finding = &history.findings(180 * SECOND)[0];
    assert_eq!((finding.rule, finding.locations[0].at()), (Rule::TaskLeak, "src/feed.rs:8:9"));
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
fn who_comes_late_is_not_told_of_old_times_and_who_was_there_is() {
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
fn another_runtime_of_that_name_has_a_history_of_its_own() {
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
fn however_many_places_are_stuck_few_are_known_and_the_past_make_room() {
    let mut history = History::default();
    for second in 1..=300 {
        let mut now = at(second);
        now.incidents.latest.push(Incident { for_ns: 400 * MS, ..blocked(second, second as u32, true) });
        // A second has two of them.
        history.check(&now);
        assert!(history.known.len() <= KNOWN_MAX);
    }
    assert_eq!(history.unheard(), 0, "those of 30 seconds fit");
    for second in 301..=303 {
        let mut now = at(second);
        let many = (0..40).map(|line| blocked(second, 1_000 * second as u32 + line, true));
        now.incidents.latest.extend(many.map(|one| Incident { for_ns: 400 * MS, ..one }));
        history.check(&now);
    }
    assert!(history.known.len() == KNOWN_MAX && history.unheard() > 0);
}
