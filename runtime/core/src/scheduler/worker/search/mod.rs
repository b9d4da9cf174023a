//! Where a worker finds its next task.
//!
//! Each worker calls `next_task` in its loop. It takes tasks from its own queues first, from the
//! global queue at a regular interval, and from other workers when it has none. If it finds no task
//! at all, it parks. It searches in this order:
//! 1. batch buffer: its tasks were fetched from the global queue, so they have waited longest. Then
//!    tasks that others placed in the inbox are moved to the ring. If the ring is full, half of the
//!    ring is moved to the global queue first: tasks that yield may keep the ring full for ever;
//! 2. global queue, if a check is due: after as many local polls as the tuner's interval, or when
//!    the target latency has passed since the last check, but not before one local poll. Otherwise
//!    local tasks would starve behind slow polls and a global queue that is never empty;
//! 3. LIFO slot, up to its cap of polls. At the cap the slot is flushed to the tail of the ring,
//!    where its task gets its turn and thieves see it; if the ring is empty, the task is polled
//!    immediately. A task that is woken at the cap goes to the ring directly. A new tick resets the
//!    count if the ring had its turn in the last one;
//! 4. ring, first in, first out;
//! 5. steal: from each other worker once, from a random start: half of its ring, else half of its
//!    batch, else half of its inbox. LIFO slots are stolen only in a last pass, and only from a
//!    worker whose current poll is long: always stealing them costs throughput, and never stealing
//!    them strands a task behind a long poll;
//! 6. global queue;
//! 7. park.
//!
//! An ordinary case: a task on worker 0 wakes another one, which goes into the LIFO slot. Worker 0
//! polls it next (3). Then its queues are empty, so it steals half of the ring of worker 1 (5).
//! When these tasks are polled, too, and no queue has a task, it parks (7).
//!
//! The race: a task is submitted after the worker has checked every queue, and before it sleeps.
//! Parking checks all queues once more; see `idle::parking`.
//!
//! Only the worker's own thread runs this code. To the queues of other workers it is a thief.

use std::sync::atomic::Ordering;

use volt_telemetry::Phase;
use volt_telemetry::recording::event::Event;

use super::Worker;
use crate::clock;
use crate::queue::injector::Injector;
use crate::queue::ring::Steal;
use crate::scheduler::core::Core;
use crate::scheduler::idle::parking::leave_searchers;
use crate::scheduler::remote::Remote;
use crate::stats::reasons::Trigger;
use crate::task::header::Notified;

#[cfg(test)]
mod cost;

impl Worker {
    /// Finds the next task: see the module documentation.
    pub(super) fn next_task(&self) -> Option<Notified> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let task = match self.local_task(core) {
            Some(task) => Some(task),
            None => {
                let task = self.search(core);
                self.now_ns.set(clock::now_ns());
                self.recorder.note(|| self.now_ns.get(), || Event::SearchEnd { is_hit: task.is_some() });
                task
            }
        };
        if task.is_some() {
            self.begin_work_if_needed(core);
            self.cells().ensure_phase(Phase::Busy, self.now_ns.get());
        }
        task
    }

    /// Called when the worker has found something to poll.
    #[inline]
    pub(super) fn begin_work_if_needed(&self, core: &mut Core) {
        // One branch instead of two: both are false at nearly every poll.
        if core.is_searching | core.has_slept {
            self.begin_work(core);
        }
    }

    /// The worker found its first task after a search or a sleep.
    #[cold]
    fn begin_work(&self, core: &mut Core) {
        self.leave_search(core);
        if std::mem::take(&mut core.has_slept) {
            // Resume (1) was the retract.
            self.shared.sentinel.resume_checks(&self.shared.workers.idle);
        }
        self.hand_driver_on();
    }

    /// Steps 1 to 4.
    fn local_task(&self, core: &mut Core) -> Option<Notified> {
        let (config, remote) = (&self.shared.config, &*self.remote);
        // 1. batch buffer
        if core.has_batch {
            if let Some(task) = core.batch.pop() {
                return Some(task);
            }
            core.has_batch = false;
        }
        if remote.inbox.len() > 0 {
            self.empty_inbox(core, &remote.inbox);
        }
        core.polls_since_check += 1;
        // 2. global queue, if due
        if let Some(trigger) = core.due_check(self.now_ns.get())
            && let Some(task) = self.check_global(core, trigger)
        {
            return Some(task);
        }
        // 3. LIFO slot
        let is_capped = core.lifo_polls >= config.max_lifo_polls_per_tick;
        if let Some(task) = remote.lifo.take() {
            if !is_capped {
                core.lifo_polls += 1;
                remote.cells.lifo_hits.add(1);
                return Some(task);
            }
            remote.cells.lifo_cap_flushes.add(1);
            self.recorder.note(|| self.now_ns.get(), || Event::LifoFlush { task: task.header().id.as_u64() });
            if core.ring.len() == 0 {
                core.has_come_to_ring = true;
                return Some(task);
            }
            self.push_back(core, task);
        }
        // 4. ring
        core.has_come_to_ring = true;
        core.ring.pop()
    }

    /// Moves the tasks of the inbox to the ring's tail.
    #[cold]
    fn empty_inbox(&self, core: &mut Core, inbox: &Injector<Notified>) {
        if core.ring.free() == 0 {
            // Tasks that yield may keep the ring full for ever.
            let mut oldest = None;
            inbox.pop_batch(1, |task| oldest = Some(task));
            if let Some(task) = oldest {
                self.push_back(core, task);
            }
        }
        let ring = &mut core.ring;
        let moved = inbox.pop_batch(ring.free(), |task| {
            let pushed = ring.push(task);
            debug_assert!(pushed.is_ok(), "never more than fits");
        });
        if moved > 1 && !core.is_searching {
            self.wake_for_surplus(core, moved);
        }
    }

    /// Steps 5 and 6.
    fn search(&self, core: &mut Core) -> Option<Notified> {
        let (config, cells) = (&self.shared.config, self.cells());
        cells.ensure_phase(Phase::Searching, self.now_ns.get());
        self.recorder.note(|| self.now_ns.get(), || Event::SearchBegin);
        // 5. steal
        if config.enable_stealing && self.shared.workers.slots.in_use() > 1 {
            core.is_searching = core.is_searching || self.shared.workers.idle.try_start_searching();
            if core.is_searching
                && let Some(task) = self.steal(core)
            {
                return Some(task);
            }
        }
        // 6. global queue
        self.check_global(core, Trigger::Empty)
    }

    /// Checks the global queue; counts the reason and the number of local polls since the last
    /// check.
    #[inline(always)]
    fn check_global(&self, core: &mut Core, trigger: Trigger) -> Option<Notified> {
        // Without the poll for which a task is being searched.
        self.cells().count_global_check(trigger, u64::from(core.polls_since_check.saturating_sub(1)));
        let task = if self.shared.workers.injector.len() == 0 { None } else { self.fetch(core) };
        core.note_check(task.is_some(), self.now_ns.get(), &self.shared.config);
        task
    }

    /// Fetches a batch from the global queue: returns its first task, and puts the others into the
    /// batch buffer.
    #[inline(never)]
    fn fetch(&self, core: &mut Core) -> Option<Notified> {
        let (shared, cells) = (&self.shared, self.cells());
        let waiting = shared.workers.injector.len();
        if waiting == 0 {
            return None;
        }
        let share = waiting / shared.config.workers;
        let fair = share.clamp(shared.config.min_global_queue_batch, shared.config.max_global_queue_batch);
        // The first task goes to the caller; the buffer must hold the rest.
        let max = fair.min(core.batch.free() + 1);
        let mut first = None;
        core.has_batch = true;
        let batch = &mut core.batch;
        let taken = shared.workers.injector.pop_batch(max, |task| match &first {
            None => first = Some(task),
            Some(_) => {
                let pushed = batch.push(task);
                debug_assert!(pushed.is_ok(), "never more than fits");
            }
        });
        cells.global_batches.add(u64::from(taken > 0));
        cells.global_tasks.add(taken as u64);
        if taken > 0 {
            self.recorder.note(|| self.now_ns.get(), || Event::GlobalFetch { count: taken as u32 });
        }
        if taken > 1 && !core.is_searching {
            // There are more tasks than this worker runs next. If it were a searcher, it would wake
            // the next one when it leaves the searchers.
            self.count_wakes(shared.workers.wake_for_batch(taken - 1));
        }
        first
    }

    /// Steals half of another worker's ring, batch or inbox; in a last pass, the LIFO slot of a
    /// worker that is stuck in a long poll.
    pub(super) fn steal(&self, core: &mut Core) -> Option<Notified> {
        let (shared, cells) = (&self.shared, self.cells());
        let count = shared.workers.slots.in_use();
        let start = core.rng.below(count);
        let victims = || (start..count).chain(0..start).filter(|victim| *victim != self.index);
        for victim in victims() {
            let remote = &shared.workers.remotes[victim];
            cells.steal_attempts.add(1);
            for steal in Remote::STEALS {
                match steal(remote, &mut core.ring) {
                    Steal::Empty => {}
                    Steal::Lost => cells.steal_races_lost.add(1),
                    Steal::Taken { next, count } => {
                        self.count_steal(victim, count);
                        return Some(next);
                    }
                }
            }
            if let Some(task) = self.steal_from_inbox(core, victim) {
                return Some(task);
            }
        }
        let now_ns = clock::now_ns();
        for victim in victims() {
            let remote = &shared.workers.remotes[victim];
            let is_stuck = || remote.cells.poll_for_ns(now_ns) >= Some(shared.config.lifo_steal_after_ns);
            if remote.lifo.is_filled()
                && is_stuck()
                && let Some(task) = remote.lifo.take()
            {
                self.count_steal(victim, 1);
                return Some(task);
            }
        }
        // So that the next event that this worker records is not earlier than this one.
        self.now_ns.set(now_ns);
        self.recorder.note(|| now_ns, || Event::StealMiss { victims: count as u32 - 1 });
        None
    }

    /// Steals half of the inbox of a worker that has not moved it to its ring yet.
    fn steal_from_inbox(&self, core: &mut Core, victim: usize) -> Option<Notified> {
        let inbox = &self.shared.workers.remotes[victim].inbox;
        let half = inbox.len().div_ceil(2).min(core.ring.free());
        if half == 0 {
            return None;
        }
        let (mut first, ring) = (None, &mut core.ring);
        let taken = inbox.pop_batch(half, |task| match &first {
            None => first = Some(task),
            Some(_) => {
                let pushed = ring.push(task);
                debug_assert!(pushed.is_ok(), "never more than fits");
            }
        });
        if taken > 0 {
            self.count_steal(victim, taken);
        }
        first
    }

    fn count_steal(&self, victim: usize, tasks: usize) {
        self.cells().steals.add(1);
        self.cells().tasks_stolen.add(tasks as u64);
        self.recorder.note(clock::now_ns, || Event::Steal { victim: victim as u16, count: tasks as u32 });
        // ORDERING: Relaxed; only a statistic.
        self.shared.workers.remotes[victim].tasks_given.fetch_add(tasks as u64, Ordering::Relaxed);
    }

    /// Search: leaves the searchers, before the task that was found is run.
    pub(super) fn leave_search(&self, core: &mut Core) {
        if std::mem::take(&mut core.is_searching) {
            let shared = &self.shared;
            let wake_one = || self.count_wakes(usize::from(shared.workers.wake_one()));
            leave_searchers(&shared.workers.idle, || shared.workers.has_work_for(self.index), wake_one);
        }
    }
}
