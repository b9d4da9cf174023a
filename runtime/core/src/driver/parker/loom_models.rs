//! loom models of the park word, and of the word with one step done wrong. Their structure is that
//! of the models of `queue::ring`.
//!
//! The futex is the emulated one, whose sleep with a time-out returns immediately. loom detects a
//! thread that waits forever.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, AtomicBool, Condvar, Mutex, UnsafeCell};

use super::*;

/// The steps that a fault can replace.
trait Steps: 'static {
    fn begin_driver(parker: &Parker) -> bool {
        parker.begin_driver()
    }

    fn sleep(parker: &Parker, timeout: Option<Duration>) -> Slept {
        parker.sleep(timeout)
    }

    fn take_token(parker: &Parker) -> bool {
        parker.take_token()
    }

    fn wait_token(parker: &Parker) {
        while !Self::take_token(parker) {
            Self::sleep(parker, None);
        }
    }

    fn unpark(parker: &Parker) -> Unparked {
        parker.unpark()
    }
}

struct AsBuilt;

impl Steps for AsBuilt {
    fn wait_token(parker: &Parker) {
        parker.wait_token();
    }
}

/// Spin, with one check. A second, later check would be the same as a spin that began later.
struct SpinsFirst;

impl Steps for SpinsFirst {
    fn sleep(parker: &Parker, timeout: Option<Duration>) -> Slept {
        if parker.has_token() { Slept::Woken } else { parker.sleep(timeout) }
    }
}

/// A token, and what was written before it, reach an owner that goes to sleep meanwhile. If
/// `times_out`, the owner first sleeps with a time-out.
fn unpark_against_sleep<S: Steps>(times_out: bool) {
    let shared = Arc::new((Parker::new(), UnsafeCell::new(0)));
    let owner = shared.clone();
    let owner = thread::spawn(move || {
        if times_out {
            S::sleep(&owner.0, Some(Duration::ZERO));
        }
        S::wait_token(&owner.0);
        // SAFETY: SEES-ALL; loom checks it.
        assert_eq!(owner.1.with(|cell| unsafe { cell.read() }), 1);
    });
    let unparker = thread::spawn(move || {
        // SAFETY: no thread reads it before the token.
        shared.1.with_mut(|cell| unsafe { cell.write(1) });
        assert_eq!(S::unpark(&shared.0), Unparked::Done);
    });
    owner.join().unwrap();
    unparker.join().unwrap();
}

/// The owner sleeps until it has seen what each of two unparks announced.
fn two_unparks<S: Steps>() {
    let shared = Arc::new((Parker::new(), [AtomicBool::new(false), AtomicBool::new(false)]));
    let unparkers = [0, 1].map(|unparker| {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.1[unparker].store(true, Ordering::Relaxed);
            let _ = S::unpark(&shared.0);
        })
    });
    let owner = thread::spawn(move || {
        while !shared.1.iter().all(|seen| seen.load(Ordering::Relaxed)) {
            S::wait_token(&shared.0);
        }
    });
    unparkers.into_iter().for_each(|unparker| unparker.join().unwrap());
    owner.join().unwrap();
}

/// The owner sleeps in a driver, whose waker is sticky. The token ends the sleep.
fn unpark_against_driver<S: Steps>() {
    let shared = Arc::new((Parker::new(), Mutex::new(false), Condvar::new()));
    let owner = shared.clone();
    let owner = thread::spawn(move || {
        let (parker, is_woken, wakes) = &*owner;
        if S::begin_driver(parker) {
            let mut guard = is_woken.lock();
            while !*guard {
                guard = wakes.wait(guard).unwrap();
            }
        }
        assert!(S::take_token(parker), "it was woken for a token");
    });
    let unparker = thread::spawn(move || {
        let (parker, is_woken, wakes) = &*shared;
        if S::unpark(parker) == Unparked::InDriver {
            *is_woken.lock() = true;
            wakes.notify_one();
        }
    });
    owner.join().unwrap();
    unparker.join().unwrap();
}

#[test]
fn a_token_reaches_an_owner_that_falls_asleep() {
    holds(None, || unpark_against_sleep::<AsBuilt>(false));
}

#[test]
fn a_token_that_comes_with_the_time_out_is_not_lost() {
    holds(None, || unpark_against_sleep::<AsBuilt>(true));
}

#[test]
fn the_data_of_two_unparks_is_seen() {
    holds(None, two_unparks::<AsBuilt>);
}

#[test]
fn a_token_reaches_an_owner_that_spins_and_then_falls_asleep() {
    holds(None, || unpark_against_sleep::<SpinsFirst>(false));
    holds(None, two_unparks::<SpinsFirst>);
}

#[test]
fn a_token_reaches_an_owner_in_the_driver() {
    holds(None, unpark_against_driver::<AsBuilt>);
}

/// Fault: goes to sleep with a store, over a token.
struct SleepsByStore;

impl Steps for SleepsByStore {
    fn begin_driver(parker: &Parker) -> bool {
        let before = parker.word.value.load(Ordering::Acquire);
        parker.word.value.store(PARKED_DRIVER, Ordering::Relaxed);
        before == UNPARKED
    }

    fn sleep(parker: &Parker, timeout: Option<Duration>) -> Slept {
        if parker.word.value.load(Ordering::Acquire) == NOTIFIED {
            return Slept::Woken;
        }
        parker.word.value.store(PARKED, Ordering::Relaxed);
        parker.word.wait(PARKED, timeout)
    }
}

#[test]
fn going_to_sleep_by_a_store_is_found() {
    breaks("deadlock", None, || unpark_against_sleep::<SleepsByStore>(false));
}

#[test]
fn going_into_the_driver_by_a_store_is_found() {
    breaks("deadlock", None, unpark_against_driver::<SleepsByStore>);
}

/// Fault: resets the word with a store.
struct TakesByStore;

impl Steps for TakesByStore {
    fn take_token(parker: &Parker) -> bool {
        let before = parker.word.value.load(Ordering::Acquire);
        parker.word.value.store(UNPARKED, Ordering::Relaxed);
        before == NOTIFIED
    }
}

#[test]
fn resetting_the_word_by_a_store_after_a_time_out_is_found() {
    breaks("deadlock", None, || unpark_against_sleep::<TakesByStore>(true));
}

#[test]
fn resetting_the_word_by_a_store_under_a_second_unpark_is_found() {
    breaks("deadlock", None, two_unparks::<TakesByStore>);
}

/// Fault: takes the token without acquiring what it announces.
struct TakesRelaxed;

impl Steps for TakesRelaxed {
    fn take_token(parker: &Parker) -> bool {
        parker.word.value.swap(UNPARKED, Ordering::Relaxed) == NOTIFIED
    }
}

#[test]
fn taking_the_token_relaxed_is_found() {
    breaks("Causality violation", None, || unpark_against_sleep::<TakesRelaxed>(false));
}

/// Fault: leaves the token without releasing what it announces.
struct UnparksRelaxed;

impl Steps for UnparksRelaxed {
    fn unpark(parker: &Parker) -> Unparked {
        if parker.word.value.swap(NOTIFIED, Ordering::Relaxed) == PARKED {
            parker.word.wake();
        }
        Unparked::Done
    }
}

#[test]
fn leaving_the_token_relaxed_is_found() {
    breaks("Causality violation", None, || unpark_against_sleep::<UnparksRelaxed>(false));
}

/// Fault: returns, after a plain load, when a token is already there.
struct ReturnsIfNotified;

impl Steps for ReturnsIfNotified {
    fn unpark(parker: &Parker) -> Unparked {
        if parker.word.value.load(Ordering::Acquire) == NOTIFIED {
            return Unparked::Done;
        }
        parker.unpark()
    }
}

#[test]
fn an_early_return_of_unpark_is_found() {
    breaks("deadlock", None, two_unparks::<ReturnsIfNotified>);
}

/// Fault: wakes the futex first, then leaves the token.
struct WakesFirst;

impl Steps for WakesFirst {
    fn unpark(parker: &Parker) -> Unparked {
        parker.word.wake();
        parker.word.value.swap(NOTIFIED, Ordering::AcqRel);
        Unparked::Done
    }
}

#[test]
fn waking_before_the_token_is_there_is_found() {
    breaks("deadlock", None, || unpark_against_sleep::<WakesFirst>(false));
}

/// Fault: the emulated futex's wake without its lock, which may fall between the check of the word
/// and the wait.
struct WakesWithoutLock;

impl Steps for WakesWithoutLock {
    fn unpark(parker: &Parker) -> Unparked {
        if parker.word.value.swap(NOTIFIED, Ordering::AcqRel) == PARKED {
            parker.word.wakes.notify_one();
        }
        Unparked::Done
    }
}

#[test]
fn an_emulated_wake_without_the_lock_is_found() {
    breaks("deadlock", None, || unpark_against_sleep::<WakesWithoutLock>(false));
}

/// Fault: does not return that the owner is in the driver.
struct ForgetsTheDriver;

impl Steps for ForgetsTheDriver {
    fn unpark(parker: &Parker) -> Unparked {
        let _ = parker.unpark();
        Unparked::Done
    }
}

#[test]
fn an_unpark_that_forgets_the_driver_is_found() {
    breaks("deadlock", None, unpark_against_driver::<ForgetsTheDriver>);
}

/// Fault: continues after a spin that saw the token, without taking it.
struct GoesOnFromTheSpin;

impl Steps for GoesOnFromTheSpin {
    fn wait_token(parker: &Parker) {
        if !parker.has_token() {
            parker.wait_token();
        }
    }
}

#[test]
fn going_on_from_a_spin_without_taking_the_token_is_found() {
    breaks("Causality violation", None, || unpark_against_sleep::<GoesOnFromTheSpin>(false));
}
