//! The guarantees of `JoinSet`.

use std::collections::HashSet;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use crate::watchdog::{runtime, watched, with_workers};
use volt::task::{JoinSet, LocalSet, yield_now};

#[test]
fn join_next_returns_none_if_the_set_is_or_becomes_empty() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut tasks = JoinSet::<u32>::default();
            assert!(tasks.is_empty() && tasks.join_next().await.is_none());
            tasks.spawn(async { 1 });
            assert_eq!(tasks.len(), 1);
            assert_eq!(tasks.join_next().await.unwrap().unwrap(), 1);
            assert!(tasks.is_empty() && tasks.join_next().await.is_none());
        });
    });
}

#[test]
fn a_wait_that_is_dropped_loses_no_output() {
    with_workers(|runtime| {
        let _entered = runtime.enter();
        let mut tasks = JoinSet::new();
        let (opens, gates): (Vec<_>, Vec<_>) = (0..50).map(|_| mpsc::channel::<()>()).unzip();
        for (n, gate) in gates.into_iter().enumerate() {
            tasks.spawn_blocking(move || {
                let _opened = gate.recv();
                n
            });
        }
        let mut seen = HashSet::new();
        for open in opens {
            // Polled once, before there is an output or just as it comes, and dropped.
            let polled = pin!(tasks.join_next()).poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(output) = polled {
                seen.insert(output.unwrap().unwrap());
            }
            drop(open);
        }
        while let Some(output) = runtime.block_on(tasks.join_next()) {
            assert!(seen.insert(output.unwrap()), "no output twice");
        }
        assert_eq!(seen.len(), 50);
    });
}

#[test]
fn join_next_with_id_returns_the_id_of_the_spawn() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let ids: Vec<_> = (0..50_usize).map(|n| tasks.spawn(async move { n }).id()).collect();
            let mut joined = 0;
            while let Some(output) = tasks.join_next_with_id().await {
                let (id, output) = output.unwrap();
                assert_eq!(ids[output], id);
                joined += 1;
            }
            assert_eq!(joined, 50);
        });
    });
}

#[test]
fn join_all_returns_all_outputs_or_aborts_on_a_panic() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            (0..50).for_each(|n| drop(tasks.spawn(async move { n })));
            let mut outputs = tasks.join_all().await;
            outputs.sort_unstable();
            assert_eq!(outputs, (0..50).collect::<Vec<_>>());
        });
        let (held, is_held) = mpsc::channel::<()>();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                tasks.spawn(async move {
                    let _held = held;
                    pending::<()>().await;
                });
                tasks.spawn(async { resume_unwind(Box::new("the first")) });
                tasks.join_all().await
            })
        }));
        assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "the first");
        is_held.recv().expect_err("the other task is dropped");
    });
}

#[test]
fn detached_tasks_continue_and_aborted_tasks_stay_joinable() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (done, is_done) = mpsc::channel();
            let mut tasks = JoinSet::new();
            for n in 0..50 {
                let done = done.clone();
                tasks.spawn(async move {
                    yield_now().await;
                    done.send(n).unwrap();
                });
            }
            drop(done);
            tasks.detach_all();
            assert!(tasks.is_empty());
            assert_eq!(is_done.iter().sum::<u32>(), 49 * 50 / 2);

            (0..50).for_each(|_| drop(tasks.spawn(pending())));
            tasks.abort_all();
            assert_eq!(tasks.len(), 50);
            while let Some(ended) = tasks.join_next().await {
                assert!(ended.unwrap_err().is_cancelled());
            }
        });
    });
}

#[test]
fn a_handle_of_one_task_aborts_that_task_only() {
    with_workers(|runtime| {
        let mut tasks = JoinSet::new();
        let aborts: Vec<_> = (0..10_u32)
            .map(|n| {
                let task = async move {
                    if n == 3 {
                        pending::<()>().await;
                    }
                    n
                };
                tasks.spawn_on(task, runtime.handle())
            })
            .collect();
        aborts[3].abort();
        runtime.block_on(async {
            let (mut outputs, mut cancelled) = (Vec::new(), 0);
            while let Some(ended) = tasks.join_next_with_id().await {
                match ended {
                    Ok((id, output)) => {
                        assert_eq!(aborts[output as usize].id(), id);
                        outputs.push(output);
                    }
                    Err(error) => {
                        assert!(error.is_cancelled() && aborts[3].id() == error.id());
                        cancelled += 1;
                    }
                }
            }
            outputs.sort_unstable();
            assert_eq!((outputs, cancelled), (vec![0, 1, 2, 4, 5, 6, 7, 8, 9], 1));
        });
    });
}

#[test]
fn try_join_next_returns_completed_tasks_without_budget() {
    const TASKS: usize = 300;
    with_workers(|runtime| {
        let tried = runtime.spawn(async {
            let mut tasks = JoinSet::new();
            assert!(tasks.try_join_next().is_none());
            for n in 0..TASKS {
                tasks.spawn(async move { n });
            }
            tasks.spawn(pending());
            let mut outputs = Vec::new();
            while outputs.len() < TASKS {
                match tasks.try_join_next() {
                    Some(output) => outputs.push(output.unwrap()),
                    None => yield_now().await,
                }
            }
            assert!(tasks.try_join_next().is_none());
            outputs.sort_unstable();
            assert_eq!(outputs, (0..TASKS).collect::<Vec<_>>());
        });
        runtime.block_on(tried).unwrap();
    });
}

#[test]
fn futures_are_spawned_by_collect_and_extend() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut tasks: JoinSet<_> = (0..5).map(|n| async move { n }).collect();
            tasks.extend((5..10).map(|n| async move { n }));
            let mut outputs = tasks.join_all().await;
            outputs.sort_unstable();
            assert_eq!(outputs, (0..10).collect::<Vec<_>>());
        });
    });
}

#[test]
fn a_blocking_job_of_a_join_set_runs_on_its_runtime() {
    with_workers(|runtime| {
        let mut jobs = JoinSet::new();
        // Outside any runtime.
        let handle = runtime.handle();
        jobs.spawn_blocking_on(|| volt::Handle::current().id(), handle);
        jobs.build_task().name("job").spawn_blocking_on(|| volt::Handle::current().id(), handle);
        assert_eq!(runtime.block_on(jobs.join_all()), [handle.id(); 2]);
        drop(runtime);
    });
}

#[test]
fn local_tasks_of_a_join_set_run_when_their_local_set_runs() {
    with_workers(|runtime| {
        let (local, mut tasks) = (LocalSet::new(), JoinSet::new());
        for n in 0..8 {
            let n = Rc::new(n);
            tasks.spawn_local_on(async move { *n }, &local);
        }
        let n = Rc::new(8);
        tasks.build_task().name("eight").spawn_local_on(async move { *n }, &local);
        runtime.block_on(yield_now());
        assert!(tasks.try_join_next().is_none(), "their set does not run");
        let mut outputs = local.block_on(&runtime, async {
            tasks.spawn_local(async { 9 });
            tasks.build_task().spawn_local(async { 10 });
            tasks.join_all().await
        });
        outputs.sort_unstable();
        assert_eq!(outputs, (0..=10).collect::<Vec<_>>());
    });
}

#[test]
fn dropping_a_join_set_aborts_its_local_tasks() {
    with_workers(|runtime| {
        let held = Rc::new(());
        let (local, mut tasks) = (LocalSet::new(), JoinSet::new());
        for _ in 0..8 {
            let held = held.clone();
            let task = async move {
                let _held = held;
                pending::<()>().await;
            };
            tasks.spawn_local_on(task, &local);
        }
        local.block_on(&runtime, yield_now());
        drop(tasks);
        runtime.block_on(local);
        assert_eq!(Rc::strong_count(&held), 1);
    });
}

#[test]
fn tasks_of_a_shut_down_runtime_are_joined_as_cancelled() {
    watched(|| {
        let mut tasks = JoinSet::new();
        let ended = runtime(1);
        tasks.spawn_on(pending::<()>(), ended.handle());
        drop(ended);
        let error = runtime(1).block_on(tasks.join_next()).unwrap().unwrap_err();
        assert!(error.is_cancelled());
    });
}

/// Records that it was woken.
#[derive(Default)]
struct Records(AtomicBool);

impl Wake for Records {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn try_join_next_leaves_the_waker_of_an_earlier_poll() {
    with_workers(|runtime| {
        let (open, gate) = volt::sync::oneshot::channel::<()>();
        let mut tasks = JoinSet::new();
        tasks.spawn_on(async { gate.await.unwrap() }, runtime.handle());
        let records = Arc::new(Records::default());
        let waker = Waker::from(records.clone());
        let mut poll = || tasks.poll_join_next(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        // The first poll of a new task may wake the set itself.
        while records.0.swap(false, Ordering::SeqCst) {
            assert!(poll().is_pending());
        }
        assert!(tasks.try_join_next().is_none());
        open.send(()).unwrap();
        while !records.0.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(tasks.poll_join_next(&mut Context::from_waker(&waker)).is_ready());
    });
}

#[test]
fn a_former_wakers_destructor_may_end_a_task_of_the_set() {
    /// Runs the tasks of its runtime when it is dropped.
    struct RunsOnDrop(volt::Runtime);
    impl Wake for RunsOnDrop {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for RunsOnDrop {
        fn drop(&mut self) {
            self.0.block_on(yield_now());
        }
    }
    watched(|| {
        let runtime = volt::Builder::new_current_thread().control_socket(false).build().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn_on(async { 42 }, runtime.handle());
        let waker = Waker::from(Arc::new(RunsOnDrop(runtime)));
        assert!(tasks.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        // The poll that replaces the waker is over when that is dropped.
        let records = Arc::new(Records::default());
        let waker = Waker::from(records.clone());
        assert!(tasks.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
        assert!(records.0.load(Ordering::SeqCst));
        assert_eq!(tasks.try_join_next().unwrap().unwrap(), 42);
    });
}
