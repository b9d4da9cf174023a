//! The steps of the simulation: those of workers, of threads outside, and of the clock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::worker_state::Step;
use super::world::{Actor, Fault, World};
use crate::clock;
use crate::context;
use crate::driver::parker::Slept;
use crate::driver::turn::Wait;
use crate::scheduler::idle::parking::{self, Parks};
use crate::scheduler::worker::current;
use crate::scheduler::worker::park::{ParkTarget, SleptBy};
use crate::task::header::Notified;

/// How deep steps may nest: steps of other actors during a poll, polls among those steps, and so
/// on.
const MAX_DEPTH: u32 = 4;

impl World<'_> {
    /// Takes one step of a random actor.
    pub(super) fn step(&self) {
        let is_resting = self.is_resting.get();
        match self.random.below(100) {
            0..12 if !is_resting => self.outside(|| self.act_outside()),
            12..18 => self.outside(|| self.finish_submission()),
            18..30 => self.outside(|| self.deliver_token()),
            30..33 if !is_resting => self.pass_time(),
            _ => self.step_worker(self.random.below(self.workers.len())),
        }
        self.check_step();
    }

    /// Takes one step. A panic in it is a violation; it unwinds neither the simulation nor the task
    /// whose poll is in progress.
    pub(super) fn contained_step(&self) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.step())) {
            let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref().copied());
            self.fail(format!("a step panicked: {}", text.unwrap_or("not with text")));
        }
    }

    /// Takes steps of other actors during a poll.
    pub(super) fn interrupt(&self, steps: u64) {
        if self.depth.get() == MAX_DEPTH {
            return;
        }
        let actor = self.actor.get();
        self.depth.set(self.depth.get() + 1);
        for _ in 0..steps {
            if self.has_failed() {
                break;
            }
            self.contained_step();
        }
        self.depth.set(self.depth.get() - 1);
        self.actor.set(actor);
    }

    pub(super) fn outside(&self, f: impl FnOnce()) {
        self.actor.set(Actor::Outside);
        current::run_outside_workers(f);
    }

    /// Submit (2) and (3) of a thread that was delayed before them.
    fn finish_submission(&self) {
        let submission = {
            let mut half_submitted = self.half_submitted.borrow_mut();
            if half_submitted.is_empty() {
                return;
            }
            let which = self.random.below(half_submitted.len());
            half_submitted.swap_remove(which)
        };
        self.note("goes on after Submit (1), placed at", submission.map_or(u64::MAX, |worker| worker as u64));
        self.shared.workers.wake_for_placed(submission);
    }

    fn deliver_token(&self) {
        let worker = {
            let mut tokens = self.tokens.borrow_mut();
            if tokens.is_empty() {
                return;
            }
            let which = self.random.below(tokens.len());
            tokens.swap_remove(which)
        };
        self.note("token for worker", worker as u64);
        self.states[worker].has_token.set(true);
        self.shared.workers.give_token(worker);
    }

    fn pass_time(&self) {
        self.actor.set(Actor::Outside);
        let ns =
            if self.random.one_in(20) { self.random.between(1, 20_000_000) } else { self.random.between(1, 2_000) };
        self.note("ns pass:", ns);
        self.advance(ns);
    }

    pub(super) fn advance(&self, ns: u64) {
        self.now_ns.set(self.now_ns.get() + ns);
        clock::simulated::set(Some(self.now_ns.get()));
    }

    fn step_worker(&self, index: usize) {
        let (worker, state) = (&self.workers[index], &self.states[index]);
        self.actor.set(Actor::Worker(index));
        let step = state.step.replace(Step::Busy);
        let has_token = state.has_token.get() || self.fault == Some(Fault::RetractIgnored);
        let is_waiting = match step {
            Step::Busy | Step::Ended | Step::Sleep { .. } => true,
            Step::FinishPark(_, is_claimed) => is_claimed && !has_token,
            _ => false,
        };
        if !is_waiting {
            self.note(step.name(), 0);
        }
        let _entered = context::enter(&self.handle);
        current::run_as(worker, || {
            let next = match step {
                Step::Begin if self.shared.is_done() => {
                    self.shared.wake_if_done();
                    Step::Ended
                }
                Step::Begin => {
                    self.begin_watch(index);
                    Step::Seek(worker.begin_tick())
                }
                Step::Seek(tick) if !tick.has_budget(worker.cells()) => Step::EndTick(tick, false),
                Step::Seek(tick) => match self.seek(index) {
                    Some(task) => Step::Poll(tick, task),
                    None => Step::EndTick(tick, true),
                },
                Step::Poll(mut tick, task) => {
                    worker.poll_in(&mut tick, task);
                    Step::Seek(tick)
                }
                Step::EndTick(mut tick, is_idle) => {
                    worker.end_tick(&mut tick);
                    if self.fault == Some(Fault::LifoRenewed) {
                        worker.core.borrow_mut().lifo_polls = 0;
                    }
                    if self.fault == Some(Fault::BatchDropped) {
                        // Neither run nor dropped, but lost.
                        std::iter::from_fn(|| worker.core.borrow_mut().batch.pop()).for_each(std::mem::forget);
                    }
                    if is_idle { Step::BeginPark } else { Step::Begin }
                }
                Step::BeginPark => match self.fault {
                    Some(Fault::CheckFirst) if worker.is_needed() => Step::Begin,
                    fault => {
                        if fault == Some(Fault::CheckFirst) {
                            // Other actors take steps between the check and the park.
                            self.interrupt(3);
                        }
                        worker.begin_park();
                        if matches!(fault, Some(Fault::NoCheck | Fault::CheckFirst)) {
                            Step::PrepareSleep
                        } else {
                            Step::Check
                        }
                    }
                },
                Step::Check if worker.is_needed() => Step::Retract(None),
                Step::Check => Step::PrepareSleep,
                Step::PrepareSleep => {
                    Step::Sleep { target: parking::prepare_sleep(worker), since_ns: self.now_ns.get() }
                }
                Step::Sleep { target, since_ns } => self.try_wake_up(index, target, since_ns),
                Step::Retract(slept) => Step::FinishPark(slept, worker.retract()),
                // The worker sleeps until the token has arrived.
                Step::FinishPark(slept, true) if !has_token => Step::FinishPark(slept, true),
                Step::FinishPark(slept, is_claimed) => {
                    self.finish_park(index, slept.as_ref(), is_claimed);
                    Step::Begin
                }
                Step::Ended => Step::Ended,
                Step::Busy => Step::Busy,
            };
            state.step.replace(next);
        });
    }

    fn seek(&self, index: usize) -> Option<Notified> {
        let worker = &self.workers[index];
        match self.fault {
            Some(Fault::NoLifoCap) => worker.core.borrow_mut().lifo_polls = 0,
            Some(Fault::GlobalNeverDue) => {
                let mut core = worker.core.borrow_mut();
                (core.polls_since_check, core.check_at_ns) = (0, u64::MAX);
            }
            Some(Fault::GlobalAlwaysDue) => worker.core.borrow_mut().polls_since_check = u32::MAX - 1,
            _ => {}
        }
        let mut hidden = Vec::new();
        let inbox = &self.shared.workers.remotes[index].inbox;
        if self.fault == Some(Fault::InboxBehindRing) && worker.core.borrow().ring.free() == 0 {
            inbox.pop_batch(usize::MAX, |task| hidden.push(task));
        }
        let before = self.before_seek(index);
        let task = worker.next_task();
        for task in hidden {
            inbox.push(task, self.now_ns.get()).expect("the inbox is open");
        }
        self.after_seek(index, &before, task.is_some());
        if let Some(task) = &task {
            self.take(index, task);
        }
        task
    }

    fn finish_park(&self, index: usize, slept: Option<&SleptBy>, is_claimed: bool) {
        let (worker, state) = (&self.workers[index], &self.states[index]);
        let is_claimed = is_claimed && self.fault != Some(Fault::RetractIgnored);
        if is_claimed {
            state.is_claimed.set(false);
            state.has_token.set(false);
        }
        state.is_fresh.set(true);
        self.parks_given_up.set(self.parks_given_up.get() + u64::from(slept.is_none()));
        let rescues = worker.cells().lost_wakeup_rescues.get();
        match slept {
            Some(slept) => parking::finish_sleep(worker, slept, is_claimed),
            None => parking::cancel_sleep(worker, is_claimed),
        }
        let is_unclaimed_hit = slept.is_none() && !is_claimed;
        if self.fault == Some(Fault::UpWithoutSearch) && is_unclaimed_hit && !self.shared.config.enable_stealing {
            worker.core.borrow_mut().is_searching = false;
            let _was_last = self.shared.workers.idle.stop_searching();
        }
        let is_excused = state.is_excused.replace(false) || self.is_any_stuck(index);
        if worker.cells().lost_wakeup_rescues.get() > rescues && !is_excused {
            self.fail("the net has caught a lost wake-up".to_owned());
        }
    }

    /// Wakes the worker up if there is a reason.
    fn try_wake_up<'b>(&self, index: usize, target: ParkTarget<'b>, since_ns: u64) -> Step<'b> {
        let (now_ns, has_token) = (self.now_ns.get(), self.states[index].has_token.get());
        let (timeout, is_driver) = match &target {
            ParkTarget::Driver { timeout, .. } => (*timeout, true),
            ParkTarget::Futex { timeout } => (*timeout, false),
            ParkTarget::Token => (Some(Duration::ZERO), false),
        };
        let is_timed_out =
            timeout.is_some_and(|timeout| now_ns >= since_ns.saturating_add(clock::saturating_ns(timeout)));
        let is_timer_due = is_driver && self.shared.workers.driver.timers.next_deadline_ns() <= now_ns;
        let is_spurious = !self.is_resting.get() && self.random.one_in(300);
        if !(has_token || is_timed_out || is_timer_due || is_spurious) {
            return Step::Sleep { target, since_ns };
        }
        self.note(
            "wake up; token, time-out, timer:",
            u64::from(has_token) + 10 * u64::from(is_timed_out) + 100 * u64::from(is_timer_due),
        );
        self.states[index].is_excused.set(self.is_any_stuck(index));
        let slept = match target {
            ParkTarget::Driver { turn, .. } => match self.workers[index].turn_driver(turn, Wait::No) {
                SleptBy::Driver(polled) => SleptBy::Driver(polled.map(|mut polled| {
                    polled.timed_out = is_timed_out && !polled.was_unparked && polled.timers_fired == 0;
                    polled
                })),
                slept => slept,
            },
            ParkTarget::Futex { .. } if is_timed_out => SleptBy::Futex(Slept::TimedOut),
            ParkTarget::Futex { .. } => SleptBy::Futex(Slept::Woken),
            ParkTarget::Token => SleptBy::Token,
        };
        Step::Retract(Some(slept))
    }

    /// Returns whether an actor other than worker `but` is between Submit (1) and (2), between two
    /// checks, or awake and has not searched yet.
    fn is_any_stuck(&self, but: usize) -> bool {
        let others = self.states.iter().enumerate().filter(|(index, _)| *index != but);
        let mut others = others.map(|(_, state)| state.is_fresh.get() || state.step.borrow().is_in_transit());
        !self.half_submitted.borrow().is_empty() || others.any(|is_held_up| is_held_up)
    }

    // ---- hooks ----------------------------------------------------------------------------------

    pub(super) fn delays_wake_up(&self, chosen: Option<usize>) -> bool {
        if self.actor.get() != Actor::Outside {
            return false;
        }
        if self.fault == Some(Fault::NoWakeUp) && self.random.one_in(20) {
            return true;
        }
        let is_delayed = self.random.one_in(2);
        if is_delayed {
            self.half_submitted.borrow_mut().push(chosen);
        }
        is_delayed
    }

    pub(super) fn claimed(&self, worker: usize) {
        let is_seeking = matches!(self.actor.get(), Actor::Worker(by) if self.states[by].watch.borrow().is_seeking);
        if self.fault == Some(Fault::NoChain) && is_seeking {
            // As if it had not been claimed.
            self.shared.workers.idle.begin_park(worker, true);
            return;
        }
        self.trace_event("claims worker", worker as u64);
        if self.states[worker].is_claimed.replace(true) {
            self.fail(format!("worker {worker} is claimed twice"));
        }
        self.tokens.borrow_mut().push(worker);
    }
}
