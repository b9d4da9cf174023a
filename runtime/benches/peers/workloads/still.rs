//! What runtimes take while nothing happens: memory for tasks that wait, wake-ups of workers that have nothing to do.
//!
//! Each is measured in a process of its own, see `child`.

use crate::child::{self, Still};
use crate::meter::Meter;
use crate::runtimes::Peer;

const TASKS: usize = 1_000_000;
const QUICK_TASKS: usize = 100_000;
/// Workers of the idle runtimes, whatever the machine has.
const WORKERS: [usize; 3] = [2, 8, 64];

/// Bytes that the process grows by for each of a million tasks that wait, without what they wait for.
pub(super) fn memory<P: Peer>(meter: &Meter) -> Vec<f64> {
    let tasks = if meter.is_quick { QUICK_TASKS } else { TASKS };
    child::measure(&[Still::Memory { workers: meter.workers, tasks }.arguments(P::NAME)]).concat()
}

/// Context switches a second of an idle runtime's threads with 2, 8 and 64 workers, at the same time, and the processor time of the last.
pub(super) fn idle<P: Peer>(meter: &Meter) -> Vec<f64> {
    let children = WORKERS.map(|workers| Still::Idle { workers, quick: meter.is_quick }.arguments(P::NAME));
    let figures = child::measure(&children);
    let switches = figures.iter().map(|figures| figures[0]);
    let last_cpu_us = figures.last().map(|figures| figures[1]);
    switches.chain(last_cpu_us).collect()
}
