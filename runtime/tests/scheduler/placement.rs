//! Where tasks from outside are placed, and that no placement loses any.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::watchdog::{builder, watched};
use volt::Placement::{Global, LeastLoaded, TwoChoices};
use volt::task::yield_now;

#[test]
fn every_task_runs_once_under_submits_steals_and_overflows() {
    for placement in [Global, TwoChoices, LeastLoaded] {
        for (workers, stealing) in [(1, true), (2, true), (4, true), (3, false)] {
            watched(|| {
                // Small rings, so that they overflow.
                let runtime = builder(workers)
                    .placement(placement)
                    .enable_stealing(stealing)
                    .local_queue_capacity(8)
                    .build()
                    .unwrap();
                let runs = Arc::new(AtomicUsize::new(0));
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| {
                            let tasks: Vec<_> = (0..2_000)
                                .map(|n| {
                                    let runs = runs.clone();
                                    runtime.spawn(async move {
                                        if n % 3 == 0 {
                                            yield_now().await;
                                        }
                                        let child = (n % 5 == 0).then(|| volt::spawn(async {}));
                                        runs.fetch_add(1, Ordering::SeqCst);
                                        if let Some(child) = child {
                                            child.await.unwrap();
                                        }
                                    })
                                })
                                .collect();
                            for task in tasks {
                                runtime.handle().block_on(task).unwrap();
                            }
                        });
                    }
                });
                assert_eq!(runs.load(Ordering::SeqCst), 6_000);
                let snapshot = runtime.handle().snapshot();
                assert_eq!(snapshot.workers.iter().map(queued).sum::<u64>() + snapshot.global_queue.len, 0);
            });
        }
    }
}

/// Returns the number of tasks in a worker's queues.
fn queued(worker: &volt::telemetry::Worker) -> u64 {
    u64::from(worker.ring_len + worker.batch_len + worker.inbox_len + u32::from(worker.is_lifo_filled))
}

#[test]
fn every_placed_task_is_queued_or_running() {
    for placement in [TwoChoices, LeastLoaded] {
        watched(|| {
            // No stealing and no searching worker: a placed task stays where it is.
            let runtime = builder(3).placement(placement).enable_stealing(false).build().unwrap();
            let (entered, has_entered) = mpsc::channel();
            let gates: Vec<mpsc::Sender<()>> = (0..30)
                .map(|_| {
                    let (open, is_open) = mpsc::channel::<()>();
                    let entered = entered.clone();
                    runtime.spawn(async move {
                        entered.send(()).unwrap();
                        is_open.recv().unwrap();
                    });
                    open
                })
                .collect();
            // One runs on each worker that has any. Nothing moves until the gates open.
            has_entered.recv().unwrap();
            let sum = loop {
                let snapshot = runtime.handle().snapshot();
                let running = snapshot.workers.iter().filter(|worker| worker.in_flight.is_some()).count() as u64;
                let is_settled =
                    snapshot.workers.iter().all(|worker| worker.in_flight.is_some() || queued(worker) == 0);
                if is_settled {
                    break snapshot.workers.iter().map(queued).sum::<u64>() + snapshot.global_queue.len + running;
                }
            };
            assert_eq!(sum, 30, "{placement:?}");
            for gate in &gates {
                gate.send(()).unwrap();
            }
        });
    }
}

/// Keeps all workers but one in `block` until the guard is dropped. Returns when they are there.
fn block_all_but_one(runtime: &volt::Runtime, workers: usize, block: fn(mpsc::Receiver<()>)) -> Vec<mpsc::Sender<()>> {
    let (entered, has_entered) = mpsc::channel();
    let blocked = || runtime.handle().snapshot().workers.iter().filter(|worker| worker.in_flight.is_some()).count();
    let mut gates = Vec::new();
    while gates.len() < workers - 1 {
        let (open, is_open) = mpsc::channel();
        let entered = entered.clone();
        runtime.spawn(async move {
            entered.send(()).unwrap();
            block(is_open);
        });
        has_entered.recv().unwrap();
        gates.push(open);
    }
    assert_eq!(blocked(), workers - 1);
    gates
}

/// Only the placement may bring a task to the worker that can run it: there is no thief, no
/// sentinel, no spare.
fn tasks_avoid_workers_that(block: fn(mpsc::Receiver<()>), is_out: fn(&volt::telemetry::Worker) -> bool) {
    const WORKERS: usize = 3;
    const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);
    for placement in [Global, TwoChoices, LeastLoaded] {
        watched(|| {
            let runtime = builder(WORKERS)
                .placement(placement)
                .enable_stealing(false)
                .sentinel_interval(None)
                .max_spare_workers(0)
                .lifo_steal_after(HOUR)
                .build()
                .unwrap();
            let gates = block_all_but_one(&runtime, WORKERS, block);
            while runtime.handle().snapshot().workers.iter().filter(|worker| is_out(worker)).count() < WORKERS - 1 {
                std::thread::yield_now();
            }
            // A task that is placed at a blocked worker waits until the gates open, which is never.
            for _ in 0..100 {
                runtime.block_on(runtime.spawn(async {})).unwrap();
            }
            drop(gates);
        });
    }
}

#[test]
fn no_task_is_placed_at_a_worker_in_block_in_place() {
    tasks_avoid_workers_that(
        |is_open| volt::task::block_in_place(|| _ = is_open.recv()),
        |worker| worker.duty == volt::telemetry::Duty::Blocking,
    );
}

#[test]
fn no_task_is_placed_at_a_worker_in_a_long_poll() {
    tasks_avoid_workers_that(
        |is_open| _ = is_open.recv(),
        |worker| worker.in_flight.as_ref().is_some_and(|poll| poll.for_ns >= 2_000_000),
    );
}

#[test]
fn the_least_loaded_worker_is_an_idle_one() {
    watched(|| {
        let runtime = builder(4).placement(LeastLoaded).build().unwrap();
        let (entered, has_entered) = mpsc::channel();
        // Four tasks that hold their worker, placed one after the other: each must find an idle
        // worker.
        let gates: Vec<mpsc::Sender<()>> = (0..4)
            .map(|_| {
                let (open, is_open) = mpsc::channel::<()>();
                let entered = entered.clone();
                runtime.spawn(async move {
                    entered.send(()).unwrap();
                    is_open.recv().unwrap();
                });
                has_entered.recv().expect("it runs beside the others");
                open
            })
            .collect();
        assert!(runtime.handle().snapshot().workers.iter().all(|worker| worker.in_flight.is_some()));
        for gate in &gates {
            gate.send(()).unwrap();
        }
    });
}
