//! The guarantees of `JoinSet`.

use std::collections::HashSet;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use crate::watchdog::with_workers;
use volt::task::{JoinSet, yield_now};

#[test]
fn an_empty_set_has_no_next_and_one_that_was_emptied_neither() {
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
fn the_next_one_comes_with_the_id_under_which_it_was_started() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            let ids: Vec<_> = (0..50_usize).map(|n| tasks.spawn(async move { n }).id()).collect();
            let mut joined = 0;
            while let Some((id, output)) = tasks.join_next_with_id().await {
                assert_eq!(ids[output.unwrap()], id);
                joined += 1;
            }
            assert_eq!(joined, 50);
        });
    });
}

#[test]
fn join_all_returns_all_outputs_and_aborts_the_rest_on_a_panic() {
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
        is_held.recv().expect_err("the other task is gone");
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
            while let Some((id, ended)) = tasks.join_next_with_id().await {
                match ended {
                    Ok(output) => outputs.push(output),
                    Err(error) => {
                        assert!(error.is_cancelled() && error.id() == id && aborts[3].id() == id);
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
fn try_join_next_returns_ended_tasks_without_budget() {
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
