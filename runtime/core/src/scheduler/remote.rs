//! The two halves of a worker: what others may touch of it, and what it owns.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use volt_shim::CachePadded;

use super::core::Core;
use crate::config::Config;
use crate::driver::parker::Parker;
use crate::queue::injector::Injector;
use crate::queue::lifo::LifoSlot;
use crate::queue::ring::{Producer, Steal, Stealer, ring};
use crate::stats::cells::WorkerCells;
use crate::task::header::Notified;

/// The part of a worker that others may touch.
///
/// What different threads write lies on lines of its own: the worker writes `lifo` and `cells` at
/// each poll, those who wake it `parker`, and thieves `tasks_given`.
pub(crate) struct Remote {
    pub(crate) ring: Stealer<Notified>,
    pub(crate) batch: Stealer<Notified>,
    /// Tasks that were placed here from outside; the worker moves them to its ring, thieves take
    /// from it.
    pub(crate) inbox: Injector<Notified>,
    /// Only its worker puts; others take on the last pass.
    pub(crate) lifo: CachePadded<LifoSlot<Notified>>,
    pub(crate) parker: CachePadded<Parker>,
    pub(crate) cells: CachePadded<WorkerCells>,
    /// Tasks that thieves took from here; counted by the thieves.
    pub(crate) tasks_given: CachePadded<AtomicU64>,
    /// Its thread, while it can be asked for its stack.
    thread: Mutex<Option<Arc<volt_stacks::Thread>>>,
}

/// The two halves of a worker: what others may touch, and what it owns.
pub(super) fn slot(config: &Config, index: usize, seed: u64) -> (Arc<Remote>, Core) {
    let (ring_end, ring_stealer) = ring(config.local_queue_capacity);
    let (batch_end, batch_stealer) = ring(config.global_queue_batch_size);
    let remote = Remote {
        ring: ring_stealer,
        batch: batch_stealer,
        inbox: Injector::new(),
        lifo: CachePadded(LifoSlot::new()),
        parker: CachePadded(Parker::new()),
        cells: CachePadded(WorkerCells::new()),
        tasks_given: CachePadded(AtomicU64::new(0)),
        thread: Mutex::new(None),
    };
    (Arc::new(remote), Core::new(config, index, seed, ring_end, batch_end))
}

/// Takes half of one of a worker's queues, as the thief that owns the ring.
type StealFrom = fn(&Remote, &mut Producer<Notified>) -> Steal<Notified>;

impl Remote {
    /// From which queues thieves take, in this order.
    pub(crate) const STEALS: [StealFrom; 2] =
        [|remote, into| remote.ring.steal_into(into), |remote, into| remote.batch.steal_into(into)];

    /// Its thread, if it can be asked for its stack.
    pub(crate) fn stack_of(&self) -> Option<Arc<volt_stacks::Thread>> {
        self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(crate) fn set_thread(&self, thread: Option<Arc<volt_stacks::Thread>>) {
        *self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = thread;
    }

    /// Tasks that wait here.
    pub(crate) fn queued(&self) -> usize {
        self.stealable() + usize::from(self.lifo.is_filled())
    }

    /// Of those, the ones that any thief takes.
    pub(crate) fn stealable(&self) -> usize {
        self.local_len() + self.batch.len() + self.inbox.len()
    }

    /// Tasks in the ring, and in the stack where there is one: the worker's local queue.
    pub(crate) fn local_len(&self) -> usize {
        self.ring.len()
    }
}
