//! Tests of the screens, drawn into a buffer.

mod keys;
mod recorded;
mod verdict;

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::fixture;
use crate::model::{Action, Message, Model};

fn terminal(size: (u16, u16)) -> Terminal<TestBackend> {
    Terminal::new(TestBackend::new(size.0, size.1)).unwrap()
}

fn screen(model: &Model, size: (u16, u16)) -> String {
    let mut terminal = terminal(size);
    terminal.draw(|frame| draw(frame, model, Theme::new(true), &mut Hits::default())).unwrap();
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in 0..size.1 {
        let line: String = (0..size.0).map(|column| buffer[(column, row)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the lines of a screen that name the screens.
fn tabs_of(drawn: &str, columns: u16) -> String {
    let lines: Vec<&str> = drawn.lines().collect();
    let tabs = usize::from(footer::height(columns)) - 1;
    lines[lines.len() - 1 - tabs..lines.len() - 1].iter().map(|line| format!("{line} ")).collect()
}

fn show(model: &mut Model, screen: Screen) {
    model.update(Message::Do(Action::Show(screen)));
}

#[test]
fn task_and_process_ids_are_never_truncated() {
    let mut model = fixture::tasks_model(4, 60);
    let mut list = fixture::tasks("app", 9, 2);
    (list.rows[1].id, list.rows[2].id) = (1_234_567, u64::MAX);
    model.update(Message::Tasks(Box::new(list)));
    for size in [(80, 24), (200, 50)] {
        let shown = screen(&model, size);
        assert!(shown.contains(" 1234567 ") && shown.contains(" 18446744073709551615 "), "{shown}");
    }
    let mut model = fixture::processes_model(4, 60);
    let mut list = fixture::processes("app", 9, 2);
    list.rows[1].pid = "local:17.1234567".into();
    model.update(Message::Processes(Box::new(list)));
    assert!(screen(&model, (80, 24)).contains(" 17.1234567 "));
}

#[test]
fn a_line_below_a_table_explains_its_columns() {
    for is_open in [false, true] {
        let (mut tasks, mut processes) = (fixture::tasks_model(4, 60), fixture::processes_model(4, 60));
        if is_open {
            [&mut tasks, &mut processes]
                .into_iter()
                .for_each(|model| _ = model.update(Message::Do(Action::ToggleDetail)));
        }
        let drawn = screen(&tasks, (80, 24));
        assert!(drawn.contains("delay: wake-up to poll  woken: ago\n"), "{drawn}");
        let drawn = screen(&processes, (80, 24));
        assert!(drawn.contains("steps: runs by a worker   busy: total of steps\n"), "{drawn}");
    }
}

#[test]
fn a_small_screen_shows_the_worst_finding_or_ok() {
    let model = fixture::stalled_model(4, 5);
    let drawn = screen(&model, (60, 15));
    let place = model.finding_rows()[0].1.locations[0].at().to_owned();
    assert!(drawn.contains("critical stalled-poll") && drawn.contains(&place), "{drawn}");
    let mut program = fixture::program(2, 1);
    program.runtimes.iter_mut().flat_map(|runtime| &mut runtime.workers).for_each(|worker| worker.in_flight = None);
    let mut well = Model::new(fixture::STEP);
    well.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    let drawn = screen(&well, (60, 15));
    assert!(drawn.contains("OK: no findings"), "{drawn}");
}

#[test]
fn a_paused_screen_does_not_claim_to_be_live() {
    let mut model = fixture::model(2, 3);
    assert!(screen(&model, (80, 24)).contains("● live"));
    model.update(Message::Do(Action::TogglePause));
    let drawn = screen(&model, (80, 24));
    assert!(drawn.contains("PAUSED") && !drawn.contains("● live"), "{drawn}");
}

#[test]
fn a_parked_lamp_in_ascii_is_no_o() {
    let mut terminal = terminal((80, 24));
    let theme = Theme::new(true).with_ascii(true);
    terminal.draw(|frame| draw(frame, &fixture::model(4, 3), theme, &mut Hits::default())).unwrap();
    let text: String = terminal.backend().buffer().content.iter().map(|cell| cell.symbol()).collect();
    assert!(!text.contains("oD") && !text.contains("oP"), "{text}");
}

#[test]
fn ascii_mode_draws_only_ascii_with_a_sign_for_each() {
    for mut model in every_screen() {
        for help_page in [None, Some(0), Some(1)] {
            model.help_page = help_page;
            let mut ascii = terminal((120, 40));
            let theme = Theme::new(true).with_ascii(true);
            ascii.draw(|frame| draw(frame, &model, theme, &mut Hits::default())).unwrap();
            let cells = &ascii.backend().buffer().content;
            let text: String = cells.iter().map(|cell| cell.symbol()).collect();
            assert!(text.is_ascii(), "{:?}:\n{text}", model.screen);
            let drawn = screen(&model, (120, 40));
            assert_eq!(
                text.matches('?').count(),
                drawn.matches('?').count(),
                "each sign has one that is like it:\n{drawn}"
            );
        }
    }
}

#[test]
fn no_screen_panics_below_its_minimum_size() {
    for model in every_screen() {
        for size in [(1, 1), (2, 50), (300, 1), (79, 24)] {
            screen(&model, size);
        }
    }
}

#[test]
fn a_filter_is_shown_while_it_is_typed_and_afterwards() {
    let mut model = fixture::tasks_model(2, 30);
    let filter = |model: &mut Model| {
        [Action::Filter, Action::Type('x'), Action::Type('y')].map(|action| model.update(Message::Do(action)))
    };
    show(&mut model, Screen::Overview);
    filter(&mut model);
    assert!(screen(&model, (80, 24)).contains("\n No worker matches the filter; Esc shows all."));
    show(&mut model, Screen::Tasks);
    filter(&mut model);
    let typed = screen(&model, (80, 24));
    assert!(typed.lines().last().unwrap().starts_with(" filter xy"), "{typed}");
    assert!(typed.contains("No task matches the filter"), "{typed}");
    model.update(Message::Do(Action::Accept));
    assert!(screen(&model, (80, 24)).contains("filter \"xy\""));
}

#[test]
fn a_runtime_without_workers_is_not_called_filtered() {
    let mut model = fixture::model(0, 2);
    show(&mut model, Screen::Workers);
    let drawn = screen(&model, (80, 24));
    assert!(drawn.contains("The snapshot contains no workers."), "{drawn}");
    model.update(Message::Do(Action::Type('x')));
    let drawn = screen(&model, (80, 24));
    assert!(drawn.contains("No worker matches the filter"), "{drawn}");
}

#[test]
fn a_lost_connection_shows_its_time_and_reason() {
    let mut model = fixture::model(2, 4);
    let reason = "there is no socket /run/user/1000/volt/48213-77.sock".to_string();
    model.update(Message::Disconnected { reason, retry_in: Duration::from_secs(5) });
    model.update(Message::Tick(fixture::STEP * 4 + Duration::from_secs(2)));
    let screen = screen(&model, (80, 24));
    assert!(screen.lines().next().unwrap().contains("connection lost 2s ago, retry in 3s"), "{screen}");
    assert!(screen.contains("there is no socket"), "{screen}");
    assert!(
        screen.contains(" runtime [app 2 workers] exporter 1 worker  there is"),
        "the reason leaves the tabs their place\n{screen}"
    );
}

#[test]
fn an_exited_program_is_named_by_its_pid() {
    let mut model = fixture::model(2, 4);
    model.update(Message::Exited { pid: 48_213 });
    model.update(Message::Tick(fixture::STEP * 4 + Duration::from_secs(2)));
    let text = screen(&model, (80, 24));
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].ends_with("pid 48213 exited 2s ago; q quits") && lines[1].contains("last known:"), "{text}");
    model.update(Message::Do(Action::Show(Screen::Tasks)));
    assert!(screen(&model, (80, 24)).contains("The program exited before its tasks were listed."));
}

#[test]
fn a_silent_connection_is_marked() {
    let mut model = fixture::model(2, 4);
    model.update(Message::Tick(fixture::STEP * 4 + Duration::from_secs(9)));
    assert!(screen(&model, (80, 24)).contains("no snapshot for 9s"));
}

#[test]
fn a_screen_below_the_minimum_is_refused_politely() {
    for size in [(79, 24), (80, 23), (20, 3), (1, 1)] {
        let screen = screen(&fixture::model(2, 4), size);
        assert!(!screen.contains("workers"), "{screen}");
    }
    assert!(screen(&fixture::model(2, 4), (79, 24)).contains("Enlarge to 80x24 for more"));
    assert!(screen(&fixture::model(2, 4), (79, 5)).contains("It is 79x5; the screens need 80x24."));
}

#[test]
fn every_size_from_the_minimum_on_is_drawn_whole() {
    for workers in [0, 1, 2, 9, 64, 200] {
        let model = fixture::model(workers, 3);
        for size in [(80, 24), (81, 25), (99, 24), (100, 40), (176, 36), (177, 35), (300, 100)] {
            let screen = screen(&model, size);
            let last = screen.lines().last().unwrap();
            assert!(last.contains("quit") && last.contains("help"), "{workers} workers at {size:?}:\n{screen}");
            assert!(workers == 0 || screen.contains("▸"), "the selected worker is in sight at {size:?}:\n{screen}");
        }
    }
}

#[test]
fn every_screen_is_complete_at_every_supported_size() {
    for written in [0, 1, 7, 64] {
        for chosen in Screen::ALL {
            let mut model = fixture::model(3, 2);
            model.update(Message::Tasks(Box::new(fixture::tasks("app", written, 2))));
            model.update(Message::Processes(Box::new(fixture::processes("app", written, 2))));
            model.update(Message::Dump(Box::new(fixture::dump())));
            let program = fixture::stalled(fixture::program(3, 3), written);
            model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
            show(&mut model, chosen);
            for size in [(80, 24), (81, 25), (99, 24), (110, 24), (177, 35), (300, 100)] {
                for action in [Action::ToggleDetail, Action::Last, Action::ToggleDetail, Action::First] {
                    model.update(Message::Do(action));
                    // On the doctor screen, this key leads to another screen.
                    show(&mut model, chosen);
                    let screen = screen(&model, size);
                    let keys = screen.lines().last().unwrap();
                    let name = format!("[{}]", chosen.name());
                    let bar =
                        keys.contains("quit") && keys.contains("help") && tabs_of(&screen, size.0).contains(&name);
                    assert!(bar, "{written} incidents at {size:?}:\n{screen}");
                    let has_rows = match chosen {
                        Screen::Latency | Screen::Events => false,
                        Screen::Incidents | Screen::Doctor | Screen::Processes => written > 0,
                        _ => true,
                    };
                    let is_marked = screen.contains('▸') || !has_rows;
                    assert!(is_marked, "the selected row is in sight at {size:?}:\n{screen}");
                }
            }
        }
    }
}

#[test]
fn without_incidents_and_blame_the_screens_have_a_note() {
    let mut model = fixture::model(2, 2);
    show(&mut model, Screen::Incidents);
    assert!(screen(&model, (80, 24)).contains("No stuck polls since the runtime started"));
    show(&mut model, Screen::Blame);
    assert!(screen(&model, (80, 24)).contains("No task has been polled yet"));
}

#[test]
fn nothing_is_blank_at_200_by_50() {
    for workers in 1..=64 {
        let screen = screen(&fixture::model(workers, 3), (200, 50));
        assert!(screen.lines().all(|line| !line.trim().is_empty()), "{workers} workers:\n{screen}");
    }
}

#[test]
fn the_overview_explains_the_letters_of_the_lamps() {
    for workers in [2, 4, 9, 64] {
        for mut model in [fixture::model(workers, 3), fixture::stalled_model(workers, 3)] {
            for size in [(80, 24), (100, 30), (120, 40), (200, 50)] {
                // The lamps of 64 workers fill their panel.
                if workers == 64 && size.0 == 200 {
                    continue;
                }
                for _ in 0..2 {
                    model.update(Message::Do(Action::ToggleDetail));
                    let screen = screen(&model, size);
                    assert!(
                        screen.contains("M maintenance X stuck K blocking") || screen.contains("M maintenance  X"),
                        "{screen}"
                    );
                    assert!(screen.contains("230ms!!"), "the longest poll is shown:\n{screen}");
                }
            }
        }
    }
}

#[test]
fn the_selected_worker_is_below_the_table() {
    for size in [(80, 24), (100, 40), (200, 50), (300, 100)] {
        let screen = screen(&fixture::model(1, 3), size);
        let lines: Vec<&str> = screen.lines().collect();
        let row = lines.iter().position(|line| line.starts_with('▸')).unwrap();
        assert!(lines[row + 1].starts_with("─ worker 0"), "{size:?}:\n{screen}");
    }
}

#[test]
fn the_screen_explains_missing_snapshots_and_runtimes() {
    assert!(screen(&Model::new(fixture::STEP), (80, 24)).contains("Waiting for the first snapshot"));
    let mut model = fixture::model(2, 1);
    let program = volt_telemetry::snapshot::Program { runtimes: Vec::new(), ..fixture::program(2, 2) };
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    assert!(screen(&model, (80, 24)).contains("no running runtime"));
}

#[test]
fn the_overview_shows_incidents_uncut() {
    let mut program = fixture::stalled(fixture::program(2, 3), 1);
    for (is_over, id) in [(false, 7), (true, 7), (true, 123_456_789_012)] {
        let incident = &mut program.runtimes[0].incidents.latest[0];
        (incident.is_over, incident.task_id) = (is_over, id);
        let mut model = fixture::model(2, 2);
        model.update(Message::Snapshot { program: Box::new(program.clone()), lost: 0 });
        for columns in 80..130 {
            let screen = screen(&model, (columns, 24));
            let line = screen.lines().find(|line| line.starts_with(" incidents")).unwrap();
            assert!(line.contains(" at handlers.rs:61"), "{columns}: {line}");
            assert_eq!(line.contains(" by "), line.contains(&format!("#{id} at")), "{columns}: {line}");
            assert_eq!(line.ends_with(" ago"), is_over, "{columns}: {line}");
        }
    }
}

#[test]
fn the_suspect_line_is_never_cut() {
    let mut model = fixture::stalled_model(4, 3);
    show(&mut model, Screen::Incidents);
    for columns in 80..240 {
        let screen = screen(&model, (columns, 24));
        let guilty = screen.lines().find(|line| line.contains('→')).unwrap();
        assert!(guilty.ends_with("handlers.rs:61"), "{columns}: {guilty}");
        let selected = screen.lines().find(|line| line.starts_with('▸')).unwrap();
        assert!(selected.contains("handlers.rs:61 ") && selected.contains(" #48212"), "{columns}: {selected}");
    }
}

/// Returns every screen, an open stack, and an open task.
fn every_screen() -> Vec<Model> {
    let mut open = fixture::stalled_model(9, 5);
    show(&mut open, Screen::Incidents);
    open.update(Message::Do(Action::ToggleDetail));
    let screens = Screen::ALL.map(|screen| {
        let mut model = fixture::stalled_model(9, 5);
        model.update(Message::Tasks(Box::new(fixture::tasks("app", 40, 5))));
        model.update(Message::Processes(Box::new(fixture::processes("app", 40, 5))));
        model.update(Message::Dump(Box::new(fixture::dump())));
        show(&mut model, screen);
        model
    });
    let mut task = fixture::tasks_model(9, 40);
    for action in [Action::Last, Action::Move(-1), Action::ToggleDetail] {
        task.update(Message::Do(action));
    }
    screens.into_iter().chain([fixture::model(9, 5), open, task]).collect()
}

#[test]
fn without_colors_the_screens_have_the_same_text() {
    for model in every_screen() {
        let mut plain = terminal((200, 50));
        plain.draw(|frame| draw(frame, &model, Theme::new(false), &mut Hits::default())).unwrap();
        let cells = &plain.backend().buffer().content;
        assert!(cells.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::BOLD)));
        let text: String = cells.iter().map(|cell| cell.symbol()).collect();
        let mark = match model.screen {
            Screen::Blame => "800ms!!",
            Screen::Latency => ">= 134ms!!",
            Screen::Doctor => "CRITICAL!!",
            Screen::Events => "!! worker 1",
            Screen::Tasks => "ms!",
            Screen::Processes => "1024!!",
            Screen::Waits => "1.4s!!",
            _ => "230ms!!",
        };
        assert!(text.contains(mark), "what is red has a mark on {:?}:\n{text}", model.screen);
        let colored = screen(&model, (200, 50)).replace('\n', "");
        assert_eq!(text.replace(' ', ""), colored.replace(' ', ""));
    }
}

#[test]
fn only_the_named_colors_are_used() {
    for model in every_screen() {
        let mut terminal = terminal((200, 50));
        terminal.draw(|frame| draw(frame, &model, Theme::new(true), &mut Hits::default())).unwrap();
        for cell in &terminal.backend().buffer().content {
            for color in [cell.fg, cell.bg] {
                assert!(!matches!(color, Color::Rgb(..) | Color::Indexed(_)), "{color:?}");
            }
        }
    }
}

#[test]
fn names_with_escape_sequences_reach_no_cell() {
    let mut model = fixture::model(2, 2);
    let mut program = fixture::program(2, 3);
    program.name = "\u{1b}[31mdemo\u{7}".into();
    program.runtimes[0].workers[0].in_flight.as_mut().unwrap().task_name = Some("a\u{9b}2J\n\u{202e}b".into());
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    let screen = screen(&model, (200, 50));
    assert!(screen.contains("[31mdemo") && screen.contains("a2Jb"), "{screen}");
    assert!(screen.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'));
}

#[test]
fn stacks_with_escape_sequences_reach_no_cell() {
    let mut model = fixture::model(2, 2);
    let mut program = fixture::stalled(fixture::program(2, 3), 1);
    let incident = &mut program.runtimes[0].incidents.latest[0];
    incident.stack[2].function = Some("ev\u{1b}[2Jil".into());
    incident.stack[2].file = Some("sr\u{9b}3Jc\u{202e}.rs".into());
    program.runtimes[0].blame[0].spawned_at = "wh\u{7}ere.rs:1:1".into();
    model.update(Message::Snapshot { program: Box::new(program), lost: 0 });
    for (chosen, wanted) in
        [(Screen::Incidents, "ev[2Jil"), (Screen::Incidents, "sr3Jc.rs"), (Screen::Blame, "where.rs")]
    {
        show(&mut model, chosen);
        let screen = screen(&model, (200, 50));
        assert!(screen.contains(wanted), "{screen}");
        assert!(screen.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'));
    }
}
