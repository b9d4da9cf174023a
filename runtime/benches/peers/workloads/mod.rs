//! The workloads: their names, their units and their targets.
//!
//! Each is one generic function, so that every runtime runs the same source. It starts the runtime,
//! repeats its batch as the meter determines, and returns one value for each of its rows.

mod client;
mod http_load;
mod latch;
mod sizes;
mod wake;

mod channel;
mod handover;
mod http;
mod spawn;
mod still;
mod tcp;
mod timer;
mod wake_idle;

use std::fmt::Write;
use std::process::ExitCode;

use crate::child::CHILD;
use crate::figures::{Row, Target, target};
use crate::meter::Meter;
use crate::runtimes::NAMES;
use crate::runtimes::smol::Smol;
use crate::runtimes::tokio::Tokio;
use crate::runtimes::volt::Volt;

/// Runs a workload on one runtime. Returns one value per row.
type Run = fn(&Meter) -> Vec<f64>;

/// See the header of this file.
pub(crate) struct Workload {
    pub(crate) rows: &'static [Row],
    /// In the order of [`NAMES`].
    pub(crate) runs: [Run; NAMES.len()],
    /// Number of rounds that suffice, for workloads that are slow and do not vary.
    pub(crate) max_rounds: usize,
}

const fn row(name: &'static str, unit: &'static str, target: Target, about: &'static str) -> Row {
    Row { name, unit, target, about }
}

/// The target of a maximum for Volt's cost divided by Tokio's.
const fn ratio(ratio: f64) -> Target {
    Target::Ratio(ratio)
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
    workload!(
        spawn::spawn_remote,
        row("spawn_remote", "ns", ratio(0.38), "an outside thread starts 10,000 tasks that do nothing, and joins all")
    ),
    workload!(
        spawn::spawn_remote_detached,
        row("spawn_remote_detached", "ns", ratio(0.60), "the same without handles")
    ),
    workload!(spawn::spawn_local, row("spawn_local", "ns", ratio(0.25), "a task starts 10,000, and joins all")),
    workload!(spawn::spawn_local_200, row("spawn_local_200", "ns", ratio(0.85), "a task starts 200, and joins all")),
    workload!(spawn::spawn_join_local, row("spawn_join_local", "ns", ratio(0.30), "a task starts one and joins it")),
    workload!(
        spawn::spawn_join_remote,
        row("spawn_join_remote", "ns", ratio(0.60), "an outside thread starts one and blocks until it has ended")
    ),
    workload!(spawn::chained_spawn, row("chained_spawn", "ns", ratio(0.50), "each task starts the next, 1000 deep")),
    workload!(
        spawn::fan_out_in,
        row("fan_out_in", "ns", ratio(0.90), "a task starts 100 that work for 1 µs each, and joins all")
    ),
    workload!(wake::yield_now, row("yield_now", "ns", ratio(0.50), "100 tasks yield 1000 times each")),
    workload!(
        wake::wake_100x1000,
        row("wake_100x1000", "ns", ratio(0.70), "100 tasks wake themselves 1000 times each")
    ),
    workload!(wake::wake_1x100000, row("wake_1x100000", "ns", ratio(0.45), "one task wakes itself 100,000 times")),
    workload!(
        channel::ping_pong,
        row("ping_pong", "ns", ratio(0.45), "1000 tasks start one each and exchange two values with it")
    ),
    workload!(
        wake::baton_1,
        row("baton_1", "ns", ratio(0.70), "two tasks wake each other in turns: a wake and its poll")
    ),
    workload!(wake::baton_100, row("baton_100", "ns", ratio(0.85), "100 such pairs")),
    workload!(wake::ring, row("ring", "ns", ratio(0.80), "16 tokens circulate among 1000 tasks")),
    workload!(
        wake::wake_storm_outside,
        row("wake_storm_outside", "ns", ratio(0.90), "an outside thread wakes 512 tasks together")
    ),
    workload!(wake::wake_storm_task, row("wake_storm_task", "ns", ratio(0.65), "a task wakes 512 together")),
    workload!(channel::mpsc_1, row("mpsc_1", "ns", ratio(0.65), "one task sends to another, bounded channel of 1000")),
    workload!(channel::mpsc_4, row("mpsc_4", "ns", ratio(0.95), "four tasks send to one")),
    workload!(
        handover::oneshot,
        row("oneshot", "ns", ratio(0.85), "a task sends a request to another, which replies through a oneshot")
    ),
    workload!(handover::notify, row("notify", "ns", ratio(0.85), "two tasks notify each other in turns")),
    workload!(handover::mutex, row("mutex", "ns", ratio(0.85), "ten tasks lock a mutex in turns, and yield inside")),
    workload!(handover::select, row("select", "ns", ratio(0.85), "a task receives from either of two channels")),
    workload!(handover::join_set, row("join_set", "ns", ratio(0.85), "a task starts ten in a set, and joins them")),
    workload!(
        handover::futures_unordered,
        row("futures_unordered", "ns", ratio(0.85), "a task polls 100 futures, each of which wakes it once")
    ),
    workload!(
        handover::spawn_detached,
        row("spawn_detached", "ns", ratio(0.85), "a task starts 10,000 and joins none")
    ),
    workload!(handover::tcp_rt, row("tcp_rt", "ns", ratio(0.97), "a task echoes what another sends over TCP")),
    workload!(
        wake_idle::then_asleep,
        row(
            "wake_idle_p50",
            "us",
            Target::AtMost(5.0),
            "an outside thread wakes a task while all workers sleep, then sleeps"
        ),
        row("wake_idle_p99", "us", Target::AtMost(40.0), "the same")
    ),
    workload!(
        wake_idle::then_busy,
        row("wake_idle_busy_p50", "us", Target::None, "the same, the waker keeps its processor busy"),
        row("wake_idle_busy_p90", "us", Target::AtMost(20.0), "the same"),
        row("wake_idle_busy_p99", "us", Target::None, "the same")
    ),
    workload!(
        channel::blocking,
        row("blocking", "ns", ratio(0.90), "a task has a blocking thread do nothing, and waits")
    ),
    workload!(
        timer::timers,
        row("timers", "ns CPU", ratio(0.60), "100,000 tasks sleep 1 to 100 ms each: processor time of one")
    ),
    workload!(
        timer::lateness,
        row("timer_lateness_p50", "us", Target::AtMost(150.0), "how late 10,000 such sleeps end"),
        row("timer_lateness_p99", "us", Target::None, "the same"),
        row("timer_lateness_cpu", "us CPU", Target::AtMost(2.0), "processor time of one of them")
    ),
    workload!(timer::create_cancel, row("timer_create_cancel", "ns", ratio(0.30), "a task arms a timer and drops it")),
    workload!(tcp::echo_1, row("tcp_echo_1", "ns", ratio(1.0), "echo server, 1 connection: time per request")),
    workload!(tcp::echo_64, row("tcp_echo_64", "ns", ratio(1.0), "64 connections")),
    workload!(
        tcp::echo_512,
        row("tcp_echo_512", "ns", ratio(1.0), "512 connections"),
        row("tcp_echo_512_p99", "us", ratio(0.65), "99th percentile of the time per request")
    ),
    workload!(
        http::hello_64,
        row(
            "http_hello",
            "us CPU",
            ratio(1.0),
            "hyper serves `hello`, 64 connections: the server's processor time per request"
        ),
        row("http_hello_time", "ns", Target::None, "time per request"),
        row("http_hello_p99", "us", ratio(1.0), "99th percentile of the time per request")
    ),
    workload!(
        still::memory,
        max_rounds: 3,
        row("memory_per_task", "bytes", Target::Both { ratio: 0.30, at_most: 128.0 }, "of 1,000,000 tasks that wait")
    ),
    workload!(
        still::idle,
        max_rounds: 1,
        row("idle_2", "wakes/s", Target::AtMost(1.0), "context switches of an idle runtime with 2 workers"),
        row("idle_8", "wakes/s", Target::AtMost(1.0), "8 workers"),
        row("idle_64", "wakes/s", Target::AtMost(1.0), "64 workers"),
        row("idle_2_cpu", "% CPU", Target::None, "processor time of an idle runtime with 2 workers"),
        row("idle_8_cpu", "% CPU", Target::None, "8 workers"),
        row("idle_64_cpu", "% CPU", Target::None, "64 workers")
    ),
];

/// Returns the names of the rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    WORKLOADS.iter().flat_map(|workload| workload.rows).map(|row| row.name)
}

/// Returns the output of `--list`.
pub(crate) fn listing() -> String {
    let mut text = String::new();
    for row in WORKLOADS.iter().flat_map(|workload| workload.rows) {
        let target = target(row);
        writeln!(text, "{:<22} {:<9} {target:<18} {}", row.name, row.unit, row.about).expect("a String takes all");
    }
    text
}

/// In a child: runs the measurement, and returns the exit code.
pub(crate) fn run_child(arguments: &[String]) -> Option<ExitCode> {
    let (first, arguments) = arguments.split_first()?;
    if first != CHILD {
        return None;
    }
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [http_load::LOAD, address, counted_ms] => http_load::load(address, counted_ms).expect("the load runs"),
        [what, runtime, workers, much] => still::print(what, runtime, workers, much),
        _ => return Some(ExitCode::FAILURE),
    }
    Some(ExitCode::SUCCESS)
}
