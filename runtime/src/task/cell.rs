//! A task's allocation with its future, its output, and how it is run.
//!
//! Invariants: *One runner*, *One Notified*, *Join hand-over* of `state`; *Live by reference* of `header`. The stage is the runner's
//! while the task is RUNNING, and the output's owner's afterwards.

use std::cell::UnsafeCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll, Waker};

use super::header::{Ended, Extra, Header, Notified, Ran, Task, Vtable};
use super::id::{self, Id};
use super::join::{JoinError, JoinHandle};
use super::state::{Complete, Pause, Start};
use super::waker::WakerRef;

/// What a task needs from whoever runs it.
pub(crate) trait Schedule: Send + Sync + 'static {
    /// The task was woken: enqueue it.
    fn schedule(&self, task: Notified);
    /// The task is complete: let go of it.
    fn release(&self, task: &Header);
}

/// See the header of this file. `repr(C)`: the header comes first, so that a pointer to it is one to the cell.
#[repr(C)]
struct Cell<F: Future, S> {
    header: Header,
    scheduler: S,
    join_waker: UnsafeCell<Option<Waker>>,
    stage: UnsafeCell<Stage<F>>,
}

enum Stage<F: Future> {
    Future(F),
    Output(Result<F::Output, JoinError>),
    Empty,
}

/// Makes a task: the registry's reference, the right to run it, and the handle.
pub(crate) fn new_task<F, S>(
    future: F,
    scheduler: S,
    id: Id,
    location: &'static Location<'static>,
    extra: Option<Box<Extra>>,
) -> (Task, Notified, JoinHandle<F::Output>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    S: Schedule,
{
    let cell = Box::new(Cell {
        header: Header::new(id, location, extra, &Table::<F, S>::VTABLE),
        scheduler,
        join_waker: UnsafeCell::new(None),
        stage: UnsafeCell::new(Stage::Future(future)),
    });
    // Whole provenance: this pointer may reach the whole cell.
    let raw = NonNull::from(Box::leak(cell)).cast::<Header>();
    // SAFETY: the word starts with three references; this is the registry's.
    let task = unsafe { Task::from_raw(raw) };
    // SAFETY: the word starts SCHEDULED, with the Notified's reference.
    let notified = unsafe { Notified::from_raw(raw) };
    // SAFETY: the word starts with the handle's reference and JOIN_INTEREST, and the output is `F::Output`.
    let join = unsafe { JoinHandle::from_raw(raw) };
    (task, notified, join)
}

struct Table<F, S>(std::marker::PhantomData<(F, S)>);

impl<F: Future, S: Schedule> Table<F, S> {
    const VTABLE: Vtable = Vtable {
        run: run::<F, S>,
        schedule: schedule::<F, S>,
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
        unsafe { self.set_stage(Stage::Output(Ok(output))) };
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

    /// Runs code of the user's inside the task's span.
    fn in_span<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.header.extra {
            Some(extra) => extra.span.in_scope(f),
            None => f(),
        }
    }

    /// Publishes the output and wakes the joiner.
    ///
    /// # Safety
    /// The caller is the runner, and the stage holds the output.
    unsafe fn complete(&self) {
        match self.header.state.complete() {
            Complete::Keep => {}
            Complete::DropOutput => {
                // SAFETY: Join hand-over: no JOIN_INTEREST, the output is the completer's. A destructor that panics is contained:
                // nobody is left who could be told.
                let _contained = catch_unwind(AssertUnwindSafe(|| unsafe { self.set_stage(Stage::Empty) }));
            }
            Complete::WakeJoiner => {
                // SAFETY: Join hand-over: JOIN_WAKER is set, so nobody writes the field.
                if let Some(waker) = unsafe { &*self.join_waker.get() } {
                    // A foreign waker that panics must not take the worker along.
                    let _contained = catch_unwind(AssertUnwindSafe(|| waker.wake_by_ref()));
                }
                if self.header.state.release_join_waker() {
                    // SAFETY: Join hand-over: the handle went and left the field to the completer.
                    unsafe { self.set_join_waker(None) };
                }
            }
        }
    }

    /// Replaces the join waker, containing a destructor that panics.
    ///
    /// # Safety
    /// The caller owns the field.
    unsafe fn set_join_waker(&self, waker: Option<Waker>) {
        // SAFETY: by contract.
        let former = std::mem::replace(unsafe { &mut *self.join_waker.get() }, waker);
        let _contained = catch_unwind(AssertUnwindSafe(|| drop(former)));
    }
}

/// Puts back which task this thread polls.
struct CurrentTask(Option<Id>);

impl Drop for CurrentTask {
    fn drop(&mut self) {
        id::replace_current(self.0);
    }
}

unsafe fn run<F: Future, S: Schedule>(raw: NonNull<Header>) -> Ran {
    // SAFETY: the Notified's reference is handed over; it is given up below, where `task` goes.
    let task = unsafe { Task::from_raw(raw) };
    // SAFETY: the vtable is that of F and S, and `task` holds a reference.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let header = &cell.header;
    let _current = CurrentTask(id::replace_current(Some(header.id)));

    // `Some` = the panic that ended it, `None` = it is to be cancelled.
    let failure = match header.state.start() {
        Start::Cancel => None,
        Start::Poll => {
            let waker = WakerRef::new(&task);
            // SAFETY: One runner: `start` made this thread it.
            match catch_unwind(AssertUnwindSafe(|| cell.in_span(|| unsafe { cell.poll_future(&waker) }))) {
                Ok(Poll::Ready(())) => {
                    // SAFETY: One runner; the output is in place.
                    unsafe { cell.complete() };
                    cell.scheduler.release(header);
                    return Ran::Ended(Ended::Completed);
                }
                Ok(Poll::Pending) => match header.state.pause() {
                    Pause::Idle => {
                        // `pause` released the Notified's reference: the cell may be gone from here on.
                        std::mem::forget(task);
                        return Ran::Pending;
                    }
                    Pause::Reschedule => {
                        header.stamp_submission();
                        // SAFETY: the task is SCHEDULED, and the reference of the Notified that was run lives on in this one.
                        return Ran::Woken(unsafe { Notified::from_raw(task.into_raw()) });
                    }
                    Pause::Cancel => None,
                },
                Err(payload) => Some(payload),
            }
        }
    };
    // SAFETY: One runner.
    let dropped = catch_unwind(AssertUnwindSafe(|| cell.in_span(|| unsafe { cell.set_stage(Stage::Empty) })));
    let (ended, error) = match failure.or(dropped.err()) {
        Some(payload) => (Ended::Panicked, JoinError::panicked(header.id, payload)),
        None => (Ended::Cancelled, JoinError::cancelled(header.id)),
    };
    // SAFETY: One runner; the stage is empty, so nothing of the user's is dropped here.
    unsafe { cell.set_stage(Stage::Output(Err(error))) };
    // SAFETY: One runner; the output is in place.
    unsafe { cell.complete() };
    cell.scheduler.release(header);
    Ran::Ended(ended)
}

unsafe fn schedule<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the caller made the task SCHEDULED and hands over the reference that this added.
    let notified = unsafe { Notified::from_raw(raw) };
    // SAFETY: the vtable is that of F and S. Another thread may run and free the task before `schedule` returns, but for the
    // reference that the caller holds for the time of this call.
    let cell = unsafe { cell_of::<F, S>(raw) };
    cell.scheduler.schedule(notified);
}

unsafe fn dealloc<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: Whole provenance; the last reference is gone, so the box is ours again.
    let cell = unsafe { Box::from_raw(raw.cast::<Cell<F, S>>().as_ptr()) };
    // An output that nobody took may panic when it is dropped; the thread that happens to be last has nothing to do with it.
    let _contained = catch_unwind(AssertUnwindSafe(|| drop(cell)));
}

unsafe fn poll_join<F: Future, S: Schedule>(raw: NonNull<Header>, into: *mut (), waker: &Waker) {
    // SAFETY: the vtable is that of F and S, and the JoinHandle holds a reference.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let state = &cell.header.state;
    if !state.is_complete() {
        let is_published = state.has_join_waker();
        if is_published {
            // SAFETY: Join hand-over: JOIN_WAKER is set, both sides may read.
            let held = unsafe { &*cell.join_waker.get() };
            if held.as_ref().is_some_and(|held| held.will_wake(waker)) {
                return;
            }
        }
        let is_owned = !is_published || state.retract_join_waker().is_ok();
        if is_owned {
            // SAFETY: Join hand-over: JOIN_WAKER is clear, the field is the handle's (or the completer has let go of it).
            unsafe { cell.set_join_waker(Some(waker.clone())) };
            if state.publish_join_waker().is_ok() {
                return;
            }
        }
    }
    // SAFETY: Join hand-over: the task is complete, and the output is the JoinHandle's.
    let stage = std::mem::replace(unsafe { &mut *cell.stage.get() }, Stage::Empty);
    let Stage::Output(output) = stage else { panic!("JoinHandle polled after it returned its output") };
    // SAFETY: the JoinHandle, which knows the output's type, passes a pointer to such a poll.
    unsafe { *into.cast::<Poll<Result<F::Output, JoinError>>>() = Poll::Ready(output) };
}

unsafe fn drop_join<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the handle's reference is handed over.
    let task = unsafe { Task::from_raw(raw) };
    // SAFETY: the vtable is that of F and S, and `task` holds a reference.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let drops = task.header().state.drop_join_interest();
    if drops.output {
        // SAFETY: Join hand-over: complete with JOIN_INTEREST, so the output was the handle's. This is the thread that dropped the
        // handle, so a destructor that panics does so where the user can see it.
        unsafe { cell.set_stage(Stage::Empty) };
    }
    if drops.waker {
        // SAFETY: Join hand-over: JOIN_WAKER is clear, the field is the handle's.
        unsafe { cell.set_join_waker(None) };
    }
}
