//! The model, driven by messages.

use volt_telemetry::incident::Incident;
use volt_telemetry::snapshot::Worker;

use super::*;
use crate::fixture::{self, STEP};

fn snapshot(workers: u32, step: u64) -> Message {
    Message::Snapshot { process: Box::new(fixture::process(workers, step)), lost: 0 }
}

fn act(model: &mut Model, action: Action) -> Option<Effect> {
    model.update(Message::Do(action))
}

fn runtime_name(model: &Model) -> String {
    model.scene().unwrap().snapshot.runtime.clone()
}

#[test]
fn the_second_snapshot_brings_rates_and_history() {
    let mut model = Model::new(STEP);
    assert!(model.scene().is_none());
    model.update(snapshot(2, 1));
    assert!(model.scene().unwrap().rates.is_none());
    assert_eq!(model.history().count(), 0);
    model.update(snapshot(2, 2));
    // 41,000 polls in half a second by the first worker, twice as many by the second.
    assert_eq!(model.scene().unwrap().rates.unwrap().polls_per_second, 246_000.0);
    assert_eq!(model.history().collect::<Vec<_>>(), [Some(246_000)]);
}

#[test]
fn history_is_bounded() {
    let mut model = Model::new(STEP);
    for step in 1..HISTORY_MAX as u64 + 9 {
        model.update(snapshot(0, step));
    }
    assert_eq!(model.history().count(), HISTORY_MAX);
}

#[test]
fn pausing_holds_the_picture_while_the_live_one_goes_on() {
    let mut model = fixture::model(2, 3);
    let held = model.scene().unwrap().snapshot.at_ns;
    assert_eq!(act(&mut model, Action::TogglePause), None);
    model.update(snapshot(2, 4));
    model.update(snapshot(2, 5));
    assert!(model.is_paused());
    assert_eq!(model.scene().unwrap().snapshot.at_ns, held);
    act(&mut model, Action::TogglePause);
    assert!(!model.is_paused());
    assert_eq!(model.scene().unwrap().snapshot.at_ns, held + 2 * STEP.as_nanos() as u64);
    assert_eq!(model.scene().unwrap().rates.unwrap().interval_ns, STEP.as_nanos() as u64, "no gap in the rates");
    assert_eq!(model.history().count(), 4, "no gap in the curve");
}

#[test]
fn the_busiest_runtime_is_shown_first_and_tab_goes_round() {
    let mut model = Model::new(STEP);
    let mut process = fixture::process(2, 3);
    process.runtimes.reverse();
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    assert_eq!(runtime_name(&model), "app", "the exporter was busy for less time");
    act(&mut model, Action::NextRuntime);
    assert_eq!(runtime_name(&model), "exporter");
    act(&mut model, Action::NextRuntime);
    assert_eq!(runtime_name(&model), "app");
    act(&mut model, Action::PreviousRuntime);
    assert_eq!(runtime_name(&model), "exporter");
}

#[test]
fn the_selected_runtime_stays_when_another_comes_before_it() {
    let mut model = fixture::model(2, 2);
    act(&mut model, Action::NextRuntime);
    let mut process = fixture::process(2, 3);
    process.runtimes.insert(0, fixture::runtime("new", 1, process.at_ns, 1));
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    assert_eq!(runtime_name(&model), "exporter");
    let mut process = fixture::process(2, 4);
    process.runtimes.pop();
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    assert_eq!(runtime_name(&model), "app", "its runtime is gone: the first one");
}

#[test]
fn the_busiest_of_equals_is_the_first() {
    let runtime = |busy_ns| Snapshot { workers: vec![Worker { busy_ns, ..Worker::default() }], ..Snapshot::default() };
    assert_eq!(busiest(&[runtime(5), runtime(7), runtime(7)]), Some(1));
    assert_eq!(busiest(&[runtime(0), runtime(0)]), Some(0));
    assert_eq!(busiest(&[]), None);
}

#[test]
fn the_selection_of_workers_stops_at_both_ends_and_shrinks_with_them() {
    let mut model = fixture::model(4, 1);
    act(&mut model, Action::Move(-1));
    assert_eq!(model.selected_worker, 0);
    act(&mut model, Action::Last);
    assert_eq!(model.selected_worker, 3);
    act(&mut model, Action::Move(10));
    assert_eq!(model.selected_worker, 3);
    model.update(snapshot(2, 2));
    assert_eq!(model.selected_worker, 1);
    act(&mut model, Action::First);
    assert_eq!(model.selected_worker, 0);
}

#[test]
fn intervals_go_up_and_down_within_their_list_and_are_asked_for() {
    let mut model = Model::new(INTERVALS[1]);
    assert_eq!(act(&mut model, Action::Faster), Some(Effect::Subscribe(INTERVALS[0])));
    assert_eq!(act(&mut model, Action::Faster), None, "it is the shortest");
    for interval in &INTERVALS[1..] {
        assert_eq!(act(&mut model, Action::Slower), Some(Effect::Subscribe(*interval)));
    }
    assert_eq!(act(&mut model, Action::Slower), None);
    let mut odd = Model::new(Duration::from_millis(333));
    assert_eq!(act(&mut odd, Action::Slower), Some(Effect::Subscribe(Duration::from_millis(500))));
}

#[test]
fn escape_closes_the_help_before_it_quits() {
    let mut model = fixture::model(2, 1);
    act(&mut model, Action::ToggleHelp);
    assert_eq!(act(&mut model, Action::Back), None);
    assert!(!model.is_help_open);
    assert_eq!(act(&mut model, Action::Back), Some(Effect::Quit));
    assert_eq!(act(&mut model, Action::Quit), Some(Effect::Quit));
}

#[test]
fn losses_add_up_over_subscriptions() {
    let mut model = fixture::model(2, 1);
    let lose = |model: &mut Model, step, lost| {
        model.update(Message::Snapshot { process: Box::new(fixture::process(2, step)), lost });
    };
    lose(&mut model, 2, 3);
    lose(&mut model, 3, 5);
    assert_eq!(model.lost, 5);
    lose(&mut model, 4, 1);
    assert_eq!(model.lost, 6, "the server counts from 0 after a new subscription");
    model.update(Message::Connected(model.hello.clone()));
    lose(&mut model, 5, 2);
    assert_eq!(model.lost, 8);
    model.update(Message::Missed(7));
    assert_eq!(model.lost, 15, "and what came while nobody was there to hear it");
    let started_anew = Hello { start_time: model.hello.start_time + 1, ..model.hello.clone() };
    model.update(Message::Connected(started_anew));
    model.update(Message::Missed(7));
    assert_eq!(model.lost, 15, "a program that was not there has sent nothing");
}

#[test]
fn a_lost_connection_remembers_when_it_was_lost_until_it_is_back() {
    let mut model = fixture::model(2, 3);
    let lost_at = model.now;
    let disconnected = |reason: &str| Message::Disconnected { reason: reason.into(), retry_in: STEP };
    model.update(disconnected("gone"));
    model.update(Message::Tick(lost_at + STEP));
    model.update(disconnected("still \u{1b}[5mgone"));
    let wanted = Link::Lost { since: lost_at, reason: "still [5mgone".into(), retry_at: lost_at + STEP * 2 };
    assert_eq!(model.link, wanted);
    assert_eq!(model.history().last(), Some(None), "the curve has a gap");
    assert_eq!(model.history().filter(Option::is_none).count(), 1, "one for each loss, not for each try");
    model.update(Message::Connected(Hello::default()));
    assert_eq!(model.link, Link::Live);
}

#[test]
fn a_program_that_was_started_anew_has_no_rates_from_before() {
    let mut model = fixture::model(2, 3);
    let process = Process { pid: 99, ..fixture::process(2, 4) };
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    assert!(model.scene().unwrap().rates.is_none());
}

#[test]
fn silence_is_noticed_after_three_intervals_and_a_second() {
    let mut model = fixture::model(2, 1);
    let heard_at = model.now;
    model.update(Message::Tick(heard_at + STEP * 3));
    assert_eq!(model.silent_for(), None);
    model.update(Message::Tick(heard_at + STEP * 6));
    assert_eq!(model.silent_for(), Some(STEP * 6));
    model.update(Message::Disconnected { reason: String::new(), retry_in: STEP });
    assert_eq!(model.silent_for(), None, "lost is more than silent");
}

/// What is stuck, and was, in `written` incidents.
fn stalled(step: u64, written: u64) -> Message {
    Message::Snapshot { process: Box::new(fixture::stalled(fixture::process(2, step), written)), lost: 0 }
}

/// The number of the selected incident.
fn incident(model: &Model) -> u64 {
    model.incidents.selected(&model.incident_rows()).unwrap().id
}

#[test]
fn the_selection_of_workers_passes_over_spares_that_are_off_and_leaves_one_that_goes_off() {
    let mut model = Model::new(STEP);
    model.update(stalled(1, 1));
    assert_eq!(model.scene().unwrap().snapshot.workers.len(), 4, "two, a spare on duty, and one off");
    act(&mut model, Action::Last);
    assert_eq!(model.selected_worker, 2);
    let mut process = fixture::stalled(fixture::process(2, 2), 1);
    process.runtimes[0].workers[2].duty = volt_telemetry::snapshot::Duty::Off;
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    assert_eq!(model.selected_worker, 1);
}

#[test]
fn keys_move_on_the_screen_that_is_shown_and_nowhere_else() {
    let mut model = fixture::stalled_model(4, 2);
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::Move(2));
    act(&mut model, Action::Show(Screen::Blame));
    act(&mut model, Action::Move(3));
    act(&mut model, Action::SortBy(1));
    // By another order the fourth of the first order may be elsewhere.
    let place = model.position();
    assert_eq!((model.selected_worker, incident(&model), model.list().order), (0, 5, 1));
    act(&mut model, Action::Show(Screen::Overview));
    act(&mut model, Action::SortBy(1));
    act(&mut model, Action::InvertSort);
    let by_load = model.worker_rows();
    assert_ne!(by_load, [0, 1, 2, 3, 4], "sorted by their load, the lowest first");
    act(&mut model, Action::Last);
    assert_eq!((model.selected_worker, incident(&model)), (by_load[4], 5));
    act(&mut model, Action::Show(Screen::Blame));
    assert_eq!((model.position(), model.list().order, model.list().is_inverted), (place, 1, false));
}

#[test]
fn the_latest_incident_is_followed_until_another_is_chosen() {
    let mut model = Model::new(STEP);
    model.update(stalled(1, 3));
    act(&mut model, Action::Show(Screen::Incidents));
    assert_eq!(incident(&model), 3);
    model.update(stalled(2, 4));
    assert_eq!(incident(&model), 4);
    act(&mut model, Action::Move(1));
    assert_eq!(incident(&model), 3);
    model.update(stalled(3, 6));
    assert_eq!(incident(&model), 3, "it follows its number");
    act(&mut model, Action::First);
    model.update(stalled(4, 7));
    assert_eq!(incident(&model), 7);
}

#[test]
fn an_open_stack_stays_when_its_incident_is_gone_and_knows_when_that_is_over() {
    let mut model = Model::new(STEP);
    model.update(stalled(1, 4));
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::ToggleDetail);
    assert_eq!(model.incidents.open_call(), Some(2), "at the line to look at");
    act(&mut model, Action::Move(-1));
    model.update(stalled(2, 5));
    let open = model.incidents.selected(&model.incident_rows()).unwrap().clone();
    assert_eq!((open.id, open.is_over, model.incidents.open_call()), (4, true, Some(1)));
    let mut process = fixture::stalled(fixture::process(2, 3), 90);
    process.runtimes[0].incidents.latest.drain(..80);
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    assert_eq!(incident(&model), 4);
    act(&mut model, Action::Last);
    assert_eq!(model.incidents.open_call(), Some(18), "the last of its calls");
    act(&mut model, Action::ToggleDetail);
    assert_eq!((model.incidents.open_call(), incident(&model)), (None, 90), "the latest: the other is gone");
}

#[test]
fn escape_closes_a_stack_then_its_screen_and_then_quits() {
    let mut model = fixture::stalled_model(2, 2);
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::ToggleDetail);
    act(&mut model, Action::ToggleHelp);
    let mut seen = Vec::new();
    while act(&mut model, Action::Back).is_none() {
        seen.push((model.is_help_open, model.incidents.open_call().is_some(), model.screen));
    }
    let wanted =
        [(false, true, Screen::Incidents), (false, false, Screen::Incidents), (false, false, Screen::Overview)];
    assert_eq!(seen, wanted);
}

#[test]
fn another_program_or_runtime_has_incidents_of_its_own() {
    let mut model = fixture::stalled_model(2, 2);
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::Move(4));
    act(&mut model, Action::ToggleDetail);
    act(&mut model, Action::NextRuntime);
    assert_eq!(model.incidents.selected(&model.incident_rows()), None);
    act(&mut model, Action::PreviousRuntime);
    act(&mut model, Action::ToggleDetail);
    let process = Process { pid: 99, ..fixture::stalled(fixture::process(2, 3), 5) };
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    assert_eq!((model.incidents.open_call(), incident(&model)), (None, 5));
}

#[test]
fn a_paused_picture_keeps_its_incidents() {
    let mut model = fixture::stalled_model(2, 2);
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::TogglePause);
    model.update(stalled(3, 9));
    assert_eq!(incident(&model), 7);
    act(&mut model, Action::TogglePause);
    assert_eq!(incident(&model), 9);
}

#[test]
fn the_blame_table_keeps_its_choice_when_the_order_changes() {
    let mut model = fixture::stalled_model(2, 2);
    act(&mut model, Action::Show(Screen::Blame));
    act(&mut model, Action::Move(2));
    let chosen = |model: &Model| {
        let rows = model.blame_rows();
        rows[model.position().unwrap()].blame.spawned_at.clone()
    };
    let before = chosen(&model);
    act(&mut model, Action::InvertSort);
    assert_eq!(chosen(&model), before);
    act(&mut model, Action::SortBy(-1));
    assert_eq!(chosen(&model), before);
    assert_eq!(model.list().order, crate::blame::ORDERS - 1, "round to the location");
}

fn task_ids(model: &Model) -> Vec<u64> {
    model.task_rows().iter().map(|row| row.item.id).collect()
}

#[test]
fn tasks_are_asked_for_while_their_screen_is_shown_and_why_while_one_is_open() {
    let mut model = fixture::stalled_model(2, 3);
    assert_eq!(model.wish(), crate::asker::Wish::default());
    act(&mut model, Action::Show(Screen::Tasks));
    let (runtime, query) = model.wish().tasks.unwrap();
    assert_eq!((runtime.as_str(), query.rank.name(), query.limit), ("app", "busy", TASKS_SHOWN));
    assert_eq!(model.wish().why, None);
    model.update(Message::Tasks(Box::new(fixture::tasks("app", 9, 3))));
    act(&mut model, Action::ToggleDetail);
    assert_eq!(model.wish().why, Some(("app".into(), task_ids(&model)[0])));
    act(&mut model, Action::Show(Screen::Events));
    assert_eq!(model.wish(), crate::asker::Wish::default(), "nobody looks");
}

#[test]
fn tasks_are_sorted_turned_and_filtered_by_what_was_asked_last() {
    let mut model = fixture::tasks_model(2, 40);
    assert_eq!(task_ids(&model)[0], 48_200, "the busiest first");
    act(&mut model, Action::SortBy(-1));
    assert_eq!(task_ids(&model)[0], 91_000, "by id, the youngest first");
    act(&mut model, Action::InvertSort);
    assert_eq!(task_ids(&model)[0], 48_200);
    act(&mut model, Action::Filter);
    "GET /bl".chars().for_each(|c| _ = act(&mut model, Action::Type(c)));
    assert_eq!(task_ids(&model), [48_201], "without waiting for the answer");
    assert_eq!(model.wish().tasks.unwrap().1.filter, "GET /bl");
    act(&mut model, Action::Accept);
    assert!(!model.is_typing && model.list().filter == "GET /bl");
    assert_eq!(act(&mut model, Action::Back), None);
    assert_eq!((model.screen, task_ids(&model).len()), (Screen::Tasks, 41), "the filter goes first");
    for (typed, wanted) in [("#48203", 1), ("stranded", 10), ("MAIN.RS", 1), ("nothing", 0)] {
        act(&mut model, Action::Filter);
        typed.chars().for_each(|c| _ = act(&mut model, Action::Type(c)));
        assert_eq!(task_ids(&model).len(), wanted, "{typed}");
        act(&mut model, Action::Back);
    }
}

#[test]
fn a_chosen_task_stays_chosen_and_its_load_is_that_of_the_last_interval() {
    let mut model = fixture::tasks_model(2, 40);
    act(&mut model, Action::Move(5));
    let chosen = model.selected_task().unwrap().id;
    act(&mut model, Action::InvertSort);
    model.update(Message::Tasks(Box::new(fixture::tasks("app", 60, 4))));
    assert_eq!(model.selected_task().unwrap().id, chosen);
    let rows = model.task_rows();
    let stuck = rows.iter().find(|row| row.item.id == 48_201).unwrap();
    let load = stuck.busy_ratio.unwrap();
    assert!((load - 0.6).abs() < 0.001, "300 ms of busy time in 500: {load}");
    assert!(rows.iter().any(|row| row.busy_ratio.is_none()), "of one that was not in the list before nothing is known");
}

#[test]
fn processes_are_asked_for_while_their_screen_is_shown_and_the_chosen_one_stays_chosen() {
    let mut model = fixture::stalled_model(2, 3);
    act(&mut model, Action::Show(Screen::Processes));
    let (runtime, query) = model.wish().processes.unwrap();
    assert_eq!((runtime.as_str(), query.rank, model.wish().tasks), ("app", processes::Rank::Mailbox, None));
    for step in [3, 4] {
        model.update(Message::Processes(Box::new(fixture::processes("app", 40, step))));
    }
    let pids = |model: &Model| model.process_rows().iter().map(|row| row.item.pid.clone()).collect::<Vec<_>>();
    assert_eq!(pids(&model)[0], "local:0.0");
    assert!(model.process_rows()[1].busy_ratio.is_some_and(|ratio| ratio > 0.0));
    act(&mut model, Action::Move(3));
    act(&mut model, Action::ToggleDetail);
    let chosen = model.processes.chosen.clone();
    assert_eq!(chosen.as_ref(), pids(&model).get(3));
    act(&mut model, Action::InvertSort);
    assert_eq!((model.wish().processes.unwrap().1.is_inverted, &model.processes.chosen), (true, &chosen));
    assert_eq!(model.position(), Some(36));
    act(&mut model, Action::Filter);
    "lobby".chars().for_each(|c| _ = act(&mut model, Action::Type(c)));
    assert_eq!((pids(&model).len(), model.wish().processes.unwrap().1.filter), (1, "lobby".into()));
    model.update(Message::Refused("too old".into()));
    assert_eq!((model.processes.trouble.as_deref(), &model.tasks.trouble), (Some("too old"), &None));
}

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

#[test]
fn why_and_refusals_are_cleaned_and_the_next_list_takes_a_refusal_back() {
    let mut model = fixture::tasks_model(2, 3);
    model.update(Message::Refused("too \u{1b}[2Jold".into()));
    assert_eq!(model.tasks.trouble.as_deref(), Some("too [2Jold"));
    let mut why = fixture::why(48_201);
    why.links[0].name = Some("a\u{9b}b".into());
    model.update(Message::Why { task: 48_201, why: Ok(Box::new(why)) });
    let (_, Ok(why)) = model.tasks.why.as_ref().unwrap() else { panic!("an answer") };
    assert_eq!(why.links[0].name.as_deref(), Some("ab"));
    model.update(Message::Tasks(Box::new(fixture::tasks("app", 3, 4))));
    assert_eq!(model.tasks.trouble, None);
}

fn events(model: &mut Model) -> Vec<String> {
    model.screen = Screen::Events;
    model.event_rows().iter().map(|event| format!("{} {}", event.kind, event.told())).collect()
}

#[test]
fn what_the_console_found_when_it_came_is_no_event_and_what_comes_then_is() {
    let mut model = Model::new(STEP);
    model.update(stalled(1, 3));
    assert_eq!(events(&mut model), [] as [&str; 0]);
    model.update(stalled(2, 5));
    let told = events(&mut model);
    let has = |wanted: &str| assert!(told.iter().any(|event| event.contains(wanted)), "{wanted} is not in {told:#?}");
    has("unstuck worker 1 by GET /blocking #48208");
    has("stall worker 1 by GET /blocking #48209 at handlers.rs:61");
    has("stuck worker 1 by GET /blocking #48210 at handlers.rs:61, so far 230ms: sleep");
    model.update(Message::Disconnected { reason: "gone".into(), retry_in: STEP });
    model.update(Message::Connected(Hello::default()));
    let mut process = fixture::stalled(fixture::process(2, 3), 5);
    process.runtimes.pop();
    process.runtimes[0].sentinel.replacements += 2;
    process.runtimes[0].tasks.panicked += 1;
    let all = process.runtimes[0].processes.as_mut().unwrap();
    (all.ended_abnormally, all.restarts) = (all.ended_abnormally + 3, all.restarts + 3);
    all.last_failure = Some(volt_telemetry::processes::Failure {
        pid: "local:7.1".into(),
        kind: "chat::Room".into(),
        reason: "panicked: no".into(),
        ..volt_telemetry::processes::Failure::default()
    });
    process.runtimes.push(fixture::runtime("new", 3, process.at_ns, 1));
    model.update(Message::Snapshot { process: Box::new(process), lost: 4 });
    let told = events(&mut model);
    let has = |wanted: &str| assert!(told.iter().any(|event| event.contains(wanted)), "{wanted} is not in {told:#?}");
    has("link connection lost: gone");
    has("link connected again after 0s");
    has("lost 4 snapshots");
    has("runtime it has ended");
    has("runtime it is there, with 3 workers");
    has("replaced 2x a spare");
    has("panic 1x a task panicked");
    has("process 3x a process ended abnormally, the last local:7.1 (Room): panicked: no");
    has("restart 3x a supervisor started a process anew");
}

#[test]
fn events_are_bounded_and_a_flood_of_stuck_polls_is_told_by_number() {
    let flood = |step: u64| {
        let mut process = fixture::process(2, step);
        let incident = |id| Incident { id, is_over: true, for_ns: 20_000_000, ..Incident::default() };
        process.runtimes[0].incidents.latest = (40 * step..40 * (step + 1)).map(incident).collect();
        Message::Snapshot { process: Box::new(process), lost: 0 }
    };
    let mut model = Model::new(STEP);
    (1..70).for_each(|step| _ = model.update(flood(step)));
    let told = events(&mut model);
    assert_eq!(told.len(), EVENTS_MAX);
    assert!(model.picture().log.forgotten > 0);
    assert!(told.iter().any(|event| event == "stalls 32 more stuck polls"), "{:?}", &told[..20]);
}

#[test]
fn what_goes_on_is_one_event_in_ten_seconds_that_counts() {
    let mut model = Model::new(STEP);
    for step in 1..40 {
        let mut process = fixture::process(2, step);
        process.runtimes[0].sentinel.replacements = step;
        model.update(Message::Tick(STEP * step as u32));
        model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    }
    let told: Vec<_> = events(&mut model).into_iter().filter(|event| event.starts_with("replaced")).collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[1].starts_with("replaced 20x within 9s: a spare"), "{told:#?}");
    assert!(told[0].starts_with("replaced 18x within 8s: a spare"), "{told:#?}");
}

#[test]
fn a_filter_is_asked_for_as_programs_cut_it_so_that_their_answer_is_known_as_the_one_asked_for() {
    let mut model = fixture::tasks_model(2, 9);
    model.list_mut().filter = "ü".repeat(150) + "x";
    let (_, query) = model.wish().tasks.unwrap();
    assert_eq!(query.filter, "ü".repeat(100));
}

#[test]
fn a_counter_that_jumps_back_and_forth_counts_to_the_end_and_no_further() {
    let mut model = Model::new(STEP);
    for (step, restarts) in [2, u64::MAX, 2, u64::MAX].into_iter().enumerate() {
        let mut process = fixture::process(2, step as u64 + 1);
        process.runtimes[0].processes.as_mut().unwrap().restarts = restarts;
        model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    }
    let told = events(&mut model);
    assert!(told.iter().any(|event| event.starts_with("restart 18.4Ex a supervisor")), "{told:#?}");
}

#[test]
fn findings_of_the_doctor_come_and_go_as_events() {
    let mut model = Model::new(STEP);
    for step in 1..140 {
        // Stuck from the fourth second to the sixth.
        let is_stuck = (8..12).contains(&step);
        let mut process =
            if is_stuck { fixture::stalled(fixture::process(2, step), 1) } else { fixture::process(2, step) };
        if !is_stuck {
            process.runtimes[0].workers.iter_mut().for_each(|worker| worker.in_flight = None);
        }
        model.update(Message::Tick(STEP * step as u32));
        model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
        let is_found = model.picture().findings.iter().any(|(_, finding)| finding.rule.name() == "stalled-poll");
        assert!(is_found || !is_stuck || step < 10, "judged anew every second");
    }
    let told = events(&mut model);
    assert!(told.iter().any(|event| event.starts_with("found stalled-poll:")), "{told:#?}");
    assert!(told.iter().any(|event| event.starts_with("over stalled-poll:")), "{told:#?}");
}

#[test]
fn a_finding_opens_the_stack_that_it_is_about() {
    let mut model = fixture::stalled_model(4, 5);
    act(&mut model, Action::Show(Screen::Doctor));
    let places: Vec<_> = model.finding_rows()[0].1.locations.iter().map(|place| place.at().to_owned()).collect();
    act(&mut model, Action::ToggleDetail);
    assert_eq!(model.screen, Screen::Incidents);
    assert!(model.incidents.open_call().is_some());
    let incident = model.incidents.selected(&[]).expect("its stack is open");
    assert!(places.contains(&incident.spawned_at), "{places:?}: {incident:#?}");
}

#[test]
fn a_click_selects_a_row_and_another_opens_it() {
    let mut model = fixture::tasks_model(2, 9);
    act(&mut model, Action::Pick(4));
    assert_eq!((model.position(), model.tasks.is_open), (Some(4), false));
    act(&mut model, Action::Pick(4));
    assert!(model.tasks.is_open);
    act(&mut model, Action::Pick(usize::MAX));
    assert_eq!(model.position(), Some(9), "the last");
}

#[test]
fn latency_is_of_all_workers_or_of_one_that_is_there() {
    let mut model = fixture::model(3, 3);
    act(&mut model, Action::Show(Screen::Latency));
    act(&mut model, Action::Last);
    assert_eq!(model.latency.worker, Some(2));
    model.update(snapshot(2, 4));
    assert_eq!(model.latency.worker, None, "it has gone");
    act(&mut model, Action::Move(1));
    act(&mut model, Action::Move(-1));
    assert_eq!(model.latency.worker, None, "all of them come before the first");
    let past = model.past().unwrap();
    let latest = past.spreads_of(Kind::Poll).next().unwrap().unwrap();
    assert_eq!(latest.iter().sum::<u32>() as u64, model.scene().unwrap().rates.unwrap().poll_time.count);
}
