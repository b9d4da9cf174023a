//! The state of submits from outside the workers: which worker takes the next task, and how many
//! tasks arrived. `scheduler/spawn` and `shared/inject` have the submits.
//!
//! Writers: all threads. Each number that many of them write has its own cache line, except the
//! placer's turn, which `Placement::Global` does not use.

use std::sync::atomic::AtomicUsize;

use volt_shim::CachePadded;

use super::submits::Submits;
use crate::config::Placement;
use crate::scheduler::placement::Placer;
use crate::stats::tally::Arrivals;

/// See the header of this file.
pub(in crate::scheduler) struct Intake {
    pub(in crate::scheduler) placer: Placer,
    /// How many new tasks came into the global queue, and into each worker's inbox.
    pub(in crate::scheduler) arrivals: Box<[Arrivals]>,
    pub(in crate::scheduler) submits: Submits,
    /// Calls of `try_spawn` that have found room and have not used it yet.
    pub(in crate::scheduler) arriving: CachePadded<AtomicUsize>,
}

impl Intake {
    /// `inboxes`: of the workers and the spares.
    pub(super) fn new(placement: Placement, inboxes: usize) -> Self {
        Self {
            placer: Placer::new(placement),
            arrivals: (0..=inboxes).map(|_| Arrivals::default()).collect(),
            submits: Submits::new(),
            arriving: CachePadded(AtomicUsize::new(0)),
        }
    }
}
