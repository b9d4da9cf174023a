//! Shields, sets, scopes, local tasks and task-locals, through the public API.

mod watchdog;

use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use volt::task::{self, JoinSet, LocalSet, ScopeError, Shield, yield_now};
use watchdog::{runtime, watched, with_workers};

#[test]
fn a_shielded_stretch_is_finished_and_then_the_task_is_gone() {
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
        is_done.try_recv().expect("the shielded stretch ran to its end");
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
        assert!(runtime.block_on(task).unwrap().starts_with("a task may hold 255 shields at once"));
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
fn shutdown_waits_for_a_shielded_stretch() {
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
        is_done.try_recv().expect("the shielded stretch ran to its end");
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
fn a_scope_waits_for_all_its_children() {
    with_workers(|runtime| {
        let count = Arc::new(AtomicUsize::new(0));
        let inside = count.clone();
        let body = task::scope(async move |scope| {
            for _ in 0..50 {
                let (scope_of_child, count) = (scope.clone(), inside.clone());
                let _value = scope.spawn(async move {
                    yield_now().await;
                    // Grandchildren are waited for as well.
                    let count_of_child = count.clone();
                    let _value = scope_of_child.spawn(async move {
                        yield_now().await;
                        count_of_child.fetch_add(1, Ordering::SeqCst);
                        Ok::<(), String>(())
                    });
                    count.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
            }
            Ok("body")
        });
        assert_eq!(runtime.block_on(body).unwrap(), "body");
        assert_eq!(count.load(Ordering::SeqCst), 100);
    });
}

#[test]
fn the_first_error_in_a_scope_cancels_the_others_and_comes_back_when_they_are_gone() {
    with_workers(|runtime| {
        let held = Arc::new(());
        let inside = held.clone();
        let result = runtime.block_on(task::scope::<(), _, _>(async move |scope| {
            for _ in 0..10 {
                let held = inside.clone();
                let _value = scope.spawn(async move {
                    let _held = held;
                    pending::<Result<(), String>>().await
                });
            }
            let failing = scope.spawn(async { Err::<(), _>("no".to_owned()) });
            failing.await;
            unreachable!("a child that fails never resolves");
        }));
        assert!(matches!(result, Err(ScopeError::Failed(error)) if error == "no"));
        assert_eq!(Arc::strong_count(&held), 1, "all children are gone");

        let panicked = runtime.block_on(task::scope::<(), String, _>(async |scope| {
            let _value = scope.spawn(async { if true { panic!("child") } else { Ok(()) } });
            pending().await
        }));
        assert!(matches!(panicked, Err(ScopeError::Panicked(error)) if error.is_panic()));
    });
}

#[test]
fn local_tasks_use_timers_and_join_tasks_of_the_workers() {
    with_workers(|runtime| {
        let set = LocalSet::new();
        let sum = set.block_on(runtime.handle(), async {
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
