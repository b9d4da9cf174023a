//! The cost of a runtime while nothing happens: memory for tasks that wait, and wake-ups of workers
//! that have nothing to do.
//!
//! Each is measured in a separate program, see `child`.

use crate::child::{self, Still};
use crate::meter::Meter;
use crate::runtimes::peer::Peer;

const TASKS: usize = 1_000_000;
const QUICK_TASKS: usize = 100_000;
/// µs per second.
const US_A_PER_CENT: f64 = 10_000.0;
/// Numbers of workers of the idle runtimes, independent of the machine.
const WORKERS: [usize; 3] = [2, 8, 64];

/// Returns the bytes by which the program grows for each of a million waiting tasks, without what
/// they wait for.
pub(super) fn memory<P: Peer>(meter: &Meter) -> Vec<f64> {
    let tasks = if meter.is_quick { QUICK_TASKS } else { TASKS };
    child::measure(&[Still::Memory { workers: meter.workers, tasks }.arguments(P::NAME)]).concat()
}

/// Measures an idle runtime with 2, 8 and 64 workers, each in a separate program at the same time.
/// Returns its threads' context switches per second, then its processor time in per cent of one
/// processor.
pub(super) fn idle<P: Peer>(meter: &Meter) -> Vec<f64> {
    let children = WORKERS.map(|workers| Still::Idle { workers, quick: meter.is_quick }.arguments(P::NAME));
    let figures = child::measure(&children);
    let each = |of: fn(&Vec<f64>) -> f64| figures.iter().map(of);
    each(|figures| figures[0]).chain(each(|figures| figures[1] / US_A_PER_CENT)).collect()
}
