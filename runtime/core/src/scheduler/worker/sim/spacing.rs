//! Tests that a worker keeps the interval of global checks that it publishes. They use the virtual
//! clock, on which no other program lengthens a poll.
//!
//! One real worker polls tasks that take a known virtual time and yield. The worker's counts
//! (`global_checks`, `global_check_polls`) are compared with the interval that it publishes
//! (`global_queue_interval`).

use std::future::poll_fn;
use std::panic::Location;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::build;
use super::random::Random;
use crate::builder::Builder;
use crate::clock;
use crate::context;
use crate::handle::Handle;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::Worker;
use crate::scheduler::worker::current;

/// Ticks until the average matches the load, and ticks that are measured afterwards.
const SETTLING: usize = 300;
const MEASURED: usize = 300;
const TASKS: usize = 4;
const US: u64 = 1_000;

fn spend(ns: u64) {
    clock::simulated::set(Some(clock::now_ns() + ns));
}

/// Runs `f` with a worker that always has tasks.
fn with_worker_of(
    builder: &Builder,
    poll_ns: impl Fn(&Random) -> u64 + Send + Copy + 'static,
    f: impl FnOnce(&Shared, &Worker),
) {
    /// Restores real time, also after a failure.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            clock::simulated::set(None);
        }
    }
    clock::simulated::set(Some(1_000 * US));
    let _reset = Reset;
    let mut config = builder.config().clone();
    config.workers = 1;
    let (shared, workers) = build(config, 1);
    let handle = Handle::new(shared.clone());
    let _entered = context::enter(&handle);
    for seed in 0..TASKS {
        let random = Random::new(seed as u64);
        let task = poll_fn(move |cx| {
            spend(poll_ns(&random));
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        drop(Arc::clone(&shared).spawn(task, None, Location::caller()));
    }
    f(&shared, &workers[0]);
    shared.close();
    while !shared.is_done() {
        run_ticks(&workers[0], 1);
    }
}

fn run_ticks(worker: &Worker, ticks: usize) {
    current::run_as(worker, || {
        for _ in 0..ticks {
            let mut tick = worker.begin_tick();
            while tick.has_budget(worker.cells()) {
                let Some(task) = worker.next_task() else { break };
                worker.poll_in(&mut tick, task);
            }
            worker.end_tick(&mut tick);
        }
    });
}

/// Returns the mean of the published interval over the ticks, and the counted number of local polls
/// between two checks.
fn shown_and_measured(shared: &Shared, worker: &Worker) -> (f64, f64) {
    let read = || shared.snapshot().workers.swap_remove(0);
    run_ticks(worker, SETTLING);
    let (before, mut shown) = (read(), 0);
    for _ in 0..MEASURED {
        shown += worker.cells().global_queue_interval.get();
        run_ticks(worker, 1);
    }
    let after = read();
    let checks = |worker: &volt_telemetry::Worker| worker.global_checks.expect("it counts them");
    let check_polls = |worker: &volt_telemetry::Worker| worker.global_check_polls.expect("it counts them");
    let polls = check_polls(&after) - check_polls(&before);
    assert_eq!(checks(&after).empty, checks(&before).empty, "it is never out of work");
    let checks = checks(&after).between_polls() - checks(&before).between_polls();
    // Each local poll is counted at the next check. So the count includes some polls from before
    // the first reading, and lacks some from before the last.
    let polled = after.polls - before.polls;
    assert!(polls.abs_diff(polled) <= u64::from(shared.config.max_global_queue_interval), "{polls} of {polled}");
    (shown as f64 / MEASURED as f64, polls as f64 / checks as f64)
}

fn builders() -> [(Builder, &'static str); 2] {
    let default = Builder::new_multi_thread();
    let slow =
        default.clone().target_global_queue_latency(Duration::from_millis(1)).global_queue_interval_bounds(8, 255);
    [(default, "3 us"), (slow, "1 ms")]
}

#[test]
fn the_gauge_is_the_measured_spacing_within_20_percent() {
    for (builder, target) in builders() {
        for poll_us in [1, 10, 100] {
            // All polls of the same length; between half and three halves of it; and now and then
            // one of twenty times the length.
            let even = move |_: &Random| poll_us * US;
            let uneven = move |random: &Random| random.between(poll_us * US / 2, poll_us * US * 3 / 2);
            let with_outliers = move |random: &Random| if random.one_in(1_000) { 20 } else { 1 } * uneven(random);
            let holds = |load: &str, shown: f64, measured: f64| {
                let error = (measured / shown - 1.0).abs();
                assert!(error <= 0.2, "{load} polls of {poll_us} us, target {target}: {measured:.2}, shown {shown:.2}");
            };
            with_worker_of(&builder, even, |shared, worker| {
                let (shown, measured) = shown_and_measured(shared, worker);
                holds("even", shown, measured);
            });
            with_worker_of(&builder, uneven, |shared, worker| {
                let (shown, measured) = shown_and_measured(shared, worker);
                holds("uneven", shown, measured);
            });
            with_worker_of(&builder, with_outliers, |shared, worker| {
                let (shown, measured) = shown_and_measured(shared, worker);
                holds("uneven, with outliers,", shown, measured);
            });
        }
    }
}

#[test]
fn steady_polls_are_checked_by_interval_and_slow_ones_by_time() {
    for (builder, target) in builders() {
        let poll_ns = std::sync::atomic::AtomicU64::new(US);
        let poll_ns: &'static _ = Box::leak(Box::new(poll_ns));
        // ORDERING: Relaxed; the test has one thread.
        let now = move |_: &Random| poll_ns.load(std::sync::atomic::Ordering::Relaxed);
        with_worker_of(&builder, now, |shared, worker| {
            let checks = || shared.snapshot().workers.swap_remove(0).global_checks.unwrap();
            run_ticks(worker, SETTLING);
            let settled = checks();
            run_ticks(worker, 10);
            let steady = checks();
            assert!(steady.interval > settled.interval && steady.elapsed == settled.elapsed, "{target}: {steady:?}");
            // From one poll to the next, longer than either target.
            poll_ns.store(2_000 * US, std::sync::atomic::Ordering::Relaxed);
            run_ticks(worker, 1);
            let sudden = checks();
            assert!(sudden.elapsed - steady.elapsed >= 126, "{target}: {sudden:?}, before {steady:?}");
        });
    }
}

#[test]
fn the_driver_is_polled_after_20_intervals_within_a_tick() {
    for (interval_us, poll_us) in [(50, 100), (5, 10), (50, 10)] {
        let builder = Builder::new_multi_thread().driver_interval(Duration::from_micros(interval_us));
        with_worker_of(
            &builder,
            move |_| poll_us * US,
            |shared, worker| {
                run_ticks(worker, 1);
                let mut tick = worker.begin_tick();
                let turns = || shared.snapshot().driver.polls;
                let (before, mut polls) = (turns(), 0);
                current::run_as(worker, || {
                    while turns() == before {
                        let task = worker.next_task().expect("it is never out of work");
                        worker.poll_in(&mut tick, task);
                        polls += 1;
                    }
                });
                worker.end_tick(&mut tick);
                assert_eq!(polls, 20 * interval_us / poll_us, "polls of {poll_us} us, interval {interval_us} us");
            },
        );
    }
}
