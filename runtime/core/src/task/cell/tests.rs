//! Tests of tasks on a queue without workers: outputs, panics, wake-ups, cancellation, and the size
//! of a task.

use super::*;
use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::task::control::shield::Shield;
use crate::task::trace;

/// A scheduler with a queue, which keeps the references that the registry would keep.
#[derive(Clone, Default)]
struct Queue {
    woken: Arc<Mutex<VecDeque<Notified>>>,
    registered: Arc<Mutex<Vec<Task>>>,
}

impl Schedule for Queue {
    const IS_COUNTED: bool = true;

    fn schedule(&self, task: Notified) {
        self.woken.lock().unwrap().push_back(task);
    }

    fn is_closing(&self) -> bool {
        false
    }

    fn keep(&self, _task: &Task) {}

    fn release(&self, task: &Header) -> Option<Task> {
        let mut registered = self.registered.lock().unwrap();
        let index = registered.iter().position(|held| held.header().id == task.id)?;
        Some(registered.remove(index))
    }
}

impl Queue {
    fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (notified, join) = new_task(future, self.clone(), Id::next(), Location::caller(), None);
        self.registered.lock().unwrap().push(notified.task().clone());
        self.schedule(notified);
        join
    }

    /// Runs queued tasks until the queue is empty. Returns how each run ended.
    fn run(&self) -> Vec<&'static str> {
        let mut ran = Vec::new();
        while let Some(task) = self.pop() {
            ran.push(match task.run(0) {
                Ran::Pending { .. } => "pending",
                Ran::Woken { task, .. } => {
                    self.schedule(task);
                    "woken"
                }
                Ran::Ended(Ended::Completed) => "completed",
                Ran::Ended(Ended::Cancelled) => "cancelled",
                Ran::Ended(Ended::Panicked) => "panicked",
            });
        }
        ran
    }

    fn pop(&self) -> Option<Notified> {
        self.woken.lock().unwrap().pop_front()
    }
}

fn poll_once<T>(join: &mut JoinHandle<T>, waker: &Waker) -> Poll<Result<T, JoinError>> {
    Pin::new(join).poll(&mut Context::from_waker(waker))
}

fn finish<T>(mut join: JoinHandle<T>) -> Result<T, JoinError> {
    match poll_once(&mut join, Waker::noop()) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the task has completed"),
    }
}

/// Counts wake-ups, and how many of its clones exist.
#[derive(Default)]
struct Count(AtomicUsize);

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_joiner_polled_before_or_after_completion_gets_the_output() {
    let queue = Queue::default();
    let count = Arc::new(Count::default());
    let (mut before, after) = (queue.spawn(async { String::from("b") }), queue.spawn(async { String::from("a") }));
    assert!(poll_once(&mut before, &count.clone().into()).is_pending());
    assert_eq!(queue.run(), ["completed", "completed"]);
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(finish(before).unwrap(), "b");
    assert_eq!(finish(after).unwrap(), "a");
    assert_eq!(Arc::strong_count(&count), 1, "the join waker is dropped with the task");
}

#[test]
#[cfg(target_pointer_width = "64")]
fn task_overhead_is_104_bytes() {
    // Together with the allocator's word this is a multiple of 16. A future or an output adds
    // its own size.
    assert_eq!(size_of::<Cell<std::future::Pending<()>, Arc<()>>>(), 104);
    assert_eq!(size_of::<Cell<std::future::Pending<[u64; 4]>, Arc<()>>>(), 104 + 4 * 8);
    assert_eq!(
        size_of::<Cell<std::future::Ready<[u64; 4]>, Arc<()>>>(),
        104 + size_of::<std::future::Ready<[u64; 4]>>()
    );
}

#[test]
fn a_joiners_new_waker_replaces_its_old_one() {
    let queue = Queue::default();
    let (old, new) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut join = queue.spawn(async {});
    for waker in [&old, &old, &new] {
        assert!(poll_once(&mut join, &waker.clone().into()).is_pending());
    }
    assert_eq!(queue.run(), ["completed"]);
    assert_eq!((old.0.load(Ordering::SeqCst), new.0.load(Ordering::SeqCst)), (0, 1));
    assert_eq!(Arc::strong_count(&old), 1);
}

#[test]
fn a_waker_outlives_its_task_and_wakes_nothing() {
    let queue = Queue::default();
    let kept = Arc::new(Mutex::new(None));
    let join = queue.spawn(poll_fn({
        let kept = kept.clone();
        move |cx| {
            *kept.lock().unwrap() = Some(cx.waker().clone());
            Poll::Ready(())
        }
    }));
    assert_eq!(queue.run(), ["completed"]);
    drop(join);
    let waker = kept.lock().unwrap().take().unwrap();
    let other = waker.clone();
    waker.wake_by_ref();
    drop(waker);
    other.wake();
    assert!(queue.run().is_empty());
}

#[test]
fn a_wake_during_a_poll_reschedules_and_double_wakes_coalesce() {
    let queue = Queue::default();
    let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
    let mut polls = 0;
    let join = queue.spawn(poll_fn({
        let kept = kept.clone();
        move |cx| {
            polls += 1;
            *kept.lock().unwrap() = Some(cx.waker().clone());
            if polls == 1 {
                cx.waker().wake_by_ref();
            }
            if polls < 3 { Poll::Pending } else { Poll::Ready(polls) }
        }
    }));
    assert_eq!(queue.run(), ["woken", "pending"]);
    let waker = kept.lock().unwrap().clone().unwrap();
    waker.wake_by_ref();
    waker.wake();
    assert_eq!(queue.run(), ["completed"]);
    kept.lock().unwrap().take();
    assert_eq!(finish(join).unwrap(), 3);
}

/// The spans around a poll in the test below, and one that the poll opens. The id of a span is its
/// position, from 1.
const SPANS: [&str; 3] = ["runtime.spawn", "volt.task", "inner"];

/// A subscriber that calls a function at each step of each span of [`SPANS`].
struct Steps<F>(F);

impl<F: Fn(&'static str, &'static str) + Send + Sync + 'static> Steps<F> {
    fn call(&self, span: &tracing::span::Id, step: &'static str) {
        (self.0)(SPANS[span.into_u64() as usize - 1], step);
    }
}

impl<F: Fn(&'static str, &'static str) + Send + Sync + 'static> tracing::Subscriber for Steps<F> {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, new: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let index = SPANS.iter().position(|name| *name == new.metadata().name()).expect("one of these");
        tracing::span::Id::from_u64(index as u64 + 1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, span: &tracing::span::Id) {
        self.call(span, "enter");
    }
    fn exit(&self, span: &tracing::span::Id) {
        self.call(span, "exit");
    }
    fn try_close(&self, span: tracing::span::Id) -> bool {
        self.call(&span, "close");
        true
    }
}

#[test]
fn a_wake_by_a_subscriber_during_the_poll_is_kept() {
    let steps = SPANS.iter().flat_map(|span| ["enter", "exit"].map(|step| (*span, step)));
    for step in steps.chain([("inner", "close")]) {
        let queue = Queue::default();
        let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
        let armed: Arc<Mutex<Option<Waker>>> = Arc::default();
        let subscriber = Steps({
            let armed = armed.clone();
            move |span, now| {
                let waker = if (span, now) == step { armed.lock().unwrap().take() } else { None };
                waker.iter().for_each(Waker::wake_by_ref);
            }
        });
        tracing::subscriber::with_default(subscriber, || {
            let (id, location) = (Id::next(), Location::caller());
            let extra = trace::extra(id, Some("logged"), location, trace::Kind::Task, false);
            assert!(extra.as_ref().is_some_and(|extra| !extra.span.is_none()), "polls enter a span");
            let future = poll_fn({
                let kept = kept.clone();
                move |cx| {
                    *kept.lock().unwrap() = Some(cx.waker().clone());
                    // Entered and closed during the poll.
                    tracing::info_span!("inner").in_scope(|| ());
                    Poll::<()>::Pending
                }
            });
            let (notified, join) = new_task(future, queue.clone(), id, location, extra);
            queue.schedule(notified);
            assert_eq!(queue.run(), ["pending"]);
            let waker = kept.lock().unwrap().take().unwrap();
            *armed.lock().unwrap() = Some(waker.clone());
            waker.wake();
            assert_eq!(queue.run(), ["woken", "pending"], "woken in {step:?}, it is polled once more");
            join.abort();
            assert_eq!(queue.run(), ["cancelled"]);
            // The kept waker is a reference to the task.
            kept.lock().unwrap().take();
        });
    }
}

/// Wakes when dropped.
struct WakesOnDrop(Arc<Mutex<Option<Waker>>>);

impl Drop for WakesOnDrop {
    fn drop(&mut self) {
        let waker = self.0.lock().unwrap().take();
        waker.into_iter().for_each(Waker::wake);
    }
}

#[test]
fn a_wake_in_the_drop_of_a_future_or_an_output_is_kept() {
    /// Stores its waker in the slot, then waits. Its second poll drops `dropped`.
    fn waiter<T: Send + 'static>(queue: &Queue, slot: &Arc<Mutex<Option<Waker>>>, dropped: T) -> JoinHandle<()> {
        let (slot, mut dropped, mut polls) = (slot.clone(), Some(dropped), 0);
        queue.spawn(poll_fn(move |cx| {
            polls += 1;
            *slot.lock().unwrap() = Some(cx.waker().clone());
            if polls == 2 {
                drop(dropped.take());
            }
            if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
        }))
    }
    let slot: Arc<Mutex<Option<Waker>>> = Arc::default();
    let wakes = || WakesOnDrop(slot.clone());
    let wake = || slot.lock().unwrap().take().unwrap().wake();

    // A future that the task drops in its own poll.
    let queue = Queue::default();
    let guard = wakes();
    let join = waiter(&queue, &slot, async move { drop(guard) });
    assert_eq!(queue.run(), ["pending"]);
    wake();
    assert_eq!(queue.run(), ["woken", "completed"]);
    finish(join).unwrap();

    // The output of another task, whose handle the task drops in its own poll.
    let other = Queue::default();
    let guard = wakes();
    let with_output = other.spawn(async move { guard });
    assert_eq!(other.run(), ["completed"]);
    let join = waiter(&queue, &slot, with_output);
    assert_eq!(queue.run(), ["pending"]);
    wake();
    assert_eq!(queue.run(), ["woken", "completed"]);
    finish(join).unwrap();

    // The future or the output of another task that ends, by completing or by being cancelled.
    for end in ["future", "output", "cancelled"] {
        let join = waiter(&queue, &slot, ());
        assert_eq!(queue.run(), ["pending"]);
        let guard = wakes();
        match end {
            "future" => drop(other.spawn(async move { drop(guard) })),
            "output" => drop(other.spawn(async move { guard })),
            _ => {
                let waits = other.spawn(async move {
                    let _guard = guard;
                    pending::<()>().await;
                });
                assert_eq!(other.run(), ["pending"]);
                waits.abort();
            }
        }
        assert_eq!(other.run(), [if end == "cancelled" { "cancelled" } else { "completed" }]);
        assert_eq!(queue.run(), ["pending"], "woken by the end of `{end}`");
        wake();
        assert_eq!(queue.run(), ["completed"]);
        finish(join).unwrap();
    }
}

#[test]
fn a_panic_ends_the_task_and_drops_its_future_once() {
    let queue = Queue::default();
    let held = Arc::new(());
    let join = queue.spawn({
        let held = held.clone();
        async move {
            let _held = held;
            panic!("no");
        }
    });
    assert_eq!(queue.run(), ["panicked"]);
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(finish::<()>(join).unwrap_err().to_string().ends_with("panicked with message \"no\""));
}

#[test]
fn an_aborted_task_is_dropped_by_its_runner_and_not_before() {
    let queue = Queue::default();
    let held = Arc::new(());
    let join = queue.spawn({
        let held = held.clone();
        async move {
            let _held = held;
            pending::<()>().await;
        }
    });
    assert_eq!(queue.run(), ["pending"]);
    join.abort();
    join.abort();
    assert_eq!(Arc::strong_count(&held), 2);
    assert_eq!(queue.run(), ["cancelled"]);
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(finish(join).unwrap_err().is_cancelled());
}

#[test]
fn nothing_leaks_in_either_order_of_handle_and_task() {
    let queue = Queue::default();
    let output = Arc::new(());
    let give = || {
        let output = output.clone();
        async move { output }
    };
    // The handle is dropped before and after completion.
    drop(queue.spawn(give()));
    assert_eq!(queue.run(), ["completed"]);
    let join = queue.spawn(give());
    assert_eq!(queue.run(), ["completed"]);
    drop(join);
    // A task that is never run.
    let new = || new_task(give(), queue.clone(), Id::next(), Location::caller(), None);
    let (notified, join) = new();
    drop((notified, join));
    let (notified, join) = new();
    drop((join, notified));
    // A task whose future is taken back.
    let (notified, join) = new();
    fn take_back<F: Future>(_: &impl Fn() -> F, notified: Notified, join: JoinHandle<F::Output>) -> F {
        // SAFETY: `new` has just created the task, with a `Queue`.
        unsafe { into_future::<F, Queue>(notified, join) }
    }
    let future = take_back(&give, notified, join);
    assert_eq!(Arc::strong_count(&output), 2);
    drop(future);
    assert_eq!(Arc::strong_count(&output), 1);
}

#[test]
fn an_output_that_panics_in_drop_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }
    let queue = Queue::default();
    drop(queue.spawn(async { Bomb }));
    assert_eq!(queue.run(), ["completed"], "dropped by the completer");
    let join = queue.spawn(async { Bomb });
    assert_eq!(queue.run(), ["completed"]);
    drop(join);
}

#[test]
fn a_task_may_run_and_be_freed_during_a_concurrent_wake() {
    for _ in 0..if cfg!(miri) { 10 } else { 1_000 } {
        let queue = Queue::default();
        let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
        let mut polls = 0;
        let join = queue.spawn(poll_fn({
            let kept = kept.clone();
            move |cx| {
                polls += 1;
                *kept.lock().unwrap() = Some(cx.waker().clone());
                if polls == 1 { Poll::Pending } else { Poll::Ready(()) }
            }
        }));
        assert_eq!(queue.run(), ["pending"]);
        drop(join);
        let waker = kept.lock().unwrap().take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            scope.spawn(|| {
                while queue.run().is_empty() {
                    std::thread::yield_now();
                }
                kept.lock().unwrap().take();
            });
        });
        assert!(queue.registered.lock().unwrap().is_empty());
    }
}

#[test]
fn cancel_now_ends_a_woken_task_in_spite_of_a_shield() {
    for is_shielded in [false, true] {
        let queue = Queue::default();
        let join = queue.spawn(async move {
            let _shield = is_shielded.then(|| Shield::new().unwrap());
            pending::<()>().await;
        });
        assert_eq!(queue.run(), ["pending"]);
        let registered = queue.registered.lock().unwrap();
        assert_eq!(registered[0].header().state.wake(), Wake::Submit);
        // SAFETY: the transition made the task SCHEDULED and added the reference.
        let notified = unsafe { Notified::from_raw(registered[0].as_raw()) };
        drop(registered);
        notified.cancel_now();
        assert!(finish(join).unwrap_err().is_cancelled());
    }
}
