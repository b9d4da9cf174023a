//! How a runtime ends: it accepts no more tasks, cancels all tasks, and its workers end when no
//! task is left.
//!
//! # How it ends
//!
//! There is no list of all tasks. Counts show that no task is left: one count of spawns per worker
//! and one per queue that other threads push into, and one count of ends per worker.
//!
//! In an ordinary shutdown, the queues are closed to new tasks, the waiting tasks are cancelled and
//! submitted, and workers run them a last time. The worker that counts the last end finds the sums
//! equal, and wakes the other workers, which then end too. The race: a task is spawned while
//! another worker compares the sums.
//!
//! 1. Spawn. A worker checks whether the runtime is closed, counts, and pushes to its own queues.
//!    Other threads count and push under the lock of the queue, unless it is closed to new tasks. A
//!    task that is refused is cancelled and not counted.
//! 2. Close: every queue that other threads push into is closed to new tasks. Inboxes are closed
//!    altogether: tasks that are woken go to the global queue.
//! 3. `is_closed` is set, Release, and then the registry is closed, which cancels the waiting
//!    tasks. A worker that runs a task from now on cancels it before the poll and after the poll.
//!    If it misses the shutdown, the registry cancels the task when it is about to wait.
//! 4. A worker ends when it sees `is_closed`, Acquire, and then reads all ends, Acquire, and then
//!    all spawns, and the sums are equal.
//! 5. A thread that has found that wakes all workers, so that they find it too.
//! 6. If the time limit passes first, `have_shields_ended` is set, and then the registry cancels
//!    its tasks again, now in spite of their shields. A worker that cancels a task as in (3) from
//!    now on does the same.
//!
//! NONE-LEFT: when a worker ends, its own queues are empty. Any task that is left was spawned by
//! another worker, which does not end before that task does.
//!
//! Proof: a thread that sees the end of a task also sees its spawn, through the queues in between.
//! So equal sums mean equal sets: all tasks whose spawn the worker has seen have ended. Take a task
//! whose spawn it has not seen. The task was not spawned outside the workers, since (2) comes after
//! such a spawn in the order of a lock. So a worker has spawned it, either between two polls (for
//! example in a waker of the user's) or in the poll of another task. To the observer, that other
//! task either has not ended, which contradicts the equal sums, or was not spawned. Then the same
//! holds for it, and so on, back to a task that a worker spawned between two polls. That worker
//! sees its own count of the spawn; and a thread that polls a task has seen the task's spawn, and
//! its end comes later.
//!
//! NONE-SLEEPS: a worker checks (4) between the fence of its park and its sleep. If it does not
//! see the last end, the thread that counted that end executes its fence later, and so sees the
//! parked bit in (5). If two threads count the last two ends at the same time, each executes a
//! fence before it checks, and one of them sees both.
//!
//! NO-SHIELDS: after (6), no task waits behind a shield. A task that waits is in the registry. If
//! it was added before (6) locks its shard, its shields are removed there. If it enters another
//! one in the same poll, it has read the task word that (6) has written: its worker, which cancels
//! it after the poll, sees the flag. If the task is added later, its worker locks the shard after
//! (6), and cancels the task, since the registry is closed: it sees the flag then.
//!
//! Rejected: a registry of all tasks, which is empty when no task is left: two locks per task.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use volt_telemetry::InFlight;

use super::Shared;
use super::lifecycle::Running;
use crate::scheduler::ends::{self, Ends};

impl Shared {
    /// End (4): returns whether workers may end.
    pub(crate) fn is_done(&self) -> bool {
        ends::is_done(self)
    }

    /// End (5): wakes all workers if workers may end.
    pub(crate) fn wake_if_done(&self) {
        if self.is_done() {
            self.workers.wake_all();
        }
    }

    /// Returns how many tasks are left, and `#id name (spawned at)` of up to `limit` of them, tasks
    /// that are being polled first.
    pub(crate) fn remaining_tasks(&self, limit: usize) -> (u64, Vec<String>) {
        let snapshot = self.snapshot();
        let polled: Vec<_> =
            snapshot.workers.iter().filter_map(|worker| worker.in_flight.as_ref()).take(limit).collect();
        let describe = |poll: &&InFlight| {
            let name = poll.task_name.as_ref().map_or(String::new(), |name| format!(" {name}"));
            format!("#{}{name} ({})", poll.task_id, poll.spawned_at)
        };
        let mut lines: Vec<_> = polled.iter().map(describe).collect();
        let listed: Vec<_> = polled.iter().map(|poll| poll.task_id).collect();
        lines.extend(self.workers.registry.describe(limit - lines.len(), &listed));
        (snapshot.tasks.alive, lines)
    }

    #[inline]
    pub(in crate::scheduler) fn is_closed(&self) -> bool {
        ends::is_closed(self)
    }

    /// Stops accepting tasks, and cancels all tasks.
    pub(crate) fn close(&self) {
        self.close_to_new();
        self.workers.registry.close();
        // For workers that sleep while there is nothing left to cancel.
        self.workers.wake_all();
    }

    /// End (6): cancels all tasks in spite of their shields, at the time limit of the shutdown. The
    /// workers that still run drop their futures, and then exit.
    pub(crate) fn end_shields(&self) {
        // ORDERING: Relaxed; the locks of the registry and the task words order it: NO-SHIELDS.
        self.lifecycle.have_shields_ended.store(true, Ordering::Relaxed);
        self.workers.registry.cancel_unshielded();
    }

    /// Returns whether End (6) has begun, as far as this thread sees.
    pub(in crate::scheduler) fn have_shields_ended(&self) -> bool {
        // ORDERING: Relaxed; see `end_shields`.
        self.lifecycle.have_shields_ended.load(Ordering::Relaxed)
    }

    /// Closes all queues, after the workers have exited: a task that is pushed from now on is
    /// returned.
    pub(crate) fn close_queues(&self) {
        self.workers.injector.close();
        self.workers.remotes.iter().for_each(|remote| remote.inbox.close());
    }

    fn lock_running(&self) -> MutexGuard<'_, Running> {
        self.lifecycle.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Counts a worker whose thread is about to start.
    pub(crate) fn worker_starts(&self) {
        self.lock_running().workers += 1;
    }

    /// Counts a worker whose thread has exited, or could not be started.
    pub(crate) fn worker_ended(&self) {
        self.wake_if_done();
        let mut running = self.lock_running();
        running.workers -= 1;
        if running.workers == 0 && running.is_given_up {
            self.sentinel.end();
        }
        let is_awaited = running.waiting > 0;
        drop(running);
        if is_awaited {
            self.lifecycle.stopped.notify_all();
        }
    }

    /// Waits until all workers have exited, or until `deadline`. Returns how many still run; if
    /// there are any, the last of them ends the sentinel's checks.
    pub(crate) fn wait_for_workers(&self, deadline: Option<Instant>) -> usize {
        let mut running = self.lock_running();
        running.waiting += 1;
        while running.workers > 0 {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            running = match left {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    let waited = self.lifecycle.stopped.wait_timeout(running, left);
                    waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
                None => self.lifecycle.stopped.wait(running).unwrap_or_else(|poisoned| poisoned.into_inner()),
            };
        }
        running.waiting -= 1;
        running.is_given_up = running.workers > 0;
        running.workers
    }
}

impl Ends for Shared {
    fn ended(&self) -> [u64; 3] {
        let ended = self.workers.remotes.iter().map(|remote| remote.cells.ended());
        ended.fold([0; 3], |sum: [u64; 3], ended| std::array::from_fn(|end| sum[end] + ended[end]))
    }

    fn spawned(&self) -> [u64; 2] {
        let inside = self.workers.remotes.iter().map(|remote| remote.cells.spawned.get()).sum();
        let outside = self.workers.intake.arrivals.iter().map(|arrivals| arrivals.count()).sum();
        [inside, outside]
    }

    fn closed(&self) -> &AtomicBool {
        &self.lifecycle.is_closed
    }

    fn close_queues_to_new(&self) {
        self.workers.injector.close_to_new();
        self.workers.remotes.iter().for_each(|remote| remote.inbox.close());
    }
}
