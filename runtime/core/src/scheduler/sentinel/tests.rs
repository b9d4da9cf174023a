//! Tests of when the doctor is requested, and of the time that a check takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use volt_stacks::kernel::thread::{ThreadTimes, own_id};

use super::Rounds;
use crate::builder::Builder;
use crate::clock;

#[test]
fn a_runtime_is_examined_only_if_that_can_be_read() {
    for can_be_read in [false, true] {
        let builder = Builder::new_multi_thread().worker_threads(1).sentinel_interval(None);
        let runtime = builder.control_socket(can_be_read).doctor_events(false).build().unwrap();
        let mut rounds = Rounds::new(runtime.handle().shared(), Duration::from_millis(10));
        rounds.request_examination_if_due(u64::MAX);
        assert_eq!(rounds.stalls.has_reader(), can_be_read);
    }
}

/// Prints how long a check takes, without the wake-up before it:
/// `cargo test --release -p volt-core --lib a_check_takes -- --nocapture`.
#[test]
fn a_check_takes_microseconds() {
    const CHECKS: u32 = 2_000;
    let interval = Duration::from_millis(10);
    let runtime = Builder::new_multi_thread().worker_threads(2).sentinel_interval(None).build().unwrap();
    let (open, is_open) = mpsc::channel::<()>();
    let is_over = Arc::new(AtomicBool::new(false));
    let yields = is_over.clone();
    let busy = runtime.spawn(async move {
        // ORDERING: Relaxed; no other data depends on the flag.
        while !yields.load(Ordering::Relaxed) {
            crate::task::control::yield_now::yield_now().await;
        }
    });
    let mut rounds = Rounds::new(runtime.handle().shared(), interval);
    let mut check_us = |checks: u32| {
        let ran_ns = || ThreadTimes::now_of(own_id().unwrap()).unwrap().run_ns;
        let before_ns = ran_ns();
        for _ in 0..checks {
            rounds.check(clock::check(), None);
        }
        (ran_ns() - before_ns) as f64 / 1e3 / f64::from(checks)
    };
    let at_ease = check_us(CHECKS);
    let (entered, has_entered) = mpsc::channel();
    let stuck = runtime.spawn(async move {
        entered.send(()).unwrap();
        assert!(is_open.recv().is_err(), "nothing is sent");
    });
    has_entered.recv().unwrap();
    while runtime.handle().snapshot().longest_in_flight().is_none_or(|(_, poll)| poll.for_ns < 20_000_000) {
        std::thread::yield_now();
    }
    let while_stuck = check_us(CHECKS);
    println!("a check takes {at_ease:.1} µs while polls are short, {while_stuck:.1} µs while one is stuck");
    // ORDERING: Relaxed; no other data depends on the flag.
    is_over.store(true, Ordering::Relaxed);
    drop(open);
    runtime.block_on(async { (busy.await.unwrap(), stuck.await.unwrap()) });
    // About ten times the time of a release build.
    assert!(at_ease < 50.0 && while_stuck < 500.0, "{at_ease} {while_stuck}");
}
