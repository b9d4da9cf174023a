//! How a runtime ends: it takes nothing in any more, cancels its tasks, and its workers find that
//! none is left.
//!
//! # How it ends
//!
//! Nobody has a list of all tasks; that no task is left is told from counts: of spawns, one a
//! worker and one a queue that threads outside push into, and of ends, one a worker.
//!
//! 1. Spawn. A worker checks whether the runtime is closed, counts, and pushes to its own queues.
//!    Others count and push under the lock of the queue, unless that is closed to what is new. A
//!    task that is refused is cancelled and not counted.
//! 2. Close: every queue that others push into is closed to what is new. Inboxes are closed
//!    altogether: tasks that are woken go to the global queue.
//! 3. `is_closed` is set, Release, and then the registry is closed, which cancels the tasks that
//!    wait. Whoever runs a task from now on cancels it first, and after a poll; a task that is
//!    about to wait is cancelled by the registry if not.
//! 4. A worker ends when it sees `is_closed`, Acquire, and then reads all ends, Acquire, and then
//!    all spawns, and the sums are equal.
//! 5. Whoever has seen that wakes all others, so that they see it too.
//!
//! NOBODY-LEFT: when a worker ends, its own queues are empty, and tasks that are left can only be
//! some that another worker has spawned, who will not end before they do. Proof: whoever sees the
//! end of a task sees its spawn, by the queues in between; so equal sums are equal sets, and what
//! the worker has seen spawned has ended. A task that it has not seen was not spawned outside,
//! since (2) comes after that in the order of a lock. So a worker has spawned it: in the poll of a
//! task, which then has not ended in the eyes of an observer, or has not been seen spawned itself,
//! and so on, back to a task that a worker has spawned between two polls, in a waker of the user's,
//! say. That worker sees its own count; and whoever polls a task has seen its spawn, and its end
//! comes later.
//!
//! NOBODY-SLEEPS: a worker checks, at (4), between the fence of its park and its sleep. If it does
//! not see the last end, then whoever counted that comes to its own fence later, and so sees its
//! parked bit in (5); two who count the last two ends at once have a fence each before they check,
//! and one of them sees both.
//!
//! Rejected: a registry of all tasks, whose emptiness tells: two locks a task.

use std::sync::MutexGuard;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use volt_telemetry::InFlight;

use super::Shared;
use crate::scheduler::ends::{self, Ends};

impl Shared {
    /// End (4): whether workers may end.
    pub(crate) fn is_done(&self) -> bool {
        ends::is_done(self)
    }

    /// End (5): for whoever has found that workers may end.
    pub(crate) fn wake_if_done(&self) {
        if self.is_done() {
            self.wake_all();
        }
    }

    /// How many tasks are left, and `#id name (spawned at)` of up to `limit` of them, those that
    /// are being polled first.
    pub(crate) fn left_overs(&self, limit: usize) -> (u64, Vec<String>) {
        let snapshot = self.snapshot();
        let polled: Vec<_> =
            snapshot.workers.iter().filter_map(|worker| worker.in_flight.as_ref()).take(limit).collect();
        let describe = |poll: &&InFlight| {
            let name = poll.task_name.as_ref().map_or(String::new(), |name| format!(" {name}"));
            format!("#{}{name} ({})", poll.task_id, poll.spawned_at)
        };
        let mut lines: Vec<_> = polled.iter().map(describe).collect();
        let told: Vec<_> = polled.iter().map(|poll| poll.task_id).collect();
        lines.extend(self.registry.describe(limit - lines.len(), &told));
        (snapshot.tasks.alive, lines)
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        ends::is_closed(self)
    }

    /// Takes nothing in any more and cancels all tasks.
    pub(crate) fn close(&self) {
        self.close_to_new();
        self.registry.close();
        // For those that sleep with nothing left to be cancelled.
        self.wake_all();
    }

    /// The workers have ended: whoever brings a task from now on gets it back.
    pub(crate) fn close_queues(&self) {
        self.injector.close();
        self.remotes.iter().for_each(|remote| remote.inbox.close());
    }

    fn lock_running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A worker's thread is about to start.
    pub(crate) fn worker_starts(&self) {
        *self.lock_running() += 1;
    }

    /// A worker's thread has ended, or could not be started.
    pub(crate) fn worker_ended(&self) {
        self.wake_if_done();
        let mut running = self.lock_running();
        *running -= 1;
        if *running == 0 {
            self.sentinel.end();
        }
        drop(running);
        self.stopped.notify_all();
    }

    /// Waits until all workers have ended, or until `deadline`. Returns how many still run.
    pub(crate) fn wait_for_workers(&self, deadline: Option<Instant>) -> usize {
        let mut running = self.lock_running();
        while *running > 0 {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            running = match left {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    self.stopped.wait_timeout(running, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
                None => self.stopped.wait(running).unwrap_or_else(|poisoned| poisoned.into_inner()),
            };
        }
        *running
    }
}

impl Ends for Shared {
    fn ended(&self) -> [u64; 3] {
        let ended = self.remotes.iter().map(|remote| remote.cells.ended());
        ended.fold([0; 3], |sum: [u64; 3], ended| std::array::from_fn(|end| sum[end] + ended[end]))
    }

    fn spawned(&self) -> [u64; 2] {
        let inside = self.remotes.iter().map(|remote| remote.cells.spawned.get()).sum();
        let outside = self.arrivals.iter().map(|arrivals| arrivals.count()).sum();
        [inside, outside]
    }

    fn closed(&self) -> &AtomicBool {
        &self.is_closed
    }

    fn close_queues_to_new(&self) {
        self.injector.close_to_new();
        self.remotes.iter().for_each(|remote| remote.inbox.close());
    }
}
