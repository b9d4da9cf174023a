//! A task's allocation with its future, its output, and how it is run.
//!
//! Invariants: *One runner*, *One Notified*, *Join hand-over* of `state`; *Live by reference* of `header`. The stage is the runner's
//! while the task is being run, and the output's owner's afterwards.

use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use super::blocks;
use super::contain::contain;
use super::current::Current;
use super::handover::{self, Joined};
use super::header::{Ended, Header, Notified, Ran, Task, Vtable};
use super::id::Id;
use super::join::{JoinError, JoinHandle, Panic};
use super::origin::Extra;
use super::state::{Pause, Start, State, Wake, WakeOwned};
use super::waker::WakerRef;

/// What a task needs from whoever runs it.
pub(crate) trait Schedule: Send + Sync + 'static {
    /// Whether the polls of its tasks are timed and go into their accounts.
    const IS_COUNTED: bool;
    /// The task was woken: enqueue it.
    fn schedule(&self, task: Notified);
    /// Whether the calling thread is one of the scheduler's own, which keep it alive: then [`schedule_here`](Self::schedule_here) may be called.
    fn is_here(&self) -> bool {
        false
    }
    /// As [`schedule`](Self::schedule), of a thread of the scheduler's own. Not a method: what `self` would refer to may go as soon as others see
    /// the task.
    fn schedule_here(_task: Notified) {
        unreachable!("no thread is this scheduler's own");
    }
    /// Whether tasks are cancelled instead of polled, since the scheduler shuts down.
    fn is_closing(&self) -> bool;
    /// The task, which the caller runs, is about to wait: hold a reference to it from now on, unless one is held already, so that it is not
    /// freed without an end; and cancel it if the scheduler shuts down.
    fn keep(&self, task: &Task);
    /// The task is about to end: give back the reference that is held to it, if one is.
    fn release(&self, task: &Header) -> Option<Task>;
}

/// See the header of this file. `repr(C)`: the header comes first, so that a pointer to it is one to the cell.
#[repr(C)]
struct Cell<F: Future, S> {
    header: Header,
    scheduler: S,
    join_waker: UnsafeCell<Option<Waker>>,
    stage: UnsafeCell<Stage<F>>,
}

/// A failure is kept without the task's id, which the header has: hardly any task fails, and each would have to hold the room.
enum Stage<F: Future> {
    Future(F),
    Output(F::Output),
    Cancelled,
    Panicked(Panic),
    Empty,
}

/// Makes a task: the right to run it, and the handle.
pub(crate) fn new_task<F, S>(
    future: F,
    scheduler: S,
    id: Id,
    location: &'static Location<'static>,
    extra: Option<Box<Extra>>,
) -> (Notified, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    S: Schedule,
{
    // SAFETY: the future and its output are Send.
    unsafe { new_task_of_thread(future, scheduler, id, location, extra) }
}

/// As [`new_task`], for futures that stay on one thread.
///
/// # Safety
/// The future and its output are Send, or `scheduler` sees to it that the task is run on the calling thread only, and is complete before that
/// thread goes.
pub(crate) unsafe fn new_task_of_thread<F, S>(
    future: F,
    scheduler: S,
    id: Id,
    location: &'static Location<'static>,
    extra: Option<Box<Extra>>,
) -> (Notified, JoinHandle<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
    S: Schedule,
{
    let cell = blocks::allocate(Cell {
        header: Header::new(id, location, extra, &Table::<F, S>::VTABLE),
        scheduler,
        join_waker: UnsafeCell::new(None),
        stage: UnsafeCell::new(Stage::Future(future)),
    });
    // Whole provenance: this pointer may reach the whole cell.
    let raw = cell.cast::<Header>();
    // SAFETY: the word starts SCHEDULED, with the Notified's reference.
    let notified = unsafe { Notified::from_raw(raw) };
    // SAFETY: the word starts with the handle's reference and JOIN_INTEREST, and the output is `F::Output`.
    let join = unsafe { JoinHandle::from_raw(raw) };
    (notified, join)
}

/// Takes the future back out of a task that was never run.
///
/// # Safety
/// They are what `new_task::<F, S>` gave, and the task was not run.
pub(crate) unsafe fn into_future<F: Future, S: Schedule>(notified: Notified, join: JoinHandle<F::Output>) -> F {
    // SAFETY: by contract, and `notified` holds a reference.
    let cell = unsafe { cell_of::<F, S>(notified.task().as_raw()) };
    drop(cell.scheduler.release(&cell.header));
    // SAFETY: One runner: the Notified is here, and what was not polled is not pinned yet.
    let stage = std::mem::replace(unsafe { &mut *cell.stage.get() }, Stage::Empty);
    let Stage::Future(future) = stage else { unreachable!("it was not run") };
    drop((join, notified));
    future
}

struct Table<F, S>(std::marker::PhantomData<(F, S)>);

impl<F: Future, S: Schedule> Table<F, S> {
    const VTABLE: Vtable = Vtable {
        run: run::<F, S>,
        schedule: schedule::<F, S>,
        wake: wake::<F, S>,
        dealloc: dealloc::<F, S>,
        poll_join: poll_join::<F, S>,
        drop_join: drop_join::<F, S>,
    };
}

/// The typed cell behind a header.
///
/// # Safety
/// `raw` comes from `new_task::<F, S>`, and a reference is held for `'a`.
unsafe fn cell_of<'a, F: Future, S>(raw: NonNull<Header>) -> &'a Cell<F, S> {
    // SAFETY: Whole provenance and Live by reference, by contract.
    unsafe { raw.cast::<Cell<F, S>>().as_ref() }
}

impl<F: Future, S: Schedule> Cell<F, S> {
    /// Polls the future; on Ready the output takes its place.
    ///
    /// # Safety
    /// The caller is the runner.
    unsafe fn poll_future(&self, waker: &Waker) -> Poll<()> {
        // SAFETY: One runner: nobody else touches the stage.
        let stage = unsafe { &mut *self.stage.get() };
        let Stage::Future(future) = stage else { unreachable!("a task is polled only before it completes") };
        // SAFETY: the future stays in the cell, which never moves, until it is dropped in place by `set_stage`.
        let future = unsafe { Pin::new_unchecked(future) };
        let output = std::task::ready!(future.poll(&mut Context::from_waker(waker)));
        // SAFETY: One runner.
        unsafe { self.set_stage(Stage::Output(output)) };
        Poll::Ready(())
    }

    /// Replaces the stage, dropping what was there.
    ///
    /// # Safety
    /// The caller owns the stage.
    unsafe fn set_stage(&self, stage: Stage<F>) {
        // SAFETY: by contract.
        unsafe { *self.stage.get() = stage }
    }

    /// Runs code of the user's inside the task's spans.
    #[inline]
    fn in_spans<R>(&self, f: impl FnOnce() -> R) -> R {
        match self.header.extra() {
            Some(extra) => extra.console.in_scope(|| extra.span.in_scope(f)),
            None => f(),
        }
    }

    /// Drops the output, if it is still there, containing a destructor that panics: nobody is left who could be told.
    ///
    /// # Safety
    /// The caller owns the stage.
    unsafe fn drop_output(&self) {
        // SAFETY: by contract.
        if let Stage::Empty = unsafe { &*self.stage.get() } {
            return;
        }
        // SAFETY: by contract.
        contain(|| unsafe { self.set_stage(Stage::Empty) });
    }
}

/// A pointer to a cell, for `handover`. Not a reference: see [`Joined`].
struct Raw<F: Future, S>(NonNull<Cell<F, S>>);

impl<F: Future, S> Clone for Raw<F, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Future, S> Copy for Raw<F, S> {}

impl<F: Future, S: Schedule> Raw<F, S> {
    /// Of a header that comes from `new_task::<F, S>`.
    fn new(header: NonNull<Header>) -> Self {
        Self(header.cast())
    }

    /// # Safety
    /// It comes from `new_task::<F, S>`, and a reference is held for `'a`, or until what is used of
    /// it gives it up.
    unsafe fn cell<'a>(self) -> &'a Cell<F, S> {
        // SAFETY: Whole provenance and Live by reference, by contract.
        unsafe { self.0.as_ref() }
    }
}

impl<F: Future, S: Schedule> Joined for Raw<F, S> {
    type Waker = Waker;

    unsafe fn state<'a>(self) -> &'a State
    where
        Self: 'a,
    {
        // SAFETY: by contract.
        unsafe { &self.cell().header.state }
    }

    unsafe fn does_as_well(self, waker: &Waker) -> bool {
        // SAFETY: the JoinHandle holds a reference.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract nobody writes the field.
        let held = unsafe { &*cell.join_waker.get() };
        held.as_ref().is_some_and(|held| held.will_wake(waker))
    }

    /// Contains a destructor that panics.
    unsafe fn set_join_waker(self, waker: Option<&Waker>) {
        let waker = waker.cloned();
        // SAFETY: the owner of the field holds a reference.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract.
        if let Some(former) = std::mem::replace(unsafe { &mut *cell.join_waker.get() }, waker) {
            contain(|| drop(former));
        }
    }

    unsafe fn wake_joiner(self) {
        // SAFETY: the runner's reference is not given up yet.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract nobody writes the field.
        let Some(waker) = (unsafe { &*cell.join_waker.get() }) else { return };
        // SAFETY: Live by reference: as above, and ManuallyDrop does not give it up.
        let ended = ManuallyDrop::new(unsafe { Task::from_raw(self.0.cast()) });
        // It is this task that wakes, though its poll is over.
        let _current = Current::enter(&ended);
        // A foreign waker that panics must not take the worker along.
        contain(|| waker.wake_by_ref());
    }

    unsafe fn drop_output(self) {
        // SAFETY: the owner of the output holds a reference.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract.
        unsafe { cell.drop_output() };
    }
}

/// Publishes the output, wakes the joiner, and gives up the runner's reference and the scheduler's.
///
/// # Safety
/// `raw` comes from `new_task::<F, S>`; the caller is the runner, the stage holds the output, and the Notified's reference is handed over.
unsafe fn complete<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: by contract.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let kept = cell.scheduler.release(&cell.header).map(Task::into_raw);
    // The cell may be gone as soon as they are given up.
    let references = 1 + u64::from(kept.is_some());
    // SAFETY: by contract, and they are the runner's and the scheduler's.
    let is_last = unsafe { handover::complete(Raw::<F, S>::new(raw), references) };
    if is_last {
        // SAFETY: Live by reference: the last are the caller's, and are given up here.
        unsafe { dealloc::<F, S>(raw) }
    }
}

unsafe fn run<F: Future, S: Schedule>(raw: NonNull<Header>, began_at_ns: u64) -> Ran {
    // SAFETY: the Notified's reference is handed over; it is given up below, where `task` goes.
    let task = unsafe { Task::from_raw(raw) };
    // SAFETY: the vtable is that of F and S, and `task` holds a reference.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let header = &cell.header;

    cancel_if_closing(cell);
    // `Some` = the panic that ended it, `None` = it is to be cancelled.
    let failure = match header.state.start() {
        Start::Cancel => None,
        Start::Poll => {
            let waker = WakerRef::new(&task);
            // SAFETY: One runner: `start` made this thread it.
            let poll = || unsafe { cell.poll_future(&waker) };
            let current = Current::enter(&task);
            let polled = catch_unwind(AssertUnwindSafe(|| cell.in_spans(poll)));
            // *Read once it is over*: behind the subscribers that have seen the spans left.
            let (has_woken_itself, awaits) = current.leave();
            match polled {
                Ok(Poll::Ready(())) => {
                    // SAFETY: One runner; the output is in place, and the Notified's reference is handed over.
                    unsafe { complete::<F, S>(task.into_raw()) };
                    return Ran::Ended(Ended::Completed);
                }
                Ok(Poll::Pending) => {
                    // Here, since the task may be another runner's, or gone, as soon as it is paused.
                    let at_ns = if S::IS_COUNTED { header.end_poll(began_at_ns, awaits) } else { began_at_ns };
                    cancel_if_closing(cell);
                    if !has_woken_itself {
                        cell.scheduler.keep(&task);
                    }
                    match header.state.pause(has_woken_itself) {
                        Pause::Idle => {
                            // `pause` released the Notified's reference: the cell may be gone from here on.
                            std::mem::forget(task);
                            return Ran::Pending { at_ns };
                        }
                        Pause::Reschedule => {
                            // SAFETY: the task is SCHEDULED, and the reference of the Notified that was run lives on in this one.
                            let task = unsafe { Notified::from_raw(task.into_raw()) };
                            return Ran::Woken { task, by_itself: has_woken_itself, at_ns };
                        }
                        Pause::Cancel => None,
                    }
                }
                Err(payload) => Some(payload),
            }
        }
    };
    // SAFETY: One runner.
    let empty = || unsafe { cell.set_stage(Stage::Empty) };
    let dropped = {
        let _current = Current::enter(&task);
        catch_unwind(AssertUnwindSafe(|| cell.in_spans(empty)))
    };
    let failure = match (failure, dropped) {
        (Some(payload), Err(second)) => {
            contain(|| drop(second));
            Some(payload)
        }
        (payload, dropped) => payload.or(dropped.err()),
    };
    let (ended, stage) = match failure {
        Some(payload) => (Ended::Panicked, Stage::Panicked(Panic::new(payload))),
        None => (Ended::Cancelled, Stage::Cancelled),
    };
    // SAFETY: One runner; the stage is empty, so nothing of the user's is dropped here.
    unsafe { cell.set_stage(stage) };
    // SAFETY: One runner; the output is in place, and the Notified's reference is handed over.
    unsafe { complete::<F, S>(task.into_raw()) };
    Ran::Ended(ended)
}

/// Cancels a task whose scheduler shuts down; its runner finds that out at the next transition.
#[inline]
fn cancel_if_closing<F: Future, S: Schedule>(cell: &Cell<F, S>) {
    if cell.scheduler.is_closing() {
        let wake = cell.header.state.cancel();
        debug_assert_eq!(wake, Wake::Nothing, "its runner has it in hand");
    }
}

unsafe fn schedule<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the caller made the task SCHEDULED and hands over the reference that this added.
    let notified = unsafe { Notified::from_raw(raw) };
    // SAFETY: the vtable is that of F and S. Another thread may run and free the task before `schedule` returns, but for the
    // reference that the caller holds for the time of this call.
    let cell = unsafe { cell_of::<F, S>(raw) };
    cell.scheduler.schedule(notified);
}

unsafe fn wake<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the vtable is that of F and S, and the waker's reference is the caller's. Not used once the task may be run by others.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let is_here = cell.scheduler.is_here();
    match cell.header.state.wake_owned(!is_here) {
        WakeOwned::Submit => {
            cell.header.stamp_wake();
            // SAFETY: the transition made the task SCHEDULED; the reference is the waker's, or was added.
            let notified = unsafe { Notified::from_raw(raw) };
            if is_here {
                S::schedule_here(notified);
            } else {
                // SAFETY: the transition added the Notified's reference, so the waker's is still there to keep the scheduler.
                let _task = unsafe { Task::from_raw(raw) };
                cell.scheduler.schedule(notified);
            }
        }
        WakeOwned::Nothing { was_last_reference: false } => {}
        // SAFETY: Live by reference: that was the last one.
        WakeOwned::Nothing { was_last_reference: true } => unsafe { dealloc::<F, S>(raw) },
    }
}

unsafe fn dealloc<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // Whole provenance; the last reference is gone, so the block is ours again.
    let cell = raw.cast::<Cell<F, S>>();
    // An output that nobody took may panic when it is dropped; the thread that happens to be last has nothing to do with it.
    // SAFETY: nobody else has it any more, and it is not used again.
    contain(|| unsafe { cell.drop_in_place() });
    // SAFETY: it came from `allocate`, for the same type, and was dropped.
    unsafe { blocks::free(cell) }
}

unsafe fn poll_join<F: Future, S: Schedule>(raw: NonNull<Header>, into: *mut (), waker: &Waker) {
    // SAFETY: the vtable is that of F and S, and the JoinHandle holds a reference.
    let is_complete = unsafe { handover::poll_join(Raw::<F, S>::new(raw), waker) };
    if !is_complete {
        return;
    }
    // SAFETY: as above.
    let cell = unsafe { cell_of::<F, S>(raw) };
    // SAFETY: Join hand-over: the task is complete, and the output is the JoinHandle's.
    let stage = std::mem::replace(unsafe { &mut *cell.stage.get() }, Stage::Empty);
    let output = match stage {
        Stage::Output(output) => Ok(output),
        Stage::Panicked(panic) => Err(JoinError::panicked(cell.header.id, panic)),
        Stage::Cancelled => Err(JoinError::cancelled(cell.header.id)),
        Stage::Future(_) | Stage::Empty => panic!("JoinHandle polled after it returned its output"),
    };
    // SAFETY: the JoinHandle, which knows the output's type, passes a pointer to such a poll.
    unsafe { *into.cast::<Poll<Result<F::Output, JoinError>>>() = Poll::Ready(output) };
}

unsafe fn drop_join<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // A destructor that panics is contained: whether the task ended before its handle went is
    // chance, and so would be the thread that the panic hits.
    // SAFETY: the vtable is that of F and S, and the handle's reference is handed over.
    let is_last = unsafe { handover::drop_join(Raw::<F, S>::new(raw)) };
    if is_last {
        // SAFETY: Live by reference: the handle's was the last.
        unsafe { dealloc::<F, S>(raw) }
    }
}

/// A scheduler of tasks that are never woken.
#[cfg(test)]
pub(crate) struct Nowhere;

#[cfg(test)]
impl Schedule for Nowhere {
    const IS_COUNTED: bool = true;

    fn schedule(&self, _task: Notified) {}

    fn is_closing(&self) -> bool {
        false
    }

    fn keep(&self, _task: &Task) {}

    fn release(&self, _task: &Header) -> Option<Task> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::future::{pending, poll_fn};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use crate::task::trace;

    /// A scheduler that queues, and holds what the registry would.
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

        /// Runs what is queued until nothing is; how each run ended.
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
            Poll::Pending => panic!("the task has ended"),
        }
    }

    /// Counts wakes, and how many clones of it are alive.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_output_reaches_a_joiner_who_asks_before_and_one_who_asks_after() {
        let queue = Queue::default();
        let count = Arc::new(Count::default());
        let (mut before, after) = (queue.spawn(async { String::from("b") }), queue.spawn(async { String::from("a") }));
        assert!(poll_once(&mut before, &count.clone().into()).is_pending());
        assert_eq!(queue.run(), ["completed", "completed"]);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(finish(before).unwrap(), "b");
        assert_eq!(finish(after).unwrap(), "a");
        assert_eq!(Arc::strong_count(&count), 1, "the join waker is gone with the task");
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_task_takes_120_bytes_beside_what_its_future_and_output_need() {
        // With the allocator's word a multiple of 16. A future that the stage's tag fits into is as cheap as one of no size.
        assert_eq!(size_of::<Cell<std::future::Ready<()>, Arc<()>>>(), 120);
        assert_eq!(size_of::<Cell<std::future::Pending<u64>, Arc<()>>>(), 120);
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
    fn a_task_woken_in_its_poll_runs_again_and_one_woken_twice_runs_once() {
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

    /// The spans that a poll of the test below is in, and one that it opens; their ids are their
    /// places, from 1.
    const SPANS: [&str; 3] = ["runtime.spawn", "volt.task", "inner"];

    /// A subscriber that calls back at each step of each span of [`SPANS`].
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
                let extra = trace::extra(id, Some("logged"), location, trace::Kind::Task);
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
                // Its waker is a reference to the task.
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
        /// Leaves its waker in the slot, then waits; in its second poll it drops what it was given.
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

        // Of a future that the task drops in its own poll.
        let queue = Queue::default();
        let guard = wakes();
        let join = waiter(&queue, &slot, async move { drop(guard) });
        assert_eq!(queue.run(), ["pending"]);
        wake();
        assert_eq!(queue.run(), ["woken", "completed"]);
        finish(join).unwrap();

        // Of another task's output, whose handle the task drops in its own poll.
        let other = Queue::default();
        let guard = wakes();
        let with_output = other.spawn(async move { guard });
        assert_eq!(other.run(), ["completed"]);
        let join = waiter(&queue, &slot, with_output);
        assert_eq!(queue.run(), ["pending"]);
        wake();
        assert_eq!(queue.run(), ["woken", "completed"]);
        finish(join).unwrap();

        // Of the future, and of the output, of another task that ends: by itself, and by being
        // cancelled.
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
        assert!(finish::<()>(join).unwrap_err().to_string().ends_with("panicked: no"));
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
    fn nothing_leaks_whichever_of_handle_and_task_goes_first() {
        let queue = Queue::default();
        let output = Arc::new(());
        let give = || {
            let output = output.clone();
            async move { output }
        };
        // The handle, before and after completion.
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
        // One whose future is taken back.
        let (notified, join) = new();
        fn take_back<F: Future>(_: &impl Fn() -> F, notified: Notified, join: JoinHandle<F::Output>) -> F {
            // SAFETY: `new` has just made it, with a `Queue`.
            unsafe { into_future::<F, Queue>(notified, join) }
        }
        let future = take_back(&give, notified, join);
        assert_eq!(Arc::strong_count(&output), 2);
        drop(future);
        assert_eq!(Arc::strong_count(&output), 1);
    }

    #[test]
    fn an_output_that_panics_when_it_is_dropped_is_contained_whoever_drops_it() {
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
    fn a_task_may_be_run_and_freed_by_another_thread_while_its_waker_is_at_work() {
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
    fn the_word_of_a_live_task_says_so() {
        let queue = Queue::default();
        let join = queue.spawn(pending::<()>());
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
