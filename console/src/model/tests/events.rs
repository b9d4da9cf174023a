//! Tests of the log of events.

use super::*;

#[test]
fn a_pause_keeps_the_tasks_and_the_events_of_its_moment() {
    let mut model = fixture::tasks_model(2, 10);
    act(&mut model, Action::TogglePause);
    model.update(Message::Tasks(Box::new(fixture::tasks("app", 30, 4))));
    model.update(stalled(4, 9));
    assert_eq!(task_ids(&model).len(), 11);
    act(&mut model, Action::TogglePause);
    assert_eq!(task_ids(&model).len(), 31);
}

fn events(model: &mut Model) -> Vec<String> {
    model.screen = Screen::Events;
    model.event_rows().iter().map(|event| format!("{} {}", event.kind, event.full_text())).collect()
}

#[test]
fn the_first_snapshot_logs_no_events_and_later_changes_do() {
    let mut model = Model::new(STEP);
    model.update(stalled(1, 3));
    assert_eq!(events(&mut model), [] as [&str; 0]);
    model.update(stalled(2, 5));
    let texts = events(&mut model);
    let has = |wanted: &str| assert!(texts.iter().any(|event| event.contains(wanted)), "{wanted} is not in {texts:#?}");
    has("unstuck worker 1 by GET /blocking #48208");
    has("stall worker 1 by GET /blocking #48209 at handlers.rs:61");
    has("stuck worker 1 by GET /blocking #48210 at handlers.rs:61, so far 230ms: sleep");
    model.update(Message::Disconnected { reason: "gone".into(), retry_in: STEP });
    model.update(Message::Connected(Hello::default()));
    let mut program = fixture::stalled(fixture::program(2, 3), 5);
    program.runtimes.pop();
    program.runtimes[0].sentinel.spare_calls += 2;
    program.runtimes[0].tasks.panicked += 1;
    let all = program.runtimes[0].processes.as_mut().unwrap();
    (all.ended_abnormally, all.restarts) = (all.ended_abnormally + 3, all.restarts + 3);
    all.last_failure = Some(volt_telemetry::processes::Failure {
        pid: "local:7.1".into(),
        kind: "chat::Room".into(),
        reason: "panicked: no".into(),
        ..volt_telemetry::processes::Failure::default()
    });
    program.runtimes.push(fixture::runtime("new", 3, program.at_ns, 1));
    model.update(Message::Snapshot { program: Box::new(program), lost: 4 });
    let texts = events(&mut model);
    let has = |wanted: &str| assert!(texts.iter().any(|event| event.contains(wanted)), "{wanted} is not in {texts:#?}");
    has("connection lost: gone");
    has("connection reconnected after 0s");
    has("lost 4 snapshots");
    has("runtime ended");
    has("runtime started with 3 workers");
    has("replaced 2 times: a spare");
    has("panic a task panicked");
    has("process 3 times: a process exited abnormally, latest local:7.1 (Room): panicked: no");
    has("restart 3 times: a supervisor restarted a process");
}

#[test]
fn the_event_log_is_bounded_and_summarizes_floods() {
    let flood = |step: u64| {
        let mut program = fixture::program(2, step);
        let incident = |id| Incident { id, is_over: true, for_ns: 20_000_000, ..Incident::default() };
        program.runtimes[0].incidents.latest = (40 * step..40 * (step + 1)).map(incident).collect();
        Message::Snapshot { program: Box::new(program), lost: 0 }
    };
    let mut model = Model::new(STEP);
    (1..70).for_each(|step| _ = model.update(flood(step)));
    let texts = events(&mut model);
    assert_eq!(texts.len(), EVENTS_MAX);
    assert!(model.state().log.forgotten > 0);
    assert!(texts.iter().any(|event| event == "stall 32 more stuck polls"), "{:?}", &texts[..20]);
}

#[test]
fn a_lasting_condition_is_one_event_in_ten_seconds_with_a_count() {
    let mut model = Model::new(STEP);
    for step in 1..40 {
        let mut program = fixture::program(2, step);
        program.runtimes[0].sentinel.spare_calls = step;
        model.update(Message::Tick(STEP * step as u32));
        model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    }
    let texts: Vec<_> = events(&mut model).into_iter().filter(|event| event.starts_with("replaced")).collect();
    assert_eq!(texts.len(), 2, "{texts:#?}");
    assert!(texts[1].starts_with("replaced 20 times in 9s: a spare"), "{texts:#?}");
    assert!(texts[0].starts_with("replaced 18 times in 8s: a spare"), "{texts:#?}");
}

#[test]
fn in_a_replay_events_have_the_times_of_the_recording() {
    let mut model = Model::new(STEP);
    let program = |step, panicked| {
        let mut program = fixture::program(2, step);
        program.runtimes[0].tasks.panicked = panicked;
        program
    };
    let [first, second, whole] = [1, 31, 90].map(Duration::from_secs);
    let played = |at| Played { at, whole, is_playing: true, broke: None };
    model.play(played(first), Some(program(1, 0)), program(2, 1));
    model.play(played(second), None, program(3, 2));
    let panics = model.state().log.newest_first().filter(|event| event.kind == "panic");
    assert_eq!(panics.map(|event| event.at).collect::<Vec<_>>(), [second, first]);
    assert_eq!(model.now, second);
}

#[test]
fn a_stuck_worker_without_a_spare_is_not_logged_as_replaced() {
    let mut model = fixture::model(2, 2);
    let mut program = fixture::program(2, 3);
    program.runtimes[0].sentinel.replacements += 50;
    program.runtimes[0].sentinel.capped += 50;
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    let texts = events(&mut model);
    assert!(!texts.iter().any(|event| event.starts_with("replaced")), "{texts:#?}");
    assert!(texts.iter().any(|event| event.starts_with("no spare 50 times: no spare worker")), "{texts:#?}");
}

#[test]
fn an_oscillating_counter_saturates_instead_of_overflowing() {
    let mut model = Model::new(STEP);
    for (step, restarts) in [2, u64::MAX, 2, u64::MAX].into_iter().enumerate() {
        let mut program = fixture::program(2, step as u64 + 1);
        program.runtimes[0].processes.as_mut().unwrap().restarts = restarts;
        model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    }
    let texts = events(&mut model);
    assert!(texts.iter().any(|event| event.starts_with("restart 18.4E times: a supervisor")), "{texts:#?}");
}

#[test]
fn findings_of_the_doctor_come_and_go_as_events() {
    let mut model = Model::new(STEP);
    for step in 1..140 {
        // A worker is stuck from the fourth second to the sixth.
        let is_stuck = (8..12).contains(&step);
        let mut program =
            if is_stuck { fixture::stalled(fixture::program(2, step), 1) } else { fixture::program(2, step) };
        if !is_stuck {
            program.runtimes[0].workers.iter_mut().for_each(|worker| worker.in_flight = None);
        }
        model.update(Message::Tick(STEP * step as u32));
        model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
        let is_found = model.state().findings.iter().any(|(_, finding)| finding.rule.name() == "stalled-poll");
        assert!(is_found || !is_stuck || step < 10, "judged anew every second");
    }
    let texts = events(&mut model);
    assert!(texts.iter().any(|event| event.starts_with("finding stalled-poll:")), "{texts:#?}");
    assert!(texts.iter().any(|event| event.starts_with("past stalled-poll:")), "{texts:#?}");
}
