//! Each option of the builder has its documented effect. Options that are the subject of other
//! tests (capacities, stealing, placement, park time-outs, the cooperative budget, limits of
//! blocking threads) are covered there.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::watchdog::{alone_with, builder, watched};
use volt::task::{spawn_blocking, yield_now};
use volt::telemetry::{Phase, Worker};
use volt::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

fn worker(runtime: &Runtime) -> Worker {
    runtime.handle().snapshot().workers.swap_remove(0)
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

/// Runs one task that is polled `count` times and waits for nothing.
fn polls(runtime: &Runtime, count: u64) {
    let task = runtime.spawn(async move {
        for _ in 1..count {
            yield_now().await;
        }
    });
    runtime.block_on(task).unwrap();
}

/// Keeps the only worker in a poll while `f` runs.
fn while_blocked(runtime: &Runtime, f: impl FnOnce()) {
    let (entered, has_entered) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let blocker = runtime.spawn(async move {
        entered.send(()).unwrap();
        may_leave.recv().unwrap();
    });
    has_entered.recv().unwrap();
    f();
    leave.send(()).unwrap();
    runtime.block_on(blocker).unwrap();
}

#[test]
fn the_tick_budget_limits_the_polls_of_a_tick() {
    watched(|| {
        for budget in [4, 16, 128] {
            let runtime = builder(1).max_lifo_polls_per_tick(3).budget_per_tick(budget).build().unwrap();
            polls(&runtime, 100 * u64::from(budget));
            let worker = worker(&runtime);
            assert!((99..=100).contains(&worker.budget_exhausted), "{budget}: {} ticks spent", worker.budget_exhausted);
        }
    });
}

#[test]
fn the_lifo_cap_limits_the_polls_of_a_tick() {
    watched(|| {
        for cap in [1, 3, 20] {
            let runtime = builder(1).max_lifo_polls_per_tick(cap).build().unwrap();
            // Each spawns the next: all would run from the LIFO slot, but for the cap.
            fn chain(left: u32) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
                Box::pin(async move {
                    if left > 0 {
                        volt::spawn(chain(left - 1)).await.unwrap();
                    }
                })
            }
            runtime.block_on(runtime.spawn(chain(1_000))).unwrap();
            let worker = worker(&runtime);
            assert!(
                worker.lifo_cap_flushes > 0 && worker.lifo_hits <= u64::from(cap) * worker.ticks,
                "{cap}: {worker:?}"
            );
            // The cap is reached tick after tick.
            assert!(worker.lifo_hits >= u64::from(cap) * worker.budget_exhausted, "{cap}: {worker:?}");
        }
    });
}

#[test]
fn a_fetch_takes_no_more_than_batch_buffer_and_bounds_allow() {
    watched(|| {
        let batches = |builder: Builder| {
            let runtime = builder.build().unwrap();
            let mut tasks = Vec::new();
            let before = worker(&runtime).global_batches;
            while_blocked(&runtime, || tasks.extend((0..60).map(|_| runtime.spawn(async {}))));
            tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
            worker(&runtime).global_batches - before
        };
        // 60 tasks for one worker: one fetch, and the blocker's; one more if a fetch comes between
        // two spawns.
        assert!(batches(builder(1)) <= 3);
        assert!(batches(builder(1).global_queue_batch_size(4)) >= 60 / 5);
        assert!(batches(builder(1).global_queue_batch_bounds(1, 2)) >= 60 / 3);
    });
}

#[test]
fn the_tuner_starts_as_configured_and_stays_within_bounds() {
    watched(|| {
        let begins = |builder: Builder| {
            let runtime = builder.build().unwrap();
            wait_until(|| worker(&runtime).phase != Phase::Stopped);
            let worker = worker(&runtime);
            (worker.avg_poll_ns, worker.global_queue_interval)
        };
        assert_eq!(begins(builder(1)), (50_000, 1));
        assert_eq!(begins(builder(1).default_avg_task(MS / 1_000)), (1_000, 3));
        assert_eq!(begins(builder(1).target_global_queue_latency(2 * MS)), (50_000, 40));
        assert_eq!(begins(builder(1).global_queue_interval_bounds(33, 33)), (50_000, 33));
        // A new sample counts fully, or almost not at all.
        for (alpha, is_forgotten) in [(1.0, true), (0.001, false)] {
            let runtime = builder(1).default_avg_task(Duration::from_secs(1)).ewma_alpha(alpha).build().unwrap();
            // Ten ticks. The average still contains a tenth of a second at a weight of a
            // thousandth, and nothing at a weight of 1.
            polls(&runtime, 1_280);
            wait_until(|| worker(&runtime).phase != Phase::Busy);
            let avg_ns = worker(&runtime).avg_poll_ns;
            assert_eq!(avg_ns < 500_000_000, is_forgotten, "{alpha}: {avg_ns} ns");
        }
    });
}

/// Returns the maximum number of polls of 100 µs for which a task from outside waited, while two
/// tasks wake themselves.
fn polls_before_a_task_from_outside(builder: Builder) -> u64 {
    let runtime = builder.build().unwrap();
    let (stop, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let hogs: Vec<_> = (0..2)
        .map(|_| {
            let (stop, begun) = (stop.clone(), begun.clone());
            runtime.spawn(poll_fn(move |cx| {
                begun.fetch_add(1, Ordering::SeqCst);
                let began = Instant::now();
                while began.elapsed() < MS / 10 {
                    std::hint::spin_loop();
                }
                if stop.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }))
        })
        .collect();
    wait_until(|| begun.load(Ordering::SeqCst) > 200);
    let waits = (0..50).map(|_| {
        let polls = begun.clone();
        let task = runtime.spawn(async move { polls.load(Ordering::SeqCst) });
        let handed_in = begun.load(Ordering::SeqCst);
        runtime.block_on(task).unwrap().saturating_sub(handed_in)
    });
    let most = waits.max().unwrap();
    stop.store(true, Ordering::SeqCst);
    hogs.into_iter().for_each(|hog| runtime.block_on(hog).unwrap());
    most
}

#[test]
fn when_the_global_queue_is_checked_follows_from_two_options() {
    watched(|| {
        assert!(polls_before_a_task_from_outside(builder(1)) <= 1, "after each poll that is long");
        let by_time = builder(1).global_queue_interval_bounds(255, 255);
        assert!(polls_before_a_task_from_outside(by_time) <= 1, "the interval is long, the target has passed");
        let by_count = builder(1).target_global_queue_latency(HOUR);
        let most = polls_before_a_task_from_outside(by_count.clone().global_queue_interval_bounds(100, 100));
        assert!((50..=101).contains(&most), "{most}");
        let most = polls_before_a_task_from_outside(by_count.global_queue_interval_bounds(10, 10));
        assert!((2..=11).contains(&most), "{most}");
    });
}

#[test]
fn checks_of_the_global_queue_are_counted_by_trigger() {
    watched(|| {
        // Returns the counts added by 3,300 local polls of a single task.
        let counted = |builder: Builder| {
            let runtime = builder.build().unwrap();
            wait_until(|| worker(&runtime).phase != Phase::Stopped);
            let before = worker(&runtime);
            polls(&runtime, 3_300);
            let checks = |worker: &Worker| worker.global_checks.expect("it counts them");
            wait_until(|| checks(&worker(&runtime)).empty > checks(&before).empty);
            let after = worker(&runtime);
            let polls = after.global_check_polls.unwrap() - before.global_check_polls.unwrap();
            let (after, before) = (checks(&after), checks(&before));
            (after.interval - before.interval, after.elapsed - before.elapsed, polls)
        };
        // By number alone: an hour never passes.
        let (interval, elapsed, polls) =
            counted(builder(1).target_global_queue_latency(HOUR).global_queue_interval_bounds(33, 33));
        assert_eq!(elapsed, 0);
        assert!((98..=100).contains(&interval) && polls == 33 * interval, "{interval} checks, {polls} polls");
        // By time alone: a nanosecond passes in each poll.
        let nanosecond = Duration::from_nanos(1);
        let (interval, elapsed, polls) =
            counted(builder(1).target_global_queue_latency(nanosecond).global_queue_interval_bounds(255, 255));
        assert_eq!(interval, 0);
        assert!((3_000..=3_300).contains(&elapsed) && polls < elapsed * 11 / 10, "{elapsed} checks, {polls} polls");
    });
}

#[test]
fn the_driver_is_polled_at_its_interval() {
    watched(|| {
        // Turns of the driver while 3,300 polls in a row left the worker no time to sleep.
        let turns = |builder: Builder| {
            let runtime = builder.build().unwrap();
            let task = runtime.spawn(async {
                let turns = || volt::Handle::current().snapshot().driver.polls;
                let before = turns();
                for _ in 0..3_300 {
                    yield_now().await;
                }
                turns() - before
            });
            runtime.block_on(task).unwrap()
        };
        assert_eq!(turns(builder(1).driver_interval(HOUR)), 0);
        assert!(turns(builder(1).driver_interval(Duration::ZERO)) >= 3_000);
    });
}

#[test]
fn threads_have_the_configured_name_and_stack() {
    watched(|| {
        /// More than the 2 MiB that a thread has by default.
        fn deep() -> u8 {
            let large = std::hint::black_box([1_u8; 8 << 20]);
            large[large.len() - 1]
        }
        let runtime = builder(1).thread_name("feed").thread_stack_size(32 << 20).build().unwrap();
        let name = || thread::current().name().map(str::to_owned);
        let task =
            runtime.spawn(async move { (name(), deep(), spawn_blocking(move || (name(), deep())).await.unwrap()) });
        let (worker, from_task, (blocking, from_job)) = runtime.block_on(task).unwrap();
        assert_eq!((worker.as_deref(), blocking.as_deref()), (Some("feed-worker-0"), Some("feed-blocking-1")));
        assert_eq!((from_task, from_job), (1, 1));
    });
}

#[test]
fn idle_blocking_threads_exit_after_thread_keep_alive() {
    watched(|| {
        let blocking = |runtime: &Runtime| runtime.handle().snapshot().blocking;
        let patient = builder(1).thread_keep_alive(HOUR).build().unwrap();
        let hasty = builder(1).thread_keep_alive(MS).build().unwrap();
        for round in 1..=3 {
            for runtime in [&patient, &hasty] {
                runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
            }
            wait_until(|| blocking(&hasty).threads == 0);
            wait_until(|| blocking(&patient).idle_threads == 1);
            assert_eq!((blocking(&patient).threads, blocking(&patient).completed), (1, round));
        }
    });
}

#[test]
fn the_sentinel_checks_while_a_worker_is_awake_if_it_is_on() {
    watched(|| {
        for interval in [None, Some(MS)] {
            let runtime = builder(1).sentinel_interval(interval).build().unwrap();
            let checks = || runtime.handle().snapshot().sentinel.checks;
            while_blocked(&runtime, || {
                let began = Instant::now();
                wait_until(|| if interval.is_some() { checks() > 3 } else { began.elapsed() > 20 * MS });
            });
            assert_eq!(checks() > 0, interval.is_some());
        }
    });
}

#[test]
fn dropping_a_runtime_waits_up_to_its_limit() {
    watched(|| {
        let drop_takes = || {
            let runtime = builder(1).shutdown_timeout(30 * MS).build().unwrap();
            let (entered, has_entered) = mpsc::channel();
            let (open, is_open) = mpsc::channel::<()>();
            runtime.spawn_blocking(move || {
                entered.send(()).unwrap();
                let _closed = is_open.recv();
            });
            has_entered.recv().unwrap();
            let began = Instant::now();
            drop(runtime);
            let took = began.elapsed();
            drop(open);
            assert!(took >= 30 * MS, "{took:?}");
            took
        };
        // The default is ten seconds, which would be exceeded each time.
        assert!((0..5).any(|_| drop_takes() < Duration::from_secs(10)));
    });
}

#[test]
fn the_environment_sets_spare_workers_unless_the_builder_does() {
    alone_with(&[("VOLT_MAX_SPARE_WORKERS", "9")], || {
        let spares = |builder: Builder| builder.build().unwrap().handle().snapshot().sentinel.max_spares;
        assert_eq!(spares(builder(1)), 9);
        assert_eq!(spares(builder(1).max_spare_workers(2)), 2);
        assert_eq!(spares(Builder::new_current_thread()), 0);
    });
}
