//! How a worker queues the tasks that are woken on its thread, and whom it wakes for them.

use volt_telemetry::recording::event::Event;

use super::Worker;
use super::events::wake_of;
use crate::clock;
use crate::scheduler::core::{Core, Destination};
use crate::task::header::Notified;

impl Worker {
    /// Queues a task that was woken on this thread, on this worker or else in the global queue.
    ///
    /// Not inlined into the functions of each type of task, which are in other crates.
    #[inline(never)]
    pub(crate) fn take_woken(&self, task: Notified) {
        if self.recorder.is_on() {
            return self.record_and_take_woken(task);
        }
        if let Some(task) = self.push_woken(task) {
            self.shared.inject(task);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_and_take_woken(&self, task: Notified) {
        self.note(task.header().submitted_at_ns(), wake_of(task.header()));
        if let Some(task) = self.push_woken(task) {
            self.shared.inject(task);
        }
    }

    /// Queues a task that was woken on this thread. Returns the task if this worker cannot queue
    /// it, because it is in the middle of an operation on its own queues.
    ///
    /// A worker that is declared stuck returns it too: other workers must run what a stuck poll
    /// wakes.
    #[inline(always)]
    pub(crate) fn push_woken(&self, task: Notified) -> Option<Notified> {
        if !self.own_slot.is_present() {
            return Some(task);
        }
        let Ok(mut core) = self.core.try_borrow_mut() else { return Some(task) };
        let core = &mut *core;
        self.cells().local_schedules.add(1);
        if let Destination::Ring { pushed } = &mut core.destination {
            *pushed += 1;
            self.push_back(core, task);
            return None;
        }
        let cap = self.shared.config.max_lifo_polls_per_tick;
        if cap > 0 && !self.remote.lifo.is_filled() {
            // Also at the cap, if the ring is empty. If the task went to the ring, a helper would
            // have to be woken for it, since this poll may go on for long.
            if core.lifo_polls < cap || core.ring.len() == 0 {
                // A push into an empty LIFO slot wakes no worker: this worker runs the task next.
                self.remote.lifo.fill(task);
                return None;
            }
            // From the slot, the task would be flushed to the ring's tail, behind others.
            self.cells().lifo_cap_flushes.add(1);
            self.push_surplus(core, task);
            return None;
        }
        self.push_beside(core, task, cap);
        None
    }

    /// Queues a task on a worker whose LIFO slot is filled, or that has none.
    #[inline(never)]
    fn push_beside(&self, core: &mut Core, task: Notified, cap: u32) {
        let evicted = if cap > 0 { self.remote.lifo.put(task) } else { Some(task) };
        if let Some(task) = evicted {
            if cap > 0 {
                self.cells().lifo_evictions.add(1);
            }
            self.push_surplus(core, task);
        }
    }

    /// Pushes a task that this worker does not run next.
    #[inline(always)]
    fn push_surplus(&self, core: &mut Core, task: Notified) {
        self.push_back(core, task);
        self.wake_for_surplus(core, 1);
    }

    /// Pushes `task` to the ring's tail.
    #[inline(always)]
    pub(super) fn push_back(&self, core: &mut Core, task: Notified) {
        if let Err(task) = core.ring.push(task) {
            self.overflow(core, task);
        }
    }

    /// Moves half of a full ring to the global queue, under one lock and with one wake-up.
    #[cold]
    fn overflow(&self, core: &mut Core, task: Notified) {
        self.cells().overflows.add(1);
        let _submit = self.shared.workers.intake.submits.begin();
        let now_ns = clock::now_ns();
        // If this is between two polls, the next poll begins after this time.
        self.now_ns.set(now_ns);
        let moved = match core.ring.take_half() {
            Some(half) => match self.shared.workers.injector.push_batch(half, now_ns) {
                Ok(moved) => moved,
                // The queue closes after the workers have exited.
                Err(_half) => unreachable!("the global queue is open while a worker runs"),
            },
            // A thief is moving tasks out.
            None => 0,
        };
        let moved = match core.ring.push(task) {
            Ok(()) => moved,
            Err(task) => {
                let pushed = self.shared.workers.injector.push(task, now_ns);
                debug_assert!(pushed.is_ok(), "the global queue is open while a worker runs");
                moved + 1
            }
        };
        self.cells().tasks_overflowed.add(moved as u64);
        self.recorder.note(|| now_ns, || Event::Overflow { count: moved as u32 });
        // One wake-up for the whole batch: the worker that is woken takes a share and wakes the
        // next one.
        self.count_wakes(usize::from(self.shared.workers.wake_for_submit()));
    }

    /// Wakes parked workers if this worker has surplus, that is, work that it will not run next: at
    /// most one for each of the `pushed` tasks in the ring.
    ///
    /// Surplus that grows needs no fence: see "Surplus" in `idle`.
    #[inline(always)]
    pub(super) fn wake_for_surplus(&self, core: &Core, pushed: usize) {
        let queued = core.ring.len() + usize::from(self.remote.lifo.is_filled());
        if queued <= 1 {
            return;
        }
        if self.shared.workers.idle.is_any_parked_for_surplus(queued, pushed) {
            self.wake_helpers(pushed.min(queued - 1));
        }
    }

    #[cold]
    fn wake_helpers(&self, tasks: usize) {
        // Checked last: where workers steal, as they do by default, no worker is parked while there
        // are many tasks to push.
        if !self.shared.config.enable_stealing {
            return;
        }
        self.count_wakes(self.shared.workers.wake_for_batch(tasks));
    }

    pub(super) fn count_wakes(&self, woken: usize) {
        self.cells().wakes_sent.add(woken as u64);
    }
}
