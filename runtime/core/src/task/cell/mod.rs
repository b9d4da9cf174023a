//! The typed part of a task: the allocation with its future or output, and the functions that run,
//! wake, join and free it.
//!
//! `new_task` allocates a `Cell` for a future and returns the two pointers to it: the
//! `Notified`, to be enqueued, and the `JoinHandle`. Everything else reaches the cell through the
//! vtable in the header.
//!
//! Invariants: *One runner*, *One Notified* and *Join hand-over* of `state`; *Live by reference* of
//! `header`. The runner owns the content of the cell while the task is being run. After that, the
//! owner of the output owns it. `stage` records what the content is.

use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, RawWakerVTable, Waker};

use tracing::span::Entered;

use super::contain::contain;
use super::current::Current;
use super::details::origin::Extra;
use super::handover;
use super::header::{Header, Notified, PackedRan, Ran, Task, Vtable};
use super::id::Id;
use super::join::{JoinError, JoinHandle, Panic};
use super::schedule::Schedule;
use super::stage::Content;
use super::state::{Pause, Start, Wake};
use super::trace::{Kind, extra};
use super::waker::{TRACED_VTABLE, VTABLE, WakerRef};

use self::join_waker::JoinWaker;
use self::layout::{Cell, Failure, Room, cell_of, dealloc};
use self::raw::Raw;
use self::wake::{schedule, wake};
use crate::stats::counting;
use crate::stats::reasons::Ended;

pub(crate) mod blocks;
mod join_waker;
mod layout;
mod raw;
mod wake;

/// Creates a task. Returns the permission to run it, and its handle.
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

/// Creates a task of a `LocalSet`.
///
/// # Safety
/// As `new_task_of_thread`.
pub unsafe fn new_task_of_set<F, S>(
    future: F,
    set: S,
    name: Option<&str>,
    location: &'static Location<'static>,
    inherits_span: bool,
) -> (Notified, JoinHandle<F::Output>)
where
    F: Future + 'static,
    F::Output: 'static,
    S: Schedule,
{
    let id = Id::next();
    let extra = extra(id, name, location, Kind::Local, inherits_span);
    // SAFETY: by contract.
    unsafe { new_task_of_thread(future, set, id, location, extra) }
}

/// Creates a task as `new_task` does, for futures that stay on one thread.
///
/// # Safety
/// The future and its output are Send, or `scheduler` ensures that the task is run on the calling
/// thread only, and that it is not freed before it has ended.
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
        join_waker: JoinWaker::none(),
        room: UnsafeCell::new(Room { future: ManuallyDrop::new(future) }),
    });
    // Whole provenance: this pointer may access the whole cell.
    let raw = cell.cast::<Header>();
    // SAFETY: the word starts SCHEDULED, with a reference for the Notified.
    let notified = unsafe { Notified::from_raw(raw) };
    // SAFETY: the word starts with JOIN_INTEREST and a reference for the handle, and the output is
    // `F::Output`.
    let join = unsafe { JoinHandle::from_raw(raw) };
    (notified, join)
}

/// Takes the future back out of a task that was never run.
///
/// # Safety
/// `notified` and `join` come from one call of `new_task::<F, S>`, and the task was not run.
pub(crate) unsafe fn into_future<F: Future, S: Schedule>(notified: Notified, join: JoinHandle<F::Output>) -> F {
    // SAFETY: by contract, and `notified` owns a reference.
    let cell = unsafe { cell_of::<F, S>(notified.task().as_raw()) };
    drop(cell.scheduler.release(&cell.header));
    assert_eq!(cell.header.stage.content(), Content::Future, "it was not run");
    cell.header.stage.set(Content::Nothing);
    // SAFETY: One runner: this function owns the Notified. A future that was never polled is not
    // pinned, and the stage shows that it is no longer there.
    let future = unsafe { cell.future().read() };
    drop((join, notified));
    future
}

struct Table<F, S>(std::marker::PhantomData<(F, S)>);

impl<F: Future, S: Schedule> Table<F, S> {
    const VTABLE: Vtable = Vtable {
        run: run::<F, S>,
        waker: &VTABLE,
        traced_waker: &TRACED_VTABLE,
        schedule: schedule::<F, S>,
        wake: wake::<F, S>,
        dealloc: dealloc::<F, S>,
        poll_join: poll_join::<F, S>,
        drop_join: drop_join::<F, S>,
        joiner: joiner::<F, S>,
    };
}

impl<F: Future, S: Schedule> Cell<F, S> {
    /// Polls the future. If it is ready, the output replaces it.
    ///
    /// # Safety
    /// The caller is the runner.
    #[inline(always)]
    unsafe fn poll_future(&self, waker: &Waker) -> Poll<()> {
        debug_assert_eq!(self.header.stage.content(), Content::Future, "a task is polled only before it completes");
        // SAFETY: One runner: no other thread accesses the content, which is the future until the
        // task ends.
        let future = unsafe { &mut *self.future() };
        // SAFETY: the cell never moves, and the future stays in it until it is dropped in place.
        let future = unsafe { Pin::new_unchecked(future) };
        let unwound = Unwound(self);
        let polled = match future.poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => {
                // SAFETY: One runner, and the future was just polled.
                unsafe { self.set_output(output) };
                Poll::Ready(())
            }
            Poll::Pending => Poll::Pending,
        };
        std::mem::forget(unwound);
        polled
    }

    /// Enters the task's spans, until the result is dropped. The code in between exists once, with
    /// or without spans.
    #[inline]
    fn enter_spans(&self) -> Option<InSpans<'_>> {
        self.header.extra().map(|extra| {
            let console = extra.console.enter();
            InSpans { _span: extra.span.enter(), _console: console }
        })
    }
}

/// The spans of a task, in the order in which they are left.
struct InSpans<'a> {
    _span: Entered<'a>,
    _console: Entered<'a>,
}

/// Drops the future while its panic unwinds, so that `std::thread::panicking` is true in its
/// destructors. A second panic there is contained: the joiner receives the first.
///
/// Exists during a poll by the runner, which owns the content.
struct Unwound<'a, F: Future, S: Schedule>(&'a Cell<F, S>);

impl<F: Future, S: Schedule> Drop for Unwound<'_, F, S> {
    #[cold]
    fn drop(&mut self) {
        // SAFETY: One runner. The poll has ended, so nothing else refers to the future.
        contain(|| unsafe { self.0.clear() });
    }
}

/// Publishes the output, wakes the joiner, and releases the references of the runner and the
/// scheduler.
///
/// # Safety
/// `raw` comes from `new_task::<F, S>`. The caller is the runner, the output is in place,
/// and the Notified's reference is handed over.
unsafe fn complete<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: by contract.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let kept = cell.scheduler.release(&cell.header).map(Task::into_raw);
    // Once these are released, another thread may free the cell.
    let references = 1 + u64::from(kept.is_some());
    // SAFETY: by contract; the references are the runner's and the scheduler's.
    let is_last = unsafe { handover::complete(Raw::<F, S>::new(raw), references) };
    if is_last {
        // SAFETY: Live by reference: the caller owned the last ones, and does not use them after
        // this.
        unsafe { dealloc::<F, S>(raw) }
    }
}

unsafe fn run<F: Future, S: Schedule>(
    raw: NonNull<Header>,
    began_at_ns: u64,
    waker: &'static RawWakerVTable,
) -> PackedRan {
    // SAFETY: by the same contract.
    let ran = unsafe { run_once::<F, S>(raw, began_at_ns, waker) };
    PackedRan::pack(ran, || if S::IS_COUNTED { counting::now_ns_after(began_at_ns) } else { began_at_ns })
}

#[inline(always)]
unsafe fn run_once<F: Future, S: Schedule>(
    raw: NonNull<Header>,
    began_at_ns: u64,
    waker: &'static RawWakerVTable,
) -> Ran {
    // SAFETY: the Notified's reference is handed over. It is released below, where `task` is
    // consumed.
    let task = unsafe { Task::from_raw(raw) };
    // SAFETY: the vtable is that of F and S, and `task` owns a reference.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let header = &cell.header;

    cancel_if_closing(cell);
    // Read before user code runs: that code may cancel other tasks on this thread.
    let mut refused = None;
    // `Some`: the task panicked. `None`: it was cancelled.
    let failure = match header.state.start() {
        Start::Cancel => {
            refused = cell.scheduler.take_refusal();
            None
        }
        Start::Poll => {
            let waker = WakerRef::new(&task, waker);
            // SAFETY: One runner: `start` made this thread the runner.
            let poll = || unsafe { cell.poll_future(&waker) };
            let current = Current::enter(&task);
            let polled = catch_unwind(AssertUnwindSafe(|| {
                let _spans = cell.enter_spans();
                poll()
            }));
            // *Read once it is over*: after the subscribers were called that observe the end of the
            // spans.
            let (has_woken_itself, awaits) = current.leave();
            match polled {
                Ok(Poll::Ready(())) => {
                    // SAFETY: One runner; the output is in place, and the Notified's reference is
                    // handed over.
                    unsafe { complete::<F, S>(task.into_raw()) };
                    return Ran::Ended(Ended::Completed);
                }
                Ok(Poll::Pending) => {
                    // Before `pause`, after which the task may belong to another runner, or be
                    // freed.
                    let at_ns = if S::IS_COUNTED { header.end_poll(began_at_ns, awaits) } else { began_at_ns };
                    // A task that only yields must be found, too, if a shutdown removes its shield.
                    if cancel_if_closing(cell) || !has_woken_itself {
                        cell.scheduler.keep(&task);
                    }
                    match header.state.pause(has_woken_itself) {
                        Pause::Idle => {
                            // `pause` released the Notified's reference, so the cell may be freed
                            // from here on.
                            std::mem::forget(task);
                            return Ran::Pending { at_ns };
                        }
                        Pause::Reschedule => {
                            // SAFETY: the task is SCHEDULED, and this Notified takes over the
                            // reference of the one that was run.
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
    let empty = || unsafe { cell.clear() };
    let dropped = {
        let _current = Current::enter(&task);
        catch_unwind(AssertUnwindSafe(|| {
            let _spans = cell.enter_spans();
            empty();
        }))
    };
    let failure = match (failure, dropped) {
        (Some(payload), Err(second)) => {
            contain(|| drop(second));
            Some(payload)
        }
        (payload, dropped) => payload.or(dropped.err()),
    };
    let (ended, failure) = match failure {
        Some(payload) => (Ended::Panicked, Failure::Panicked(Panic::new(payload))),
        None => {
            let refused = refused.map(|refused| Failure::Panicked(Panic::refused(refused)));
            (Ended::Cancelled, refused.unwrap_or(Failure::Cancelled))
        }
    };
    // SAFETY: One runner, and the content was cleared.
    unsafe { cell.set_failure(failure) };
    // SAFETY: One runner; the output is in place, and the Notified's reference is handed over.
    unsafe { complete::<F, S>(task.into_raw()) };
    Ran::Ended(ended)
}

/// Cancels the task if its scheduler is shutting down, and returns whether it is. The runner
/// detects the cancellation at the next transition, unless a shield defers it.
#[inline]
fn cancel_if_closing<F: Future, S: Schedule>(cell: &Cell<F, S>) -> bool {
    let is_closing = cell.scheduler.is_closing();
    if is_closing {
        let state = &cell.header.state;
        let wake = if cell.scheduler.have_shields_ended() { state.cancel_unshielded() } else { state.cancel() };
        debug_assert_eq!(wake, Wake::Nothing, "its runner has it in hand");
    }
    is_closing
}

unsafe fn poll_join<F: Future, S: Schedule>(raw: NonNull<Header>, into: *mut (), waker: &Waker) {
    // SAFETY: the vtable is that of F and S, and the JoinHandle owns a reference.
    let is_complete = unsafe { handover::poll_join(Raw::<F, S>::new(raw), waker) };
    if !is_complete {
        return;
    }
    // SAFETY: as above.
    let cell = unsafe { cell_of::<F, S>(raw) };
    // SAFETY: Join hand-over: the task is complete, and its output belongs to the JoinHandle.
    let output = unsafe { cell.take_output() }.map_err(|failure| match failure {
        Failure::Cancelled => JoinError::cancelled(cell.header.id),
        Failure::Panicked(panic) => JoinError::panicked(cell.header.id, panic),
    });
    // SAFETY: the JoinHandle has the type of the output, and passes a pointer to such a `Poll`.
    unsafe { *into.cast::<Poll<Result<F::Output, JoinError>>>() = Poll::Ready(output) };
}

unsafe fn drop_join<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // A panic of a destructor is contained: whether the task or its handle ends first is arbitrary,
    // and so would be the thread that panics.
    // SAFETY: the vtable is that of F and S, and the handle's reference is handed over.
    let is_last = unsafe { handover::drop_join(Raw::<F, S>::new(raw)) };
    if is_last {
        // SAFETY: Live by reference: the handle's was the last one.
        unsafe { dealloc::<F, S>(raw) }
    }
}

unsafe fn joiner<F: Future, S>(raw: NonNull<Header>) -> usize {
    // SAFETY: by contract.
    unsafe { cell_of::<F, S>(raw) }.join_waker.address()
}

/// A scheduler for tasks that are never woken.
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
mod tests;
