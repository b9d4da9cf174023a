//! The state of the threads that read a runtime, for snapshots, lists and dumps, and for the
//! sentinel's search for deadlocks. No worker uses it, so no worker waits for a reader here.

use std::sync::Mutex;

use crate::scheduler::dump::turn::Turns;
use crate::scheduler::listing::census::Census;
use crate::scheduler::listing::chosen::Listing;
use crate::scheduler::listing::deadlocks::Deadlocks;
use crate::scheduler::listing::long_waits::LongWaits;
use crate::scheduler::listing::processes::Sources;
use crate::stats::cells::PHASES;

/// See the header of this file.
pub(crate) struct Readers {
    pub(super) census: Census,
    pub(in crate::scheduler) deadlocks: Deadlocks,
    pub(in crate::scheduler) long_waits: LongWaits,
    pub(in crate::scheduler) listing: Listing,
    pub(in crate::scheduler) dumps: Turns,
    pub(crate) processes: Sources,
    /// The times that snapshots have reported so far, per worker, so that later ones report no
    /// less: see `WorkerCells::read`.
    pub(super) time_floors: Mutex<Vec<[u64; PHASES.len()]>>,
}

impl Readers {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            census: Census::default(),
            deadlocks: Deadlocks::default(),
            long_waits: LongWaits::default(),
            listing: Listing::default(),
            dumps: Turns::default(),
            processes: Sources::default(),
            time_floors: Mutex::new(vec![[0; PHASES.len()]; workers]),
        }
    }
}
