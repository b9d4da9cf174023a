//! The program under test: prints the path of its control socket, runs the load, and prints its
//! counts as one line of JSON per second.
//!
//! At the end of its standard input, it stops the load, waits until no more tasks are spawned, and
//! prints the counts once more.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use volt::Runtime;
use volt_telemetry::Snapshot;

use crate::load::{self, INTENDED};
use crate::part::Part;

/// The runtime's name, and that of the program in the console.
const NAME: &str = "soak";
/// May be more than there are processors: threads must meet in the middle of things.
const WORKERS: usize = 4;
/// Fewer than callers, so that calls wait for a thread.
const BLOCKING_THREADS: usize = 6;
/// Time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the load may take to spawn its last task after it was stopped, and the runtime to shut
/// down.
const END_LIMIT: Duration = Duration::from_secs(90);

/// The counts at one moment.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Counts {
    pub(crate) parts: Vec<PartCounts>,
    /// Tasks that only the workers' park timeout found: a wake-up was lost.
    pub(crate) lost_wakeups: u64,
    /// Tasks spawned, and how they ended.
    pub(crate) spawned: u64,
    pub(crate) completed: u64,
    pub(crate) cancelled: u64,
    pub(crate) panicked: u64,
    pub(crate) alive: u64,
    /// Polls that the sentinel reported as stuck.
    pub(crate) incidents: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct PartCounts {
    pub(crate) name: String,
    pub(crate) done: u64,
    pub(crate) refused: u64,
    pub(crate) wrong: u64,
}

impl Counts {
    fn of(parts: &[Arc<Part>], snapshot: &Snapshot) -> Self {
        let counts = |part: &Arc<Part>| PartCounts {
            name: part.name.to_owned(),
            done: part.done(),
            refused: part.refused(),
            wrong: part.wrong(),
        };
        let tasks = &snapshot.tasks;
        Self {
            parts: parts.iter().map(counts).collect(),
            lost_wakeups: snapshot.workers.iter().map(|worker| worker.lost_wakeup_rescues).sum(),
            spawned: tasks.spawned,
            completed: tasks.completed,
            cancelled: tasks.cancelled,
            panicked: tasks.panicked,
            alive: tasks.alive,
            incidents: snapshot.incidents.by_cause.iter().sum(),
        }
    }

    /// Whether every task that was spawned is alive or has ended in one way.
    pub(crate) fn are_conserved(&self) -> bool {
        self.spawned == self.completed + self.cancelled + self.panicked + self.alive
    }
}

/// Runs the load until the end of standard input.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    leave_intended_panics_out();
    let runtime = volt::Builder::new_multi_thread()
        .name(NAME)
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let socket = volt::observe::socket_path().ok_or("the runtime has no control socket")?;
    println!("{}", socket.display());
    let parts = load::start(runtime.handle());
    let (end, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        // Returns at the end of the input. One that cannot be read ends the load, too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(end);
    });
    while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        print(&Counts::of(&parts, &snapshot()?))?;
    }
    parts.iter().for_each(|part| part.end());
    print(&at_rest(&runtime, &parts)?)?;
    runtime.shutdown_timeout(END_LIMIT);
    Ok(())
}

/// Waits until the number of tasks no longer changes, and returns the counts.
fn at_rest(runtime: &Runtime, parts: &[Arc<Part>]) -> Result<Counts, Box<dyn Error>> {
    let begun = Instant::now();
    let mut before = 0;
    loop {
        thread::sleep(INTERVAL);
        let spawned = runtime.metrics().spawned_tasks_count();
        let counts = Counts::of(parts, &snapshot()?);
        if spawned == before && counts.are_conserved() || begun.elapsed() > END_LIMIT {
            return Ok(counts);
        }
        before = spawned;
    }
}

fn snapshot() -> Result<Snapshot, &'static str> {
    volt::observe::program().runtimes.into_iter().next().ok_or("the runtime is not in the program's snapshot")
}

fn print(counts: &Counts) -> Result<(), serde_json::Error> {
    println!("{}", serde_json::to_string(counts)?);
    Ok(())
}

/// Sets a panic hook that prints only the panics that the load does not intend.
fn leave_intended_panics_out() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&INTENDED) {
            hook(info);
        }
    }));
}
