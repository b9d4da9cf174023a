//! Tests of the model, driven by messages.

mod events;
mod rows;

use volt_telemetry::incident::Incident;
use volt_telemetry::snapshot::Worker;

use super::*;
use crate::fixture::{self, STEP};

fn snapshot(workers: u32, step: u64) -> Message {
    Message::Snapshot { program: Box::new(fixture::program(workers, step)), lost: 0 }
}

fn act(model: &mut Model, action: Action) -> Option<Effect> {
    model.update(Message::Do(action))
}

fn runtime_name(model: &Model) -> String {
    model.scene().unwrap().snapshot.runtime.clone()
}

fn task_ids(model: &Model) -> Vec<u64> {
    model.task_rows().iter().map(|row| row.item.id).collect()
}

#[test]
fn the_second_snapshot_brings_rates_and_history() {
    let mut model = Model::new(STEP);
    assert!(model.scene().is_none());
    model.update(snapshot(2, 1));
    assert!(model.scene().unwrap().rates.is_none());
    assert_eq!(model.history().count(), 0);
    model.update(snapshot(2, 2));
    // In half a second, 41,000 polls by the first worker and twice as many by the second.
    assert_eq!(model.scene().unwrap().rates.unwrap().polls_per_second, 246_000.0);
    assert_eq!(model.history().collect::<Vec<_>>(), [Some(246_000)]);
}

#[test]
fn the_history_of_polls_is_bounded() {
    let mut model = Model::new(STEP);
    for step in 1..HISTORY_MAX as u64 + 9 {
        model.update(snapshot(0, step));
    }
    assert_eq!(model.history().count(), HISTORY_MAX);
}

#[test]
fn pausing_keeps_the_screen_while_snapshots_continue() {
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
fn the_busiest_runtime_is_shown_first_and_tab_cycles() {
    let mut model = Model::new(STEP);
    let mut program = fixture::program(2, 3);
    program.runtimes.reverse();
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert_eq!(runtime_name(&model), "app", "the exporter was busy for less time");
    act(&mut model, Action::NextRuntime);
    assert_eq!(runtime_name(&model), "exporter");
    act(&mut model, Action::NextRuntime);
    assert_eq!(runtime_name(&model), "app");
    act(&mut model, Action::PreviousRuntime);
    assert_eq!(runtime_name(&model), "exporter");
}

#[test]
fn the_selected_runtime_stays_if_another_is_inserted_before() {
    let mut model = fixture::model(2, 2);
    act(&mut model, Action::NextRuntime);
    let mut program = fixture::program(2, 3);
    program.runtimes.insert(0, fixture::runtime("new", 1, program.at_ns, 1));
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert_eq!(runtime_name(&model), "exporter");
    let mut program = fixture::program(2, 4);
    program.runtimes.pop();
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert_eq!(runtime_name(&model), "app", "its runtime was shut down, so the first one is selected");
}

#[test]
fn the_busiest_of_equals_is_the_first() {
    let runtime = |busy_ns| Snapshot { workers: vec![Worker { busy_ns, ..Worker::default() }], ..Snapshot::default() };
    assert_eq!(busiest(&[runtime(5), runtime(7), runtime(7)]), Some(1));
    assert_eq!(busiest(&[runtime(0), runtime(0)]), Some(0));
    assert_eq!(busiest(&[]), None);
}

#[test]
fn the_worker_selection_stays_within_the_list() {
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
fn intervals_change_within_their_list_and_are_requested() {
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
fn help_keys_turn_the_pages_and_the_last_one_closes_it() {
    let mut model = fixture::model(2, 1);
    let last = help::pages(Screen::Overview, false).len() - 1;
    assert!(last > 1);
    act(&mut model, Action::NextHelp);
    let mut seen = Vec::new();
    for action in [Action::NextHelp, Action::Move(10), Action::Move(-1), Action::Last, Action::Move(1), Action::First] {
        act(&mut model, action);
        seen.push(model.help_page.unwrap());
    }
    assert_eq!(seen, [1, 2, 1, last, last, 0]);
    (0..last).for_each(|_| _ = act(&mut model, Action::NextHelp));
    assert_eq!(model.help_page, Some(last));
    act(&mut model, Action::NextHelp);
    assert_eq!(model.help_page, None);
    act(&mut model, Action::NextHelp);
    act(&mut model, Action::Show(Screen::Tasks));
    assert_eq!((model.help_page, model.screen), (None, Screen::Tasks));
}

#[test]
fn escape_closes_the_help_and_does_not_quit() {
    let mut model = fixture::model(2, 1);
    act(&mut model, Action::NextHelp);
    assert_eq!(act(&mut model, Action::Back), None);
    assert!(model.help_page.is_none());
    assert_eq!(act(&mut model, Action::Back), None);
    assert_eq!(act(&mut model, Action::Quit), Some(Effect::Quit));
}

#[test]
fn losses_add_up_over_subscriptions() {
    let mut model = fixture::model(2, 1);
    let lose = |model: &mut Model, step, lost| {
        model.update(Message::Snapshot { program: Box::new(fixture::program(2, step)), lost });
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
    assert_eq!(model.lost, 15, "updates that arrived while there was no connection count, too");
    let started_anew = Hello { start_time: model.hello.start_time + 1, ..model.hello.clone() };
    model.update(Message::Connected(started_anew));
    model.update(Message::Missed(7));
    assert_eq!(model.lost, 15, "a program that was not there has sent nothing");
}

#[test]
fn the_time_of_disconnection_persists_until_reconnect() {
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
fn an_exited_program_keeps_its_last_data_and_gets_no_requests() {
    let mut model = fixture::tasks_model(2, 3);
    let lost_at = model.now;
    model.update(Message::Disconnected { reason: "gone".into(), retry_in: STEP });
    model.update(Message::Refused("there is no socket".into()));
    model.update(Message::Tick(lost_at + STEP));
    model.update(Message::Exited { pid: 7 });
    model.update(Message::Refused("there is no socket".into()));
    assert_eq!(model.link, Link::Exited { since: lost_at, pid: 7 });
    assert!(model.needs().is_empty() && model.tasks.error.is_none());
    assert!(model.scene().is_some() && model.selected_task().is_some(), "the last data stay");
    let texts: Vec<_> = model.live.log.newest_first().map(|event| event.text.as_str()).collect();
    assert_eq!(texts[..2], ["ended: pid 7 has exited", "lost: gone"]);
}

#[test]
fn a_program_that_was_started_anew_has_no_rates_from_before() {
    let mut model = fixture::model(2, 3);
    let program = Program { pid: 99, ..fixture::program(2, 4) };
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert!(model.scene().unwrap().rates.is_none());
}

#[test]
fn silence_is_noticed_after_three_intervals_and_a_second() {
    let mut model = fixture::model(2, 1);
    let received_at = model.now;
    model.update(Message::Tick(received_at + STEP * 3));
    assert_eq!(model.silent_for(), None);
    model.update(Message::Tick(received_at + STEP * 6));
    assert_eq!(model.silent_for(), Some(STEP * 6));
    model.update(Message::Disconnected { reason: String::new(), retry_in: STEP });
    assert_eq!(model.silent_for(), None, "lost is more than silent");
}

/// Returns a snapshot with a stuck poll and `written` incidents.
fn stalled(step: u64, written: u64) -> Message {
    Message::Snapshot { program: Box::new(fixture::stalled(fixture::program(2, step), written)), lost: 0 }
}

#[test]
fn latency_is_of_all_workers_or_of_one_that_is_there() {
    let mut model = fixture::model(3, 3);
    act(&mut model, Action::Show(Screen::Latency));
    act(&mut model, Action::Last);
    assert_eq!(model.latency.worker, Some(2));
    model.update(snapshot(2, 4));
    assert_eq!(model.latency.worker, None, "the worker no longer exists");
    act(&mut model, Action::Move(1));
    act(&mut model, Action::Move(-1));
    assert_eq!(model.latency.worker, None, "all of them come before the first");
    let past = model.past().unwrap();
    let latest = past.spreads_of(Kind::Poll).next().unwrap().unwrap();
    assert_eq!(latest.iter().sum::<u32>() as u64, model.scene().unwrap().rates.unwrap().poll_time.count);
}
