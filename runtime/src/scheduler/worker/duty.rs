//! How a worker comes back after it was stuck, says that it will block, and, if it is a spare, goes off duty.
//!
//! The handshake stands in `staff`; its steps are named here where they are taken.
//!
//! Who writes: the worker's own thread.

use volt_telemetry::recording::event::Event;

use super::Worker;
use crate::clock;
use crate::coop;
use crate::scheduler::current;

impl Worker {
    /// Return, if the sentinel has declared this worker away. One load, of a line that is seldom written.
    #[inline]
    pub(super) fn ensure_present(&self) {
        if !self.shared.staff.is_present(self.index) {
            self.shared.staff.come_back(self.index);
            self.pen.note(clock::now_ns, || Event::Return);
        }
    }

    /// Runs `f`, which blocks, while another worker does this one's work.
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
        // To what it calls, this is a thread like any other: it may wait, and what it wakes takes
        // the global road. But it is still the task's.
        current::run_blocking(|| result = f.take().map(|f| coop::outside_polls(f)));
        result.expect("it was called once")
    }

    fn begin_block(&self) {
        let shared = &self.shared;
        shared.staff.begin_blocking(self.index);
        shared.sentinel.count_block();
        if let Ok(mut core) = self.core.try_borrow_mut() {
            // Where thieves see it.
            if let Some(task) = shared.remotes[self.index].lifo.take() {
                self.push_back(&mut core, task);
            }
        }
        // If nothing waits, the sentinel calls a spare when something does.
        let is_watched = shared.config.sentinel_interval.is_some();
        if (!is_watched || shared.has_work_for(self.index)) && !shared.wake_one() {
            shared.call_spare();
        }
    }

    /// Leave (1) to (3), for a spare, between two polls. Returns whether it goes.
    pub(super) fn leave_duty(&self) -> bool {
        let shared = &self.shared;
        if !shared.staff.leave(self.index) {
            return false;
        }
        // Leave (3)
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        self.leave_search(core);
        let remote = &shared.remotes[self.index];
        let mut tasks: Vec<_> = std::iter::from_fn(|| core.batch.pop()).collect();
        remote.inbox.pop_batch(usize::MAX, |task| tasks.push(task));
        tasks.extend(remote.lifo.take());
        tasks.extend(std::iter::from_fn(|| core.ring.pop()));
        if let Some(stack) = &mut core.stack {
            tasks.extend(std::iter::from_fn(|| stack.pop_oldest()));
        }
        shared.hand_over(tasks, clock::now_ns());
        // If it came out of the driver, those that are parked sleep on without one: the one that is woken lies down in it.
        if shared.driver.owner().is_none() {
            shared.wake_one();
        }
        true
    }
}
