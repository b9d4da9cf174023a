//! A set that is entered without being run, and what its tasks may not do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use volt::runtime::{Builder, Runtime};
use volt::task::{JoinError, block_in_place, spawn_blocking};

use super::*;
use crate::watchdog::alone;

const NO_BLOCKING: &str = "can call blocking only when running on the multi-threaded runtime";
const NO_SET: &str = "`spawn_local` called from outside of a `task::LocalSet` or `runtime::LocalRuntime`";

fn current_thread() -> Runtime {
    Builder::new_current_thread().park_timeout(None).sentinel_interval(None).control_socket(false).build().unwrap()
}

/// Returns the message of the panic of `f`.
#[track_caller]
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    text_of(catch_unwind(AssertUnwindSafe(f)).err().expect("it panics"))
}

fn text_of(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn a_task_spawned_under_an_enter_guard_runs_with_its_set() {
    watched(|| {
        for runtime in [current_thread(), runtime(1)] {
            let set = LocalSet::new();
            let entered = set.enter();
            let text = Rc::new("local");
            let task = spawn_local(on_this_thread(async move {
                volt::time::sleep(Duration::from_millis(1)).await;
                *text
            }));
            runtime.block_on(yield_now());
            assert!(!task.is_finished(), "its set does not run");
            drop(entered);
            assert_eq!(set.block_on(&runtime, task).unwrap(), "local");
        }
    });
}

#[test]
fn a_set_in_block_on_of_a_current_thread_runtime_runs_its_tasks() {
    watched(|| {
        let runtime = current_thread();
        let before = runtime.spawn(async { thread::current().id() });
        let (before, inside) = LocalSet::new().block_on(&runtime, async {
            let inside = spawn_local(async { volt::spawn(async { thread::current().id() }).await.unwrap() });
            (before.await.unwrap(), inside.await.unwrap())
        });
        assert_eq!([before, inside], [thread::current().id(); 2]);
    });
}

/// Counts its wake-ups.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_spawn_under_an_enter_guard_wakes_the_set_that_waits() {
    watched(|| {
        let mut set = LocalSet::new();
        set.spawn_local(pending::<()>());
        let counts = Arc::new(Counts::default());
        let waker = Waker::from(counts.clone());
        assert!(Pin::new(&mut set).poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(counts.0.load(Ordering::Relaxed), 0);
        let entered = set.enter();
        let task = spawn_local(async {});
        assert_eq!(counts.0.load(Ordering::Relaxed), 1);
        drop(entered);
        assert!(Pin::new(&mut set).poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(task.is_finished());
    });
}

#[test]
fn guards_of_sets_restore_the_former_set_in_any_order() {
    watched(|| {
        let alive = |set: &LocalSet| format!("{set:?}");
        let (first, second) = (LocalSet::new(), LocalSet::new());
        let in_first = first.enter();
        let in_second = second.enter();
        spawn_local(async {});
        assert_eq!((alive(&first), alive(&second)), ("LocalSet { alive: 0 }".into(), "LocalSet { alive: 1 }".into()));
        // As in Tokio, each guard restores what was current when it was created.
        drop(in_first);
        assert!(panic_of(|| spawn_local(async {})).starts_with(NO_SET));
        drop(in_second);
        spawn_local(async {});
        assert_eq!(alive(&first), "LocalSet { alive: 1 }");
    });
}

/// Reports its drop.
struct OnDrop(mpsc::Sender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _is_sent = self.0.send(());
    }
}

#[test]
fn a_guard_that_outlives_its_set_cancels_what_is_spawned() {
    watched(|| {
        let (first, second) = (LocalSet::new(), LocalSet::new());
        let in_first = first.enter();
        let in_second = second.enter();
        drop((first, second));
        for guard in [Some(in_second), None] {
            let (dropped, is_dropped) = mpsc::channel();
            let on_drop = OnDrop(dropped);
            let task = spawn_local(async move { drop(on_drop) });
            assert!(task.is_finished());
            is_dropped.try_recv().expect("the future was dropped, not leaked");
            drop(guard);
        }
        drop(in_first);
        assert!(panic_of(|| spawn_local(async {})).starts_with(NO_SET));
    });
}

#[test]
fn spawn_local_outside_its_runtime_panics() {
    watched(|| {
        assert!(panic_of(|| spawn_local(async {})).starts_with(NO_SET));
        for runtime in [current_thread(), runtime(1)] {
            assert!(panic_of(|| runtime.block_on(async { drop(spawn_local(async {})) })).starts_with(NO_SET));
            let error = runtime.block_on(runtime.spawn(async { drop(spawn_local(async {})) })).unwrap_err();
            assert!(text_of(error.into_panic()).starts_with(NO_SET));
        }
        let (runtime, set) = (runtime(1), LocalSet::new());
        let elsewhere = || thread::spawn(|| panic_of(|| spawn_local(async {}))).join().unwrap();
        assert!(set.block_on(&runtime, async { elsewhere() }).starts_with(NO_SET));
    });
}

#[test]
fn each_set_has_an_id_that_no_runtime_has() {
    watched(|| {
        let (set, runtime) = (LocalSet::new(), runtime(1));
        assert_eq!(set.id(), set.id());
        assert_ne!(set.id(), LocalSet::new().id());
        assert_ne!(set.id(), runtime.handle().id());
    });
}

/// Calls `block_in_place` when it is dropped.
struct BlocksOnDrop;

impl Drop for BlocksOnDrop {
    fn drop(&mut self) {
        block_in_place(|| ());
    }
}

/// Awaits a task and returns the message of its panic.
fn panic_text(ended: Result<(), JoinError>) -> String {
    text_of(ended.unwrap_err().into_panic())
}

#[test]
fn block_in_place_panics_in_a_set_inside_a_block_on() {
    watched(|| {
        for runtime in [current_thread(), runtime(1)] {
            let set = LocalSet::new();
            let panic = panic_of(|| set.block_on(&runtime, async { block_in_place(|| ()) }));
            assert!(panic.starts_with(NO_BLOCKING), "{panic}");

            let task = set.spawn_local(async { block_in_place(|| ()) });
            let panic = panic_text(runtime.block_on(async { (set.await, task.await).1 }));
            assert!(panic.starts_with(NO_BLOCKING), "{panic}");

            let set = LocalSet::new();
            let blocks = BlocksOnDrop;
            let task = set.spawn_local(async move {
                let _blocks = blocks;
                pending().await
            });
            let panic = panic_text(runtime.block_on(async {
                set.run_until(yield_now()).await;
                drop(set);
                task.await
            }));
            assert!(panic.starts_with(NO_BLOCKING), "{panic}");
        }
    });
}

#[test]
fn block_in_place_works_after_a_set_and_outside_block_on() {
    watched(|| {
        let runtime = runtime(1);
        runtime.block_on(async {
            LocalSet::new().run_until(yield_now()).await;
            block_in_place(|| ());
            // A set that a worker's task polls: another worker can take over its other tasks.
            let task = volt::spawn(async {
                futures_lite::future::block_on(LocalSet::new().run_until(async { block_in_place(|| 1) }))
            });
            assert_eq!(task.await.unwrap(), 1);
        });
        let mut set = LocalSet::new();
        set.spawn_local(async { block_in_place(|| ()) });
        assert!(Pin::new(&mut set).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        LocalSet::new().block_on(&runtime, async { spawn_local(spawn_blocking(|| ())).await.unwrap().unwrap() });
    });
}

#[test]
fn a_panic_in_run_until_leaves_no_set_current() {
    watched(|| {
        let (runtime, set) = (runtime(1), LocalSet::new());
        let panic = panic_of(|| set.block_on(&runtime, async { resume_unwind(Box::new("on purpose")) }));
        assert_eq!(panic, "on purpose");
        assert!(panic_of(|| spawn_local(async {})).starts_with(NO_SET));
        runtime.block_on(async { block_in_place(|| ()) });
    });
}

#[test]
fn a_runtime_and_a_set_in_a_thread_local_end_with_their_thread() {
    struct Both {
        runtime: Runtime,
        set: LocalSet,
    }
    thread_local! {
        static BOTH: Both = Both { runtime: current_thread(), set: LocalSet::new() };
    }
    // A panic in a thread-local's destructor aborts the program.
    alone(|| {
        let (dropped, is_dropped) = mpsc::channel();
        thread::spawn(move || {
            BOTH.with(|both| {
                let run = both.set.run_until(async {
                    let on_drop = OnDrop(dropped);
                    spawn_local(async move { drop(on_drop) });
                });
                both.runtime.block_on(run);
            });
        })
        .join()
        .unwrap();
        is_dropped.try_recv().unwrap();
    });
}
