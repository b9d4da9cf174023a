//! Tests that compare whole screens as text with the files in this directory: a subdirectory for
//! each screen, a file for each size.
//!
//! After an intended change, run `UPDATE_SCREENS=1 cargo test -p volt-console`, and review the
//! differences.

use std::path::PathBuf;

use super::*;

#[track_caller]
fn assert_screen(name: &str, model: &Model, size: (u16, u16)) {
    let file = format!("{name}/{}x{}.txt", size.0, size.1);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/view/tests/recorded").join(file);
    let drawn = screen(model, size);
    if std::env::var_os("UPDATE_SCREENS").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(drawn == wanted, "the screen differs from {}; it is now:\n{drawn}", path.display());
}

#[test]
fn two_workers_fit_80_by_24() {
    assert_screen("2-workers", &fixture::model(2, 40), (80, 24));
}

#[test]
fn sixty_four_workers_fit_80_by_24() {
    let mut model = fixture::model(64, 40);
    model.update(Message::Do(Action::Move(40)));
    assert_screen("64-workers", &model, (80, 24));
}

#[test]
fn two_workers_fit_200_by_50() {
    assert_screen("2-workers", &fixture::model(2, 60), (200, 50));
}

#[test]
fn sixty_four_workers_fit_200_by_50() {
    assert_screen("64-workers", &fixture::model(64, 60), (200, 50));
}

#[test]
fn four_workers_fit_120_by_30() {
    assert_screen("4-workers", &fixture::model(4, 40), (120, 30));
}

#[test]
fn a_stuck_worker_is_shown_at_80_by_24() {
    assert_screen("stalled", &fixture::stalled_model(2, 40), (80, 24));
}

#[test]
fn a_stuck_worker_is_shown_at_200_by_50() {
    assert_screen("stalled", &fixture::stalled_model(2, 40), (200, 50));
}

#[test]
fn the_incidents_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::stalled_model(4, 3);
    show(&mut model, Screen::Incidents);
    assert_screen("incidents", &model, (80, 24));
    assert_screen("incidents", &model, (200, 50));
}

#[test]
fn an_open_stack_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::stalled_model(4, 3);
    show(&mut model, Screen::Incidents);
    model.update(Message::Do(Action::ToggleDetail));
    assert_screen("stack", &model, (80, 24));
    model.update(Message::Do(Action::Last));
    assert_screen("stack", &model, (200, 50));
}

#[test]
fn the_blame_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::stalled_model(4, 3);
    show(&mut model, Screen::Blame);
    assert_screen("blame", &model, (80, 24));
    model.update(Message::Do(Action::SortBy(2)));
    model.update(Message::Do(Action::InvertSort));
    assert_screen("blame", &model, (200, 50));
}

#[test]
fn the_routes_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::stalled_model(4, 3);
    show(&mut model, Screen::Routes);
    assert_screen("routes", &model, (80, 24));
    model.update(Message::Do(Action::SortBy(3)));
    model.update(Message::Do(Action::Move(1)));
    assert_screen("routes", &model, (200, 50));
}

#[test]
fn the_workers_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::model(4, 60);
    show(&mut model, Screen::Workers);
    assert_screen("workers", &model, (80, 24));
    model.update(Message::Do(Action::Last));
    assert_screen("workers", &model, (200, 50));
}

#[test]
fn the_tasks_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::tasks_model(4, 60);
    assert_screen("tasks", &model, (80, 24));
    model.update(Message::Do(Action::Move(3)));
    model.update(Message::Do(Action::ToggleDetail));
    let task = model.selected_task().unwrap().id;
    model.update(Message::Why { task, why: Ok(Box::new(fixture::why(task))) });
    assert_screen("task", &model, (80, 24));
    assert_screen("tasks", &model, (200, 50));
}

#[test]
fn the_processes_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::processes_model(4, 60);
    assert_screen("processes", &model, (80, 24));
    model.update(Message::Do(Action::ToggleDetail));
    assert_screen("process", &model, (80, 24));
    model.update(Message::Do(Action::SortBy(3)));
    assert_screen("processes", &model, (200, 50));
}

#[test]
fn the_latency_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::model(4, 60);
    show(&mut model, Screen::Latency);
    assert_screen("latency", &model, (80, 24));
    model.update(Message::Do(Action::Move(2)));
    assert_screen("latency", &model, (200, 50));
}

#[test]
fn the_doctor_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::stalled_model(4, 5);
    show(&mut model, Screen::Doctor);
    assert_screen("doctor", &model, (80, 24));
    assert_screen("doctor", &model, (200, 50));
}

#[test]
fn the_events_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::stalled_model(4, 5);
    model.update(Message::Disconnected { reason: "the program has exited".into(), retry_in: fixture::STEP });
    model.update(Message::Tick(fixture::STEP * 9));
    show(&mut model, Screen::Events);
    assert_screen("events", &model, (80, 24));
    assert_screen("events", &model, (200, 50));
}

#[test]
fn help_covers_the_screen_and_names_the_keys() {
    let mut model = fixture::model(2, 4);
    model.update(Message::Do(Action::NextHelp));
    assert_screen("help", &model, (80, 24));
    model.update(Message::Do(Action::NextHelp));
    assert_screen("help", &model, (120, 30));
}

#[test]
fn the_waits_screen_fits_80_by_24_and_200_by_50() {
    let mut model = fixture::model(2, 40);
    show(&mut model, Screen::Waits);
    assert!(screen(&model, (80, 24)).contains("Polling each waiting task once"));
    let number = |model: &Model| model.needs().dump.map(|(_, _, number)| number);
    assert_eq!(number(&model), Some(1), "requested when the screen is opened");
    model.update(Message::Dump(Box::new(fixture::dump())));
    model.update(Message::Do(Action::Move(1)));
    assert_screen("waits", &model, (80, 24));
    assert_screen("waits", &model, (200, 50));
    model.update(Message::Do(Action::ToggleTotals));
    assert_eq!(number(&model), Some(2), "requested again by a key");
}

#[test]
fn the_waits_screen_shows_why_there_is_no_dump() {
    let mut model = fixture::model(2, 40);
    show(&mut model, Screen::Waits);
    model.update(Message::Refused("version 1.4 cannot dump its tasks".into()));
    assert!(screen(&model, (80, 24)).contains("No dump: version 1.4 cannot dump its tasks"));
}
