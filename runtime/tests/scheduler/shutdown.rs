//! How a runtime ends: every handle resolves, nothing is left, and no thread waits forever.

use crate::watchdog;
use std::cell::RefCell;
use std::future::pending;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::watchdog::{builder, runtime, watched};
use volt::io::AsyncReadExt;
use volt::net::TcpListener;
use volt::task::yield_now;
use volt::telemetry::{Phase, Worker};
use volt::time::timeout;
use volt::{Handle, Runtime};

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
fn a_shutdown_from_inside_ends_tasks_that_spawn_tasks_as_well() {
    watched(|| {
        for workers in [1, 2, 4] {
            let runtime = runtime(workers);
            let handle = runtime.handle().clone();
            for _ in 0..workers {
                runtime.spawn(async {
                    let mut children = Vec::new();
                    loop {
                        children.push(volt::spawn(pending::<()>()));
                        yield_now().await;
                    }
                });
            }
            while handle.snapshot().tasks.spawned < 200 {
                std::hint::spin_loop();
            }
            // It cannot wait for the others, since it is one of them.
            let (give, given) = mpsc::channel();
            let ends = handle.spawn(async move {
                runtime.shutdown_background();
                give.send(volt::spawn(async {})).unwrap();
            });
            let waiting = watchdog::runtime(1);
            waiting.block_on(ends).unwrap();
            assert!(waiting.block_on(given.recv().unwrap()).unwrap_err().is_cancelled(), "too late");
            let has_stopped = |worker: &Worker| worker.phase == Phase::Stopped;
            while !handle.snapshot().workers.iter().all(has_stopped) {
                std::thread::yield_now();
            }
            let tasks = handle.snapshot().tasks;
            assert_eq!((tasks.alive, tasks.panicked), (0, 0), "{tasks:?}");
        }
    });
}

#[test]
fn shutdown_timeout_bounds_the_wait_for_stuck_tasks_and_threads() {
    watched(|| {
        let runtime = runtime(2);
        let (open, is_open) = mpsc::channel::<()>();
        let is_open = Arc::new(Mutex::new(is_open));
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

/// Waits until every worker has stopped, so that none is left to poll the driver.
fn wait_for_workers(handle: &Handle) {
    while !handle.snapshot().workers.iter().all(|worker| worker.phase == Phase::Stopped) {
        std::thread::yield_now();
    }
}

#[test]
fn a_shield_protects_no_longer_than_the_limit_of_a_shutdown() {
    watched(|| {
        for shuts_down in
            [|runtime: Runtime| runtime.shutdown_timeout(Duration::from_millis(50)), Runtime::shutdown_background]
        {
            let runtime = runtime(2);
            let handle = runtime.handle().clone();
            let (entered, has_entered) = mpsc::channel();
            let task = runtime.spawn(volt::task::shield(async move {
                entered.send(()).unwrap();
                pending::<()>().await;
            }));
            has_entered.recv().unwrap();
            shuts_down(runtime);
            assert!(watchdog::runtime(1).block_on(task).unwrap_err().is_cancelled());
            wait_for_workers(&handle);
        }
    });
}

#[test]
fn timers_and_sockets_work_until_the_last_blocking_job_ends() {
    watched(|| {
        // With a limit that is never reached.
        let runtime = builder(2).shutdown_timeout(Duration::from_secs(3600)).build().unwrap();
        let handle = runtime.handle().clone();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (entered, has_entered) = mpsc::channel();
        let job = runtime.spawn_blocking({
            let handle = handle.clone();
            move || {
                entered.send(()).unwrap();
                wait_for_workers(&handle);
                handle.block_on(async {
                    let began = Instant::now();
                    assert!(timeout(Duration::from_millis(5), pending::<()>()).await.is_err());
                    assert!(began.elapsed() >= Duration::from_millis(5));
                    let addr = listener.local_addr().unwrap();
                    let client = std::thread::spawn(move || {
                        let mut stream = std::net::TcpStream::connect(addr).unwrap();
                        stream.write_all(b"x").unwrap();
                    });
                    let (mut stream, _peer) = listener.accept().await.unwrap();
                    let mut received = Vec::new();
                    stream.read_to_end(&mut received).await.unwrap();
                    client.join().unwrap();
                    received
                })
            }
        });
        has_entered.recv().unwrap();
        drop(runtime);
        assert_eq!(watchdog::runtime(1).block_on(job).unwrap(), b"x");
    });
}

#[test]
fn at_the_limit_a_timer_of_a_blocking_job_fails() {
    watched(|| {
        for (is_paused, limit) in [(false, Duration::from_millis(20)), (true, Duration::from_secs(3600))] {
            let runtime = builder(1).start_paused(is_paused).build().unwrap();
            let handle = runtime.handle().clone();
            let (entered, has_entered) = mpsc::channel();
            let job = runtime.spawn_blocking(move || {
                handle.block_on(async {
                    entered.send(()).unwrap();
                    volt::time::sleep(Duration::from_secs(3600)).await;
                });
            });
            has_entered.recv().unwrap();
            // A paused clock would delay the job forever: then the shutdown does not wait for the
            // limit.
            runtime.shutdown_timeout(limit);
            let error = watchdog::runtime(1).block_on(job).unwrap_err();
            assert!(error.is_panic() && error.to_string().contains("it is being shutdown"), "{error}");
        }
    });
}

/// Runs a function when its thread ends.
struct AtThreadEnd(Box<dyn FnOnce() + Send>);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        std::mem::replace(&mut self.0, Box::new(|| {}))();
    }
}

thread_local! {
    static AT_THREAD_END: RefCell<Option<AtThreadEnd>> = const { RefCell::new(None) };
}

/// Makes the only worker of `runtime` do `work` in a destructor of its thread.
fn at_thread_end(runtime: &Runtime, work: impl FnOnce() + Send + 'static) {
    let work = AtThreadEnd(Box::new(work));
    let task = runtime.spawn(async { AT_THREAD_END.with_borrow_mut(|end| *end = Some(work)) });
    runtime.block_on(task).unwrap();
}

#[test]
fn a_destructor_of_a_workers_thread_is_no_longer_than_the_limit() {
    watched(|| {
        let runtime = runtime(1);
        let (open, is_open) = mpsc::channel::<()>();
        let (entered, has_entered) = mpsc::channel();
        at_thread_end(&runtime, move || {
            entered.send(()).unwrap();
            let _closed = is_open.recv();
        });
        let began = Instant::now();
        runtime.shutdown_timeout(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50));
        has_entered.recv().unwrap();
        drop(open);
    });
}

#[test]
fn a_sleep_in_a_destructor_of_a_workers_thread_ends() {
    watched(|| {
        let runtime = builder(1).shutdown_timeout(Duration::from_secs(3600)).build().unwrap();
        let handle = runtime.handle().clone();
        let (ended, has_ended) = mpsc::channel();
        at_thread_end(&runtime, move || {
            handle.block_on(async { volt::time::sleep(Duration::from_millis(1)).await });
            ended.send(()).unwrap();
        });
        drop(runtime);
        has_ended.try_recv().expect("the shutdown waited for the thread");
    });
}

#[test]
fn a_job_with_a_thread_runs_in_spite_of_a_shutdown() {
    watched(|| {
        let other = watchdog::runtime(1);
        for round in 0..200 {
            let runtime = watchdog::builder(1).build().unwrap();
            if round % 2 == 0 {
                // So that there is an idle thread.
                runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
            }
            let job = runtime.spawn_blocking(|| 42);
            drop(runtime);
            assert_eq!(other.block_on(job).unwrap(), 42);
        }
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

/// Starts a job that lasts longer than the rest of a shutdown, and then sets a flag.
fn start_long_job(handle: &Handle) -> Arc<AtomicBool> {
    let has_ended = Arc::new(AtomicBool::new(false));
    let (entered, has_entered) = mpsc::channel();
    handle.spawn_blocking({
        let (handle, has_ended) = (handle.clone(), has_ended.clone());
        move || {
            entered.send(()).unwrap();
            while !handle.try_spawn(async {}).is_err_and(|error| error.is_shut_down()) {
                std::thread::yield_now();
            }
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(20) {
                std::thread::yield_now();
            }
            has_ended.store(true, Ordering::SeqCst);
        }
    });
    has_entered.recv().unwrap();
    has_ended
}

#[test]
fn a_runtime_dropped_in_its_own_blocking_job_waits_for_the_rest() {
    watched(|| {
        // With a limit that is never reached.
        let runtime = builder(2).shutdown_timeout(Duration::from_secs(3600)).build().unwrap();
        let handle = runtime.handle().clone();
        let has_ended = start_long_job(&handle);
        let (give, given) = mpsc::channel::<Runtime>();
        let job = handle.spawn_blocking(move || {
            drop(given.recv().unwrap());
            has_ended.load(Ordering::SeqCst)
        });
        give.send(runtime).unwrap();
        assert!(watchdog::runtime(1).block_on(job).unwrap(), "the shutdown waited for the other job");
        // This thread ends by itself once its job has ended.
        while handle.snapshot().blocking.threads > 0 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_runtime_dropped_in_anothers_blocking_job_awaits_its_jobs() {
    watched(|| {
        let (outer, inner) = (runtime(1), runtime(1));
        let has_ended = start_long_job(inner.handle());
        let job = outer.spawn_blocking(move || {
            drop(inner);
            has_ended.load(Ordering::SeqCst)
        });
        assert!(outer.block_on(job).unwrap());
    });
}

#[test]
fn dropping_a_runtime_in_async_code_is_refused_clearly() {
    watched(|| {
        let outer = runtime(1);
        let error = outer.block_on(outer.spawn(async { drop(runtime(1)) })).unwrap_err();
        let message = "Call shutdown_background(), or drop it outside";
        assert!(error.to_string().contains(message), "{error}");
        outer.block_on(outer.spawn(async { runtime(1).shutdown_background() })).unwrap();
        // In a `block_on` as well. The workers of the runtime that was refused end nevertheless.
        let inner = runtime(1);
        let handle = inner.handle().clone();
        let panic = panics(|| outer.block_on(async { drop(inner) }));
        assert!(panic.contains(message), "{panic}");
        while handle.snapshot().workers[0].phase != Phase::Stopped {
            std::thread::yield_now();
        }
        outer.block_on(async { runtime(1).shutdown_background() });
        outer.block_on(async { runtime(1).shutdown_timeout(Duration::ZERO) });
    });
}

#[test]
fn nested_block_on_panics_except_on_a_blocking_thread() {
    watched(|| {
        let (runtime, other) = (runtime(1), runtime(1));
        let message = "Cannot start a runtime from within a runtime";
        for inner in [runtime.handle(), other.handle()] {
            let handle = inner.clone();
            let error = runtime.block_on(runtime.spawn(async move { handle.block_on(async {}) })).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            let panic = panics(|| runtime.block_on(async { inner.block_on(async {}) }));
            assert!(panic.contains(message), "{panic}");
            let handle = inner.clone();
            let job =
                runtime.spawn_blocking(move || handle.block_on(async { volt::spawn(async { 7 }).await.unwrap() }));
            assert_eq!(runtime.block_on(job).unwrap(), 7);
            let _entered = inner.enter();
            assert_eq!(runtime.block_on(async { 8 }), 8, "being inside a runtime is not being in async code");
        }
    });
}

/// Returns the message of the panic of `f`, which must be text.
fn panics(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it is refused");
    panic.downcast_ref::<&str>().map_or_else(|| panic.downcast_ref::<String>().unwrap().clone(), |text| (*text).into())
}
