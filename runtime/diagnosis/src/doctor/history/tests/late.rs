//! Tests of stalls whose incident or line is recorded after the check that counted them.

use super::*;

#[test]
fn a_poll_that_is_recorded_late_is_one_finding() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    let spawned_at = "src/main.rs:1:1".to_owned();
    let poll = InFlight { task_id: 9, spawned_at: spawned_at.clone(), for_ns: 300 * MS, ..InFlight::default() };
    now.workers = vec![Worker { in_flight: Some(poll), ..Worker::default() }];
    history.check(&now);
    assert_eq!(lines(&history.findings(now.at_ns)[0]), ["src/main.rs:1:1"]);
    now.at_ns = 11 * SECOND;
    let began_at_ns = 9_700 * MS + 1_000;
    let incident = Incident { began_at_ns, task_id: 9, spawned_at, for_ns: SECOND, ..blocked(11, 22, true) };
    now.incidents.latest.push(incident.clone());
    history.check(&now);
    let findings = history.findings(now.at_ns);
    assert_eq!((findings.len(), lines(&findings[0])[0]), (1, "src/pay.rs:22"), "{findings:#?}");
    assert_eq!(findings[0].severity, Severity::Critical, "as it was before");
    // Another poll of that task, much later, is not one that was found before.
    let poll = InFlight { task_id: 9, spawned_at: "src/main.rs:1:1".into(), for_ns: 300 * MS, ..InFlight::default() };
    now.workers[0].in_flight = Some(poll);
    now.at_ns = 30 * SECOND;
    history.check(&now);
    now.at_ns = 31 * SECOND;
    history.check(&now);
    assert_eq!(history.findings(now.at_ns).len(), 2);
}

#[test]
fn a_poll_recorded_late_does_not_wait_for_the_next_check() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    let spawned_at = "src/main.rs:1:1".to_owned();
    let poll = InFlight { task_id: 9, spawned_at: spawned_at.clone(), for_ns: 300 * MS, ..InFlight::default() };
    now.workers = vec![Worker { in_flight: Some(poll), ..Worker::default() }];
    now.incidents.by_cause = vec![1];
    history.check(&now);
    assert_eq!(lines(&history.findings(now.at_ns)[0]), ["src/main.rs:1:1"]);
    // It was counted before.
    now.at_ns += 100 * MS;
    now.workers[0].in_flight.as_mut().unwrap().for_ns += 100 * MS;
    let began_at_ns = 9_700 * MS;
    let incident = Incident { began_at_ns, task_id: 9, spawned_at, for_ns: 400 * MS, ..blocked(10, 22, true) };
    now.incidents.latest.push(Incident { is_over: false, ..incident });
    history.check(&now);
    let findings = history.findings(now.at_ns);
    assert_eq!((findings.len(), lines(&findings[0])[0]), (1, "src/pay.rs:22"), "{findings:#?}");
}

#[test]
fn a_poll_that_is_recorded_late_is_one_finding_while_pending() {
    // Without and with a pause of the machine, after which the incident's beginning is later.
    for paused_ms in [0, 150] {
        let mut history = History::default();
        history.check(&at(9));
        let spawned_at = "src/main.rs:1:1".to_owned();
        let mut found = |second: u64, incident: Option<bool>| {
            let mut now = at(second);
            let for_ns = (second * 1_000 - 9_700) * MS;
            let poll = InFlight { task_id: 9, spawned_at: spawned_at.clone(), for_ns, ..InFlight::default() };
            now.workers = vec![Worker { in_flight: Some(poll), ..Worker::default() }];
            now.incidents.latest.extend(incident.map(|is_line_known| Incident {
                began_at_ns: (9_700 + paused_ms) * MS,
                for_ns: for_ns - paused_ms * MS,
                is_over: false,
                task_id: 9,
                spawned_at: spawned_at.clone(),
                ..blocked(11, 22, is_line_known)
            }));
            history.check(&now);
            let mut findings = history.findings(now.at_ns);
            assert_eq!(findings.len(), 1, "in second {second}: {findings:#?}");
            assert_eq!(findings[0].severity, Severity::Critical);
            lines(&findings.remove(0)).iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(10, None), ["src/main.rs:1:1"]);
        assert_eq!(found(11, Some(false)), ["src/main.rs:1:1"]);
        assert_eq!(found(12, Some(true)), ["src/pay.rs:22", "src/main.rs:1:1"]);
    }
}

#[test]
fn a_stall_and_its_line_do_not_wait_for_the_next_check() {
    let mut history = History::default();
    let mut now = at(10);
    history.check(&now);
    let stuck = |is_line_known| Incident { for_ns: 600 * MS, is_over: true, ..blocked(10, 7, is_line_known) };
    let mut found = |after_ms: u64, is_line_known: bool| {
        now.at_ns = 10 * SECOND + after_ms * MS;
        now.incidents.by_cause = vec![1];
        now.incidents.latest = vec![stuck(is_line_known)];
        history.check(&now);
        let findings = history.findings(now.at_ns);
        assert_eq!(findings.len(), 1, "after {after_ms} ms: {findings:#?}");
        assert_eq!(findings[0].severity, Severity::Warning, "after {after_ms} ms: {findings:#?}");
        lines(&findings[0]).len()
    };
    let lines = [found(150, false), found(160, false), found(900, false), found(950, true), found(1_500, true)];
    assert_eq!(lines, [1, 1, 1, 2, 2]);
}

#[test]
fn a_recorded_stall_without_a_line_is_not_the_next_poll() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(11);
    let unknown = of_unknown_line(11, 400);
    // It begins when the first one ends.
    let began_at_ns = unknown.began_at_ns + unknown.for_ns;
    let next = Incident { began_at_ns, spawned_at: "src/main.rs:1:1".into(), ..blocked(11, 22, true) };
    now.incidents.latest.extend([unknown, next]);
    history.check(&now);
    let findings = history.findings(now.at_ns);
    let places: Vec<_> = findings.iter().map(|finding| lines(finding)[0]).collect();
    assert_eq!(places, ["src/main.rs:1:1", "src/pay.rs:22"], "{findings:#?}");
}

/// Returns what `course` reports of an outage in second 10 whose stack is read in second `read_at`:
/// whether it began, when, and its places.
fn reported(
    seconds: impl Iterator<Item = u64>,
    read_at: u64,
    is_read_elsewhere: bool,
) -> Vec<(bool, u64, Vec<String>)> {
    let (mut history, mut course) = (History::default(), Course::default());
    let mut reported = Vec::new();
    let seconds: Vec<_> = seconds.collect();
    for second in 9..80 {
        let mut now = at(second);
        let outage = Incident { for_ns: 150 * MS, ..blocked(10, 7, second >= read_at) };
        now.incidents.latest.extend((second >= 10).then_some(outage));
        let is_checked = seconds.contains(&second);
        if is_checked || is_read_elsewhere {
            history.judge(&mut now);
        }
        if !is_checked {
            continue;
        }
        for turn in course.check(&now) {
            let (is_beginning, finding) = match turn {
                Turn::Began { finding, .. } => (true, finding),
                Turn::Ended { finding, .. } => (false, finding),
            };
            let is_pending =
                finding.evidence.iter().any(|evidence| evidence.text.contains("the stack is not read yet"));
            let places = lines(&finding).into_iter().map(str::to_owned);
            let places = places.chain(is_pending.then(|| "pending".to_owned())).collect();
            reported.push((is_beginning, second, places));
        }
    }
    reported
}

#[test]
fn a_stall_without_a_stack_is_reported_without_it() {
    let without = || vec!["src/main.rs:7:1".to_owned(), "pending".to_owned()];
    // Its stack is read after the stall is past, or never.
    for read_at in [60, u64::MAX] {
        assert_eq!(reported(9..80, read_at, false), [(true, 20, without()), (false, 40, without())]);
    }
}

#[test]
fn a_stall_whose_stack_is_read_later_has_not_ended_before() {
    let reported = reported(9..80, 25, false);
    let turns: Vec<_> = reported.iter().map(|(is_beginning, second, _)| (*is_beginning, *second)).collect();
    assert_eq!(turns, [(true, 20), (true, 25), (false, 40)]);
    assert_eq!(reported[1].2, ["src/pay.rs:7", "src/main.rs:7:1"]);
}

#[test]
fn a_stall_whose_stack_takes_50_seconds_is_reported_with_it() {
    // Nothing was logged meanwhile; a client took snapshots, or none did.
    for is_read_elsewhere in [false, true] {
        let with_line = || vec!["src/pay.rs:7".to_owned(), "src/main.rs:7:1".to_owned()];
        let seconds = || [9].into_iter().chain(60..80);
        assert_eq!(reported(seconds(), 60, is_read_elsewhere), [(true, 60, with_line()), (false, 60, with_line())]);
    }
}
