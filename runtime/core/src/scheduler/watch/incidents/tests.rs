//! Tests of the log of incidents: its limits by kind and by time, and its bounds.

use volt_telemetry::incident::CauseTime;

use super::*;

fn incident(spawned_at: &str, cause: Cause) -> Incident {
    Incident { spawned_at: spawned_at.to_owned(), cause, ..Incident::default() }
}

#[test]
fn similar_incidents_are_recorded_once_a_second_and_counted() {
    let (log, second) = (Log::default(), 1_000_000_000);
    assert_eq!(log.open(incident("a:1", Cause::Sleep), second), Some(1));
    assert_eq!(log.open(incident("a:1", Cause::Sleep), second + 1), None);
    assert_eq!(log.open(incident("a:1", Cause::Sleep), second + 2), None);
    assert_eq!(log.open(incident("a:1", Cause::Lock), second + 2), Some(2), "another cause is another kind");
    assert_eq!(log.open(incident("b:1", Cause::Sleep), second + 2), Some(3));
    assert_eq!(log.open(incident("a:1", Cause::Sleep), 2 * second), Some(4));
    let reported = log.telemetry();
    assert_eq!((reported.total(), reported.suppressed, reported.evicted), (6, 2, 0));
    let suppressed: Vec<_> = reported.latest.iter().map(|incident| incident.suppressed).collect();
    assert_eq!(suppressed, [0, 0, 0, 2]);
    assert_eq!(reported.counts().find(|(cause, _)| *cause == Cause::Sleep), Some((Cause::Sleep, 5)));
}

#[test]
fn one_lasting_incident_per_second_is_recorded_late() {
    let (log, second) = (Log::default(), 1_000_000_000);
    assert_eq!(log.open(incident("a:1", Cause::Sleep), second), Some(1));
    assert_eq!([1, 2, 3].map(|ns| log.open(incident("a:1", Cause::Sleep), second + ns)), [None; 3]);
    let late = |at_ns| log.open_late(incident("a:1", Cause::Sleep), Cause::Sleep, at_ns);
    assert_eq!([second + 500, second + 600, 2 * second + 500].map(late), [Some(2), None, Some(3)]);
    let reported = log.telemetry();
    assert_eq!((reported.total(), reported.suppressed), (4, 3), "counted when they began");
    let suppressed: Vec<_> = reported.latest.iter().map(|incident| incident.suppressed).collect();
    assert_eq!(suppressed, [0, 2, 0]);
    assert_eq!(log.open(incident("a:1", Cause::Sleep), 2 * second + 600), Some(4), "it is no new beginning");
}

#[test]
fn a_late_incident_with_another_cause_is_counted_once() {
    let log = Log::default();
    let second = 1_000_000_000;
    for cause in [Cause::Lock, Cause::Sleep] {
        assert!(log.open(incident("a:1", cause), second).is_some());
        assert_eq!([1, 2].map(|ns| log.open(incident("a:1", cause), second + ns)), [None; 2]);
    }
    // It was counted as one that waits for a lock, and now it sleeps.
    let id = log.open_late(incident("a:1", Cause::Sleep), Cause::Lock, second + 500).unwrap();
    assert_eq!(log.get(id).unwrap().suppressed, 2, "others that sleep");
    let next = log.open(incident("a:1", Cause::Lock), 2 * second).unwrap();
    assert_eq!(log.get(next).unwrap().suppressed, 1, "the other one that waits for a lock");
}

#[test]
fn a_kind_that_was_recorded_late_keeps_its_limit() {
    let (log, second) = (Log::default(), 1_000_000_000);
    for n in 1..KINDS_MAX {
        log.open(incident(&format!("file:{n}"), Cause::Cpu), second);
    }
    assert!(log.open_late(incident("a:1", Cause::Sleep), Cause::Lock, 5 * second).is_some());
    // Makes room: of the kinds so far, only the last one is not quiet.
    assert!(log.open(incident("b:1", Cause::Cpu), 5 * second + 1).is_some());
    assert_eq!(log.lock().kinds.len(), 2);
    assert_eq!(log.open_late(incident("a:1", Cause::Sleep), Cause::Lock, 5 * second + 2), None);
}

#[test]
fn usual_incidents_are_all_counted_and_logged_once_a_minute() {
    let (log, second) = (Log::default(), 1_000_000_000);
    let mut logged = Vec::new();
    for n in 1..=150 {
        for soon in 0..3 {
            let now_ns = n * second + soon;
            let Some(id) = log.open(incident("a:1", Cause::Sleep), now_ns) else { continue };
            logged.extend(log.log(&log.get(id).unwrap(), true, now_ns).map(|suppressed| (n, suppressed)));
        }
    }
    assert_eq!(logged, [(1, 0), (61, 179), (121, 179)]);
    let reported = log.telemetry();
    assert_eq!((reported.total(), reported.latest.len()), (450, LATEST_MAX), "the doctor sees one of each second");
    let unusual = log.open(incident("a:1", Cause::Sleep), 151 * second).unwrap();
    assert_eq!(log.log(&log.get(unusual).unwrap(), false, 151 * second), Some(89));
}

#[test]
fn the_log_is_bounded_whatever_comes() {
    let log = Log::default();
    for n in 0..10_000_u64 {
        log.open(incident(&format!("file:{n}"), Cause::Cpu), n);
    }
    let reported = log.telemetry();
    assert_eq!(reported.latest.len(), LATEST_MAX);
    assert_eq!(reported.total(), 10_000);
    assert_eq!(reported.suppressed + reported.evicted + LATEST_MAX as u64, 10_000);
    assert!(log.lock().kinds.len() <= KINDS_MAX);
}

#[test]
fn an_overwritten_incident_is_not_changed() {
    let log = Log::default();
    let id = log.open(incident("a:1", Cause::Cpu), 1).unwrap();
    log.change(id, |incident| incident.is_over = true);
    let changed = log.get(id).unwrap();
    assert!(changed.is_over && log.telemetry().latest[0].is_over);
    log.change(id + 1, |_| unreachable!("there is none"));
    assert!(log.get(id + 1).is_none());
}

#[test]
fn a_stack_is_stored_once_and_sent_with_its_incident() {
    let log = Log::default();
    let id = log.open(incident("a:1", Cause::Cpu), 1).unwrap();
    let frames = vec![Frame { address: 5, ..Frame::default() }; STACK_FRAMES_MAX + 1];
    log.fill_in(id, Cause::Cpu, Resolved { frames, error: Some("cut".to_owned()), ..Resolved::default() });
    let reported = log.get(id).unwrap();
    assert_eq!((reported.stack.len(), reported.stack[0].address), (STACK_FRAMES_MAX, 5));
    assert_eq!(reported.stack_error.as_deref(), Some("cut"));
    assert_eq!(log.telemetry().latest, [reported]);
    assert_eq!(Arc::strong_count(&log.lock().latest[0].stacks[0].frames), 1, "a reader gets copies");
}

#[test]
fn a_reader_gets_the_stack_of_the_longest_cause_and_all_lines() {
    let log = Log::default();
    let part = |cause, for_ns| CauseTime { cause, for_ns, at: None };
    let causes = vec![part(Cause::Lock, 2), part(Cause::Sleep, 1)];
    let id = log.open(Incident { causes, ..incident("a:1", Cause::Lock) }, 1).unwrap();
    for (cause, line) in [(Cause::Lock, 19), (Cause::Sleep, 26)] {
        let frame = Frame { file: Some("main.rs".into()), line: Some(line), is_user_code: true, ..Frame::default() };
        log.fill_in(id, cause, Resolved { frames: vec![frame], ..Resolved::default() });
    }
    let lines = |incident: &Incident| {
        let of_causes: Vec<_> = incident.causes.iter().map(|part| part.at.clone().unwrap()).collect();
        (incident.guilty().unwrap().line.unwrap(), of_causes)
    };
    let whole = log.get(id).unwrap();
    assert_eq!(lines(&whole), (19, vec!["main.rs:19".to_owned(), "main.rs:26".to_owned()]));
    log.change(id, |incident| incident.cause = Cause::Sleep);
    assert_eq!(lines(&log.get(id).unwrap()).0, 26);
    log.fill_in(id, Cause::Sleep, Resolved { error: Some("late".into()), ..Resolved::default() });
    let without = log.get(id).unwrap();
    assert_eq!((without.stack.len(), without.stack_error.as_deref()), (0, Some("late")), "no line of another cause");
    assert_eq!(log.last_cause(id), Some(Cause::Lock));
    log.sample(id, Cause::Sleep, |_| ());
    assert_eq!(log.last_cause(id), Some(Cause::Sleep));
}

#[test]
fn a_missed_stack_counts_as_not_read_yet_until_it_is_final() {
    let log = Log::default();
    let id = log.open(incident("a:1", Cause::Io), 1).unwrap();
    let error = || log.get(id).unwrap().stack_error;
    log.miss(id, Cause::Io, "late".into(), false);
    assert_eq!(error(), None, "it will be requested again");
    log.sample(id, Cause::Sleep, |_| ());
    assert_eq!(error().as_deref(), Some("late"), "it is not requested while the poll has another cause");
    log.sample(id, Cause::Io, |_| ());
    assert_eq!(error(), None);
    assert!(!log.take_missed(id, Cause::Sleep) && log.take_missed(id, Cause::Io));
    assert!(!log.take_missed(id, Cause::Io), "the request is under way");
    log.miss(id, Cause::Io, "late again".into(), false);
    log.change(id, |incident| incident.is_over = true);
    assert_eq!(error().as_deref(), Some("late again"), "there is no later request");
    log.change(id, |incident| incident.is_over = false);
    log.miss(id, Cause::Io, "too late".into(), true);
    assert_eq!((error().as_deref(), log.take_missed(id, Cause::Io)), (Some("too late"), false));
    log.miss(id, Cause::Io, "the last".into(), false);
    log.end_requests(id);
    assert_eq!((error().as_deref(), log.take_missed(id, Cause::Io)), (Some("the last"), false));
}

#[test]
fn the_most_effective_action_is_reported() {
    let all = [Remedy::Rescued, Remedy::None, Remedy::Capped, Remedy::Replaced, Remedy::Rescued];
    assert_eq!(all.into_iter().fold(Remedy::None, worse), Remedy::Replaced);
}
