//! Measures how long the console takes for a snapshot and for a frame, with 64 workers and a list
//! of 10,000 tasks, and how much memory it keeps.
//!
//! ```text
//! cargo bench -p volt-console --bench frame
//! ```
//!
//! The goal is at most 5 ms per frame, which no program checks. Each screen is drawn on a 200x50
//! terminal in memory, about the largest size in use. The time that a real terminal needs to show
//! the changes is not included. The model receives a snapshot before each frame, as in a console
//! that shows every snapshot.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use volt_console::model::{Action, HISTORY_MAX, Message, Model, Screen};
use volt_console::view;
use volt_console::view::hits::Hits;
use volt_console::view::theme::Theme;
use volt_telemetry::snapshot::{InFlight, Phase, Program, Snapshot, Worker};
use volt_telemetry::tasks::{State, Task, TaskList};

const WORKERS: u32 = 64;
const TASKS: u64 = 10_000;
const SIZE: (u16, u16) = (200, 50);
const FRAMES: u64 = 200;
const STEP_NS: u64 = 500_000_000;

fn program(step: u64) -> Program {
    let worker = |index: u32| {
        let mut worker = Worker {
            index,
            phase: Phase::Busy,
            polls: 40_000 * step + u64::from(index),
            busy_ns: STEP_NS / 2 * step,
            in_flight: Some(InFlight {
                task_id: index.into(),
                spawned_at: "src/main.rs:7:5".into(),
                ..InFlight::default()
            }),
            ..Worker::default()
        };
        for value in 0..64 {
            worker.poll_time.record(1 << (value % 30));
            worker.schedule_delay.record((1 << (value % 25)) + step);
        }
        worker
    };
    let at_ns = step * STEP_NS;
    let workers = (0..WORKERS).map(worker).collect();
    let runtime = Snapshot { runtime: "app".into(), at_ns, workers, ..Snapshot::default() };
    Program { pid: 1, name: "bench".into(), at_ns, runtimes: vec![runtime], ..Program::default() }
}

fn tasks(step: u64) -> TaskList {
    let task = |id: u64| Task {
        id,
        name: id.is_multiple_of(2).then(|| format!("session {id}")),
        spawned_at: format!("src/handlers.rs:{}:5", id % 90),
        state: State::Waits,
        polls: Some(id * step),
        busy_ns: Some((id * 7_919) % 1_000_003 * step),
        ..Task::default()
    };
    let rows = (0..TASKS).map(task).collect();
    TaskList {
        runtime: "app".into(),
        at_ns: step * STEP_NS,
        rows,
        alive: TASKS,
        seen: TASKS,
        matching: TASKS,
        ..TaskList::default()
    }
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok()).map_or(0, |pages| pages * 4096)
}

fn main() {
    let mut model = Model::new(Duration::from_nanos(STEP_NS));
    let mut terminal = Terminal::new(TestBackend::new(SIZE.0, SIZE.1)).expect("a terminal in memory");
    let mut hits = Hits::default();
    let mut step = 0;
    let mut fill = |model: &mut Model| {
        step += 1;
        model.update(Message::Tick(Duration::from_nanos(step * STEP_NS)));
        let (program, tasks) = (Box::new(program(step)), Box::new(tasks(step)));
        let began = Instant::now();
        model.update(Message::Snapshot { program, lost: 0 });
        model.update(Message::Tasks(tasks));
        began.elapsed()
    };
    (0..HISTORY_MAX).for_each(|_| _ = fill(&mut model));
    let full = resident_bytes();
    println!("{:<12}{:>14}{:>14}{:>14}", "screen", "take median", "draw median", "draw worst");
    for screen in Screen::ALL {
        model.update(Message::Do(Action::Show(screen)));
        let mut takes = Vec::new();
        let mut draws = Vec::new();
        for _ in 0..FRAMES {
            takes.push(fill(&mut model));
            let began = Instant::now();
            let draw = |frame: &mut ratatui::Frame<'_>| view::draw(frame, &model, Theme::new(true), &mut hits);
            terminal.draw(draw).expect("memory takes everything");
            draws.push(began.elapsed());
        }
        takes.sort();
        draws.sort();
        let middle = draws.len() / 2;
        println!(
            "{:<12}{:>14.2?}{:>14.2?}{:>14.2?}",
            screen.name(),
            takes[middle],
            draws[middle],
            draws[draws.len() - 1]
        );
    }
    let more = FRAMES * Screen::ALL.len() as u64;
    println!(
        "resident {} kB with full histories, {} kB after {more} snapshots more",
        full / 1024,
        resident_bytes() / 1024
    );
}
