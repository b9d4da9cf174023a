//! How a thread becomes a worker: for the lifetime of the runtime, or, as a spare, for one duty.

use super::Worker;
use crate::clock;
use crate::coop;
use crate::scheduler::current;
use crate::scheduler::staff::leave_duty;
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
        /// Reports that the worker has ended, also after a panic.
        struct Ended<'a>(&'a Worker);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.cells().stop(clock::now_ns());
                self.0.shared.worker_ended();
            }
        }
        self.start_cells();
        let _ended = Ended(&self);
        self.on_duty(|| turns(&self));
    }

    /// Runs a spare on duty. Returns `true` if it goes off duty with its queues empty, `false` if
    /// the runtime has ended.
    pub(crate) fn run_as_spare(&self) -> bool {
        self.start_cells();
        self.note_replacement();
        // The spare was off duty, and the sentinel may doze.
        self.core.borrow_mut().has_slept = true;
        let mut goes_off = false;
        self.on_duty(|| {
            while !goes_off && !self.shared.is_done() {
                self.turn();
                goes_off = self.shared.staff.has_too_many() && leave_duty(self);
            }
        });
        self.cells().stop(clock::now_ns());
        goes_off
    }

    pub(super) fn on_duty(&self, f: impl FnOnce()) {
        // If the thread cannot be registered, its stack is never sampled.
        let registered = self.shared.sentinel.sampler.as_ref().and_then(|sampler| sampler.register().ok());
        self.remote.set_thread(registered.as_ref().map(|registered| registered.thread().clone()));
        current::run_as(self, || coop::run_as(self.cells(), || blocks::keep(f)));
        self.remote.set_thread(None);
    }
}
