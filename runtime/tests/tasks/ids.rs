//! `task::id` in the destructors of a task's future and of its output.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::mpsc::{self, Sender};
use std::task::{Context, Poll};

use volt::task::{self, Id, LocalSet, yield_now};

use crate::watchdog::with_workers;

/// Sends the current task's id when it is dropped.
struct Sends(Sender<Option<Id>>);

impl Drop for Sends {
    fn drop(&mut self) {
        self.0.send(task::try_id()).unwrap();
    }
}

/// A future that is ready immediately, with nothing in it but its destructor.
struct Ready(#[allow(dead_code, reason = "for its destructor")] Sends);

impl Future for Ready {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

#[test]
fn destructors_of_a_future_are_inside_its_task() {
    with_workers(|runtime| {
        let (sends, reported) = mpsc::channel();
        let completed = runtime.spawn(Ready(Sends(sends.clone())));
        assert_eq!(reported.recv().unwrap(), Some(completed.id()));
        let sends_first = Sends(sends.clone());
        let aborted = runtime.spawn(async move {
            let _sends = sends_first;
            pending::<()>().await;
        });
        aborted.abort();
        assert_eq!(reported.recv().unwrap(), Some(aborted.id()));
        let panicked = runtime.spawn(async move {
            let _sends = Sends(sends);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert_eq!(reported.recv().unwrap(), Some(panicked.id()));
    });
}

#[test]
fn destructors_of_an_output_are_inside_its_task() {
    with_workers(|runtime| {
        let (sends, reported) = mpsc::channel();
        for is_dropped_first in [true, false] {
            let (sends, (open, is_open)) = (Sends(sends.clone()), mpsc::channel::<()>());
            let task = runtime.spawn(async move {
                let _closed = is_open.recv();
                sends
            });
            let id = task.id();
            let task = if is_dropped_first {
                drop(task);
                None
            } else {
                Some(task)
            };
            drop(open);
            while task.as_ref().is_some_and(|task| !task.is_finished()) {
                std::thread::yield_now();
            }
            drop(task);
            assert_eq!(reported.recv().unwrap(), Some(id), "{is_dropped_first}");
            assert_eq!(task::try_id(), None);
        }
        // The joiner has the output: this thread is in no task.
        let output = runtime.block_on(runtime.spawn(async move { Sends(sends) })).unwrap();
        drop(output);
        assert_eq!(reported.recv().unwrap(), None);
    });
}

#[test]
fn an_output_that_another_task_drops_has_its_own_id() {
    with_workers(|runtime| {
        let (sends, reported) = mpsc::channel();
        let outer = runtime.spawn(async move {
            let inner = volt::spawn(async move { Sends(sends) });
            let inner_id = inner.id();
            while !inner.is_finished() {
                yield_now().await;
            }
            drop(inner);
            (inner_id, task::id())
        });
        let outer_id = outer.id();
        let (inner_id, seen) = runtime.block_on(outer).unwrap();
        assert_eq!((reported.recv().unwrap(), seen), (Some(inner_id), outer_id));
    });
}

#[test]
fn a_local_task_and_a_blocking_job_have_ids_in_drop() {
    with_workers(|runtime| {
        let (sends, reported) = mpsc::channel();
        let set = LocalSet::new();
        let (first, second) = (sends.clone(), sends);
        let id = set.block_on(&runtime, async {
            let task = task::spawn_local(async move { Sends(first) });
            let id = task.id();
            drop(task);
            yield_now().await;
            id
        });
        drop(set);
        assert_eq!(reported.recv().unwrap(), Some(id));
        let job = runtime.spawn_blocking(move || Sends(second));
        let id = job.id();
        drop(job);
        assert_eq!(reported.recv().unwrap(), Some(id));
    });
}
