//! A task's allocation with its future, its output, and how it is run.
//!
//! Invariants: *One runner*, *One Notified*, *Join hand-over* of `state`; *Live by reference* of
//! `header`. The stage is the runner's while the task is being run, and the output's owner's
//! afterwards.

use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use super::contain::contain;
use super::current::Current;
use super::handover::{self, Joined};
use super::header::{Ended, Header, Notified, Ran, Task, Vtable};
use super::id::Id;
use super::join::{JoinError, JoinHandle, Panic, Refused};
use super::origin::Extra;
use super::state::{Pause, Start, State, Wake, WakeOwned};
use super::waker::WakerRef;

pub(crate) mod blocks;

/// What a task needs from whoever runs it.
pub trait Schedule: Send + Sync + 'static {
    /// Whether the polls of its tasks are timed and go into their accounts.
    const IS_COUNTED: bool;
    /// The task was woken: enqueue it.
    fn schedule(&self, task: Notified);
    /// Whether the calling thread is one of the scheduler's own, which keep it alive: then
    /// [`schedule_here`](Self::schedule_here) may be called.
    fn is_here(&self) -> bool {
        false
    }
    /// As [`schedule`](Self::schedule), of a thread of the scheduler's own. Not a method: what
    /// `self` would refer to may go as soon as others see the task.
    fn schedule_here(_task: Notified) {
        unreachable!("no thread is this scheduler's own");
    }
    /// Whether tasks are cancelled instead of polled, since the scheduler shuts down.
    fn is_closing(&self) -> bool;
    /// The task, which the caller runs, is about to wait: hold a reference to it from now on,
    /// unless one is held already, so that it is not freed without an end; and cancel it if the
    /// scheduler shuts down.
    fn keep(&self, task: &Task);
    /// The task is about to end: give back the reference that is held to it, if one is.
    fn release(&self, task: &Header) -> Option<Task>;
    /// Why the task, which is cancelled before its first poll, could not be begun, if its scheduler
    /// refused it.
    #[inline]
    fn take_refusal(&self) -> Option<Refused> {
        None
    }
}

/// See the header of this file. `repr(C)`: the header comes first, so that a pointer to it is one
/// to the cell.
#[repr(C)]
struct Cell<F: Future, S> {
    header: Header,
    scheduler: S,
    join_waker: UnsafeCell<Option<Waker>>,
    stage: UnsafeCell<Stage<F>>,
}

/// A failure is kept without the task's id, which the header has: hardly any task fails, and each
/// would have to hold the room.
enum Stage<F: Future> {
    Future(F),
    Output(F::Output),
    Cancelled,
    /// Or refused by its scheduler.
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

/// As `new_task`, for futures that stay on one thread.
///
/// # Safety
/// The future and its output are Send, or `scheduler` sees to it that the task is run on the
/// calling thread only, and is complete before that thread goes.
pub unsafe fn new_task_of_thread<F, S>(
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
    // SAFETY: the word starts with the handle's reference and JOIN_INTEREST, and the output is
    // `F::Output`.
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
        // SAFETY: the future stays in the cell, which never moves, until it is dropped in place by
        // `set_stage`.
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

    /// Drops the output, if it is still there, containing a destructor that panics: nobody is left
    /// who could be told.
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
/// `raw` comes from `new_task::<F, S>`; the caller is the runner, the stage holds the output, and
/// the Notified's reference is handed over.
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
    // Before code of the user's runs, which may cancel other tasks on this thread.
    let mut refused = None;
    // `Some` = the panic that ended it, `None` = it is to be cancelled.
    let failure = match header.state.start() {
        Start::Cancel => {
            refused = cell.scheduler.take_refusal();
            None
        }
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
                    // SAFETY: One runner; the output is in place, and the Notified's reference is
                    // handed over.
                    unsafe { complete::<F, S>(task.into_raw()) };
                    return Ran::Ended(Ended::Completed);
                }
                Ok(Poll::Pending) => {
                    // Here, since the task may be another runner's, or gone, as soon as it is
                    // paused.
                    let at_ns = if S::IS_COUNTED { header.end_poll(began_at_ns, awaits) } else { began_at_ns };
                    cancel_if_closing(cell);
                    if !has_woken_itself {
                        cell.scheduler.keep(&task);
                    }
                    match header.state.pause(has_woken_itself) {
                        Pause::Idle => {
                            // `pause` released the Notified's reference: the cell may be gone from
                            // here on.
                            std::mem::forget(task);
                            return Ran::Pending { at_ns };
                        }
                        Pause::Reschedule => {
                            // SAFETY: the task is SCHEDULED, and the reference of the Notified that
                            // was run lives on in this one.
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
        None => {
            (Ended::Cancelled, refused.map_or(Stage::Cancelled, |refused| Stage::Panicked(Panic::refused(refused))))
        }
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
    // SAFETY: the vtable is that of F and S. Another thread may run and free the task before
    // `schedule` returns, but for the reference that the caller holds for the time of this call.
    let cell = unsafe { cell_of::<F, S>(raw) };
    cell.scheduler.schedule(notified);
}

unsafe fn wake<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the vtable is that of F and S, and the waker's reference is the caller's. Not used
    // once the task may be run by others.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let is_here = cell.scheduler.is_here();
    match cell.header.state.wake_owned(!is_here) {
        WakeOwned::Submit => {
            cell.header.stamp_wake();
            // SAFETY: the transition made the task SCHEDULED; the reference is the waker's, or was
            // added.
            let notified = unsafe { Notified::from_raw(raw) };
            if is_here {
                S::schedule_here(notified);
            } else {
                // SAFETY: the transition added the Notified's reference, so the waker's is still
                // there to keep the scheduler.
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
    // An output that nobody took may panic when it is dropped; the thread that happens to be last
    // has nothing to do with it.
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
mod tests;
