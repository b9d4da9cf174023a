//! Wakes workers for tasks that were submitted. The steps are those of `idle`.

use super::Workers;
use crate::driver::parker::Unparked;
use crate::scheduler::idle::parking;
#[cfg(test)]
use crate::scheduler::worker::sim;

impl Workers {
    /// Wakes a worker for a task that was placed at `chosen`, or in the global queue.
    pub(in crate::scheduler) fn wake_for_placed(&self, chosen: Option<usize>) {
        // The chosen worker if it sleeps; otherwise one that may steal the task from it.
        let is_woken = chosen.is_some_and(|worker| self.wake_worker(worker));
        if !is_woken {
            self.wake_for_submit();
        }
    }

    /// Submit (2) and (3), after work was published. Returns whether a worker was woken.
    pub(crate) fn wake_for_submit(&self) -> bool {
        let claimed = self.idle.claim_for_submit(self.driver.owner());
        self.unpark(claimed)
    }

    /// Submit (2) and (3), after `tasks` were published together: provides as many searchers as
    /// there are tasks, including the present ones. Returns how many workers were woken.
    ///
    /// The first wake-up follows the protocol for one task, on which the proof relies. The others
    /// spread a batch to all workers together instead of one after another.
    pub(crate) fn wake_for_batch(&self, tasks: usize) -> usize {
        let first = usize::from(self.wake_for_submit());
        let more = tasks.saturating_sub(self.idle.searching().max(first));
        first + (0..more).take_while(|_| self.wake_one()).count()
    }

    /// Hand-off (3), see `driver::turn_lock`: wakes a worker that will park in the driver, unless
    /// one is there or on the way. Returns whether a worker was woken.
    pub(crate) fn wake_for_driver(&self) -> bool {
        self.unpark(parking::claim_for_driver(&self.idle, || self.driver.owner()))
    }

    /// Wakes one more worker, even if there are searchers. Returns whether one was parked.
    pub(crate) fn wake_one(&self) -> bool {
        let claimed = self.idle.claim_any(self.driver.owner());
        self.unpark(claimed)
    }

    /// Submit (2) and (3) for one particular worker. Returns whether it was parked.
    pub(in crate::scheduler) fn wake_worker(&self, worker: usize) -> bool {
        let is_mine = self.idle.claim_worker(worker);
        self.unpark(is_mine.then_some(worker))
    }

    /// Wakes all sleeping workers, each once. A worker that parks from now on finds the reason in
    /// its own check. Repeating this until no worker sleeps might take for ever: the first workers
    /// may park again before the last are woken.
    pub(in crate::scheduler) fn wake_all(&self) {
        (0..self.remotes.len()).for_each(|worker| _ = self.wake_worker(worker));
        self.wake_spares();
    }

    fn unpark(&self, claimed: Option<usize>) -> bool {
        let Some(worker) = claimed else { return false };
        #[cfg(test)]
        if sim::delays_token(worker) {
            return true;
        }
        self.give_token(worker);
        true
    }

    pub(in crate::scheduler) fn give_token(&self, worker: usize) {
        if self.remotes[worker].parker.unpark() == Unparked::InDriver {
            self.driver.unpark();
        }
    }

    /// Calls the inactive spares that sleep, so that they see that the runtime ends.
    fn wake_spares(&self) {
        while let Some(slot) = self.slots.call_sleeper() {
            self.give_token(slot);
        }
    }
}
