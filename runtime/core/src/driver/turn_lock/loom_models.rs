//! loom models of the hand-off of the driver turn, as specified in the header of `turn_lock`. They
//! check three properties. While every worker sleeps, one sleeps in the driver, so that an event is
//! handled. A spare that leaves the driver and becomes inactive leaves the driver polled (POLLED in
//! `scheduler/slots`). The eager hand-off works while the other workers are stuck in polls.
//!
//! The poller is a flag behind a lock and a condition variable. The turn, the idle set, the park
//! words, and the steps of a park, of a spare that leaves and of the hand-off are the runtime's own
//! code.

use std::cell::Cell;
use std::time::Duration;

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, AtomicBool, Condvar, Mutex, Ordering};

use crate::driver::parker::{Parker, Unparked};
use crate::driver::turn_lock::{Held, TurnLock};
use crate::scheduler::idle::Idle;
use crate::scheduler::idle::parking::{ParkTarget, Parks, claim_for_driver, park};
use crate::scheduler::slots::{Leaves, WorkerSlots, leave_slot};

const WORKERS: usize = 2;

/// The event that the kernel has for the thread in the driver. It stays until it is taken.
#[derive(Default)]
struct Ready {
    event: bool,
    is_woken: bool,
}

struct World {
    idle: Idle,
    slots: WorkerSlots,
    parkers: Vec<Parker>,
    turn: TurnLock<()>,
    ready: Mutex<Ready>,
    becomes_ready: Condvar,
    is_over: AtomicBool,
}

/// The step that a fault can replace.
type TryTurn = for<'w> fn(&'w World, worker: usize, has_just_checked: bool) -> Option<Held<'w, ()>>;

/// Hand-off (2).
fn try_turn(world: &World, worker: usize, _has_just_checked: bool) -> Option<Held<'_, ()>> {
    world.turn.try_take(Some(worker))
}

/// Faulty: assumes that another worker is in the driver by now.
fn try_turn_unless_it_has_just_checked(world: &World, worker: usize, has_just_checked: bool) -> Option<Held<'_, ()>> {
    if has_just_checked { None } else { world.turn.try_take(Some(worker)) }
}

impl World {
    /// Creates a world in which the last slot belongs to an active spare.
    fn new() -> Self {
        let slots = WorkerSlots::new(WORKERS - 1, 1);
        let _called = slots.call();
        Self {
            idle: Idle::new(WORKERS, 0),
            slots,
            parkers: (0..WORKERS).map(|_| Parker::new()).collect(),
            turn: TurnLock::new(()),
            ready: Mutex::new(Ready::default()),
            becomes_ready: Condvar::new(),
            is_over: AtomicBool::new(false),
        }
    }

    fn make_ready(&self, make: impl FnOnce(&mut Ready)) {
        make(&mut self.ready.lock());
        self.becomes_ready.notify_one();
    }

    /// In the turn: takes what is ready, and waits for it if `waits`. Returns whether it was the
    /// event.
    fn poll(&self, waits: bool) -> bool {
        let mut ready = self.ready.lock();
        while waits && !ready.event && !ready.is_woken {
            ready = self.becomes_ready.wait(ready).unwrap();
        }
        std::mem::take(&mut *ready).event
    }

    /// Records that the event was handled, which ends every worker.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        while self.wake_one() {}
    }

    /// Wakes one parked worker. Returns whether there was one.
    fn wake_one(&self) -> bool {
        self.unpark(self.idle.claim_any(None))
    }

    fn unpark(&self, claimed: Option<usize>) -> bool {
        if claimed.is_some_and(|worker| self.parkers[worker].unpark() == Unparked::InDriver) {
            self.make_ready(|ready| ready.is_woken = true);
        }
        claimed.is_some()
    }

    /// Runs a worker that parks until the event was handled. Before that it polls the driver
    /// between two polls of tasks, if `checks`.
    fn worker(&self, worker: usize, checks: bool, try_turn: TryTurn) {
        if checks && self.turn.try_take(Some(worker)).is_some_and(|_turn| self.poll(false)) {
            self.end();
            return;
        }
        let model = ModelWorker {
            world: self,
            worker,
            try_turn,
            is_searching: Cell::new(false),
            has_just_checked: Cell::new(checks),
        };
        while !self.is_over.load(Ordering::Acquire) {
            park(&model);
        }
        if model.is_searching.get() {
            let _ = self.idle.stop_searching();
        }
    }
}

/// A worker on its thread.
struct ModelWorker<'w> {
    world: &'w World,
    worker: usize,
    try_turn: TryTurn,
    is_searching: Cell<bool>,
    has_just_checked: Cell<bool>,
}

impl Parks for ModelWorker<'_> {
    type Turn<'a>
        = Held<'a, ()>
    where
        Self: 'a;
    /// Whether it was the event.
    type Slept = bool;

    fn idle(&self) -> &Idle {
        &self.world.idle
    }

    fn index(&self) -> usize {
        self.worker
    }

    fn parker(&self) -> &Parker {
        &self.world.parkers[self.worker]
    }

    fn set_searching(&self, is_searching: bool) -> bool {
        self.is_searching.replace(is_searching)
    }

    fn is_needed(&self) -> bool {
        self.world.is_over.load(Ordering::Acquire)
    }

    fn count_park(&self) {}

    fn is_spin_worth(&self) -> bool {
        false
    }

    fn watch(&self) -> bool {
        false
    }

    fn linger(&self) {}

    fn try_turn(&self) -> Option<Held<'_, ()>> {
        (self.try_turn)(self.world, self.worker, self.has_just_checked.take())
    }

    fn begin_sleep(&self, _is_in_driver: bool) -> Option<Duration> {
        None
    }

    fn sleep(&self, target: ParkTarget<Held<'_, ()>>) -> bool {
        match target {
            ParkTarget::Driver { turn, .. } => {
                let has_event = self.world.poll(true);
                drop(turn);
                has_event
            }
            ParkTarget::Futex { .. } => {
                let _ = self.parker().sleep(None);
                false
            }
            ParkTarget::Token => false,
        }
    }

    fn begin_search(&self, slept: Option<&bool>, _is_claimed: bool) {
        if slept == Some(&true) {
            self.world.end();
        }
    }
}

/// One worker polls the driver and parks, the other parks, and an event comes.
fn model(try_turn: TryTurn) {
    let world = Arc::new(World::new());
    let mut threads: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let world = world.clone();
            thread::spawn(move || world.worker(worker, worker == 0, try_turn))
        })
        .collect();
    threads.push(thread::spawn(move || world.make_ready(|ready| ready.event = true)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn an_event_is_handled_after_any_earlier_check() {
    holds(None, || model(try_turn));
}

#[test]
fn a_worker_that_does_not_try_again_after_a_check_is_found() {
    breaks("deadlock", None, || model(try_turn_unless_it_has_just_checked));
}

// ---- a spare that leaves the driver -------------------------------------------------------------

/// The steps of a spare that has the turn and has to leave.
type Leave = fn(&World, Held<'_, ()>);

/// The spare, at Leave (3).
impl Leaves for World {
    fn slots(&self) -> &WorkerSlots {
        &self.slots
    }

    fn slot(&self) -> usize {
        WORKERS - 1
    }

    fn hand_over_all(&self) {}

    fn is_driver_polled(&self) -> bool {
        self.turn.owner().is_some()
    }

    fn wake_one(&self) {
        World::wake_one(self);
    }
}

/// Leave (1) to (3), after the turn was given back.
fn leave(world: &World, turn: Held<'_, ()>) {
    drop(turn);
    assert!(leave_slot(world), "one too many");
}

/// Faulty: leaves the driver unpolled.
fn leave_without_a_check(world: &World, turn: Held<'_, ()>) {
    drop(turn);
    assert!(world.slots.leave(WORKERS - 1), "one too many");
}

/// Faulty: wakes a worker that finds the turn still taken.
fn leave_before_the_turn_is_given_up(world: &World, turn: Held<'_, ()>) {
    world.wake_one();
    drop(turn);
}

/// A worker parks while a spare leaves, and an event is there.
fn model_of_leaving(leave: Leave) {
    let world = Arc::new(World::new());
    world.make_ready(|ready| ready.event = true);
    let worker = thread::spawn({
        let world = world.clone();
        move || world.worker(0, false, try_turn)
    });
    let spare = thread::spawn({
        let world = world.clone();
        move || {
            if let Some(turn) = world.turn.try_take(Some(1)) {
                leave(&world, turn);
            }
        }
    });
    worker.join().unwrap();
    spare.join().unwrap();
}

#[test]
fn a_spare_that_leaves_the_driver_leaves_it_polled() {
    holds(None, || model_of_leaving(leave));
}

#[test]
fn a_spare_that_leaves_without_a_check_is_found() {
    breaks("deadlock", None, || model_of_leaving(leave_without_a_check));
}

#[test]
fn a_spare_that_wakes_before_it_gives_up_the_turn_is_found() {
    breaks("deadlock", None, || model_of_leaving(leave_before_the_turn_is_given_up));
}

// ---- an eager hand-off --------------------------------------------------------------------------

/// The steps of a worker before a poll that never ends.
type GoOn = fn(&World);

/// Hand-off (3).
fn hand_on(world: &World) {
    world.unpark(claim_for_driver(&world.idle, || world.turn.owner()));
}

/// The same, for a searching worker.
fn leave_searchers_and_hand_on(world: &World) {
    let _was_last = world.idle.stop_searching();
    hand_on(world);
}

/// Faulty: polls without a hand-off.
fn hand_on_nothing(_: &World) {}

/// Faulty: as if only a worker that comes out of the driver had to hand off.
fn leave_searchers(world: &World) {
    let _was_last = world.idle.stop_searching();
}

/// Faulty: finds a worker in the driver before it leaves the searchers; that worker relies on the
/// searcher.
fn check_and_leave_searchers(world: &World) {
    let is_polled = world.turn.owner().is_some();
    let _was_last = world.idle.stop_searching();
    if !is_polled && world.idle.is_any_parked() {
        world.unpark(world.idle.claim_for_submit(None));
    }
}

/// A worker parks while a second one is in the driver and then in a poll, and a third one searches
/// and is then in a poll. An event is there.
fn model_of_eager_hand_off(after_turn: GoOn, after_search: GoOn) {
    let world = Arc::new(World::new());
    world.make_ready(|ready| ready.event = true);
    world.idle.start_searching();
    let sleeper = thread::spawn({
        let world = world.clone();
        move || world.worker(0, false, try_turn)
    });
    let searcher = thread::spawn({
        let world = world.clone();
        move || after_search(&world)
    });
    if let Some(turn) = world.turn.try_take(Some(1)) {
        drop(turn);
        after_turn(&world);
    }
    sleeper.join().unwrap();
    searcher.join().unwrap();
}

#[test]
fn an_event_is_handled_while_all_but_one_are_stuck() {
    holds(None, || model_of_eager_hand_off(hand_on, leave_searchers_and_hand_on));
}

#[test]
fn a_worker_that_polls_and_keeps_the_driver_is_found() {
    breaks("deadlock", None, || model_of_eager_hand_off(hand_on_nothing, leave_searchers_and_hand_on));
}

#[test]
fn a_searcher_that_polls_without_driver_hand_off_is_found() {
    breaks("deadlock", None, || model_of_eager_hand_off(hand_on, leave_searchers));
}

#[test]
fn a_searcher_that_checks_for_an_owner_too_early_is_found() {
    breaks("deadlock", None, || model_of_eager_hand_off(hand_on, check_and_leave_searchers));
}
