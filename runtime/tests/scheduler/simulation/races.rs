//! Races that a seed finds and replays, and how a failure is reported.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use volt::sim::{check, first_failure};
use volt::sync::{Mutex, Notify};

use crate::watchdog::{alone_with, watched};

const SEEDS: std::ops::Range<u64> = 0..1000;

fn message_of(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    panic.downcast_ref::<String>().expect("it has a message").clone()
}

/// Withdraws 60 if the account has as much, and releases the lock in between if `has_gap`.
async fn withdraw(balance: Arc<Mutex<i64>>, has_gap: bool) {
    let mut guard = balance.lock().await;
    if *guard < 60 {
        return;
    }
    if has_gap {
        drop(guard);
        guard = balance.lock().await;
    }
    *guard -= 60;
}

async fn account(has_gap: bool) {
    let balance = Arc::new(Mutex::new(100));
    let tasks = [(); 2].map(|()| volt::spawn(withdraw(balance.clone(), has_gap)));
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*balance.lock().await, 40, "withdrawn twice");
}

#[test]
fn a_check_before_an_await_is_found_and_replayed() {
    watched(|| {
        let failure = first_failure(SEEDS, || account(true)).expect("found within 1,000 seeds");
        assert!(failure.message().contains("withdrawn twice"), "{failure}");
        for _ in 0..10 {
            let again = first_failure([failure.seed()], || account(true)).expect("fails again");
            assert_eq!((again.fingerprint(), again.message()), (failure.fingerprint(), failure.message()));
        }
        check(SEEDS, || account(false));
    });
}

/// A flag and a notification: loses the wake-up if the flag is set between the check and the wait.
async fn wait_for_flag(is_correct: bool) {
    let (flag, notify) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let setter = volt::spawn({
        let (flag, notify) = (flag.clone(), notify.clone());
        async move {
            flag.store(true, Ordering::Relaxed);
            notify.notify_waiters();
        }
    });
    let waiter = volt::spawn(async move {
        let notified = notify.notified();
        if !flag.load(Ordering::Relaxed) {
            if is_correct {
                notified.await;
            } else {
                volt::task::yield_now().await;
                notify.notified().await;
            }
        }
    });
    setter.await.unwrap();
    waiter.await.unwrap();
}

#[test]
fn a_lost_wake_up_is_a_failure_instead_of_a_hang() {
    watched(|| {
        let failure = first_failure(SEEDS, || wait_for_flag(false)).expect("found within 1,000 seeds");
        assert!(failure.message().starts_with("deadlock: "), "{failure}");
        assert!(failure.message().contains("races.rs:"), "{failure} names the line of the task");
        let again = first_failure([failure.seed()], || wait_for_flag(false)).expect("fails again");
        assert_eq!(again.fingerprint(), failure.fingerprint());
        check(SEEDS, || wait_for_flag(true));
    });
}

/// One task has to be delayed for 30 polls of another one.
async fn slow_start() {
    let (progress, limit) = (Arc::new(AtomicUsize::new(0)), 30);
    let runner = volt::spawn({
        let progress = progress.clone();
        async move {
            for _ in 0..limit {
                progress.fetch_add(1, Ordering::Relaxed);
                volt::task::yield_now().await;
            }
        }
    });
    let late = volt::spawn(async move { progress.load(Ordering::Relaxed) });
    runner.await.unwrap();
    assert!(late.await.unwrap() < limit, "the task has started after all steps of the other");
}

#[test]
fn a_race_that_needs_a_long_delay_is_found() {
    watched(|| {
        let failure = first_failure(SEEDS, slow_start).expect("found within 1,000 seeds");
        assert!(failure.message().contains("after all steps"), "{failure}");
    });
}

#[test]
fn check_reports_the_seed_and_the_command_that_replays_it() {
    watched(|| {
        let text = message_of(|| check(SEEDS, || account(true)));
        let failure = first_failure(SEEDS, || account(true)).unwrap();
        let seed = failure.seed();
        assert!(text.starts_with(&format!("seed {seed} fails, after {seed} seeds without a failure: ")), "{text}");
        let schedule = format!("schedule {:016x}, the same in a second run\n", failure.fingerprint());
        assert!(text.contains(&schedule), "{text}");
        let command = format!("replay it with: VOLT_SEED={seed} cargo test -- --exact ");
        assert!(text.contains(&command), "{text}");
    });
}

#[test]
fn the_variable_selects_the_only_seed_that_is_run() {
    alone_with(&[("VOLT_SEED", "12345")], || {
        let drawn = std::sync::Mutex::new(Vec::new());
        check(SEEDS, || async { drawn.lock().unwrap().push(volt::sim::random()) });
        let expected = first_failure([12345], || async { panic!("{}", volt::sim::random()) }).unwrap();
        assert_eq!(drawn.into_inner().unwrap(), [expected.message().parse::<u64>().unwrap()]);
        let text = message_of(|| check([], || async { panic!("it fails") }));
        assert!(text.starts_with("seed 12345 fails: it fails\nschedule "), "{text}");
    });
}

#[test]
fn a_variable_that_is_no_seed_is_refused() {
    alone_with(&[("VOLT_SEED", "many")], || {
        let text = message_of(|| check([], || async {}));
        assert!(text.starts_with("VOLT_SEED is \"many\": give a number"), "{text}");
    });
}

#[test]
fn check_reports_a_test_that_is_not_deterministic() {
    watched(|| {
        let runs = AtomicUsize::new(0);
        let text = message_of(|| {
            check(SEEDS, || async {
                for _ in 0..runs.fetch_add(1, Ordering::Relaxed) {
                    volt::task::yield_now().await;
                }
                panic!("always");
            });
        });
        assert!(text.contains("NOT the same in a second run"), "{text}");
    });
}

#[test]
fn a_program_in_a_loop_reaches_the_poll_limit() {
    watched(|| {
        let runtime = volt::Builder::new_current_thread().seed(1).poll_limit(500).build().unwrap();
        let text = message_of(|| {
            runtime.block_on(async {
                loop {
                    volt::task::yield_now().await;
                }
            })
        });
        assert!(text.contains("500 polls") && text.contains("seed 1"), "{text}");
        // The runtime can be shut down, and a later `block_on` panics again.
        let again = message_of(|| runtime.block_on(volt::task::yield_now()));
        assert!(again.contains("500 polls"), "{again}");
    });
}

#[test]
fn a_panic_of_the_main_future_is_passed_on() {
    watched(|| {
        let failure = first_failure(7..9, || async { std::panic::panic_any(5) }).expect("it fails");
        assert_eq!((failure.seed(), failure.passed()), (7, 0));
        assert_eq!(failure.message(), "a panic without a message");
    });
}
