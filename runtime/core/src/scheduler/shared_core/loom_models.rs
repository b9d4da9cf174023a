//! loom models of the core: threads that take it, wait for it, and withdraw; and of the same with
//! one step done wrong.
//!
//! Each thread does what `block_on` does: it takes the core, or waits for it and meanwhile polls
//! its main future. Its main future is ready when another thread has set `is_done`, or after one
//! poll. The core is a number, increased by each thread that has it. At the end of a model all
//! threads have exited: a thread that is left behind beside a free core is a deadlock.

use loom::thread;
use volt_explore::{breaks, holds};

use super::*;

/// How a thread withdraws, so that a model can replace it by a fault.
type Withdraw = fn(&SharedCore<u32>, &Arc<Parker>);

struct World {
    core: SharedCore<u32>,
    /// Set by the thread that has the core, when it has done what the other main future waits for.
    is_done: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { core: SharedCore::new(0), is_done: AtomicBool::new(false) })
    }

    /// `block_on` with a main future that is ready after one poll by the worker.
    fn sit(&self, parker: &Arc<Parker>) {
        loop {
            if let Some(core) = self.core.take(parker) {
                self.core.put_back(core + 1);
                return;
            }
            parker.wait_token();
        }
    }

    /// `block_on` with a main future that is ready when `is_done` is set; the thread that sets it
    /// unparks `parker`.
    fn wait(&self, parker: &Arc<Parker>, withdraw: Withdraw) {
        loop {
            if let Some(core) = self.core.take(parker) {
                self.core.put_back(core + 1);
                return;
            }
            // ORDERING: Acquire; pairs with the Release in `finish`.
            if self.is_done.load(Ordering::Acquire) {
                withdraw(&self.core, parker);
                return;
            }
            parker.wait_token();
        }
    }

    /// Makes the main future of `wait` ready, and wakes it.
    fn finish(&self, parker: &Parker) {
        // ORDERING: Release; pairs with the Acquire in `wait`.
        self.is_done.store(true, Ordering::Release);
        let _unparked = parker.unpark();
    }
}

/// One thread has the core and makes the main future of a second one ready; a third one waits for
/// the core.
fn model(withdraw: Withdraw) {
    let world = World::new();
    let [waits, sits, first] = [(); 3].map(|()| Arc::new(Parker::new()));
    let core = world.core.take(&first).expect("it is free");
    let second = thread::spawn({
        let (world, waits) = (world.clone(), waits.clone());
        move || world.wait(&waits, withdraw)
    });
    let third = thread::spawn({
        let world = world.clone();
        move || world.sit(&sits)
    });
    world.finish(&waits);
    world.core.put_back(core + 1);
    second.join().unwrap();
    third.join().unwrap();
    assert!(world.core.is_free(), "the last thread has left");
    let core = world.core.try_take().expect("ONE-WORKER");
    assert!((2..=3).contains(&core), "each thread that had the core has counted: {core}");
}

/// Faulty: does not pass the wake-up on.
fn withdraw_silently(shared_core: &SharedCore<u32>, parker: &Arc<Parker>) {
    shared_core.lock().waiting.retain(|waiting| !Arc::ptr_eq(waiting, parker));
}

#[test]
fn no_thread_waits_while_the_core_is_free() {
    holds(None, || model(SharedCore::withdraw));
}

#[test]
fn a_withdrawal_that_passes_nothing_on_is_found() {
    breaks("deadlock", None, || model(withdraw_silently));
}

/// Two threads that both try to take the core.
fn two_takers(take: fn(&SharedCore<u32>, &Arc<Parker>) -> Option<u32>) {
    let world = World::new();
    let sit = move |world: &World| {
        let parker = Arc::new(Parker::new());
        loop {
            if let Some(core) = take(&world.core, &parker) {
                world.core.put_back(core + 1);
                return;
            }
            parker.wait_token();
        }
    };
    let other = thread::spawn({
        let world = world.clone();
        move || sit(&world)
    });
    sit(&world);
    other.join().unwrap();
    assert_eq!(world.core.try_take(), Some(2), "ONE-WORKER: both have counted");
}

/// Faulty: does not wait for the core.
fn take_without_waiting(shared_core: &SharedCore<u32>, _: &Arc<Parker>) -> Option<u32> {
    shared_core.try_take()
}

#[test]
fn two_threads_take_the_core_in_turn() {
    holds(None, || two_takers(SharedCore::take));
}

#[test]
fn a_thread_that_does_not_enter_itself_is_found() {
    breaks("deadlock", None, || two_takers(take_without_waiting));
}
