//! How a thread becomes a worker: for the lifetime of the runtime, or, as a spare, for one call.

use super::Worker;
use crate::clock;
use crate::coop;
use crate::scheduler::slots::leave_slot;
use crate::scheduler::worker::current;
use crate::task::cell::blocks;

impl Worker {
    /// Runs this worker on the current thread, until the runtime is shut down and no task is left.
    pub(crate) fn run(self) {
        self.run_with(|worker| {
            while !worker.shared.is_done() {
                worker.turn();
            }
        });
    }

    /// Runs `turns` on the current thread as this worker, which ends afterwards.
    pub(super) fn run_with(self, turns: impl FnOnce(&Self)) {
        /// Reports that the worker has exited, also after a panic.
        struct Ended<'a>(&'a Worker);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.cells().stop(clock::now_ns());
                self.0.shared.worker_ended();
            }
        }
        self.start_cells();
        let _ended = Ended(&self);
        self.run_as_current(|| turns(&self));
    }

    /// Runs a spare that was called. Returns `true` if it leaves with its queues empty, `false` if
    /// the runtime was shut down.
    pub(crate) fn run_as_spare(&self) -> bool {
        self.start_cells();
        self.note_replacement();
        // The spare was inactive, and the sentinel's checks may be suspended.
        self.core.borrow_mut().has_slept = true;
        let mut leaves = false;
        self.run_as_current(|| {
            while !leaves && !self.shared.is_done() {
                self.turn();
                leaves = self.shared.workers.slots.has_too_many() && leave_slot(self);
            }
        });
        self.cells().stop(clock::now_ns());
        leaves
    }

    pub(super) fn run_as_current(&self, f: impl FnOnce()) {
        // If the thread cannot be registered, its stack is never sampled.
        let registered = self.shared.sentinel.sampler.as_ref().and_then(|sampler| sampler.register().ok());
        self.remote.set_thread(registered.as_ref().map(|registered| registered.thread().clone()));
        current::run_as(self, || coop::run_as(self.cells(), || blocks::keep(f)));
        self.remote.set_thread(None);
    }
}
