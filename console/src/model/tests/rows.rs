//! Tests of the rows: which are shown, in which order, and which is selected.

use volt_telemetry::finding::{Place, Severity};
use volt_telemetry::incident::Blame;
use volt_telemetry::routes::Route;
use volt_telemetry::rule::Rule;

use super::*;

/// Returns the number of the selected incident.
fn incident(model: &Model) -> u64 {
    model.incidents.selected(&model.incident_rows()).unwrap().id
}

#[test]
fn the_worker_selection_skips_inactive_spares() {
    let mut model = Model::new(STEP);
    model.update(stalled(1, 1));
    assert_eq!(model.scene().unwrap().snapshot.workers.len(), 4, "two, an active spare, and an inactive one");
    act(&mut model, Action::Last);
    assert_eq!(model.selected_worker, 2);
    let mut program = fixture::stalled(fixture::program(2, 2), 1);
    program.runtimes[0].workers[2].duty = volt_telemetry::snapshot::Duty::Off;
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
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
    // In another order, the row may be at another position.
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
fn an_open_incident_stays_open_after_leaving_the_snapshot() {
    let mut model = Model::new(STEP);
    model.update(stalled(1, 4));
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::ToggleDetail);
    assert_eq!(model.incidents.open_call(), Some(2), "at the line to look at");
    act(&mut model, Action::Move(-1));
    model.update(stalled(2, 5));
    let open = model.incidents.selected(&model.incident_rows()).unwrap().clone();
    assert_eq!((open.id, open.is_over, model.incidents.open_call()), (4, true, Some(1)));
    let mut program = fixture::stalled(fixture::program(2, 3), 90);
    program.runtimes[0].incidents.latest.drain(..80);
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert_eq!(incident(&model), 4);
    act(&mut model, Action::Last);
    assert_eq!(model.incidents.open_call(), Some(18), "the last of its calls");
    act(&mut model, Action::ToggleDetail);
    assert_eq!(
        (model.incidents.open_call(), incident(&model)),
        (None, 90),
        "the latest, since the selected one was removed"
    );
}

#[test]
fn escape_closes_a_stack_then_its_screen_and_never_quits() {
    let mut model = fixture::stalled_model(2, 2);
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::ToggleDetail);
    act(&mut model, Action::NextHelp);
    let mut seen = Vec::new();
    for _ in 0..4 {
        assert_eq!(act(&mut model, Action::Back), None);
        seen.push((model.help_page.is_some(), model.incidents.open_call().is_some(), model.screen));
    }
    let overview = (false, false, Screen::Overview);
    let wanted = [(false, true, Screen::Incidents), (false, false, Screen::Incidents), overview, overview];
    assert_eq!(seen, wanted);
}

#[test]
fn escape_clears_a_filter_that_hides_an_open_detail() {
    for screen in [Screen::Tasks, Screen::Processes] {
        let mut model = fixture::model(2, 2);
        model.update(Message::Tasks(Box::new(fixture::tasks("app", 4, 2))));
        model.update(Message::Processes(Box::new(fixture::processes("app", 4, 2))));
        act(&mut model, Action::Show(screen));
        act(&mut model, Action::ToggleDetail);
        act(&mut model, Action::Filter);
        "zzz".chars().for_each(|c| _ = act(&mut model, Action::Type(c)));
        act(&mut model, Action::Accept);
        model.update(Message::Tasks(Box::new(fixture::tasks("app", 0, 3))));
        model.update(Message::Processes(Box::new(fixture::processes("app", 0, 3))));
        act(&mut model, Action::Back);
        let is_open = if screen == Screen::Tasks { model.tasks.is_open } else { model.processes.is_open };
        assert!(is_open && model.list().filter.is_empty() && model.screen == screen);
    }
}

#[test]
fn another_program_or_runtime_has_its_own_incidents() {
    let mut model = fixture::stalled_model(2, 2);
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::Move(4));
    act(&mut model, Action::ToggleDetail);
    act(&mut model, Action::NextRuntime);
    assert_eq!(model.incidents.selected(&model.incident_rows()), None);
    act(&mut model, Action::PreviousRuntime);
    act(&mut model, Action::ToggleDetail);
    let program = Program { pid: 99, ..fixture::stalled(fixture::program(2, 3), 5) };
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert_eq!((model.incidents.open_call(), incident(&model)), (None, 5));
}

#[test]
fn an_open_stack_stays_when_the_runtime_is_built_anew() {
    let mut model = fixture::stalled_model(2, 2);
    act(&mut model, Action::Show(Screen::Incidents));
    act(&mut model, Action::ToggleDetail);
    let opened = model.incidents.selected(&[]).cloned();
    assert!(opened.is_some());
    let mut program = fixture::stalled(fixture::program(2, 3), 7);
    program.runtimes[0].started_at_ns += 1;
    program.runtimes[0].incidents.latest.iter_mut().for_each(|incident| incident.task_id += 1_000);
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert_eq!(model.incidents.selected(&[]), opened.as_ref());
}

#[test]
fn a_dump_is_not_shown_for_the_next_program() {
    let mut model = fixture::model(2, 2);
    act(&mut model, Action::Show(Screen::Waits));
    model.update(Message::Dump(Box::new(fixture::dump())));
    let requested = model.needs().dump;
    assert!(model.dump().is_some() && requested.is_some());
    model.update(snapshot(2, 3));
    assert!(model.dump().is_some() && model.needs().dump == requested);
    let program = Program { pid: 99, ..fixture::program(2, 4) };
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert!(model.dump().is_none() && model.needs().dump.is_some() && model.needs().dump != requested);
}

#[test]
fn a_paused_screen_keeps_its_incidents() {
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
        rows[model.position().unwrap()].item.spawned_at.clone()
    };
    let before = chosen(&model);
    act(&mut model, Action::InvertSort);
    assert_eq!(chosen(&model), before);
    act(&mut model, Action::SortBy(-1));
    assert_eq!(chosen(&model), before);
    assert_eq!(model.list().order, crate::tables::blame::ORDERS - 1, "round to the location");
}

#[test]
fn the_task_list_and_wake_chain_are_requested_only_when_shown() {
    let mut model = fixture::stalled_model(2, 3);
    assert_eq!(model.needs(), crate::model::Needs::default());
    act(&mut model, Action::Show(Screen::Tasks));
    let (runtime, query) = model.needs().tasks.unwrap();
    assert_eq!((runtime.as_str(), query.rank.name(), query.limit), ("app", "busy", TASKS_SHOWN));
    assert_eq!(model.needs().why, None);
    model.update(Message::Tasks(Box::new(fixture::tasks("app", 9, 3))));
    act(&mut model, Action::ToggleDetail);
    assert_eq!(model.needs().why, Some(("app".into(), task_ids(&model)[0])));
    act(&mut model, Action::Show(Screen::Events));
    assert_eq!(model.needs(), crate::model::Needs::default(), "nothing is shown");
}

#[test]
fn tasks_are_sorted_and_filtered_before_the_program_replies() {
    let mut model = fixture::tasks_model(2, 40);
    assert_eq!(task_ids(&model)[0], 48_200, "the busiest first");
    act(&mut model, Action::SortBy(-1));
    assert_eq!(task_ids(&model)[0], 91_000, "by id, the youngest first");
    act(&mut model, Action::InvertSort);
    assert_eq!(task_ids(&model)[0], 48_200);
    act(&mut model, Action::Filter);
    "GET /bl".chars().for_each(|c| _ = act(&mut model, Action::Type(c)));
    assert_eq!(task_ids(&model), [48_201], "without waiting for the answer");
    assert_eq!(model.needs().tasks.unwrap().1.filter, "GET /bl");
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
fn the_selected_task_stays_selected_and_its_load_is_current() {
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
fn the_process_list_is_requested_only_on_its_screen() {
    let mut model = fixture::stalled_model(2, 3);
    act(&mut model, Action::Show(Screen::Processes));
    let (runtime, query) = model.needs().processes.unwrap();
    assert_eq!((runtime.as_str(), query.rank, model.needs().tasks), ("app", processes::Rank::Mailbox, None));
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
    assert_eq!((model.needs().processes.unwrap().1.is_inverted, &model.processes.chosen), (true, &chosen));
    assert_eq!(model.position(), Some(36));
    act(&mut model, Action::Filter);
    "lobby".chars().for_each(|c| _ = act(&mut model, Action::Type(c)));
    assert_eq!((pids(&model).len(), model.needs().processes.unwrap().1.filter), (1, "lobby".into()));
    model.update(Message::Refused("too old".into()));
    assert_eq!((model.processes.error.as_deref(), &model.tasks.error), (Some("too old"), &None));
}

#[test]
fn chains_and_refusals_are_sanitized_and_lists_clear_refusals() {
    let mut model = fixture::tasks_model(2, 3);
    model.update(Message::Refused("too \u{1b}[2Jold".into()));
    assert_eq!(model.tasks.error.as_deref(), Some("too [2Jold"));
    let mut why = fixture::why(48_201);
    why.links[0].name = Some("a\u{9b}b".into());
    model.update(Message::Why { task: 48_201, why: Ok(Box::new(why)) });
    let (_, Ok(why)) = model.tasks.why.as_ref().unwrap() else { panic!("an answer") };
    assert_eq!(why.links[0].name.as_deref(), Some("ab"));
    model.update(Message::Tasks(Box::new(fixture::tasks("app", 3, 4))));
    assert_eq!(model.tasks.error, None);
}

/// Returns the number of rows that each of these filters leaves on the screen.
fn rows_with<const N: usize>(model: &mut Model, filters: [&str; N], rows: impl Fn(&Model) -> usize) -> [usize; N] {
    filters.map(|filter| {
        model.list_mut().filter.clear();
        filter.chars().for_each(|c| _ = act(model, Action::Type(c)));
        rows(model)
    })
}

#[test]
fn filters_find_kinds_and_lines_of_awaits() {
    let mut model = fixture::model(2, 2);
    act(&mut model, Action::Show(Screen::Waits));
    model.update(Message::Dump(Box::new(fixture::dump())));
    let rows = |model: &Model| model.wait_rows().len();
    let filters = ["Lock", "orders.rs:52", "place", "oneshot.rs:459", "#77", "orders.rs:53"];
    assert_eq!(rows_with(&mut model, filters, rows), [1, 1, 1, 1, 1, 0]);
    let mut model = fixture::tasks_model(2, 8);
    let rows = |model: &Model| model.task_rows().len();
    let all = rows(&model);
    let filters = ["MESSAGE", "a message", "handlers.rs:133", "handlers.rs:134"];
    let [of_kind, as_shown, of_line, none] = rows_with(&mut model, filters, rows);
    assert!(0 < of_kind && of_kind < all && of_line == of_kind, "{of_kind} and {of_line} of {all}");
    assert_eq!(as_shown, of_kind);
    assert_eq!(none, 0);
}

#[test]
fn the_requested_filter_is_truncated_as_programs_truncate_it() {
    let mut model = fixture::tasks_model(2, 9);
    model.list_mut().filter = "ü".repeat(150) + "x";
    let (_, query) = model.needs().tasks.unwrap();
    assert_eq!(query.filter, "ü".repeat(100));
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
fn a_spawn_location_opens_a_stack_or_what_its_tasks_wait_for() {
    let mut model = fixture::stalled_model(4, 5);
    let spawned_at = model.scene().unwrap().snapshot.incidents.latest[0].spawned_at.clone();
    let mut opened = |spawned_at: String| {
        let mut program = model.state().program.clone().unwrap();
        program.runtimes[0].blame = vec![Blame { spawned_at, ..Blame::default() }];
        model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
        act(&mut model, Action::Show(Screen::Blame));
        act(&mut model, Action::ToggleDetail);
        (model.screen, model.list().filter.clone())
    };
    assert_eq!(opened(spawned_at), (Screen::Incidents, String::new()));
    assert_eq!(opened("src/b.rs:3:5".into()), (Screen::Waits, "src/b.rs:3:5".into()));
}

#[test]
fn a_route_opens_the_stack_of_its_latest_stuck_poll() {
    let mut model = fixture::stalled_model(4, 5);
    let mut program = model.state().program.clone().unwrap();
    program.runtimes[0].routes = [9, 1]
        .map(|active| Route { method: "GET".into(), path: format!("/{active}"), active, ..Route::default() })
        .into();
    program.runtimes[0].incidents.latest[0].route = Some("GET /9".into());
    let incident = program.runtimes[0].incidents.latest[0].clone();
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    act(&mut model, Action::Show(Screen::Routes));
    let place = model.route_rows().iter().position(|row| row.item.path == "/1").unwrap();
    act(&mut model, Action::Move(place as isize));
    act(&mut model, Action::ToggleDetail);
    assert_eq!(model.screen, Screen::Routes, "no poll of it was stuck");
    act(&mut model, Action::First);
    act(&mut model, Action::Move(1 - place as isize));
    act(&mut model, Action::ToggleDetail);
    assert_eq!(model.screen, Screen::Incidents);
    assert_eq!(model.incidents.selected(&[]).map(|open| open.spawned_at.clone()), Some(incident.spawned_at));
}

#[test]
fn a_finding_without_a_stack_opens_what_its_tasks_wait_for() {
    let opened = |finding| {
        let mut model = fixture::found_model(vec![finding]);
        act(&mut model, Action::Show(Screen::Doctor));
        let before = model.waits.requested;
        act(&mut model, Action::ToggleDetail);
        (model.screen, model.list().filter.clone(), model.waits.requested - before)
    };
    let at = |line: u32| Place::Spawned { at: format!("src/a.rs:{line}:5") };
    let awaited = Place::Guilty { at: "src/a.rs:33:9".into(), function: None };
    let deadlock = fixture::finding(Rule::Deadlock, Severity::Critical, &[1201, 1187], &[awaited.clone(), at(3)]);
    assert_eq!(opened(deadlock), (Screen::Waits, "#1201".into(), 1));
    let leak = fixture::finding(Rule::TaskLeak, Severity::Warning, &[], &[awaited, at(7)]);
    assert_eq!(opened(leak), (Screen::Waits, "src/a.rs:7:5".into(), 1));
    let lost = fixture::finding(Rule::LostWaker, Severity::Warning, &[9], &[]);
    assert_eq!(opened(lost), (Screen::Waits, "#9".into(), 1));
    let storm = fixture::finding(Rule::WakeStorm, Severity::Warning, &[], &[]);
    assert_eq!(opened(storm), (Screen::Doctor, String::new(), 0), "there is nothing to open");
    // The filter leaves the task of the deadlock and those that wait for it.
    let mut model = fixture::found_model(Vec::new());
    act(&mut model, Action::Show(Screen::Waits));
    model.update(Message::Dump(Box::new(fixture::dump())));
    assert_eq!(rows_with(&mut model, ["#1201", "#12", "120"], |model| model.wait_rows().len()), [1, 1, 1]);
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
fn a_key_that_does_nothing_explains_why() {
    let mut model = fixture::stalled_model(4, 5);
    let mut program = model.state().program.clone().unwrap();
    program.runtimes.truncate(1);
    program.runtimes[0].blame = vec![Blame { spawned_at: "src/b.rs:3:5".into(), ..Blame::default() }];
    let route = Route { method: "other".into(), path: "other".into(), ..Route::default() };
    program.runtimes[0].routes = vec![route];
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    let mut note = |screen, action| {
        act(&mut model, Action::Show(screen));
        assert_eq!(model.note(), None, "another key removes it");
        act(&mut model, action);
        assert_eq!(model.screen, screen);
        let note = model.note().expect("a note").to_owned();
        model.update(Message::Tick(model.now + Duration::from_secs(5)));
        assert_eq!(model.note(), None, "time removes it");
        note
    };
    assert!(note(Screen::Overview, Action::NextRuntime).contains("program has one runtime"));
    assert!(note(Screen::Routes, Action::ToggleDetail).contains("no incident of this route"));
    for screen in [Screen::Workers, Screen::Events, Screen::Waits] {
        assert!(note(screen, Action::ToggleDetail).contains("below the list"));
    }
    model.played = Some(Played { at: STEP, whole: STEP, is_playing: false, broke: None });
    for (screen, action, wanted) in [
        (Screen::Blame, Action::ToggleDetail, "the recording has no stack"),
        (Screen::Overview, Action::PreviousRuntime, "recording has one runtime"),
    ] {
        act(&mut model, Action::Show(screen));
        act(&mut model, action);
        assert_eq!(model.screen, screen);
        assert!(model.note().is_some_and(|note| note.contains(wanted)), "{:?}", model.note());
    }
    let storm = fixture::finding(Rule::WakeStorm, Severity::Warning, &[], &[]);
    let mut model = fixture::found_model(vec![storm]);
    act(&mut model, Action::Show(Screen::Doctor));
    act(&mut model, Action::ToggleDetail);
    assert!(model.note().is_some_and(|note| note.contains("neither a task nor a line")), "{:?}", model.note());
    act(&mut model, Action::NextRuntime);
    assert_eq!(model.note(), None, "there are two");
}
