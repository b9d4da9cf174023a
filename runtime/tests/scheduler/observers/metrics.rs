//! The metrics under Tokio's names: the same numbers as in snapshots.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use volt::runtime::RuntimeMetrics;
use volt::telemetry::Phase;

use crate::watchdog::{builder, runtime, watched};

fn wait_until(is_done: impl Fn() -> bool) {
    while !is_done() {
        thread::yield_now();
    }
}

/// Returns the parts of a metric of all workers.
fn each<T>(metrics: &RuntimeMetrics, of: impl Fn(&RuntimeMetrics, usize) -> T) -> Vec<T> {
    (0..metrics.num_workers()).map(|worker| of(metrics, worker)).collect()
}

#[test]
fn spare_workers_do_not_count_as_workers() {
    watched(|| {
        for workers in [1, 3] {
            let metrics = builder(workers).max_spare_workers(2).build().unwrap().metrics();
            assert_eq!(metrics.num_workers(), workers);
        }
    });
}

#[test]
fn queued_and_alive_tasks_are_counted_exactly() {
    watched(|| {
        let runtime = runtime(2);
        let metrics = runtime.handle().metrics();
        let (begun, begins) = mpsc::channel();
        let stuck: Vec<_> = (0..2)
            .map(|_| {
                let (end, ended) = mpsc::channel::<()>();
                let begun = begun.clone();
                let task = runtime.spawn(async move {
                    begun.send(()).unwrap();
                    ended.recv().unwrap_err();
                });
                (end, task)
            })
            .collect();
        (0..2).for_each(|_| begins.recv().unwrap());
        // Both workers are in a poll that does not end, so nothing leaves the queue.
        for queued in 0..10 {
            assert_eq!((metrics.global_queue_depth(), metrics.num_alive_tasks()), (queued, queued + 2));
            runtime.spawn(async {});
        }
        for (end, task) in stuck {
            drop(end);
            runtime.block_on(task).unwrap();
        }
        wait_until(|| metrics.num_alive_tasks() == 0);
        assert_eq!(metrics.global_queue_depth(), 0);
        drop(runtime);
        assert_eq!(metrics.num_alive_tasks(), 0, "metrics outlive the runtime");
    });
}

/// The workers of `runtime` have no park time-out, so an idle worker stays parked.
#[test]
fn a_park_count_is_odd_while_the_worker_is_parked() {
    watched(|| {
        let runtime = runtime(2);
        let metrics = runtime.metrics();
        let counts = || each(&metrics, RuntimeMetrics::worker_park_unpark_count);
        wait_until(|| counts() == [1, 1]);
        assert_eq!(each(&metrics, RuntimeMetrics::worker_park_count), [1, 1]);

        let (begun, begins) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let task = runtime.spawn(async move {
            begun.send(()).unwrap();
            ended.recv().unwrap_err();
        });
        begins.recv().unwrap();
        assert!(counts().iter().any(|count| count % 2 == 0), "one of them runs the task: {:?}", counts());
        drop(end);
        runtime.block_on(task).unwrap();
        wait_until(|| counts().iter().all(|count| count % 2 == 1));

        drop(runtime);
        let parks = each(&metrics, RuntimeMetrics::worker_park_count);
        assert!(parks.iter().any(|parks| *parks >= 2), "{parks:?}");
        assert_eq!(counts(), parks.iter().map(|parks| 2 * parks).collect::<Vec<_>>(), "all have ended");
    });
}

#[test]
fn busy_time_grows_in_a_poll_and_not_in_a_sleep() {
    watched(|| {
        let runtime = runtime(1);
        let metrics = runtime.metrics();
        let busy = || metrics.worker_total_busy_duration(0);
        let (begun, begins) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let task = runtime.spawn(async move {
            begun.send(()).unwrap();
            ended.recv().unwrap_err();
        });
        begins.recv().unwrap();
        let before = busy();
        wait_until(|| busy() >= before + Duration::from_millis(2));
        drop(end);
        runtime.block_on(task).unwrap();
        // Both, since a park is counted a moment before its time is.
        wait_until(|| {
            let is_parked = metrics.worker_park_unpark_count(0) % 2 == 1;
            is_parked && runtime.handle().snapshot().workers[0].phase == Phase::Driver
        });
        let asleep = busy();
        thread::sleep(Duration::from_millis(2));
        assert_eq!(busy(), asleep);
        let worker = &runtime.handle().snapshot().workers[0];
        assert_eq!(asleep, Duration::from_nanos(worker.busy_ns + worker.maintenance_ns));
    });
}

#[test]
fn busy_time_of_each_worker_that_ran_a_task_never_decreases() {
    watched(|| {
        let runtime = runtime(2);
        let metrics = runtime.metrics();
        let busy = || each(&metrics, RuntimeMetrics::worker_total_busy_duration);
        let mut before = busy();
        for _ in 0..1_000 {
            runtime.spawn(async {});
            let now = busy();
            assert!(before.iter().zip(&now).all(|(before, now)| before <= now), "{before:?} {now:?}");
            before = now;
        }
        // Each of the two workers runs one of these.
        let barrier = Arc::new(Barrier::new(2));
        for _ in 0..2 {
            let barrier = barrier.clone();
            runtime.spawn(async move { barrier.wait() });
        }
        wait_until(|| metrics.num_alive_tasks() == 0);
        drop(runtime);
        assert!(busy().iter().all(|busy| !busy.is_zero()), "{:?}", busy());
    });
}

#[test]
fn a_worker_that_has_run_no_task_has_been_busy_with_its_start() {
    watched(|| {
        for _ in 0..20 {
            let runtime = runtime(2);
            let metrics = runtime.metrics();
            drop(runtime);
            let busy = each(&metrics, RuntimeMetrics::worker_total_busy_duration);
            assert!(busy.iter().all(|busy| !busy.is_zero()), "{busy:?}");
        }
    });
}

#[test]
fn metrics_of_a_worker_that_does_not_exist_panic() {
    watched(|| {
        let metrics = runtime(2).metrics();
        let of = [
            |metrics: &RuntimeMetrics| _ = metrics.worker_park_count(2),
            |metrics: &RuntimeMetrics| _ = metrics.worker_park_unpark_count(2),
            |metrics: &RuntimeMetrics| _ = metrics.worker_total_busy_duration(2),
            |metrics: &RuntimeMetrics| _ = metrics.worker_local_queue_depth(2),
            |metrics: &RuntimeMetrics| _ = metrics.poll_time_histogram_bucket_count(2, 0),
        ];
        for of in of {
            let panic = catch_unwind(AssertUnwindSafe(|| of(&metrics))).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().unwrap(), "worker 2 does not exist: the runtime has 2 workers");
        }
    });
}

#[test]
fn schedules_are_counted_by_where_they_come_from() {
    watched(|| {
        let runtime = runtime(1);
        let metrics = runtime.metrics();
        let task = runtime.spawn(async {
            let tasks: Vec<_> = (0..3).map(|_| volt::spawn(async {})).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(metrics.remote_schedule_count(), 1);
        assert_eq!(metrics.spawned_tasks_count(), 4);
        let before = metrics.worker_local_schedule_count(0);
        // The three, and the wake-ups of the one that awaits them.
        assert!((4..=6).contains(&before), "{before}");
        assert_eq!(metrics.worker_poll_count(0), 1 + before, "each poll has one schedule before it");
        let yields = runtime.spawn(async {
            for _ in 0..5 {
                volt::task::yield_now().await;
            }
        });
        runtime.block_on(yields).unwrap();
        assert_eq!(metrics.worker_local_schedule_count(0), before + 5);
    });
}

#[test]
fn a_park_after_no_poll_is_counted_as_in_vain() {
    watched(|| {
        let runtime = runtime(1);
        let metrics = runtime.metrics();
        wait_until(|| metrics.worker_park_count(0) == 1);
        wait_until(|| metrics.worker_noop_count(0) == 1);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        wait_until(|| metrics.worker_park_count(0) == 2);
        drop(runtime);
        assert_eq!(metrics.worker_noop_count(0), 1);
    });
}

#[test]
fn queues_that_overflow_are_counted() {
    watched(|| {
        let runtime = builder(1).local_queue_capacity(2).build().unwrap();
        let metrics = runtime.metrics();
        let task = runtime.spawn(async { (0..20).for_each(|_| drop(volt::spawn(async {}))) });
        runtime.block_on(task).unwrap();
        wait_until(|| metrics.num_alive_tasks() == 0);
        let worker = &runtime.handle().snapshot().workers[0];
        assert!(worker.overflows > 0);
        assert_eq!(metrics.worker_overflow_count(0), worker.overflows);
        assert_eq!(metrics.worker_local_queue_depth(0), 0);
    });
}

#[test]
fn threads_for_blocking_jobs_and_their_queue_are_counted() {
    watched(|| {
        let runtime = builder(1).max_blocking_threads(1).build().unwrap();
        let metrics = runtime.metrics();
        assert_eq!((metrics.num_blocking_threads(), metrics.blocking_queue_depth()), (0, 0));
        let (begun, begins) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let first = runtime.spawn_blocking(move || {
            begun.send(()).unwrap();
            ended.recv().unwrap_err();
        });
        begins.recv().unwrap();
        let second = runtime.spawn_blocking(|| {});
        let now =
            || (metrics.num_blocking_threads(), metrics.num_idle_blocking_threads(), metrics.blocking_queue_depth());
        assert_eq!(now(), (1, 0, 1));
        drop(end);
        runtime.block_on(first).unwrap();
        runtime.block_on(second).unwrap();
        wait_until(|| now() == (1, 1, 0));
        drop(runtime);
        assert_eq!(now(), (0, 0, 0));
    });
}

#[test]
fn forced_yields_of_tasks_and_of_a_main_future_are_counted() {
    watched(|| {
        let runtime = volt::Builder::new_current_thread().build().unwrap();
        let metrics = runtime.metrics();
        let spends_more_than_its_budget = || async {
            for _ in 0..200 {
                volt::task::consume_budget().await;
            }
        };
        runtime.block_on(spends_more_than_its_budget());
        assert_eq!(metrics.budget_forced_yield_count(), 1);
        runtime.block_on(runtime.spawn(spends_more_than_its_budget())).unwrap();
        assert_eq!(metrics.budget_forced_yield_count(), 2);
    });
}

#[test]
fn histograms_have_every_poll_in_one_bucket() {
    watched(|| {
        let runtime = runtime(1);
        let metrics = runtime.metrics();
        for _ in 0..10 {
            runtime.block_on(runtime.spawn(async {})).unwrap();
        }
        drop(runtime);
        let buckets = metrics.poll_time_histogram_num_buckets();
        assert_eq!(buckets, metrics.schedule_latency_histogram_num_buckets());
        let polls: u64 = (0..buckets).map(|bucket| metrics.poll_time_histogram_bucket_count(0, bucket)).sum();
        let delays: u64 = (0..buckets).map(|bucket| metrics.schedule_latency_histogram_bucket_count(0, bucket)).sum();
        assert_eq!((polls, delays), (10, 10));
        let ranges: Vec<_> = (0..buckets).map(|bucket| metrics.poll_time_histogram_bucket_range(bucket)).collect();
        assert!(ranges.is_sorted_by(|before, after| before.end == after.start), "no gaps: {ranges:?}");
        assert_eq!(ranges[0].start, Duration::ZERO);
        assert_eq!(ranges[buckets - 1].end, Duration::from_nanos(u64::MAX));
        let panic = catch_unwind(AssertUnwindSafe(|| metrics.poll_time_histogram_bucket_range(buckets))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(text, &format!("bucket {buckets} does not exist: the histogram has {buckets} buckets"));
    });
}

#[test]
fn sockets_are_counted_when_they_come_and_when_they_leave() {
    watched(|| {
        let runtime = runtime(1);
        let metrics = runtime.metrics();
        let now = || (metrics.io_driver_fd_registered_count(), metrics.io_driver_fd_deregistered_count());
        let (one, other) = {
            let _entered = runtime.enter();
            volt::net::UnixStream::pair().unwrap()
        };
        assert_eq!(now(), (2, 0));
        drop(one);
        assert_eq!(now(), (2, 1));
        drop(other);
        assert_eq!(now(), (2, 2));
        assert!(metrics.io_driver_ready_count() <= runtime.handle().snapshot().driver.events);
    });
}
