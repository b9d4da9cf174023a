//! Tests of the park word with real threads, and of the emulated futex.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;

/// Rounds of a stress test; Miri is slow.
const ROUNDS: usize = if cfg!(miri) { 30 } else { 20_000 };
/// So long that a test which waited for it would visibly hang.
const LONG: Duration = Duration::from_secs(3600);

#[test]
fn a_token_left_before_the_sleep_ends_it_and_is_taken_once() {
    let parker = Parker::new();
    assert!(!parker.take_token());
    assert_eq!(parker.unpark(), Unparked::Done);
    assert_eq!(parker.unpark(), Unparked::Done);
    assert_eq!(parker.sleep(Some(LONG)), Slept::Woken);
    assert!(parker.take_token(), "the sleep leaves the token");
    assert!(!parker.take_token(), "two unparks leave one token");
}

#[test]
fn a_sleep_with_a_time_out_returns_without_a_token() {
    let parker = Parker::new();
    while parker.sleep(Some(Duration::from_millis(1))) != Slept::TimedOut {
        assert!(!parker.take_token());
    }
    assert!(!parker.take_token());
    assert_eq!(parker.unpark(), Unparked::Done, "the owner is awake");
}

#[test]
fn an_owner_in_the_driver_is_left_to_the_caller() {
    let parker = Parker::new();
    assert!(parker.begin_driver());
    assert_eq!(parker.unpark(), Unparked::InDriver);
    assert_eq!(parker.unpark(), Unparked::Done, "the first one wakes it");
    assert!(parker.take_token());
    assert_eq!(parker.unpark(), Unparked::Done);
    assert!(!parker.begin_driver(), "a token is there");
}

#[test]
fn a_time_out_beyond_the_clock_still_ends_with_a_token() {
    for timeout in [None, Some(LONG), Some(Duration::MAX)] {
        let parker = Arc::new(Parker::new());
        let unparker = thread::spawn({
            let parker = parker.clone();
            move || parker.unpark()
        });
        while !parker.take_token() {
            assert_eq!(parker.sleep(timeout), Slept::Woken);
        }
        assert_eq!(unparker.join().unwrap(), Unparked::Done);
    }
}

#[test]
fn no_token_is_lost_in_a_ping_pong() {
    let sides = Arc::new((Parker::new(), Parker::new(), AtomicUsize::new(0)));
    let other = thread::spawn({
        let sides = sides.clone();
        move || {
            for _ in 0..ROUNDS {
                sides.1.wait_token();
                sides.2.fetch_add(1, Ordering::Relaxed);
                let _ = sides.0.unpark();
            }
        }
    });
    for round in 0..ROUNDS {
        let _ = sides.1.unpark();
        sides.0.wait_token();
        assert_eq!(sides.2.load(Ordering::Relaxed), round + 1, "what came before an unpark is visible");
    }
    other.join().unwrap();
}

#[test]
fn the_emulated_futex_sleeps_only_on_the_expected_value() {
    let futex = Arc::new(emulated::Futex::new(1));
    assert_eq!(futex.wait(0, None), Slept::Woken);
    while futex.wait(1, Some(Duration::from_millis(1))) != Slept::TimedOut {}
    let waker = thread::spawn({
        let futex = futex.clone();
        move || {
            futex.value.store(2, Ordering::Relaxed);
            futex.wake();
        }
    });
    while futex.value.load(Ordering::Relaxed) == 1 {
        futex.wait(1, None);
    }
    waker.join().unwrap();
}
