//! A runtime of one thread, whose futures need not be `Send`.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use volt::runtime::{Builder, Handle, LocalOptions, LocalRuntime, RuntimeFlavor};
use volt::task::{AbortHandle, JoinSet, LocalSet, Shield, block_in_place, spawn_blocking, spawn_local, yield_now};

use crate::watchdog::{alone, watched};

const OTHER_THREAD: &str =
    "Local tasks can only be spawned on a LocalRuntime from the thread the runtime was created on";

fn runtime() -> LocalRuntime {
    let builder = Builder::new_current_thread().park_timeout(None).sentinel_interval(None).control_socket(false);
    builder.build_local(LocalOptions::default()).unwrap()
}

fn here() -> ThreadId {
    thread::current().id()
}

/// Returns the message of the panic of `f`.
#[track_caller]
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).err().expect("it panics");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn futures_that_are_not_send_run_wherever_they_are_spawned() {
    watched(|| {
        let runtime = runtime();
        let log = Rc::new(RefCell::new(Vec::new()));
        let note = |text: &'static str| {
            let log = log.clone();
            async move {
                yield_now().await;
                log.borrow_mut().push((text, here()));
                log
            }
        };
        let on_runtime = runtime.spawn_local(note("runtime"));
        let entered = runtime.enter();
        let under_guard = spawn_local(note("guard"));
        drop(entered);
        runtime.block_on(async {
            let in_block_on = spawn_local(note("block_on"));
            let inner = note("task");
            let in_task = spawn_local(async move { spawn_local(inner).await.unwrap() });
            for task in [on_runtime, under_guard, in_block_on, in_task] {
                assert!(Rc::ptr_eq(&task.await.unwrap(), &log));
            }
        });
        log.borrow_mut().sort_unstable_by_key(|(text, _)| *text);
        assert_eq!(*log.borrow(), ["block_on", "guard", "runtime", "task"].map(|text| (text, here())));
    });
}

#[test]
fn timers_sockets_jobs_and_send_tasks_wake_local_tasks() {
    watched(|| {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        assert_eq!(handle.runtime_flavor(), RuntimeFlavor::CurrentThread);
        let steps = Rc::new(Cell::new(0));
        let elsewhere = thread::spawn(move || handle.spawn(async { here() })).join().unwrap();
        let task = runtime.spawn_local({
            let steps = steps.clone();
            async move {
                volt::time::sleep(Duration::from_millis(1)).await;
                steps.set(steps.get() + 1);
                let (mut one, mut other) = volt::io::duplex(8);
                let writes = volt::spawn(async move { volt::io::AsyncWriteExt::write_all(&mut one, b"ping").await });
                volt::io::AsyncReadExt::read_exact(&mut other, &mut [0; 4]).await.unwrap();
                writes.await.unwrap().unwrap();
                steps.set(steps.get() + 1);
                assert_ne!(spawn_blocking(here).await.unwrap(), here());
                steps.set(steps.get() + 1);
                elsewhere.await.unwrap()
            }
        });
        assert_eq!(runtime.block_on(task).unwrap(), here());
        assert_eq!(steps.get(), 3);
    });
}

#[test]
fn spawn_local_on_another_thread_panics_and_spawn_works() {
    watched(|| {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let spawned = thread::spawn(move || {
            let _entered = handle.enter();
            assert!(panic_of(|| spawn_local(async {})).starts_with(OTHER_THREAD));
            // Neither a set nor another local runtime of this thread stands in.
            let set = LocalSet::new();
            let _in_set = set.enter();
            assert!(panic_of(|| spawn_local(async {})).starts_with(OTHER_THREAD));
            volt::spawn(async { here() })
        });
        let spawned = spawned.join().unwrap();
        assert_eq!(runtime.block_on(spawned).unwrap(), here());
    });
}

#[test]
fn the_handle_of_a_local_runtime_outlives_its_thread() {
    watched(|| {
        let handle: Handle = thread::spawn(|| runtime().handle().clone()).join().unwrap();
        let _entered = handle.enter();
        assert!(panic_of(|| spawn_local(async {})).starts_with(OTHER_THREAD));
        assert!(volt::spawn(async {}).is_finished(), "cancelled");
    });
}

#[test]
fn a_multi_thread_builder_builds_no_local_runtime() {
    let panic = panic_of(|| Builder::new_multi_thread().build_local(LocalOptions::default()));
    assert!(panic.starts_with("multi_thread is not supported for LocalRuntime"), "{panic}");
}

#[test]
fn a_set_in_a_local_runtime_keeps_only_what_is_spawned_on_it() {
    watched(|| {
        let runtime = runtime();
        runtime.block_on(async {
            let set = LocalSet::new();
            let on_set = set.spawn_local(async { Rc::new(1) });
            // As in Tokio, the runtime is chosen before the set.
            let (on_set, on_runtime) = set.run_until(async { (on_set.await, spawn_local(async { Rc::new(2) })) }).await;
            let cancelled = set.spawn_local(pending::<()>());
            drop(set);
            assert_eq!(*on_set.unwrap(), 1);
            assert_eq!(*on_runtime.await.unwrap(), 2);
            assert!(cancelled.await.unwrap_err().is_cancelled());
        });
    });
}

#[test]
fn tasks_of_a_join_set_need_not_be_send() {
    watched(|| {
        let runtime = runtime();
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for n in 0..8 {
                let n = Rc::new(n);
                tasks.spawn_local(async move { n });
            }
            assert!(tasks.try_join_next().is_none());
            let outputs = tasks.join_all().await;
            assert_eq!(outputs.iter().map(|n| **n).sum::<i32>(), 28);

            let held = Rc::new(());
            let mut tasks = JoinSet::new();
            for _ in 0..8 {
                let held = held.clone();
                tasks.spawn_local(async move {
                    pending::<()>().await;
                    drop(held);
                });
            }
            yield_now().await;
            tasks.shutdown().await;
            assert_eq!(Rc::strong_count(&held), 1);
        });
    });
}

#[test]
fn block_in_place_panics_in_a_local_runtime() {
    watched(|| {
        let runtime = runtime();
        let message = "can call blocking only when running on the multi-threaded runtime";
        assert!(panic_of(|| runtime.block_on(async { block_in_place(|| ()) })).starts_with(message));
        let error = runtime.block_on(runtime.spawn_local(async { block_in_place(|| ()) })).unwrap_err();
        assert!(error.is_panic());
    });
}

#[test]
fn local_tasks_are_counted_like_all_others() {
    watched(|| {
        let runtime = runtime();
        let task = runtime.spawn_local(pending::<()>());
        runtime.block_on(async { spawn_local(async {}).await.unwrap() });
        let (metrics, tasks) = (runtime.metrics(), runtime.handle().snapshot().tasks);
        assert_eq!((metrics.num_alive_tasks(), tasks.spawned, tasks.completed), (1, 2, 1));
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        assert_eq!(runtime.handle().snapshot().tasks.cancelled, 1);
    });
}

/// Checks that it is dropped on its thread, and counts the drops.
struct OnThread(ThreadId, Rc<Cell<u32>>);

impl Drop for OnThread {
    fn drop(&mut self) {
        assert_eq!(here(), self.0);
        self.1.set(self.1.get() + 1);
    }
}

/// Spawns tasks in various states, each with an `OnThread`. Returns how many.
fn spawn_all_kinds(runtime: &LocalRuntime, drops: &Rc<Cell<u32>>, aborts: &mut Vec<AbortHandle>) -> u32 {
    let held = || OnThread(here(), drops.clone());
    let (waits, spins, shielded, output) = (held(), held(), held(), held());
    let polled = [
        runtime.spawn_local(async move {
            let _held = waits;
            pending::<()>().await;
        }),
        runtime.spawn_local(async move {
            let _held = spins;
            loop {
                yield_now().await;
            }
        }),
        runtime.spawn_local(async move {
            let _held = shielded;
            let _shield = Shield::new().unwrap();
            pending::<()>().await;
        }),
    ];
    // The output stays in the task until the handle is dropped.
    let ended = runtime.spawn_local(async move { output });
    runtime.block_on(async {
        for _ in 0..3 {
            yield_now().await;
        }
    });
    let queued = held();
    let queued = runtime.spawn_local(async move { drop(queued) });
    aborts.extend(polled.iter().chain([&queued]).map(|task| task.abort_handle()));
    aborts.push(ended.abort_handle());
    5
}

#[test]
fn the_shutdown_drops_futures_and_outputs_on_their_thread() {
    watched(|| {
        let end: [fn(LocalRuntime); 3] =
            [drop, LocalRuntime::shutdown_background, |runtime| runtime.shutdown_timeout(Duration::from_millis(5))];
        for shuts_down in end {
            let builder =
                Builder::new_current_thread().control_socket(false).shutdown_timeout(Duration::from_millis(5));
            let runtime = builder.build_local(LocalOptions::default()).unwrap();
            let (drops, mut aborts) = (Rc::default(), Vec::new());
            let tasks = spawn_all_kinds(&runtime, &drops, &mut aborts);
            shuts_down(runtime);
            assert_eq!(drops.get(), tasks);
            assert!(aborts.iter().all(AbortHandle::is_finished));
        }
    });
}

#[test]
fn aborts_and_wakes_on_other_threads_never_drop_a_future_there() {
    const ROUNDS: usize = 50;
    watched(|| {
        for round in 0..ROUNDS {
            let builder = Builder::new_current_thread().control_socket(false).sentinel_interval(None);
            let runtime = builder.shutdown_timeout(Duration::ZERO).build_local(LocalOptions::default()).unwrap();
            let (drops, mut aborts) = (Rc::default(), Vec::new());
            let mut tasks = spawn_all_kinds(&runtime, &drops, &mut aborts);
            let (give, given) = mpsc::channel::<Waker>();
            let held = OnThread(here(), drops.clone());
            drop(runtime.spawn_local(poll_fn(move |cx| {
                let _held = &held;
                give.send(cx.waker().clone()).unwrap();
                Poll::<()>::Pending
            })));
            tasks += 1;
            let handle = runtime.handle().clone();
            runtime.block_on(yield_now());
            let threads = [
                thread::spawn(move || aborts.iter().for_each(AbortHandle::abort)),
                thread::spawn(move || given.iter().for_each(Waker::wake)),
                thread::spawn(move || while !handle.spawn(async {}).is_finished() {}),
            ];
            if round % 2 == 0 {
                runtime.block_on(yield_now());
            }
            drop(runtime);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(drops.get(), tasks);
        }
    });
}

#[test]
fn a_local_runtime_that_is_leaked_leaks_its_tasks() {
    // The leak belongs to a separate program.
    alone(|| {
        let (drops, mut aborts) = (Rc::default(), Vec::new());
        let runtime = runtime();
        let tasks = spawn_all_kinds(&runtime, &drops, &mut aborts);
        let ended = drops.get();
        std::mem::forget(runtime);
        thread::spawn(move || aborts.iter().for_each(AbortHandle::abort)).join().unwrap();
        assert_eq!((ended, drops.get()), (1, 1), "of {tasks}, the one whose handle was dropped after its end");
    });
}

#[test]
fn a_destructor_at_the_shutdown_may_try_to_spawn_local_tasks() {
    /// Spawns a task when it is dropped, and returns whether it was cancelled.
    struct Spawns(mpsc::Sender<bool>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let held = Rc::new(());
            let task = spawn_local({
                let held = held.clone();
                async move { drop(held) }
            });
            self.0.send(task.is_finished() && Rc::strong_count(&held) == 1).unwrap();
        }
    }
    watched(|| {
        let runtime = runtime();
        let (sender, is_cancelled) = mpsc::channel();
        let spawns = Spawns(sender);
        drop(runtime.spawn_local(async move {
            let _spawns = spawns;
            pending::<()>().await;
        }));
        runtime.block_on(yield_now());
        drop(runtime);
        assert_eq!(is_cancelled.recv(), Ok(true));
    });
}

#[test]
fn a_local_runtime_in_a_thread_local_ends_with_its_thread() {
    thread_local! {
        static RUNTIME: LocalRuntime = runtime();
    }
    // A panic in a thread-local's destructor aborts the program.
    alone(|| {
        let thread = thread::spawn(|| {
            RUNTIME.with(|runtime| {
                let held = Rc::new(());
                let task = runtime.spawn_local(async move {
                    let _held = held;
                    pending::<()>().await;
                });
                runtime.block_on(yield_now());
                task
            })
        });
        assert!(thread.join().unwrap().is_finished());
    });
}

#[volt::test(flavor = "local")]
async fn the_attribute_builds_a_local_runtime() {
    let text = Rc::new("local");
    assert_eq!(*spawn_local(async move { text }).await.unwrap(), "local");
}
