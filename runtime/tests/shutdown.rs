//! How a runtime ends: every handle resolves, nothing is left, and nobody waits for ever.

mod watchdog;

use std::future::pending;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use volt::task::yield_now;
use watchdog::{builder, runtime, watched};

#[test]
fn every_handle_resolves_whatever_its_task_was_doing() {
    watched(|| {
        for workers in [1, 2, 4] {
            let runtime = runtime(workers);
            let idle: Vec<_> = (0..100).map(|_| runtime.spawn(pending::<()>())).collect();
            let hogs: Vec<_> = (0..8)
                .map(|_| {
                    runtime.spawn(async {
                        loop {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            let hour = || async { volt::time::sleep(Duration::from_secs(3600)).await };
            let asleep: Vec<_> = (0..100).map(|_| runtime.spawn(hour())).collect();
            drop(runtime);
            let waiting = watchdog::runtime(1);
            for task in idle.into_iter().chain(asleep) {
                assert!(waiting.block_on(task).unwrap_err().is_cancelled());
            }
            for task in hogs {
                assert!(waiting.block_on(task).unwrap_err().is_cancelled());
            }
        }
    });
}

#[test]
fn futures_are_dropped_with_the_runtime() {
    watched(|| {
        let alive = Arc::new(());
        let runtime = runtime(2);
        for _ in 0..1_000 {
            let alive = alive.clone();
            runtime.spawn(async move {
                let _alive = alive;
                pending::<()>().await;
            });
        }
        drop(runtime);
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

#[test]
fn tasks_that_spawn_tasks_end_too() {
    watched(|| {
        fn breed() -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            Box::pin(async {
                loop {
                    volt::spawn(async { breed().await });
                    yield_now().await;
                    if volt::Handle::current().snapshot().tasks.alive > 500 {
                        pending::<()>().await;
                    }
                }
            })
        }
        let runtime = runtime(2);
        runtime.spawn(breed());
        while runtime.handle().snapshot().tasks.spawned < 100 {
            std::hint::spin_loop();
        }
        let handle = runtime.handle().clone();
        drop(runtime);
        let tasks = handle.snapshot().tasks;
        assert_eq!(tasks.alive, 0, "{tasks:?}");
        let late = handle.spawn(async { 1 });
        assert!(watchdog::runtime(1).block_on(late).unwrap_err().is_cancelled(), "nothing is taken in any more");
    });
}

#[test]
fn a_stuck_task_and_a_stuck_thread_delay_the_end_by_the_limit_only() {
    watched(|| {
        let runtime = runtime(2);
        let (open, is_open) = mpsc::channel::<()>();
        let is_open = Arc::new(std::sync::Mutex::new(is_open));
        let (entered, has_entered) = mpsc::channel();
        for is_blocking in [false, true] {
            let (is_open, entered) = (is_open.clone(), entered.clone());
            let stuck = move || {
                entered.send(()).unwrap();
                let _closed = is_open.lock().unwrap().recv();
            };
            if is_blocking {
                runtime.spawn_blocking(stuck);
            } else {
                runtime.spawn(async move { stuck() });
            }
        }
        has_entered.recv().unwrap();
        has_entered.recv().unwrap();
        let began = Instant::now();
        runtime.shutdown_timeout(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50));
        drop(open);
    });
}

#[test]
fn jobs_that_have_not_begun_are_cancelled() {
    watched(|| {
        let runtime = builder(1).max_blocking_threads(1).build().unwrap();
        let (open, is_open) = mpsc::channel::<()>();
        let (entered, has_entered) = mpsc::channel();
        let running = runtime.spawn_blocking(move || {
            entered.send(()).unwrap();
            is_open.recv().unwrap();
        });
        let waiting = runtime.spawn_blocking(|| unreachable!("the only thread is taken"));
        has_entered.recv().unwrap();
        runtime.shutdown_background();
        let other = watchdog::runtime(1);
        assert!(other.block_on(waiting).unwrap_err().is_cancelled());
        open.send(()).unwrap();
        other.block_on(running).unwrap();
    });
}

#[test]
fn dropping_a_runtime_in_async_code_is_refused_clearly() {
    watched(|| {
        let outer = runtime(1);
        let error = outer.block_on(outer.spawn(async { drop(runtime(1)) })).unwrap_err();
        assert!(error.to_string().contains("call shutdown_background(), or drop it outside"), "{error}");
        outer.block_on(outer.spawn(async { runtime(1).shutdown_background() })).unwrap();
    });
}

#[test]
fn a_nested_block_on_is_refused_clearly() {
    watched(|| {
        let runtime = runtime(1);
        let handle = runtime.handle().clone();
        let error = runtime.block_on(runtime.spawn(async move { handle.block_on(async {}) })).unwrap_err();
        assert!(error.to_string().contains("block_on was called inside a task or another block_on"), "{error}");
    });
}
