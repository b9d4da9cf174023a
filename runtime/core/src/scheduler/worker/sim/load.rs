//! The load of a simulated runtime, and the model of each task.

use std::future::Future;
use std::panic::{Location, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::model::{End, Kind, Model, State};
use super::random::Random;
use super::world::{Actor, Fault, Load, World, with_world};
use crate::builder::Builder;
use crate::config::{Config, ParkSpin, Placement};
use crate::task::header::Notified;

/// Draws the settings and the load of one simulated runtime.
pub(super) fn draw(random: &Random, fault: Option<Fault>) -> (Config, Load) {
    let workers = if random.one_in(25) { random.pick(&[63, 64, 65, 70, 130]) } else { random.between(1, 8) as usize };
    let batch = random.pick(&[2, 4, 8]);
    let most = random.between(1, 16) as usize;
    let least = if random.one_in(2) { 1 } else { random.between(1, most as u64) as usize };
    let mut config = Builder::new_multi_thread()
        .worker_threads(workers)
        .local_queue_capacity(random.pick(&[2, 4, 8, 16]))
        .global_queue_batch_size(batch)
        .global_queue_batch_bounds(least, most)
        .budget_per_tick(random.pick(&[4, 8, 32, 128]))
        .max_lifo_polls_per_tick(random.below(4) as u32)
        .enable_stealing(!random.one_in(5))
        .placement(random.pick(&[Placement::Global, Placement::TwoChoices, Placement::LeastLoaded]))
        .park_spin(ParkSpin::Off)
        .eager_driver_handoff(random.one_in(2))
        .target_global_queue_latency(Duration::from_micros(random.pick(&[3, 100, 1_000])))
        .global_queue_interval_bounds(random.pick(&[1, 8]), random.pick(&[8, 32, 255]))
        .park_timeout(if random.one_in(2) { None } else { Some(Duration::from_millis(10)) })
        .config()
        .clone();
    let mut load = Load {
        max_alive: random.pick(&[3, 8, 20, 40, 80]),
        yields: random.pick(&[50, 300, 700]),
        ends: random.pick(&[5, 50, 200]),
        wakes: random.pick(&[50, 400, 900]),
        spawns: random.pick(&[10, 100, 300]),
        sleeps: random.pick(&[0, 20, 100]),
        pairs: random.pick(&[0, 0, 200, 600]),
        spinners: random.pick(&[0, 0, 200, 900]),
        long_polls: random.pick(&[0, 20, 200, 900]),
        interrupted: random.pick(&[100, 300, 700]),
    };
    // Two faults show only in runtimes that are seldom drawn.
    match fault {
        Some(Fault::UpWithoutSearch) => config.enable_stealing = false,
        Some(Fault::InboxBehindRing) => {
            (config.workers, config.placement, config.local_queue_capacity) = (1, Placement::LeastLoaded, 2);
            (load.max_alive, load.pairs, load.spinners, load.wakes) = (3, 0, 1000, 0);
        }
        _ => {}
    }
    (config, load)
}

/// A simulated task.
struct Task {
    index: usize,
}

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_world(|world| world.poll(self.index, cx.waker())).expect("a task is polled inside its simulation")
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        with_world(|world| world.dropped(self.index));
    }
}

/// The waker of a timer, which also reports the wake to the model.
struct TimerWaker {
    index: usize,
}

impl Wake for TimerWaker {
    fn wake(self: Arc<Self>) {
        with_world(|world| world.wake(self.index));
    }
}

impl World<'_> {
    fn is_one_of(&self, thousandths: usize) -> bool {
        self.random.below(1000) < thousandths
    }

    fn with_model<R>(&self, index: usize, f: impl FnOnce(&mut Model) -> R) -> R {
        f(&mut self.models.borrow_mut()[index])
    }

    fn enqueue(&self, model: &mut Model) {
        model.state = State::Queued;
        model.queued_count += 1;
        model.queued_at_polls = self.polls.get();
        self.queued.set(self.queued.get() + 1);
    }

    // ---- actions of threads ---------------------------------------------------------------------

    /// Lets a thread outside the workers act.
    pub(super) fn act_outside(&self) {
        let count = self.models.borrow().len();
        match self.random.below(10) {
            0..4 => self.spawn(),
            _ if count == 0 => self.spawn(),
            4..9 => self.wake(self.any()),
            _ if self.random.one_in(4) => self.abort(self.any()),
            _ => {
                // The task is detached.
                let handle = self.with_model(self.any(), |model| model.handle.take_if(|_| !model.is_aborted));
                drop(handle);
            }
        }
    }

    /// Returns a task, most likely a young one, since many of the old ones have ended.
    fn any(&self) -> usize {
        let count = self.models.borrow().len();
        count - 1 - self.random.below(count.min(2 * self.load.max_alive))
    }

    fn spawn(&self) {
        if self.alive.get() >= self.load.max_alive {
            return;
        }
        let is_pair = self.is_one_of(self.load.pairs);
        let next = self.models.borrow().len();
        if is_pair {
            self.spawn_one(Kind::Partner(next + 1));
            self.spawn_one(Kind::Partner(next));
        } else {
            let is_spinner = self.is_one_of(self.load.spinners);
            self.spawn_one(if is_spinner { Kind::Spinner } else { Kind::Mixed });
        }
    }

    fn spawn_one(&self, kind: Kind) {
        let index = self.models.borrow().len();
        self.note("spawns", index as u64);
        let mut model = Model {
            state: State::Waits,
            kind,
            is_aborted: false,
            waker: None,
            handle: None,
            queued_count: 0,
            seen: None,
            queued_at_polls: 0,
        };
        self.enqueue(&mut model);
        self.alive.set(self.alive.get() + 1);
        self.models.borrow_mut().push(model);
        let handle = self.shared.spawn(Task { index }, None, Location::caller());
        self.indices.borrow_mut().insert(handle.id().as_u64(), index);
        self.with_model(index, |model| model.handle = Some(handle));
    }

    pub(super) fn wake(&self, index: usize) {
        self.note("wakes", index as u64);
        let waker = self.with_model(index, |model| {
            match &mut model.state {
                State::Waits => self.enqueue(model),
                State::Polled { is_woken, .. } => *is_woken = true,
                State::Queued | State::InHand(_) | State::Ending(_) | State::Ended(_) => {}
            }
            model.waker.clone()
        });
        if let Some(waker) = waker {
            if self.random.one_in(2) { waker.wake() } else { waker.wake_by_ref() }
        }
    }

    fn abort(&self, index: usize) {
        let Some(handle) = self.with_model(index, |model| model.handle.take()) else { return };
        self.note("aborts", index as u64);
        self.with_model(index, |model| self.expect_abort(model));
        handle.abort();
        self.with_model(index, |model| model.handle = Some(handle));
    }

    fn expect_abort(&self, model: &mut Model) {
        model.is_aborted |= !matches!(model.state, State::Ending(_) | State::Ended(_));
        if model.state == State::Waits {
            self.enqueue(model);
        }
    }

    /// Prepares the model: the runtime is about to cancel every task.
    pub(super) fn expect_cancellation(&self) {
        self.models.borrow_mut().iter_mut().for_each(|model| self.expect_abort(model));
    }

    // ---- actions of workers ---------------------------------------------------------------------

    /// Once: a worker has taken a task out of a queue.
    pub(super) fn take(&self, worker: usize, task: &Notified) {
        let index = self.indices.borrow()[&task.header().id.as_u64()];
        self.trace_event("takes", index as u64);
        self.with_model(index, |model| {
            if model.state != State::Queued {
                self.fail(format!("worker {worker} takes task {index}, which is {:?}", model.state));
                return;
            }
            model.state = State::InHand(worker);
            self.polls.set(self.polls.get() + 1);
            self.queued.set(self.queued.get() - 1);
        });
    }

    fn poll(&self, index: usize, waker: &Waker) -> Poll<()> {
        let Actor::Worker(by) = self.actor.get() else {
            self.fail(format!("task {index} is polled by no worker"));
            return Poll::Pending;
        };
        let kind = self.with_model(index, |model| {
            if model.state != State::InHand(by) {
                self.fail(format!("worker {by} polls task {index}, which is {:?}", model.state));
            }
            model.state = State::Polled { by, is_woken: false };
            model.waker.get_or_insert_with(|| waker.clone());
            model.kind
        });
        self.spend_time();
        let wants_more = !self.is_resting.get();
        if wants_more {
            self.act_inside(kind);
            self.spend_time();
        }
        // Other actors have taken steps during the poll.
        self.actor.set(Actor::Worker(by));
        let end = match self.random.below(1000) {
            0..3 if wants_more && kind == Kind::Mixed => Some(End::Panicked),
            n if wants_more && kind == Kind::Mixed && n < 3 + self.load.ends => Some(End::Completed),
            _ => None,
        };
        if let Some(end) = end {
            self.with_model(index, |model| model.state = State::Ending(end));
            if end == End::Panicked {
                // Unwinds without the message of a panic.
                resume_unwind(Box::new("simulated"));
            }
            return Poll::Ready(());
        }
        let yields = wants_more && (kind == Kind::Spinner || kind == Kind::Mixed && self.is_one_of(self.load.yields));
        if yields {
            waker.wake_by_ref();
        }
        self.with_model(index, |model| {
            let State::Polled { is_woken, .. } = model.state else {
                return self.fail(format!("task {index} is {:?} in the middle of its poll", model.state));
            };
            model.state = State::Waits;
            if model.is_aborted {
                model.state = State::Ending(End::Cancelled);
            } else if is_woken || yields {
                self.enqueue(model);
            }
        });
        Poll::Pending
    }

    /// Spends a part of a poll: virtual time in slices, between which other actors may take steps.
    fn spend_time(&self) {
        let whole_ns = match self.is_one_of(self.load.long_polls) {
            true if self.random.one_in(8) => self.random.between(500_000, 5_000_000),
            true => self.random.between(20_000, 200_000),
            false => self.random.between(100, 10_000),
        };
        if !self.is_one_of(self.load.interrupted) {
            return self.advance(whole_ns);
        }
        let slices = self.random.between(1, 4);
        for _ in 0..slices {
            self.advance(whole_ns / slices);
            self.interrupt(self.random.between(1, 8));
        }
    }

    fn act_inside(&self, kind: Kind) {
        if let Kind::Partner(other) = kind {
            if other < self.models.borrow().len() {
                self.wake(other);
            }
            return;
        }
        if self.is_one_of(self.load.wakes) {
            self.wake(self.any());
        }
        if self.is_one_of(self.load.spawns) {
            self.spawn();
        }
        if self.is_one_of(self.load.sleeps) {
            let index = self.any();
            let at_ns = self.now_ns.get() + self.random.between(0, 20_000_000);
            // Never cancelled; the timer wheel is dropped with the runtime.
            let _key = self.shared.workers.driver.arm_timer(at_ns, Waker::from(Arc::new(TimerWaker { index })));
        }
        if self.random.one_in(200) {
            self.abort(self.any());
        }
    }

    /// Handles the drop of a task's future.
    fn dropped(&self, index: usize) {
        let waker = self.with_model(index, |model| {
            let end = match model.state {
                State::Ending(end) => end,
                State::InHand(_) if model.is_aborted => End::Cancelled,
                state => return Err(state),
            };
            model.state = State::Ended(end);
            self.alive.set(self.alive.get() - 1);
            Ok(model.waker.take())
        });
        match waker {
            Ok(waker) => drop(waker),
            Err(state) => self.fail(format!("task {index} is dropped while it is {state:?}")),
        }
    }

    /// Returns how many tasks completed, were cancelled, and panicked, according to the model.
    pub(super) fn ends(&self) -> [u64; 3] {
        let models = self.models.borrow();
        let count = |end| models.iter().filter(|model| model.state == State::Ended(end)).count() as u64;
        [End::Completed, End::Cancelled, End::Panicked].map(count)
    }

    /// Checks that every handle agrees with the model.
    pub(super) fn check_handles(&self) {
        for (index, model) in self.models.borrow().iter().enumerate() {
            let is_ended = matches!(model.state, State::Ended(_));
            if model.handle.as_ref().is_some_and(|handle| handle.is_finished() != is_ended) {
                self.fail(format!("task {index} is {:?}, and its handle says otherwise", model.state));
            }
        }
    }
}
