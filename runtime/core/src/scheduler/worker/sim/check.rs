//! The checks that are made after each step and at rest.
//!
//! *Bounded*, in polls of the worker that holds the task, which is the only time that depends on
//! the worker alone:
//! * global queue: between two checks there are at most as many local polls as the tuner's
//!   interval, and after the target latency at most one;
//! * LIFO slot: in each tick no more polls from it than its cap;
//! * batch buffer: a task behind n others is run n + 1 polls later;
//! * ring: two polls from it are at most `polls_between_ring_polls` apart, and a task behind n
//!   others waits for n + 2 times that;
//! * LIFO slot, inbox: as the ring.
//!
//! From being queued to being taken, wherever the task is moved meanwhile, in polls of all workers:
//! `POLLS_TO_BE_TAKEN` for each task that may be alive and each worker. The maximum observed is 45;
//! a task that starves exceeds any number.

use std::collections::HashSet;

use super::model::{Place, Seen, State};
use super::worker_state::Step;
use super::world::World;
use crate::config::Config;

/// Steps between two checks of the lengths of all queues, and between two checks of all tasks in
/// them. The other checks are made at every step.
const STEPS_TO_COUNT: u64 = 4;
const STEPS_TO_PLACE: u64 = 32;
/// The bound on the time from being queued to being taken: see the module documentation.
const POLLS_TO_BE_TAKEN: u64 = 200;
/// With more workers than this, all checks are made less often.
const MANY_WORKERS: usize = 8;
const FEWER: u64 = 16;

/// The state of a worker before it searches for a task.
pub(super) struct Before {
    global_len: usize,
    batch_len: usize,
    ring_len: usize,
    global_batches: u64,
    lifo_hits: u64,
    steals: u64,
    /// Tasks in the rings, batch buffers and inboxes of other workers.
    stealable: usize,
    now_ns: u64,
    interval: u32,
}

/// Where a worker found a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Batch,
    Global,
    Lifo,
    Ring,
    Stolen,
}

/// Returns the maximum number of polls between two polls from the ring: those from the LIFO slot,
/// at the end of one tick and the beginning of the next; and for each of them and for the ring's
/// own poll, a check of the global queue and the tasks that it brings.
fn polls_between_ring_polls(config: &Config) -> u64 {
    let local = 2 * u64::from(config.max_lifo_polls_per_tick) + 1;
    local * (config.global_queue_batch_size as u64 + 2)
}

impl World<'_> {
    pub(super) fn begin_watch(&self, index: usize) {
        self.states[index].watch.borrow_mut().lifo_hits_before_tick = self.workers[index].cells().lifo_hits.get();
    }

    pub(super) fn before_seek(&self, index: usize) -> Before {
        self.states[index].watch.borrow_mut().is_seeking = true;
        let (worker, remote) = (&self.workers[index], &self.shared.workers.remotes[index]);
        let (cells, core) = (worker.cells(), worker.core.borrow());
        Before {
            global_len: self.shared.workers.injector.len(),
            batch_len: remote.batch.len(),
            ring_len: remote.ring.len(),
            global_batches: cells.global_batches.get(),
            lifo_hits: cells.lifo_hits.get(),
            steals: cells.steals.get(),
            stealable: self.stealable_by(index),
            now_ns: worker.now_ns.get(),
            interval: core.tuner.interval(),
        }
    }

    fn stealable_by(&self, thief: usize) -> usize {
        let others = self.shared.workers.remotes.iter().enumerate().filter(|(index, _)| *index != thief);
        others.map(|(_, remote)| remote.stealable()).sum()
    }

    pub(super) fn after_seek(&self, index: usize, before: &Before, has_found: bool) {
        let (cells, config) = (self.workers[index].cells(), &self.shared.config);
        let mut watch = self.states[index].watch.borrow_mut();
        watch.is_seeking = false;
        self.states[index].is_fresh.set(false);
        if !has_found {
            let is_passed_by = before.global_len + before.batch_len + before.ring_len > 0;
            if is_passed_by {
                self.fail(format!("worker {index} finds nothing, and there is something"));
            }
            (watch.passed_over, watch.polls_beside_ring) = (None, 0);
            return;
        }
        watch.polls += 1;
        let source = match () {
            () if before.batch_len > 0 => Source::Batch,
            () if cells.global_batches.get() > before.global_batches => Source::Global,
            () if cells.lifo_hits.get() > before.lifo_hits => Source::Lifo,
            () if cells.steals.get() > before.steals => Source::Stolen,
            () => Source::Ring,
        };
        if source == Source::Stolen && before.stealable == 0 {
            self.lifo_slots_stolen.set(self.lifo_slots_stolen.get() + 1);
        }
        // LIFO slot
        let lifo_polls = cells.lifo_hits.get() - watch.lifo_hits_before_tick;
        if lifo_polls > u64::from(config.max_lifo_polls_per_tick) {
            self.fail(format!("worker {index} polls from its LIFO slot {lifo_polls} times in a tick"));
        }
        // Global queue
        let is_local = !matches!(source, Source::Batch | Source::Global);
        if before.global_len == 0 || source == Source::Global {
            watch.passed_over = None;
        } else if is_local {
            let (polls, since_ns) = watch.passed_over.unwrap_or((0, before.now_ns));
            let for_ns = before.now_ns.saturating_sub(since_ns);
            if polls > 0 && (polls >= before.interval || for_ns >= config.target_global_queue_latency_ns) {
                self.fail(format!("worker {index} passes the global queue over for {polls} polls, {for_ns} ns"));
            }
            watch.passed_over = Some((polls + 1, since_ns));
        }
        // Ring
        watch.polls_beside_ring = match source {
            Source::Ring => 0,
            _ if before.ring_len == 0 => 0,
            _ => watch.polls_beside_ring + 1,
        };
        if watch.polls_beside_ring > polls_between_ring_polls(config) {
            self.fail(format!("worker {index} passes its ring over for {} polls", watch.polls_beside_ring));
        }
    }

    /// Makes the checks after a step of any actor.
    pub(super) fn check_step(&self) {
        let rarity = if self.workers.len() > MANY_WORKERS { FEWER } else { 1 };
        let steps = self.steps.get();
        if steps.is_multiple_of(rarity) {
            self.check_idle();
        }
        if steps.is_multiple_of(STEPS_TO_COUNT * rarity) {
            self.check_lengths();
        }
        if steps.is_multiple_of(STEPS_TO_PLACE * rarity) {
            self.check_places();
        }
    }

    /// Counted, No task waits, and Polled.
    fn check_idle(&self) {
        let (mut searching, mut asleep, mut in_transit) = (0, 0, 0);
        for (index, state) in self.states.iter().enumerate() {
            let step = state.step.borrow();
            let is_claimed = state.is_claimed.get();
            let should_be_parked = step.is_parked() && !is_claimed;
            if self.shared.workers.idle.is_parked(index) != should_be_parked {
                self.fail(format!(
                    "worker {index} is at \"{}\", claimed: {is_claimed}, and its bit is wrong",
                    step.name()
                ));
            }
            searching += usize::from(is_claimed) + usize::from(self.workers[index].core.borrow().is_searching);
            asleep += usize::from(!is_claimed && matches!(*step, Step::Sleep { .. }));
            in_transit += usize::from(state.is_fresh.get() || step.is_in_transit());
        }
        if self.shared.workers.idle.searching() != searching {
            self.fail(format!("{searching} workers search, and {} are counted", self.shared.workers.idle.searching()));
        }
        if !self.half_submitted.borrow().is_empty() {
            return;
        }
        if asleep == self.states.len() && self.queued.get() > 0 {
            self.fail(format!("every worker sleeps, and {} tasks are queued", self.queued.get()));
        }
        if asleep == self.states.len() && self.shared.workers.driver.owner().is_none() {
            self.fail("every worker sleeps, none of them in the driver".to_owned());
        }
        let global_len = self.shared.workers.injector.len();
        if asleep == 0 || in_transit > 0 || searching > 0 {
            return;
        }
        if global_len > 0 {
            self.fail(format!("{asleep} workers sleep, none searches, and the global queue holds {global_len}"));
        }
        if self.shared.config.eager_driver_handoff && self.shared.workers.driver.owner().is_none() {
            self.fail(format!("{asleep} workers sleep, none searches, and none is in the driver"));
        }
        if self.shared.config.enable_stealing {
            for (index, remote) in self.shared.workers.remotes.iter().enumerate() {
                let len = remote.stealable();
                let is_busy = matches!(*self.states[index].step.borrow(), Step::Busy | Step::Poll(..))
                    && self.shared.config.max_lifo_polls_per_tick > 0;
                if len + usize::from(is_busy) > 1 {
                    self.fail(format!(
                        "{asleep} workers sleep, none searches, and worker {index} holds {len}, busy: {is_busy}"
                    ));
                }
            }
        }
    }

    /// Conserved, by the number of tasks.
    fn check_lengths(&self) {
        let held = self.shared.workers.remotes.iter().map(|remote| remote.queued());
        let queued = held.sum::<usize>() + self.shared.workers.injector.len();
        if queued != self.queued.get() {
            self.fail(format!("{} tasks are queued, and the queues hold {queued}", self.queued.get()));
        }
    }

    /// Conserved, task by task, and Bounded.
    fn check_places(&self) {
        let mut places = Vec::with_capacity(self.queued.get());
        self.shared.workers.injector.for_each(|task| places.push((task.header().id.as_u64(), Place::Global, 0)));
        for (index, worker) in self.workers.iter().enumerate() {
            let (remote, mut core) = (&self.shared.workers.remotes[index], worker.core.borrow_mut());
            let core = &mut *core;
            // All tasks are taken out and put back, in the same order.
            for (ring, place) in [(&mut core.ring, Place::Ring(index)), (&mut core.batch, Place::Batch(index))] {
                for position in 0..ring.len() as u64 {
                    let task = ring.pop().expect("it is as long as that");
                    places.push((task.header().id.as_u64(), place, position));
                    ring.push(task).expect("it has just come out");
                }
            }
            let mut position = 0;
            remote.inbox.for_each(|task| {
                places.push((task.header().id.as_u64(), Place::Inbox(index), position));
                position += 1;
            });
            if let Some(task) = remote.lifo.take() {
                places.push((task.header().id.as_u64(), Place::Lifo(index), 0));
                remote.lifo.put(task);
            }
        }
        let (mut models, indices, mut once) = (self.models.borrow_mut(), self.indices.borrow(), HashSet::new());
        for (id, place, position) in places {
            let task = indices[&id];
            let model = &mut models[task];
            if !once.insert(task) || model.state != State::Queued {
                self.fail(format!("task {task} is in {place:?}, and is {:?} or elsewhere too", model.state));
            }
            let waited = self.polls.get() - model.queued_at_polls;
            if waited > POLLS_TO_BE_TAKEN * (self.load.max_alive + self.workers.len()) as u64 {
                self.fail(format!("task {task}, now in {place:?}, has been queued for {waited} polls of all workers"));
            }
            let Some((holder, bound)) = self.bound_at(place, position) else {
                model.seen = None;
                continue;
            };
            let polls = self.states[holder].watch.borrow().polls;
            match &model.seen {
                Some(seen) if seen.place == place && seen.queued_count == model.queued_count => {
                    if polls - seen.polls > seen.bound {
                        let waited = polls - seen.polls;
                        self.fail(format!("task {task} waits in {place:?} for {waited} polls, {} at most", seen.bound));
                    }
                }
                // Between two checks a task may leave and return, but not between each of several.
                _ => {
                    let bound = bound + 2 * STEPS_TO_PLACE;
                    model.seen = Some(Seen { place, queued_count: model.queued_count, polls, bound });
                }
            }
        }
    }

    /// Returns the worker that must run a task at this place, and within how many polls.
    fn bound_at(&self, place: Place, position: u64) -> Option<(usize, u64)> {
        let turn = polls_between_ring_polls(&self.shared.config);
        match place {
            Place::Global => None,
            Place::Batch(holder) => Some((holder, position + 1)),
            Place::Lifo(holder) => Some((holder, 2 * turn)),
            Place::Ring(holder) | Place::Inbox(holder) => Some((holder, (position + 2) * turn)),
        }
    }

    /// Checks everything that must hold when all workers sleep.
    pub(super) fn check_rest(&self) {
        if self.has_failed() {
            return;
        }
        self.check_idle();
        self.check_lengths();
        self.check_places();
        self.check_handles();
        self.check_counts();
    }

    /// Checks everything that must hold when every worker has exited.
    pub(super) fn check_end(&self) {
        if self.has_failed() {
            return;
        }
        self.check_lengths();
        self.check_handles();
        self.check_counts();
        if self.alive.get() > 0 || self.shared.workers.registry.len() > 0 {
            let kept = self.shared.workers.registry.len();
            self.fail(format!("{} tasks are left after the shutdown, {kept} in the registry", self.alive.get()));
        }
    }

    /// Conserved, by the counts of the runtime.
    fn check_counts(&self) {
        let snapshot = self.shared.snapshot();
        let tasks = &snapshot.tasks;
        let counted = [tasks.completed, tasks.cancelled, tasks.panicked];
        let spawned = self.models.borrow().len() as u64;
        if (tasks.spawned, tasks.alive, counted) != (spawned, self.alive.get() as u64, self.ends()) {
            self.fail(format!(
                "{spawned} spawned, {} alive, {:?} ended, and counted are {tasks:?}",
                self.alive.get(),
                self.ends()
            ));
        }
    }

    /// Returns what has happened, and how often. A simulation that does not reach the places where
    /// faults would be proves nothing.
    pub(super) fn reached(&self) -> Vec<(&'static str, u64)> {
        let snapshot = self.shared.snapshot();
        let sum = |count: fn(&volt_telemetry::Worker) -> u64| snapshot.workers.iter().map(count).sum();
        vec![
            ("polls", sum(|worker| worker.polls)),
            ("tasks stolen", sum(|worker| worker.tasks_stolen)),
            ("tasks overflowed", sum(|worker| worker.tasks_overflowed)),
            ("tasks from the global queue", sum(|worker| worker.global_tasks)),
            ("tasks from the LIFO slot", sum(|worker| worker.lifo_hits)),
            ("LIFO slots stolen", self.lifo_slots_stolen.get()),
            ("LIFO slots flushed", sum(|worker| worker.lifo_cap_flushes)),
            ("ticks filled", sum(|worker| worker.budget_exhausted)),
            ("parks", sum(|worker| worker.parks)),
            ("wake-ups by a token", sum(|worker| worker.unparks.notified)),
            ("by a time-out", sum(|worker| worker.unparks.timeout)),
            ("by a timer", sum(|worker| worker.unparks.timer)),
            ("for no reason", sum(|worker| worker.unparks.spurious)),
            ("parks given up", self.parks_given_up.get()),
            ("completed", snapshot.tasks.completed),
            ("cancelled", snapshot.tasks.cancelled),
            ("panicked", snapshot.tasks.panicked),
        ]
    }
}
