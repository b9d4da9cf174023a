//! The polls of a dump: what tasks do in them, and that no task notices more than one poll.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use volt::Runtime;
use volt::sync::{Semaphore, mpsc, oneshot};
use volt::telemetry::dump::{Dump, Query};

use super::{LONG, dump, dump_with, runtime, waits};

#[test]
fn a_task_that_can_continue_continues_in_the_poll_of_a_dump() {
    let runtime = runtime(1);
    let (is_open, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (gate, end) = (is_open.clone(), ended.clone());
    let task = runtime.spawn(async move {
        // Nothing wakes it.
        poll_fn(|_| if gate.load(Ordering::Acquire) == 0 { Poll::Pending } else { Poll::Ready(()) }).await;
        end.store(1, Ordering::Release);
        7
    });
    dump(&runtime, &Query::default(), waits(1));
    is_open.store(1, Ordering::Release);
    let dump = dump_with(&runtime, Query::default());
    assert_eq!((dump.waiting, dump.read, dump.progressed), (1, 0, 1));
    assert_eq!(runtime.block_on(task).unwrap(), 7);
    assert_eq!(ended.load(Ordering::Acquire), 1);
    let began = Instant::now();
    while runtime.handle().snapshot().tasks.alive > 0 {
        assert!(began.elapsed() < LONG, "its end is counted");
    }
}

#[test]
fn a_dump_spawns_one_counted_task_for_128_waiting_ones() {
    let runtime = runtime(1);
    let tasks: Vec<_> = (0..129).map(|_| runtime.spawn(pending::<()>())).collect();
    dump(&runtime, &Query::default(), waits(129));
    let before = runtime.handle().snapshot().tasks.spawned;
    assert_eq!(dump_with(&runtime, Query::default()).read, 129);
    assert_eq!(runtime.handle().snapshot().tasks.spawned, before + 2);
    drop(tasks);
}

#[test]
fn a_task_that_panics_in_the_poll_of_a_dump_fails_as_usual() {
    let runtime = runtime(1);
    let polls = AtomicUsize::new(0);
    let task = runtime.spawn(poll_fn(move |_| {
        assert_eq!(polls.fetch_add(1, Ordering::Relaxed), 0, "the second poll");
        Poll::<()>::Pending
    }));
    dump(&runtime, &Query::default(), |dump| dump.progressed == 1);
    assert!(runtime.block_on(task).unwrap_err().is_panic());
}

#[test]
fn a_task_that_wakes_itself_during_a_dump_is_polled_again() {
    let runtime = runtime(1);
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let task = runtime.spawn(poll_fn(move |cx| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Poll::Pending,
        1 => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    }));
    dump(&runtime, &Query::default(), |dump| dump.progressed == 1);
    runtime.block_on(task).unwrap();
    assert_eq!(polls.load(Ordering::Relaxed), 3);
}

#[test]
fn dumps_lose_no_message_and_keep_the_order_of_waiters() {
    const TASKS: u64 = 20;
    const ROUNDS: u64 = 200;
    let runtime = runtime(2);
    let turns = Arc::new(Semaphore::new(0));
    let (order, came) = mpsc::unbounded_channel();
    // They join the queue one after the other.
    for number in 0..TASKS {
        let (waiting, order) = (turns.clone(), order.clone());
        runtime.spawn(async move {
            waiting.acquire().await.unwrap().forget();
            order.send(number).unwrap();
        });
        dump(&runtime, &Query { polls: false, ..Query::default() }, |dump| dump.waiting == number + 1);
    }
    dump_with(&runtime, Query::default());
    let mut came = came;
    let passed: Vec<u64> = runtime.block_on(async {
        let mut passed = Vec::new();
        for _ in 0..TASKS {
            turns.add_permits(1);
            passed.push(came.recv().await.unwrap());
        }
        passed
    });
    assert_eq!(passed, Vec::from_iter(0..TASKS));

    // Messages go round while dumps are made all the time.
    let sum = Arc::new(AtomicU64::new(0));
    let rings: Vec<_> = (0..TASKS)
        .map(|_| {
            let ((to, mut from), (back, mut done)) = (mpsc::channel(1), mpsc::channel(1));
            let sum = sum.clone();
            runtime.spawn(async move {
                while let Some(message) = from.recv().await {
                    sum.fetch_add(message, Ordering::Relaxed);
                    back.send(()).await.unwrap();
                }
            });
            runtime.spawn(async move {
                for message in 0..ROUNDS {
                    to.send(message).await.unwrap();
                    done.recv().await.unwrap();
                }
            })
        })
        .collect();
    let mut dumps = 0;
    while rings.iter().any(|ring| !ring.is_finished()) {
        dump_with(&runtime, Query::default());
        dumps += 1;
    }
    assert!(dumps > 0);
    assert_eq!(sum.load(Ordering::Relaxed), TASKS * (0..ROUNDS).sum::<u64>(), "each message arrived once");
}

/// A future that panics if it is polled after it has completed.
struct Strict(bool, Pin<Box<dyn Future<Output = ()> + Send>>);

impl Future for Strict {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
        assert!(!self.0, "polled after completion");
        let polled = self.1.as_mut().poll(cx);
        self.0 = polled.is_ready();
        polled
    }
}

#[test]
fn a_dump_polls_no_task_that_has_completed_or_was_aborted() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let began = Instant::now();
    let mut dumps = 0;
    while dumps < 10 && began.elapsed() < LONG {
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let wait = volt::time::sleep(Duration::from_micros(number * 20));
                runtime.spawn(Strict(false, Box::pin(wait)))
            })
            .collect();
        tasks.iter().step_by(7).for_each(|task| task.abort());
        dump_with(&runtime, Query::default());
        dumps += 1;
        for task in tasks {
            let ended = runtime.block_on(task);
            assert!(ended.as_ref().err().is_none_or(|error| error.is_cancelled()), "{ended:?}");
        }
    }
}

/// Spawns a task whose poll in a dump calls `act` once. Returns after that dump, which must end.
fn act_in_a_dump(runtime: &Runtime, act: impl FnOnce() + Send + 'static) -> Dump {
    let (mut polls, mut act) = (0, Some(act));
    let acts = poll_fn(move |cx| {
        polls += 1;
        if polls > 1 {
            act.take().into_iter().for_each(|act| act());
        }
        let _waker = cx.waker().clone();
        Poll::<()>::Pending
    });
    let task = volt::task::Builder::new().name("acts").spawn_on(acts, runtime.handle());
    let query = Query { task: Some("acts".into()), ..Query::default() };
    dump(runtime, &Query { polls: false, ..query.clone() }, waits(1));
    let dump = dump_with(runtime, query);
    assert_eq!((dump.waiting, dump.read), (1, 1), "{}", dump.text());
    task.abort();
    dump
}

#[test]
fn a_task_may_spawn_another_in_the_poll_of_a_dump() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (sender, spawned) = std::sync::mpsc::channel();
        act_in_a_dump(&runtime, move || sender.send(volt::spawn(async { 7 })).unwrap());
        assert_eq!(runtime.block_on(spawned.recv().unwrap()).unwrap(), 7);
    }
}

#[test]
fn a_task_may_wake_or_abort_another_in_the_poll_of_a_dump() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let (sender, receiver) = oneshot::channel();
        let (woken, aborted) = (runtime.spawn(receiver), runtime.spawn(pending::<()>()));
        dump(&runtime, &Query { polls: false, ..Query::default() }, waits(2));
        let abort = aborted.abort_handle();
        act_in_a_dump(&runtime, move || {
            sender.send(7).unwrap();
            abort.abort();
        });
        assert_eq!(runtime.block_on(woken).unwrap(), Ok(7));
        assert!(runtime.block_on(aborted).unwrap_err().is_cancelled());
    }
}

#[test]
fn a_task_may_request_a_dump_in_the_poll_of_a_dump() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let handle = runtime.handle().clone();
        let (sender, requested) = std::sync::mpsc::channel();
        act_in_a_dump(&runtime, move || {
            let inner = handle.clone();
            sender.send(handle.spawn(async move { inner.dump().await })).unwrap();
        });
        let dump = runtime.block_on(requested.recv().unwrap()).unwrap();
        assert_eq!(dump.runtime, runtime.handle().snapshot().runtime);
        // A task that awaits a dump is itself polled by others.
        let handle = runtime.handle().clone();
        let dumps = runtime.spawn(async move {
            for _ in 0..5 {
                handle.dump().await;
            }
        });
        while !dumps.is_finished() {
            dump_with(&runtime, Query::default());
        }
        runtime.block_on(dumps).unwrap();
    }
}
