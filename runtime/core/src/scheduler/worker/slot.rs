//! How a worker returns after it was stuck, how it announces that it will block, and how a spare
//! leaves.
//!
//! `slots` describes the handshake; its steps are named here where they are taken. Only the
//! worker's own thread runs this code.

use volt_telemetry::recording::event::Event;

use super::Worker;
use crate::clock;
use crate::coop;
use crate::scheduler::slots::{Leaves, WorkerSlots};
use crate::scheduler::worker::current;

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
        shared.workers.slots.begin_blocking(self.index);
        shared.sentinel.count_block();
        if let Ok(mut core) = self.core.try_borrow_mut() {
            // Move the task of the LIFO slot to the ring, where thieves see it.
            if let Some(task) = shared.workers.remotes[self.index].lifo.take() {
                self.push_back(&mut core, task);
            }
        }
        // If no task waits now, the sentinel calls a spare once one does.
        let is_watched = shared.config.sentinel_interval.is_some();
        if (!is_watched || shared.workers.has_work_for(self.index)) && !shared.workers.wake_one() {
            shared.call_spare();
        }
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
        let remote = &shared.workers.remotes[self.index];
        let mut tasks: Vec<_> = std::iter::from_fn(|| core.batch.pop()).collect();
        remote.inbox.pop_batch(usize::MAX, |task| tasks.push(task));
        tasks.extend(remote.lifo.take());
        tasks.extend(std::iter::from_fn(|| core.ring.pop()));
        shared.hand_over(tasks, clock::now_ns());
    }

    fn is_driver_polled(&self) -> bool {
        self.shared.workers.driver.owner().is_some()
    }

    fn wake_one(&self) {
        self.shared.workers.wake_one();
    }
}
