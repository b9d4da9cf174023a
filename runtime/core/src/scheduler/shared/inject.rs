//! Submits tasks from outside the workers, or from a worker that cannot run them itself. The steps
//! are those of `idle`.

use super::Shared;
use crate::config::hooks::{self, TaskMeta};
#[cfg(test)]
use crate::scheduler::worker::sim;
use crate::task::header::Notified;

impl Shared {
    /// Submits a task that was woken outside the workers, or that its worker cannot take itself.
    pub(crate) fn inject(&self, task: Notified) {
        if !self.identity.home.is_here() {
            // A forked child woke a task of its parent. No worker exists here to run it, and a lock
            // may have been held by a thread that does not exist here.
            std::mem::forget(task);
            return;
        }
        let chosen = self.workers.place();
        let queue = chosen.map_or(&self.workers.injector, |worker| &self.workers.remotes[worker].inbox);
        // Stamped a moment ago, by the thread that woke it.
        let now_ns = task.header().submitted_at_ns();
        let mut submit = self.workers.intake.submits.begin();
        // Submit (1)
        // A shutdown closes the inboxes first, since their workers may end before the others.
        let pushed = queue.push(task, now_ns).or_else(|task| self.workers.injector.push(task, now_ns));
        if let Err(task) = pushed {
            // The workers have exited; the task was left behind and woken afterwards.
            self.cancel_now(task);
            return;
        }
        submit.count();
        #[cfg(test)]
        if sim::delays_wake_up(chosen) {
            return;
        }
        self.workers.wake_for_placed(chosen);
    }

    /// Cancels a task that no worker will poll, because the runtime shuts down.
    pub(in crate::scheduler) fn cancel_now(&self, task: Notified) {
        let meta = TaskMeta::of(task.header());
        task.cancel_now();
        hooks::call_for(self.config.hooks.task_end.as_ref(), &meta);
    }

    /// Moves tasks that a worker cannot run to the global queue, and wakes workers for them.
    /// Returns how many were woken.
    pub(in crate::scheduler) fn hand_over(&self, tasks: Vec<Notified>, now_ns: u64) -> usize {
        if tasks.is_empty() {
            return 0;
        }
        let count = tasks.len();
        let _submit = self.workers.intake.submits.begin();
        if let Err(tasks) = self.workers.injector.push_batch(tasks.into_iter(), now_ns) {
            // The workers have exited.
            tasks.into_iter().for_each(|task| self.cancel_now(task));
            return 0;
        }
        self.workers.wake_for_batch(count)
    }
}
