//! How a worker returns after it was stuck, how it announces that it will block, and how a spare
//! leaves.
//!
//! `slots` describes the handshake; its steps are named here where they are taken. Only the
//! worker's own thread runs this code.

use volt_telemetry::recording::event::Event;

use super::Worker;
use crate::clock;
use crate::coop;
use crate::scheduler::core::Core;
use crate::scheduler::slots::{Leaves, WorkerSlots};
use crate::scheduler::worker::current;
use crate::task::header::Notified;

impl Worker {
    /// Return, if the sentinel has declared this worker stuck. Costs one load of a rarely written
    /// cache line.
    #[inline]
    pub(super) fn ensure_present(&self) {
        if !self.own_slot.is_present() {
            self.come_back();
        }
    }

    #[cold]
    fn come_back(&self) {
        self.shared.workers.slots.come_back(self.index);
        let now_ns = clock::now_ns();
        // Later events of this worker must not be recorded before the return, and their delay
        // counts up to here.
        self.now_ns.set(now_ns);
        self.recorder.note(|| now_ns, || Event::Return);
    }

    /// Runs `f`, which blocks, while another worker does the work of this one.
    pub(crate) fn block_in_place<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Return, also after a panic.
        struct Back<'a>(&'a Worker);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.ensure_present();
            }
        }
        self.begin_block();
        let _back = Back(self);
        let (mut f, mut result) = (Some(f), None);
        // For the code that `f` calls, this is an ordinary thread: it may block, and the tasks that
        // it wakes go to the global queue. But the current task stays the same.
        current::run_blocking(|| result = f.take().map(|f| coop::outside_polls(f)));
        result.expect("it was called once")
    }

    fn begin_block(&self) {
        let shared = &self.shared;
        if !shared.identity.home.is_here() {
            // In a forked child, the tasks in the queues are copies of those that the parent runs.
            return;
        }
        shared.workers.slots.begin_blocking(self.index);
        shared.sentinel.count_block();
        let mut is_woken = false;
        if let Ok(mut core) = self.core.try_borrow_mut() {
            if !shared.config.enable_stealing {
                let tasks = self.take_queued(&mut core);
                drop(core);
                is_woken = shared.hand_over(tasks, clock::now_ns()) > 0;
            } else if let Some(task) = self.remote.lifo.take() {
                // To the ring, where thieves see it.
                self.push_back(&mut core, task);
            }
        }
        // If no task waits now, the sentinel calls a spare once one does.
        let is_watched = shared.config.sentinel_interval.is_some();
        let is_needed = !is_woken && (!is_watched || shared.workers.has_work_for(self.index));
        if is_needed && !shared.workers.wake_one() {
            shared.call_spare();
        }
    }

    /// Takes all tasks out of this worker's own queues.
    fn take_queued(&self, core: &mut Core) -> Vec<Notified> {
        let mut tasks: Vec<_> = std::iter::from_fn(|| core.batch.pop()).collect();
        self.remote.inbox.pop_batch(usize::MAX, |task| tasks.push(task));
        tasks.extend(self.remote.lifo.take());
        tasks.extend(std::iter::from_fn(|| core.ring.pop()));
        tasks
    }
}

impl Leaves for Worker {
    fn slots(&self) -> &WorkerSlots {
        &self.shared.workers.slots
    }

    fn slot(&self) -> usize {
        self.index
    }

    fn hand_over_all(&self) {
        let shared = &self.shared;
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        self.leave_search(core);
        let tasks = self.take_queued(core);
        shared.hand_over(tasks, clock::now_ns());
    }

    fn is_driver_polled(&self) -> bool {
        self.shared.workers.driver.owner().is_some()
    }

    fn wake_one(&self) {
        self.shared.workers.wake_one();
    }
}
