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
fn busy_time_grows_in_a_poll_and_stands_still_in_a_sleep() {
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
fn metrics_of_a_worker_that_does_not_exist_panic() {
    watched(|| {
        let metrics = runtime(2).metrics();
        let of = [
            |metrics: &RuntimeMetrics| _ = metrics.worker_park_count(2),
            |metrics: &RuntimeMetrics| _ = metrics.worker_park_unpark_count(2),
            |metrics: &RuntimeMetrics| _ = metrics.worker_total_busy_duration(2),
        ];
        for of in of {
            let panic = catch_unwind(AssertUnwindSafe(|| of(&metrics))).unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().unwrap(), "worker 2 does not exist: the runtime has 2 workers");
        }
    });
}
