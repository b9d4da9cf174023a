//! Stalls whose incident or line is recorded after the check that counted them.

use super::*;

#[test]
fn a_poll_that_is_written_down_late_is_one_finding() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    let spawned_at = "src/main.rs:1:1".to_owned();
    let poll = InFlight { task_id: 9, spawned_at: spawned_at.clone(), for_ns: 300 * MS, task_name: None };
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
    // Another poll of that task is not one that was found before.
    let poll = InFlight { task_id: 9, spawned_at: "src/main.rs:1:1".into(), for_ns: 300 * MS, task_name: None };
    now.workers[0].in_flight = Some(poll);
    now.at_ns = 15 * SECOND;
    history.check(&now);
    now.at_ns = 16 * SECOND;
    history.check(&now);
    assert_eq!(history.findings(now.at_ns).len(), 2);
}

#[test]
fn a_poll_written_down_late_does_not_wait_for_the_next_check() {
    let mut history = History::default();
    history.check(&at(9));
    let mut now = at(10);
    let spawned_at = "src/main.rs:1:1".to_owned();
    let poll = InFlight { task_id: 9, spawned_at: spawned_at.clone(), for_ns: 300 * MS, task_name: None };
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
