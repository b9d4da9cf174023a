//! The cells in which a worker counts. They are always on, have one writer each, are never locked,
//! and any thread may read them at any time.
//!
//! A worker updates them at each poll, park, steal and so on. Snapshots read them. Each worker has
//! one block, on its own cache lines. Only that worker writes its cells (*Single writer*), except
//! two that the sentinel writes, which are marked.
//!
//! An ordinary case: a worker begins a poll, which makes `poll_seq` 7. A snapshot reads 7, then the
//! id and the location of the task, then 7 again: the task is in that poll. The race: the worker
//! ends the poll and begins the next one while the snapshot reads the fields. The second reading is
//! then 9, and the snapshot shows no poll of this worker.
//!
//! A cell is written by a Relaxed load and a Relaxed store, not by a read-modify-write. With one
//! writer nothing can come between the two, and a locked instruction would cost twenty times as
//! much. `counting` decides whether anything is counted at all.
//!
//! Invariants:
//! * *Odd inside a poll*: `poll_seq` grows by one when a poll begins and by one when it ends.
//! * *Counted by the next*: the duration of a poll is counted when the next poll begins or the tick
//!   ends; that of a long poll is counted immediately. So poll times, and the figures by location,
//!   may be one poll behind `poll_seq` while a worker searches for its next task.
//! * *In-flight is a sequence lock*: begin: (1) write task, location, begin; (2) make `poll_seq`
//!   odd, Release. End: (1) make it even; (2) fence Release. A reader loads `poll_seq` (Acquire),
//!   the fields, and after an Acquire fence `poll_seq` again. If both values are the same and odd,
//!   the fields belong together.
//! * *Time adds up*: a worker is in one phase at a time. The reader adds the time of the present
//!   phase, so that the figures advance while a worker is stuck. The phase is a sequence lock too:
//!   (1) make `phase_seq` odd, fence Release; (2) write the fields; (3) make it even, Release.

mod in_flight;
mod main_poll;
mod phases;
mod polled;
mod times;

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

use volt_telemetry::{GlobalChecks, InFlight, Phase, Unparks, Worker};

pub(crate) use self::in_flight::Keys;
pub(crate) use self::phases::PHASES;
use self::phases::phase_index;
pub(crate) use self::polled::{Polled, PolledTask};
use crate::stats::blame::BlameTable;
use crate::stats::counting;
use crate::stats::numbers::{Counter, Gauge, HistogramCells};
use crate::stats::reasons::{Ended, Trigger};
use crate::stats::tally::Tally;

/// See the header of this file.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct WorkerCells {
    // The poll in flight.
    poll_seq: AtomicU64,
    /// The `poll_seq` of the poll that was requested to yield at its next operation; 0 = none. Set
    /// by the sentinel, reset by the worker when it withdraws the request.
    yields_seq: AtomicU64,
    task_id: Gauge,
    /// The task's place in the registry, if the task has a name or a span that is stored there.
    place: Gauge,
    location: AtomicPtr<Location<'static>>,
    poll_began_at_ns: Gauge,
    /// The index of the HTTP route that the poll handles, plus one; 0 = none. Reset before the poll
    /// ends.
    route: Gauge,
    /// The number of the last poll whose delay was added to a route.
    delay_taken_seq: Gauge,

    // How the worker's time is spent.
    phase_seq: AtomicU64,
    phase: Gauge,
    phase_since_ns: Gauge,
    time_ns: [Counter; PHASES.len()],
    pub(crate) thread_id: Gauge,

    pub(crate) ticks: Counter,
    /// The number of polls that a tick may do, and the number of polls that were done when the
    /// present tick began. The polls left follow from both.
    budget: Gauge,
    polls_before_tick: Gauge,
    pub(crate) budget_exhausted: Counter,
    pub(crate) coop_yields: Counter,

    /// `lifo_hits` when the count of LIFO polls was last reset. The number since then follows.
    lifo_hits_before: Gauge,
    pub(crate) lifo_hits: Counter,
    pub(crate) lifo_evictions: Counter,
    pub(crate) lifo_cap_flushes: Counter,
    pub(crate) overflows: Counter,
    pub(crate) tasks_overflowed: Counter,

    pub(crate) steal_attempts: Counter,
    pub(crate) steals: Counter,
    pub(crate) tasks_stolen: Counter,
    pub(crate) steal_races_lost: Counter,

    /// Checks of the global queue, by [`Trigger`].
    global_checks: [Counter; 3],
    /// Local polls before the checks that came between local polls.
    global_check_polls: Counter,
    pub(crate) global_batches: Counter,
    pub(crate) global_tasks: Counter,
    pub(crate) avg_poll_ns: Gauge,
    pub(crate) global_queue_interval: Gauge,

    parks: Counter,
    polls_at_park: Gauge,
    /// Parks without a poll since the park before.
    idle_parks: Counter,
    /// ns; 0 = none.
    pub(crate) park_timeout_ns: Gauge,
    unparks: [Counter; 5],
    pub(crate) wakes_sent: Counter,
    pub(crate) spins_helped: Counter,
    pub(crate) spins_in_vain: Counter,
    pub(crate) lost_wakeup_rescues: Counter,

    pub(crate) spawned: Tally,
    ended: [Tally; 3],
    /// Tasks that were spawned, woken or yielded on this worker and put into its own queues.
    pub(crate) local_schedules: Counter,

    /// By spawn location.
    pub(crate) blame: BlameTable,
    /// The last long poll.
    long_location: AtomicPtr<Location<'static>>,
    long_began_at_ns: Gauge,
    long_ended_at_ns: Gauge,
    /// Up to when waiting tasks of this worker were already charged by the sentinel when it took
    /// them. Written by the sentinel.
    charged_until_ns: Gauge,

    pub(crate) poll_time: HistogramCells,
    pub(crate) schedule_delay: HistogramCells,
}

impl WorkerCells {
    /// Creates the cells of a worker that has not started.
    pub(crate) fn new() -> Self {
        let cells = Self::default();
        cells.phase.set(phase_index(Phase::Stopped));
        cells
    }

    /// Begins a poll of `task`. Returns the location where the task was spawned, for the end of the
    /// poll.
    #[inline]
    pub(crate) fn begin_poll(&self, task: &impl PolledTask, now_ns: u64) -> &'static Location<'static> {
        let (location, is_plain) = task.spawned_at();
        if !counting::IS_ON {
            return location;
        }
        // In-flight is a sequence lock, begin (1).
        self.task_id.set(task.id());
        if !is_plain {
            self.set_place(task.place_number());
        }
        // ORDERING: Relaxed; published by the Release below.
        self.location.store(ptr::from_ref(location).cast_mut(), Ordering::Relaxed);
        self.poll_began_at_ns.set(now_ns);
        // Begin (2).
        // ORDERING: the load is a single-writer cell; Release pairs with the first Acquire in
        // `read_in_flight`, which publishes the fields.
        self.poll_seq.store(self.poll_seq.load(Ordering::Relaxed) + 1, Ordering::Release);
        let submitted_at_ns = task.submitted_at_ns();
        let delay_ns = now_ns.saturating_sub(submitted_at_ns);
        self.schedule_delay.record(delay_ns);
        task.count_delay(delay_ns, now_ns);
        if submitted_at_ns < self.long_ended_at_ns.get() {
            self.charge(location, submitted_at_ns);
        }
        location
    }

    /// Records where the task of the poll in flight is in the registry. A place left over from
    /// another task does no harm: readers compare the task's id.
    #[cold]
    #[inline(never)]
    fn set_place(&self, number: u64) {
        self.place.set(number);
    }

    /// Charges the last long poll with the wait of a task of `victim` that was submitted before
    /// that poll ended.
    #[cold]
    fn charge(&self, victim: &'static Location<'static>, submitted_at_ns: u64) {
        // ORDERING: Relaxed; single-writer cell.
        let culprit = self.long_location.load(Ordering::Relaxed);
        // SAFETY: only `note_long` writes the pointer, from a `&'static Location`.
        let Some(culprit) = (unsafe { culprit.as_ref() }) else { return };
        // This charges too little for tasks that waited in the global queue as long. The
        // alternative would charge too much for tasks that the sentinel has taken.
        let both_since_ns = submitted_at_ns.max(self.long_began_at_ns.get()).max(self.charged_until_ns.get());
        self.blame.charge(culprit, victim, self.long_ended_at_ns.get().saturating_sub(both_since_ns));
    }

    /// Records that the tasks that waited here until now were charged to the poll in flight. For
    /// the sentinel.
    pub(crate) fn note_charged(&self, now_ns: u64) {
        self.charged_until_ns.set(now_ns);
    }

    /// Records a poll of `LONG_NS` or more that has ended, for which other tasks may have waited.
    pub(crate) fn note_long(&self, location: &'static Location<'static>, took_ns: u64) {
        let began_at_ns = self.poll_began_at_ns.get();
        // ORDERING: Relaxed; single-writer cell.
        self.long_location.store(ptr::from_ref(location).cast_mut(), Ordering::Relaxed);
        self.long_began_at_ns.set(began_at_ns);
        self.long_ended_at_ns.set(began_at_ns + took_ns);
    }

    /// Ends the poll that began last.
    #[inline]
    pub(crate) fn end_poll(&self) {
        if !counting::IS_ON {
            return;
        }
        // End (1).
        // ORDERING: Relaxed; single-writer cell, kept before the fields of the next poll by the
        // fence.
        self.poll_seq.store(self.poll_seq.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // End (2).
        // ORDERING: Release; pairs with the Acquire fence in `read_in_flight`: a thread that reads
        // a field of the next poll finds that the number has changed.
        fence(Ordering::Release);
    }

    /// Counts a poll that has ended, and its duration.
    #[inline]
    pub(crate) fn count_poll(&self, polled: Polled) {
        if !counting::IS_ON {
            return;
        }
        self.blame.count_poll(polled.location, polled.took_ns, polled.has_woken_itself);
        self.poll_time.record(polled.took_ns);
    }

    /// Records that a tick of at most `budget` polls begins or is about to begin.
    pub(crate) fn renew_budget(&self, budget: u32) {
        self.budget.set(u64::from(budget));
        self.polls_before_tick.set(self.polls());
    }

    /// Resets the count of LIFO polls.
    pub(crate) fn renew_lifo_polls(&self) {
        self.lifo_hits_before.set(self.lifo_hits.get());
    }

    /// Returns the number of polls begun.
    pub(crate) fn polls(&self) -> u64 {
        self.poll_seq().div_ceil(2)
    }

    /// Records that the worker enters another phase at `now_ns`.
    pub(crate) fn enter_phase(&self, phase: Phase, now_ns: u64) {
        if !counting::IS_ON {
            return;
        }
        // The phase is a sequence lock, change (1).
        // ORDERING: Relaxed; single-writer cell, kept before the fields by the fence.
        let seq = self.phase_seq.load(Ordering::Relaxed);
        // ORDERING: Relaxed; as above.
        self.phase_seq.store(seq + 1, Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire fence in `times`: a thread that reads a field
        // of the new phase finds that the number has changed.
        fence(Ordering::Release);
        // Change (2).
        let before = self.phase.get() as usize;
        if let Some(time_ns) = self.time_ns.get(before) {
            time_ns.add(now_ns.saturating_sub(self.phase_since_ns.get()));
        }
        self.phase_since_ns.set(now_ns);
        self.phase.set(phase_index(phase));
        // Change (3).
        // ORDERING: Release; pairs with the Acquire in `times`, which publishes the fields.
        self.phase_seq.store(seq + 2, Ordering::Release);
    }

    /// Same as [`enter_phase`](Self::enter_phase), but only if the worker is in a different phase.
    #[inline]
    pub(crate) fn ensure_phase(&self, phase: Phase, now_ns: u64) {
        if counting::IS_ON && self.phase.get() != phase_index(phase) {
            self.enter_phase(phase, now_ns);
        }
    }

    /// Records that the worker has exited, or has not started.
    pub(crate) fn stop(&self, now_ns: u64) {
        self.enter_phase(Phase::Stopped, now_ns);
        self.thread_id.set(0);
    }

    /// Counts a check of the global queue that follows `polls` local polls after the previous
    /// check.
    #[inline]
    pub(crate) fn count_global_check(&self, trigger: Trigger, polls: u64) {
        self.global_checks[trigger as usize].add(1);
        // A worker that has run out of work checks regardless of the interval.
        if trigger != Trigger::Empty {
            self.global_check_polls.add(polls);
        }
    }

    pub(crate) fn count_end(&self, ended: Ended) {
        // A worker that counts the end of a task also counts its spawn, which came before.
        self.ended[ended as usize].add_one();
    }

    /// Returns the numbers of tasks that completed, were cancelled and panicked. Read it before any
    /// `spawned`.
    pub(crate) fn ended(&self) -> [u64; 3] {
        [0, 1, 2].map(|ended| self.ended[ended].get())
    }

    /// Returns whether a poll is in flight.
    #[inline]
    pub(crate) fn is_in_poll(&self) -> bool {
        // ORDERING: Relaxed; a hint, out of date as soon as it is read.
        !self.poll_seq.load(Ordering::Relaxed).is_multiple_of(2)
    }

    /// Returns the id of the task whose poll began last. For the worker itself.
    pub(crate) fn last_task(&self) -> u64 {
        self.task_id.get()
    }

    /// Returns the number of polls begun plus the number ended: odd while one is in flight.
    pub(crate) fn poll_seq(&self) -> u64 {
        // ORDERING: Relaxed; a hint, out of date as soon as it is read.
        self.poll_seq.load(Ordering::Relaxed)
    }

    /// Requests the poll with this number to yield at its next operation. Returns whether this is
    /// the first such request.
    pub(crate) fn request_yield(&self, poll_seq: u64) -> bool {
        // ORDERING: Relaxed; a hint. If it is withdrawn too early or too late, no harm is done: the
        // sentinel repeats the request.
        self.yields_seq.swap(poll_seq, Ordering::Relaxed) != poll_seq
    }

    /// Returns whether the poll in flight was requested to yield. For its own thread.
    #[inline]
    pub(crate) fn is_to_yield(&self) -> bool {
        // ORDERING: Relaxed; a hint, and the thread's own cell.
        counting::IS_ON && self.yields_seq.load(Ordering::Relaxed) == self.poll_seq.load(Ordering::Relaxed)
    }

    /// Withdraws the request to yield from this poll. For its own thread.
    pub(crate) fn withdraw_yield(&self) {
        // ORDERING: Relaxed; as in `request_yield`.
        self.yields_seq.store(0, Ordering::Relaxed);
    }

    /// Returns how long the poll in flight has lasted at `now_ns`, if there is one.
    pub(crate) fn poll_for_ns(&self, now_ns: u64) -> Option<u64> {
        self.read_in_flight(|| now_ns.saturating_sub(self.poll_began_at_ns.get()))
    }

    /// Returns what `read` returns for the poll in flight, if there is one and it stays the same
    /// meanwhile.
    fn read_in_flight<R>(&self, read: impl FnOnce() -> R) -> Option<R> {
        // ORDERING: Acquire; pairs with begin (2).
        let before = self.poll_seq.load(Ordering::Acquire);
        if before.is_multiple_of(2) {
            return None;
        }
        let fields = read();
        // ORDERING: Acquire; pairs with end (2).
        fence(Ordering::Acquire);
        // ORDERING: Relaxed; ordered by the fence.
        (self.poll_seq.load(Ordering::Relaxed) == before).then_some(fields)
    }

    /// Returns where the task of the poll with this number was spawned, and when the poll began;
    /// `None` if that poll is over.
    pub(crate) fn culprit_of(&self, poll_seq: u64) -> Option<(&'static Location<'static>, u64)> {
        // ORDERING: Relaxed; guarded by the two readings of `poll_seq`.
        let (location, began_at_ns) =
            self.read_in_flight(|| (self.location.load(Ordering::Relaxed), self.poll_began_at_ns.get()))?;
        if self.poll_seq() != poll_seq {
            return None;
        }
        // SAFETY: only `begin_poll` and `begin_poll_of_main` write the pointer, from a `&'static
        // Location`; one of them has done so, since `poll_seq` was odd.
        Some((unsafe { &*location }, began_at_ns))
    }

    /// Returns the present phase, how long it has lasted, and the time spent in each phase
    /// including the present one; `None` if the phase keeps changing.
    fn times(&self) -> Option<(Phase, u64, [u64; PHASES.len()])> {
        for _attempt in 0..8 {
            // ORDERING: Acquire; pairs with change (3).
            let before = self.phase_seq.load(Ordering::Acquire);
            if !before.is_multiple_of(2) {
                std::hint::spin_loop();
                continue;
            }
            let (phase, since_ns) = (self.phase.get(), self.phase_since_ns.get());
            let mut times_ns = std::array::from_fn(|index| self.time_ns[index].get());
            let now_ns = crate::clock::now_ns();
            // ORDERING: Acquire; pairs with the Release fence of change (1).
            fence(Ordering::Acquire);
            // ORDERING: Relaxed; ordered by the fence.
            if self.phase_seq.load(Ordering::Relaxed) == before {
                let for_ns = now_ns.saturating_sub(since_ns);
                if let Some(time_ns) = times_ns.get_mut(phase as usize) {
                    *time_ns += for_ns;
                }
                let phase = PHASES.get(phase as usize).copied().unwrap_or(Phase::Stopped);
                return Some((phase, for_ns, times_ns));
            }
        }
        None
    }

    /// Returns all cells as plain data.
    ///
    /// `floor_ns` stores the times of the previous reading: a worker preempted between reading the
    /// clock and writing its cells must not make time run backwards. `name` adds the names to the
    /// poll in flight.
    pub(crate) fn read(
        &self,
        index: usize,
        now_ns: u64,
        floor_ns: &mut [u64; PHASES.len()],
        name: impl Fn(InFlight, Keys) -> InFlight,
    ) -> Worker {
        let in_flight = self.in_flight(now_ns).map(|(poll, keys)| name(poll, keys));
        let (phase, phase_for_ns) = self.times_above(floor_ns);
        let [busy_ns, searching_ns, parked_ns, driver_ns, maintenance_ns] = *floor_ns;
        let [notified, timeout, io, timer, spurious] = std::array::from_fn(|reason| self.unparks[reason].get());
        let [interval, elapsed, empty] = std::array::from_fn(|trigger| self.global_checks[trigger].get());
        let thread_id = u32::try_from(self.thread_id.get()).ok().filter(|id| *id != 0);
        // Read before the polls: if more polls are done meanwhile, the number of polls left is too
        // small, never too large.
        let (budget, polls_before) = (self.budget.get(), self.polls_before_tick.get());
        let polls = self.polls();
        Worker {
            index: index as u32,
            thread_id,
            phase,
            phase_for_ns,
            in_flight,
            polls,
            ticks: self.ticks.get(),
            busy_ns,
            searching_ns,
            parked_ns,
            driver_ns,
            maintenance_ns,
            budget_left: budget.saturating_sub(polls.saturating_sub(polls_before)) as u32,
            budget_exhausted: self.budget_exhausted.get(),
            coop_yields: self.coop_yields.get(),
            lifo_polls_this_tick: self.lifo_hits.get().saturating_sub(self.lifo_hits_before.get()) as u32,
            lifo_hits: self.lifo_hits.get(),
            lifo_evictions: self.lifo_evictions.get(),
            lifo_cap_flushes: self.lifo_cap_flushes.get(),
            overflows: self.overflows.get(),
            tasks_overflowed: self.tasks_overflowed.get(),
            steal_attempts: self.steal_attempts.get(),
            steals: self.steals.get(),
            tasks_stolen: self.tasks_stolen.get(),
            steal_races_lost: self.steal_races_lost.get(),
            global_checks: Some(GlobalChecks { interval, elapsed, empty }),
            global_check_polls: Some(self.global_check_polls.get()),
            global_batches: self.global_batches.get(),
            global_tasks: self.global_tasks.get(),
            avg_poll_ns: self.avg_poll_ns.get(),
            global_queue_interval: self.global_queue_interval.get() as u32,
            parks: self.parks.get(),
            park_timeout_ns: Some(self.park_timeout_ns.get()).filter(|ns| *ns != 0),
            unparks: Unparks { notified, timeout, io, timer, spurious },
            wakes_sent: self.wakes_sent.get(),
            spins_helped: self.spins_helped.get(),
            spins_in_vain: self.spins_in_vain.get(),
            lost_wakeup_rescues: self.lost_wakeup_rescues.get(),
            poll_time: self.poll_time.read(),
            schedule_delay: self.schedule_delay.read(),
            // The remaining fields are not in cells: `scheduler::shared` reads them from the
            // queues.
            ..Worker::default()
        }
    }
}

#[cfg(test)]
mod tests;
