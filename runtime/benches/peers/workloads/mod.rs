//! The workloads: what each is called, what it counts in, and what is aimed at.
//!
//! Each is one generic function, so that every runtime runs the same source. It starts the runtime, repeats its batch as the meter says, and
//! gives one value for each of its rows.

mod channel;
mod spawn;
mod still;
mod tcp;
mod timer;
mod wake;
mod wake_idle;

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};

use crate::meter::Meter;
use crate::report::{self, Row, Target};
use crate::runtimes::{NAMES, Smol, Tokio, Volt};

/// A workload on one runtime: one value a row.
type Run = fn(&Meter) -> Vec<f64>;

/// See the header of this file.
pub(crate) struct Workload {
    pub(crate) rows: &'static [Row],
    /// In the order of [`NAMES`].
    pub(crate) runs: [Run; NAMES.len()],
    /// Rounds after which it is known well enough: for what is slow and does not vary.
    pub(crate) max_rounds: usize,
}

const fn row(name: &'static str, unit: &'static str, target: Target) -> Row {
    Row { name, unit, target }
}

macro_rules! workload {
    ($run:path, $($row:expr),+) => { workload!($run, max_rounds: usize::MAX, $($row),+) };
    ($run:path, max_rounds: $rounds:expr, $($row:expr),+) => {{
        use $run as run;
        Workload { rows: &[$($row),+], runs: [run::<Volt>, run::<Tokio>, run::<Smol>], max_rounds: $rounds }
    }};
}

/// In the order in which they run.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload!(spawn::spawn_remote, row("spawn_remote", "ns", Target::Ratio(0.38))),
    workload!(spawn::spawn_remote_detached, row("spawn_remote_detached", "ns", Target::Ratio(0.60))),
    workload!(spawn::spawn_local, row("spawn_local", "ns", Target::Ratio(0.25))),
    workload!(spawn::spawn_local_200, row("spawn_local_200", "ns", Target::Ratio(0.85))),
    workload!(spawn::spawn_join_local, row("spawn_join_local", "ns", Target::Ratio(0.30))),
    workload!(spawn::spawn_join_remote, row("spawn_join_remote", "ns", Target::Ratio(0.60))),
    workload!(spawn::chained_spawn, row("chained_spawn", "ns", Target::Ratio(0.50))),
    workload!(spawn::fan_out_in, row("fan_out_in", "ns", Target::Ratio(0.90))),
    workload!(wake::yield_now, row("yield_now", "ns", Target::Ratio(0.50))),
    workload!(wake::wake_100x1000, row("wake_100x1000", "ns", Target::Ratio(0.70))),
    workload!(wake::wake_1x100000, row("wake_1x100000", "ns", Target::Ratio(0.45))),
    workload!(channel::ping_pong, row("ping_pong", "ns", Target::Ratio(0.45))),
    workload!(wake::baton_1, row("baton_1", "ns", Target::Ratio(0.70))),
    workload!(wake::baton_100, row("baton_100", "ns", Target::Ratio(0.85))),
    workload!(wake::ring, row("ring", "ns", Target::Ratio(0.80))),
    workload!(wake::wake_storm_outside, row("wake_storm_outside", "ns", Target::Ratio(0.90))),
    workload!(wake::wake_storm_task, row("wake_storm_task", "ns", Target::Ratio(0.65))),
    workload!(channel::mpsc_1, row("mpsc_1", "ns", Target::Ratio(0.65))),
    workload!(channel::mpsc_4, row("mpsc_4", "ns", Target::Ratio(0.95))),
    workload!(
        wake_idle::then_asleep,
        row("wake_idle_p50", "us", Target::AtMost(5.0)),
        row("wake_idle_p99", "us", Target::AtMost(40.0))
    ),
    workload!(wake_idle::then_busy, row("wake_idle_busy_p90", "us", Target::AtMost(20.0))),
    workload!(channel::blocking, row("blocking", "ns", Target::Ratio(0.90))),
    workload!(timer::timers, row("timers", "ns CPU", Target::Ratio(0.60))),
    workload!(
        timer::lateness,
        row("timer_lateness_p50", "us", Target::AtMost(150.0)),
        row("timer_lateness_p99", "us", Target::None),
        row("timer_lateness_cpu", "us CPU", Target::AtMost(2.0))
    ),
    workload!(timer::create_cancel, row("timer_create_cancel", "ns", Target::Ratio(0.30))),
    workload!(tcp::echo_1, row("tcp_echo_1", "ns", Target::Ratio(1.0))),
    workload!(tcp::echo_64, row("tcp_echo_64", "ns", Target::Ratio(1.0))),
    workload!(
        tcp::echo_512,
        row("tcp_echo_512", "ns", Target::Ratio(1.0)),
        row("tcp_echo_512_p99", "us", Target::Ratio(0.65))
    ),
    workload!(
        still::memory,
        max_rounds: 3,
        row("memory_per_task", "bytes", Target::Both { ratio: 0.30, at_most: 128.0 })
    ),
    workload!(
        still::idle,
        max_rounds: 1,
        row("idle_2", "wakes/s", Target::AtMost(1.0)),
        row("idle_8", "wakes/s", Target::AtMost(1.0)),
        row("idle_64", "wakes/s", Target::AtMost(1.0)),
        row("idle_64_cpu", "us CPU/s", Target::None)
    ),
];

/// The rows' names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    WORKLOADS.iter().flat_map(|workload| workload.rows).map(|row| row.name)
}

/// For `--list`.
pub(crate) fn listing() -> String {
    let mut text = String::new();
    for row in WORKLOADS.iter().flat_map(|workload| workload.rows) {
        writeln!(text, "{:<22} {:<9} {}", row.name, row.unit, report::target(row.target)).expect("a String takes all");
    }
    text
}

/// Lets a thread wait until tasks have counted down to 0, on every runtime by the same means.
struct Latch {
    left: AtomicUsize,
    waiter: Thread,
}

impl Latch {
    /// The calling thread is the one that will wait.
    fn new(count: usize) -> Self {
        Self { left: AtomicUsize::new(count), waiter: thread::current() }
    }

    fn reset(&self, count: usize) {
        // ORDERING: Relaxed; what publishes the next round's work publishes this too.
        self.left.store(count, Ordering::Relaxed);
    }

    fn count_down(&self) {
        // ORDERING: AcqRel; pairs with the Acquire in `wait`, which so sees what each of them did before.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    fn wait(&self) {
        // ORDERING: Acquire; pairs with `count_down`.
        while self.left.load(Ordering::Acquire) > 0 {
            thread::park();
        }
    }
}
