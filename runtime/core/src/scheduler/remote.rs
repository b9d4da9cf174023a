//! The two halves of a worker: the part that other threads use, [`Remote`], and the part that only
//! the worker uses, [`Core`]. Both are created here, since the ring and the batch buffer
//! have an end in either half.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use volt_shim::CachePadded;

use super::core::Core;
use crate::config::Config;
use crate::driver::parker::Parker;
use crate::queue::injector::Injector;
use crate::queue::lifo::LifoSlot;
use crate::queue::ring::{Producer, Steal, Stealer, ring};
use crate::stats::cells::WorkerCells;
use crate::stats::placed::Placed;
use crate::task::header::Notified;

/// The part of a worker that other threads may use.
///
/// Data that different threads write is on separate cache lines: the worker writes `lifo` and
/// `cells` at each poll, threads that wake it write `parker`, and thieves write `tasks_given`.
pub(crate) struct Remote {
    pub(crate) ring: Stealer<Notified>,
    pub(crate) batch: Stealer<Notified>,
    /// Tasks that were placed here from outside. The worker moves them to its ring; thieves steal
    /// from it.
    pub(crate) inbox: Injector<Notified>,
    /// Only its worker puts tasks in; thieves take them in their last pass.
    pub(crate) lifo: CachePadded<LifoSlot<Notified>>,
    pub(crate) parker: CachePadded<Parker>,
    pub(crate) cells: Placed<WorkerCells>,
    /// How many tasks thieves took from this worker; counted by the thieves.
    pub(crate) tasks_given: CachePadded<AtomicU64>,
    /// The worker's thread, while its stack can be sampled.
    thread: Mutex<Option<Arc<volt_stacks::Thread>>>,
    /// The last thread that was this worker.
    last_thread: Mutex<Option<ThreadId>>,
}

/// Creates the two halves of a worker, with these cells.
pub(super) fn slot(config: &Config, cells: Placed<WorkerCells>, index: usize, seed: u64) -> (Arc<Remote>, Core) {
    let (ring_end, ring_stealer) = ring(config.local_queue_capacity);
    let (batch_end, batch_stealer) = ring(config.global_queue_batch_size);
    let remote = Remote {
        ring: ring_stealer,
        batch: batch_stealer,
        inbox: Injector::new(),
        lifo: CachePadded(LifoSlot::new()),
        parker: CachePadded(Parker::new()),
        cells,
        tasks_given: CachePadded(AtomicU64::new(0)),
        thread: Mutex::new(None),
        last_thread: Mutex::new(None),
    };
    (Arc::new(remote), Core::new(config, index, seed, ring_end, batch_end))
}

/// Steals half of one of a worker's queues into the ring of the thief.
type StealFrom = fn(&Remote, &mut Producer<Notified>) -> Steal<Notified>;

impl Remote {
    /// The queues from which thieves steal, in this order.
    pub(crate) const STEALS: [StealFrom; 2] =
        [|remote, into| remote.ring.steal_into(into), |remote, into| remote.batch.steal_into(into)];

    /// Returns the worker's thread, if its stack can be sampled.
    pub(crate) fn stack_of(&self) -> Option<Arc<volt_stacks::Thread>> {
        self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(crate) fn set_thread(&self, thread: Option<Arc<volt_stacks::Thread>>) {
        *self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = thread;
    }

    /// Returns the thread that is this worker, or was it last.
    pub(crate) fn last_thread(&self) -> Option<ThreadId> {
        *self.last_thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The calling thread becomes this worker.
    pub(super) fn begin_on_this_thread(&self) {
        *self.last_thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(thread::current().id());
    }

    /// Returns how many tasks wait in this worker's queues.
    pub(crate) fn queued(&self) -> usize {
        self.stealable() + usize::from(self.lifo.is_filled())
    }

    /// Returns how many of these any thief may steal.
    pub(crate) fn stealable(&self) -> usize {
        self.local_len() + self.batch.len() + self.inbox.len()
    }

    /// Returns the length of the worker's local queue, that is, its ring.
    pub(crate) fn local_len(&self) -> usize {
        self.ring.len()
    }
}
