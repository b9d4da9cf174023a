//! When `try_spawn` succeeds and when it fails, and that nothing is lost in between.

use crate::watchdog;
use std::future::pending;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use crate::watchdog::{builder, runtime, watched, with_one_worker};
use volt::Placement::{Global, LeastLoaded, TwoChoices};
use volt::Runtime;
use volt::task::{Builder, TrySpawnError, try_spawn};

/// Keeps every worker of `runtime` in a poll until it is dropped.
struct Blocked(#[allow(dead_code, reason = "dropped")] Vec<mpsc::Sender<()>>);

impl Blocked {
    fn new(runtime: &Runtime) -> Self {
        let workers = runtime.handle().snapshot().workers.len();
        let (entered, has_entered) = mpsc::channel();
        let gates = (0..workers).map(|_| {
            let (open, is_open) = mpsc::channel();
            let entered = entered.clone();
            runtime.spawn(async move {
                entered.send(()).unwrap();
                let _opened: Result<(), _> = is_open.recv();
            });
            // One at a time, so that each finds an idle worker.
            has_entered.recv().unwrap();
            open
        });
        Self(gates.collect())
    }
}

#[test]
fn a_full_runtime_returns_an_error_with_the_future() {
    for placement in [Global, TwoChoices, LeastLoaded] {
        watched(|| {
            let runtime = builder(2).placement(placement).global_queue_capacity(4).build().unwrap();
            let blocked = Blocked::new(&runtime);
            let tasks: Vec<_> = (0..4).map(|n| runtime.try_spawn(async move { n }).unwrap()).collect();
            let error = runtime.try_spawn(async { "the fifth" }).unwrap_err();
            assert!(error.is_full() && !error.is_shut_down());
            let message = "global_queue_capacity is 4, and that many tasks wait: try again later, or raise it";
            assert_eq!(error.to_string(), message);
            assert_eq!(runtime.handle().snapshot().tasks.spawned, 2 + 4, "what was refused is not counted");
            // `spawn` is not refused.
            let fifth = runtime.spawn(error.into_inner());

            drop(blocked);
            for (n, task) in tasks.into_iter().enumerate() {
                assert_eq!(runtime.block_on(task).unwrap(), n);
            }
            assert_eq!(runtime.block_on(fifth).unwrap(), "the fifth");
            let again = runtime.try_spawn(async { "there is room again" }).unwrap();
            assert_eq!(runtime.block_on(again).unwrap(), "there is room again");
        });
    }
}

#[test]
fn concurrent_try_spawn_calls_never_exceed_the_capacity() {
    const CAPACITY: usize = 64;
    const THREADS: usize = 8;
    watched(|| {
        for _ in 0..50 {
            let runtime = builder(1).global_queue_capacity(CAPACITY).build().unwrap();
            let blocked = Blocked::new(&runtime);
            let taken = AtomicUsize::new(0);
            let start = std::sync::Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        start.wait();
                        for _ in 0..CAPACITY {
                            taken.fetch_add(usize::from(runtime.try_spawn(async {}).is_ok()), Ordering::SeqCst);
                        }
                    });
                }
            });
            let taken = taken.into_inner();
            assert_eq!(runtime.handle().snapshot().global_queue.len, taken as u64);
            assert!(taken <= CAPACITY, "{taken} were taken in");
            // Capacity that concurrent callers denied each other is available to later ones.
            (taken..CAPACITY).for_each(|_| drop(runtime.try_spawn(async {}).unwrap()));
            assert!(runtime.try_spawn(async {}).unwrap_err().is_full());
            drop(blocked);
        }
    });
}

#[test]
fn try_spawn_after_shutdown_returns_the_future() {
    watched(|| {
        let runtime = runtime(1);
        let handle = runtime.handle().clone();
        drop(runtime);
        let token = Arc::new(());
        let inside = token.clone();
        let error = handle.try_spawn(async move { drop(inside) }).unwrap_err();
        assert!(error.is_shut_down() && !error.is_full());
        assert_eq!(error.to_string(), "the runtime is shut down and accepts no more tasks");
        assert_eq!(Arc::strong_count(&token), 2, "the error holds the future");
        watchdog::runtime(1).block_on(error.into_inner());
        assert_eq!(Arc::strong_count(&token), 1);

        // Also for a runtime whose queue is never emptied.
        let full = builder(1).global_queue_capacity(1).build().unwrap();
        let handle = full.handle().clone();
        let _blocked = Blocked::new(&full);
        drop(full.try_spawn(async {}).unwrap());
        full.shutdown_background();
        assert!(handle.try_spawn(async {}).unwrap_err().is_shut_down());
    });
}

#[test]
fn during_shutdown_each_future_is_cancelled_or_returned() {
    watched(|| {
        for _ in 0..100 {
            let runtime = runtime(2);
            let handle = runtime.handle().clone();
            let (refused, requested) = (AtomicUsize::new(0), AtomicUsize::new(0));
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        loop {
                            requested.fetch_add(1, Ordering::Relaxed);
                            let token = Arc::new(());
                            let inside = token.clone();
                            let task = handle.try_spawn(async move {
                                let _inside = inside;
                                pending::<()>().await;
                            });
                            match task {
                                Ok(task) => drop(task),
                                Err(error) => {
                                    assert!(error.is_shut_down());
                                    assert_eq!(Arc::strong_count(&token), 2, "it was not dropped on the way");
                                    break refused.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                    });
                }
                while requested.load(Ordering::Relaxed) < 50 {
                    std::hint::spin_loop();
                }
                drop(runtime);
            });
            let tasks = handle.snapshot().tasks;
            assert_eq!((tasks.alive, tasks.completed, tasks.panicked), (0, 0, 0));
            assert_eq!(tasks.cancelled as usize + refused.into_inner(), requested.into_inner());
        }
    });
}

#[test]
fn a_task_can_also_start_a_child_with_a_name_and_location() {
    with_one_worker(|runtime| {
        let (entered, has_entered) = mpsc::channel();
        let (open, is_open) = mpsc::channel::<()>();
        let parent = runtime.spawn(async move {
            assert_eq!(try_spawn(async { 1 }).unwrap().await.unwrap(), 1);
            let here = Location::caller();
            let child = Builder::new().name("child").location(here).try_spawn(async move {
                entered.send(here.line()).unwrap();
                is_open.recv().unwrap();
            });
            child.unwrap().await.unwrap();
        });
        let line = has_entered.recv().unwrap();
        let snapshot = runtime.handle().snapshot();
        let child = snapshot.workers[0].in_flight.as_ref().expect("it is in its poll");
        assert_eq!(child.task_name.as_deref(), Some("child"));
        assert!(
            child.spawned_at.starts_with(&format!("runtime/tests/tasks/try_spawn.rs:{line}:")),
            "{}",
            child.spawned_at
        );
        open.send(()).unwrap();
        runtime.block_on(parent).unwrap();
    });
}

#[test]
fn the_error_is_an_error_whatever_the_future() {
    fn is_error<F: std::error::Error>() {}
    struct NotDebug;
    is_error::<TrySpawnError<NotDebug>>();
}
