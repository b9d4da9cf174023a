//! Shields, sets, scopes, local tasks and task-locals, through the public API.

use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::watchdog::{runtime, watched, with_one_worker, with_workers};
use volt::task::{self, JoinSet, LocalSet, ScopeError, Shield, yield_now};

mod scopes;

#[test]
fn a_shielded_section_completes_before_the_task_is_dropped() {
    with_workers(|runtime| {
        let (entered, has_entered) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        let task = runtime.spawn(async move {
            task::shield(async {
                entered.send(()).unwrap();
                // It needs its own timer to get to the end.
                volt::time::sleep(Duration::from_millis(20)).await;
                done.send(()).unwrap();
            })
            .await
            .unwrap();
            pending::<()>().await;
        });
        has_entered.recv().unwrap();
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        is_done.try_recv().expect("the shielded section ran to its end");
    });
}

#[test]
fn the_256th_shield_is_an_error_that_the_task_sees() {
    with_workers(|runtime| {
        let task = runtime.spawn(async {
            let shields: Vec<_> = (0..255).map(|_| Shield::new().unwrap()).collect();
            let error = task::shield(async {}).await.unwrap_err();
            drop(shields);
            task::shield(async {}).await.unwrap();
            error.to_string()
        });
        assert!(runtime.block_on(task).unwrap().starts_with("a task can hold at most 255 shields"));
    });
}

#[test]
fn a_guard_that_leaves_its_task_lets_the_cancellation_through() {
    with_workers(|runtime| {
        let (guards, guard) = mpsc::channel();
        let task = runtime.spawn(async move {
            guards.send(Shield::new().unwrap()).unwrap();
            pending::<()>().await;
        });
        let guard = guard.recv().unwrap();
        task.abort();
        drop(guard);
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    });
}

#[test]
fn shutdown_waits_for_a_shielded_section() {
    watched(|| {
        let runtime = runtime(2);
        let (entered, has_entered) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        runtime.spawn(task::shield(async move {
            entered.send(()).unwrap();
            volt::time::sleep(Duration::from_millis(30)).await;
            done.send(()).unwrap();
        }));
        has_entered.recv().unwrap();
        drop(runtime);
        is_done.try_recv().expect("the shielded section ran to its end");
    });
}

#[test]
fn a_set_gives_outputs_as_they_come_and_aborts_what_is_left() {
    with_workers(|runtime| {
        let held = Arc::new(());
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for n in 0..100 {
                let held = held.clone();
                tasks.spawn(async move {
                    let _held = held;
                    if n % 2 == 0 {
                        pending::<()>().await;
                    }
                    n
                });
            }
            for _ in 0..50 {
                assert_eq!(tasks.join_next().await.unwrap().unwrap() % 2, 1);
            }
            assert_eq!(tasks.len(), 50);
            tasks.shutdown().await;
            assert!(tasks.is_empty() && tasks.join_next().await.is_none());
        });
        assert_eq!(Arc::strong_count(&held), 1);
        // Dropped, not shut down.
        let mut tasks = JoinSet::new();
        let held_by_task = held.clone();
        tasks.spawn_on(
            async move {
                let _held = held_by_task;
                pending::<()>().await;
            },
            runtime.handle(),
        );
        drop(tasks);
        while Arc::strong_count(&held) > 1 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn local_tasks_use_timers_and_join_tasks_of_the_workers() {
    with_workers(|runtime| {
        let set = LocalSet::new();
        let sum = set.block_on(&runtime, async {
            let shared = Rc::new(std::cell::Cell::new(0));
            let mut tasks = JoinSet::new();
            for n in 0..100 {
                let shared = shared.clone();
                tasks.spawn_local(async move {
                    if n % 10 == 0 {
                        volt::time::sleep(Duration::from_millis(1)).await;
                    }
                    let n = volt::spawn(async move { n }).await.unwrap();
                    shared.set(shared.get() + n);
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap();
            }
            shared.get()
        });
        assert_eq!(sum, 4950);
    });
}

volt::task_local! {
    static NAME: String;
}

#[test]
fn a_scope_of_a_task_local_in_use_is_refused() {
    with_one_worker(|runtime| {
        let shadows = runtime.spawn(NAME.scope("outer".into(), async {
            NAME.with(|_| NAME.sync_scope("inner".into(), || ()));
        }));
        let error = runtime.block_on(shadows).unwrap_err();
        assert!(error.to_string().contains("while its value is borrowed"), "{error}");
        let drops = runtime.spawn(NAME.scope("outer".into(), async {
            let mut inner = Box::pin(NAME.scope("inner".into(), pending::<()>()));
            assert!(poll_fn(|cx| Poll::Ready(inner.as_mut().poll(cx).is_pending())).await);
            NAME.with(|_| drop(inner));
            NAME.get()
        }));
        assert_eq!(runtime.block_on(drops).unwrap(), "outer");
    });
}

#[test]
fn a_task_local_follows_its_task_over_workers_and_nests() {
    with_workers(|runtime| {
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                runtime.spawn(NAME.scope(format!("outer {n}"), async move {
                    for _ in 0..20 {
                        yield_now().await;
                        assert_eq!(NAME.get(), format!("outer {n}"));
                        NAME.scope("inner".into(), async {
                            yield_now().await;
                            NAME.with(|name| assert_eq!(name, "inner"));
                        })
                        .await;
                    }
                    volt::spawn(async { NAME.try_with(|_| ()).is_err() }).await.unwrap()
                }))
            })
            .collect();
        for task in tasks {
            assert!(runtime.block_on(task).unwrap(), "a spawned task does not inherit it");
        }
        assert!(NAME.try_with(|_| ()).is_err());
    });
}

#[test]
fn a_child_awaited_after_its_scope_panics_and_does_not_hang() {
    with_workers(|runtime| {
        // Spawned on a clone of the scope that outlives it.
        let error = runtime.block_on(async {
            let (give, given) = volt::sync::oneshot::channel();
            let ended = task::scope(async |scope| {
                give.send(scope.clone()).ok().unwrap();
                Ok::<_, String>(())
            });
            ended.await.unwrap();
            let late = given.await.unwrap().spawn(async { Ok(5) });
            volt::spawn(late).await.unwrap_err()
        });
        assert!(error.to_string().contains("the scope of this child has ended"), "{error}");

        // Spawned in time, failed, and awaited outside, from before the scope ends until after.
        let error = runtime.block_on(async {
            let (give, given) = volt::sync::oneshot::channel();
            let waiter = volt::spawn(async {
                let child: task::Child<u32> = given.await.unwrap();
                child.await
            });
            let ended = task::scope(async |scope| {
                let child = scope.spawn(async {
                    yield_now().await;
                    Err::<u32, _>("no")
                });
                give.send(child).ok().unwrap();
                pending::<Result<(), &str>>().await
            });
            assert!(matches!(ended.await, Err(task::ScopeError::Failed("no"))));
            waiter.await.unwrap_err()
        });
        assert!(error.to_string().contains("the scope of this child has ended"), "{error}");
    });
}

#[test]
fn a_task_can_read_whether_it_is_cancelled_and_shielded() {
    with_workers(|runtime| {
        let requested = || (task::is_cancelled(), task::is_cancellation_effective());
        assert_eq!(requested(), (false, false), "outside a task");
        let (began, has_begun) = mpsc::channel();
        let (aborted, is_aborted) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        let task = runtime.spawn(async move {
            let before = requested();
            let shield = Shield::new().unwrap();
            began.send(()).unwrap();
            task::block_in_place(|| is_aborted.recv().unwrap());
            let here = requested();
            yield_now().await;
            let later = requested();
            drop(shield);
            report.send([before, here, later, requested()]).unwrap();
            pending::<()>().await;
        });
        has_begun.recv().unwrap();
        task.abort();
        aborted.send(()).unwrap();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        let expected = [(false, false), (true, false), (true, false), (true, true)];
        assert_eq!(reported.recv().unwrap(), expected);

        // A task that waits behind its shield is polled, and so can check; and a shutdown is a
        // cancellation too.
        let (waits, is_waiting) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        for is_shutdown in [false, true] {
            let (waits, report) = (waits.clone(), report.clone());
            let task = runtime.spawn(async move {
                let _shield = Shield::new().unwrap();
                waits.send(()).unwrap();
                poll_fn(|_cx| if task::is_cancelled() { Poll::Ready(()) } else { Poll::Pending }).await;
                report.send(requested()).unwrap();
            });
            is_waiting.recv().unwrap();
            if !is_shutdown {
                task.abort();
                assert_eq!(reported.recv().unwrap(), (true, false));
            }
        }
        drop(runtime);
        assert_eq!(reported.recv().unwrap(), (true, false));
    });
}
