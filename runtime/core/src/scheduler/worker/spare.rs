//! How a spare is called, becomes active, and sleeps while it is inactive. `slots` describes the
//! handshake; its steps are named here where they are taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Worker;
use crate::config::SPARE_KEEP_ALIVE;
use crate::driver::parker::Slept;
use crate::failures::Failure;
use crate::scheduler::shared::Shared;
use crate::scheduler::slots::Called;
use crate::scheduler::spares::lock;

impl Shared {
    /// Calls a spare. Returns `false` if all are active, or if no thread could be started.
    pub(crate) fn call_spare(self: &Arc<Self>) -> bool {
        let Some(called) = self.workers.slots.call() else { return false };
        // Call (3)
        match called {
            Called::Token(slot) => {
                self.workers.give_token(slot);
                true
            }
            Called::Thread(slot) => self.start_spare_thread(slot),
        }
    }

    fn start_spare_thread(self: &Arc<Self>, slot: usize) -> bool {
        self.worker_starts();
        match (self.start_spare)(self, slot) {
            Ok(thread) => {
                let mut threads = lock(&self.spares.threads);
                // Threads that have already ended need no join at the end of the runtime.
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
                true
            }
            Err(error) => {
                self.workers.slots.call_failed(slot);
                self.worker_ended();
                // ORDERING: Relaxed; only a statistic.
                self.spares.failures.fetch_add(1, Ordering::Relaxed);
                self.failures().note(Failure::NoSpare, &error);
                false
            }
        }
    }

    /// Runs the thread of a spare that was called.
    pub(crate) fn run_spare(self: Arc<Self>, slot: usize) {
        /// Reports that the thread has exited, also after a panic.
        struct Ended<'a>(&'a Shared);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.worker_ended();
            }
        }
        let _ended = Ended(&self);
        let place = slot - self.config.workers;
        loop {
            let core =
                lock(&self.spares.cores)[place].take().expect("a spare worker that is inactive has returned its core");
            let worker = Worker::new(self.clone(), slot, core);
            // ORDERING: Relaxed; the Release of the return below publishes the call that it ends.
            self.spares.calls.fetch_add(1, Ordering::Relaxed);
            let leaves = worker.run_as_spare();
            // ORDERING: Release; pairs with the Acquire in `counts`.
            self.spares.returns.fetch_add(1, Ordering::Release);
            lock(&self.spares.cores)[place] = Some(worker.into_core());
            if !leaves {
                return;
            }
            // Leave (4)
            self.workers.slots.finish_leaving(slot);
            if !self.sleep_inactive(slot) {
                return;
            }
        }
    }

    /// Leave (5): sleeps. Returns whether the spare was called.
    fn sleep_inactive(&self, slot: usize) -> bool {
        let parker = &self.workers.remotes[slot].parker;
        // The thread that ends the runtime publishes the end, executes a fence, and then calls the
        // spares. This thread becomes callable, executes a fence, and then checks for the end. So
        // at least one of them sees the other.
        self.workers.idle.fence();
        if self.is_done() && self.workers.slots.end_thread(slot) {
            return false;
        }
        loop {
            let slept = parker.sleep(Some(SPARE_KEEP_ALIVE));
            if parker.take_token() {
                return true;
            }
            if slept == Slept::TimedOut && self.workers.slots.end_thread(slot) {
                return false;
            }
        }
    }
}
