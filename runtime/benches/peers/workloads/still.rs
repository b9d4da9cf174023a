//! What runtimes take while nothing happens: memory for tasks that wait, wake-ups of workers that
//! have nothing to do.
//!
//! Each is measured in a process of its own, see `child`.

use crate::child::{self, Still};
use crate::meter::Meter;
use crate::runtimes::peer::Peer;

const TASKS: usize = 1_000_000;
const QUICK_TASKS: usize = 100_000;
/// µs a second.
const US_A_PER_CENT: f64 = 10_000.0;
/// Workers of the idle runtimes, whatever the machine has.
const WORKERS: [usize; 3] = [2, 8, 64];

/// Bytes that the process grows by for each of a million tasks that wait, without what they wait
/// for.
pub(super) fn memory<P: Peer>(meter: &Meter) -> Vec<f64> {
    let tasks = if meter.is_quick { QUICK_TASKS } else { TASKS };
    child::measure(&[Still::Memory { workers: meter.workers, tasks }.arguments(P::NAME)]).concat()
}

/// Of an idle runtime with 2, 8 and 64 workers, each in a process of its own at the same time: its
/// threads' context switches a second, then its processor time in per cent of one processor.
pub(super) fn idle<P: Peer>(meter: &Meter) -> Vec<f64> {
    let children = WORKERS.map(|workers| Still::Idle { workers, quick: meter.is_quick }.arguments(P::NAME));
    let figures = child::measure(&children);
    let each = |of: fn(&Vec<f64>) -> f64| figures.iter().map(of);
    each(|figures| figures[0]).chain(each(|figures| figures[1] / US_A_PER_CENT)).collect()
}
