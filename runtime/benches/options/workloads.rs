//! The workloads of the benchmark `peers` that are affected by the order of tasks or by the sleep
//! of workers.

#[path = "../peers/workloads/sizes.rs"]
mod sizes;

#[path = "../peers/workloads/channel.rs"]
mod channel;
#[path = "../peers/workloads/latch.rs"]
mod latch;
#[path = "../peers/workloads/spawn.rs"]
mod spawn;
#[path = "../peers/workloads/timer.rs"]
mod timer;
#[path = "../peers/workloads/wake.rs"]
mod wake;
#[path = "../peers/workloads/wake_idle.rs"]
mod wake_idle;

use crate::meter::Meter;
use crate::subjects::{Adaptive, COUNT, Off};

/// Runs a workload on one subject. Returns one value per row.
type Run = fn(&Meter) -> Vec<f64>;

/// See the header of this file.
pub(crate) struct Workload {
    /// The names of its values and their unit. `peers --list` describes each.
    pub(crate) rows: &'static [(&'static str, &'static str)],
    /// In the order of `subjects::NAMES`.
    pub(crate) runs: [Run; COUNT],
}

macro_rules! workload {
    ($run:path, $($row:literal, $unit:literal);+) => {{
        use $run as run;
        Workload { rows: &[$(($row, $unit)),+], runs: [run::<Adaptive>, run::<Off>] }
    }};
}

/// In the order in which they run.
pub(crate) const WORKLOADS: &[Workload] = &[
    workload!(spawn::spawn_remote, "spawn_remote", "ns"),
    workload!(spawn::spawn_remote_detached, "spawn_remote_detached", "ns"),
    workload!(spawn::spawn_local, "spawn_local", "ns"),
    workload!(spawn::spawn_local_200, "spawn_local_200", "ns"),
    workload!(spawn::spawn_join_local, "spawn_join_local", "ns"),
    workload!(spawn::spawn_join_remote, "spawn_join_remote", "ns"),
    workload!(spawn::chained_spawn, "chained_spawn", "ns"),
    workload!(spawn::fan_out_in, "fan_out_in", "ns"),
    workload!(wake::yield_now, "yield_now", "ns"),
    workload!(wake::wake_100x1000, "wake_100x1000", "ns"),
    workload!(wake::wake_1x100000, "wake_1x100000", "ns"),
    workload!(channel::ping_pong, "ping_pong", "ns"),
    workload!(wake::baton_1, "baton_1", "ns"),
    workload!(wake::baton_100, "baton_100", "ns"),
    workload!(wake::ring, "ring", "ns"),
    workload!(wake::wake_storm_outside, "wake_storm_outside", "ns"),
    workload!(wake::wake_storm_task, "wake_storm_task", "ns"),
    workload!(channel::mpsc_1, "mpsc_1", "ns"),
    workload!(channel::mpsc_4, "mpsc_4", "ns"),
    workload!(channel::blocking, "blocking", "ns"),
    workload!(wake_idle::then_asleep, "wake_idle_p50", "us"; "wake_idle_p99", "us"),
    workload!(
        wake_idle::then_busy,
        "wake_idle_busy_p50", "us"; "wake_idle_busy_p90", "us"; "wake_idle_busy_p99", "us"
    ),
    workload!(timer::timers, "timers", "ns CPU"),
    workload!(
        timer::lateness,
        "timer_lateness_p50", "us"; "timer_lateness_p99", "us"; "timer_lateness_cpu", "us CPU"
    ),
    workload!(timer::create_cancel, "timer_create_cancel", "ns"),
];
