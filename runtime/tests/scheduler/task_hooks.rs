//! The program's callbacks for tasks: each is called as often as it should be, and for which task.

use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;

use volt::runtime::TaskMeta;
use volt::task::{Id, yield_now};
use volt::{Builder, Handle};

use crate::watchdog::{builder, watched};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    Spawn,
    Before,
    After,
    End,
}

type Task = (&'static Location<'static>, Vec<Called>);

/// The hooks that were called for each task, in their order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<HashMap<Id, Task>>>);

impl Log {
    fn logged(&self, builder: Builder) -> Builder {
        let hook = |called| {
            let log = self.0.clone();
            move |task: &TaskMeta<'_>| {
                let mut log = log.lock().unwrap();
                log.entry(task.id()).or_insert_with(|| (task.spawned_at(), Vec::new())).1.push(called);
            }
        };
        let builder = builder.on_task_spawn(hook(Called::Spawn)).on_before_task_poll(hook(Called::Before));
        builder.on_after_task_poll(hook(Called::After)).on_task_terminate(hook(Called::End))
    }

    fn of(&self, task: Id) -> Task {
        self.0.lock().unwrap()[&task].clone()
    }
}

fn builders() -> [Builder; 3] {
    [Builder::new_current_thread(), builder(1), builder(4)]
}

#[test]
fn each_spawn_poll_and_end_of_a_task_is_called_once() {
    use Called::{After, Before, End, Spawn};
    for builder in builders() {
        watched(|| {
            let log = Log::default();
            let runtime = log.logged(builder).build().unwrap();
            let line = line!() + 1;
            let yields = runtime.spawn(async { yield_now().await });
            let (yields_id, pends) = (yields.id(), runtime.spawn(pending::<()>()));
            assert_eq!(log.of(yields_id).1.first(), Some(&Spawn), "called by the thread that spawns");
            let panics = runtime.block_on(async {
                yields.await.unwrap();
                let panics = volt::spawn(async { std::panic::resume_unwind(Box::new("on purpose")) });
                let id = panics.id();
                panics.await.map(|never: ()| never).unwrap_err();
                id
            });
            let pends_id = pends.id();
            drop(runtime);
            let (location, called) = log.of(yields_id);
            assert_eq!((location.file(), location.line()), (file!(), line));
            assert_eq!(called, [Spawn, Before, After, Before, End, After]);
            assert_eq!(log.of(panics).1, [Spawn, Before, End, After]);
            let called = log.of(pends_id).1;
            assert_eq!((called[0], &called[called.len() - 2..]), (Spawn, &[End, After][..]), "{called:?}");
        });
    }
}

#[test]
fn a_task_that_is_spawned_after_the_shutdown_ends_too() {
    watched(|| {
        let log = Log::default();
        let runtime = log.logged(builder(1)).build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let task = handle.spawn(pending::<()>());
        assert_eq!(log.of(task.id()).1, [Called::Spawn, Called::End]);
    });
}

#[test]
fn callbacks_for_tasks_may_spawn_and_panic() {
    for builder in builders() {
        watched(|| {
            let left = Arc::new(AtomicUsize::new(10));
            let (ended, ends) = mpsc::channel();
            let runtime = builder
                .on_before_task_poll(move |_| {
                    if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
                        volt::spawn(async {});
                    }
                })
                .on_task_spawn(|_| std::panic::resume_unwind(Box::new("on purpose")))
                .on_after_task_poll(|_| std::panic::resume_unwind(Box::new("on purpose")))
                .on_task_terminate(move |_| ended.send(Handle::try_current().is_ok()).unwrap())
                .build()
                .unwrap();
            runtime.block_on(async {
                volt::spawn(async {}).await.unwrap();
                while Handle::current().metrics().num_alive_tasks() > 0 {
                    yield_now().await;
                }
            });
            assert_eq!(runtime.handle().snapshot().tasks.spawned, 11);
            drop(runtime);
            assert_eq!(ends.into_iter().collect::<Vec<_>>(), [true; 11], "each runs inside the runtime");
        });
    }
}

#[test]
fn the_polls_of_a_dump_have_the_callbacks_of_all_polls() {
    use Called::{After, Before, End, Spawn};
    for builder in builders() {
        watched(|| {
            let log = Log::default();
            let runtime = log.logged(builder).build().unwrap();
            let (polls, is_open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (counted, gate) = (polls.clone(), is_open.clone());
            // Nothing wakes it: only a dump polls it again.
            let task = runtime.spawn(poll_fn(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                if gate.load(Ordering::Acquire) == 0 { Poll::Pending } else { Poll::Ready(()) }
            }));
            let dump = || runtime.block_on(runtime.handle().dump());
            while dump().read == 0 {}
            is_open.store(1, Ordering::Release);
            assert_eq!(dump().progressed, 1);
            let called = log.of(task.id()).1;
            let (first, rest) = called.split_first().unwrap();
            let (waits, last) = rest.split_at(rest.len() - 3);
            assert_eq!((*first, last), (Spawn, &[Before, End, After][..]));
            assert!(waits.chunks(2).all(|pair| pair == [Before, After]), "{called:?}");
            assert_eq!(waits.len() / 2 + 1, polls.load(Ordering::Relaxed), "a pair for each poll");
            assert_eq!(log.0.lock().unwrap().len(), 1, "the dump's own tasks have no callbacks");
        });
    }
}
