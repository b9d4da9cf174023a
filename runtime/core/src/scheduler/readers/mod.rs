//! The state of the threads that read a runtime, for snapshots, lists and dumps, and for the
//! sentinel's search for deadlocks. No worker uses it, so no worker waits for a reader here; a
//! thread that enters or leaves `block_on` does, for a few instructions.

use std::sync::Mutex;

use self::census::Census;
use self::chosen::Listing;
use self::deadlocks::Deadlocks;
use self::long_waits::LongWaits;
use self::main_futures::MainFutures;
use self::processes::Sources;
use self::turn::Turns;
use crate::stats::cells::PHASES;

mod census;

pub(in crate::scheduler) mod chosen;

mod joins;

mod graph;
pub(in crate::scheduler) mod permits;

pub(crate) mod deadlocks;

pub(in crate::scheduler) mod holders;

pub(crate) mod limit;

pub(crate) mod long_waits;

pub(crate) mod main_futures;

pub mod processes;

pub(in crate::scheduler) mod turn;

/// See the header of this file.
pub(crate) struct Readers {
    pub(in crate::scheduler) census: Census,
    pub(in crate::scheduler) deadlocks: Deadlocks,
    pub(in crate::scheduler) long_waits: LongWaits,
    pub(in crate::scheduler) listing: Listing,
    pub(in crate::scheduler) dumps: Turns,
    pub(crate) main_futures: MainFutures,
    pub(crate) processes: Sources,
    /// The times that snapshots have reported so far, per worker, so that later ones report no
    /// less: see `WorkerCells::read`.
    pub(in crate::scheduler) time_floors: Mutex<Vec<[u64; PHASES.len()]>>,
}

impl Readers {
    pub(in crate::scheduler) fn new(workers: usize) -> Self {
        Self {
            census: Census::default(),
            deadlocks: Deadlocks::default(),
            long_waits: LongWaits::default(),
            listing: Listing::default(),
            dumps: Turns::default(),
            main_futures: MainFutures::new(),
            processes: Sources::default(),
            time_floors: Mutex::new(vec![[0; PHASES.len()]; workers]),
        }
    }
}
