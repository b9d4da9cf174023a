//! [`Raw`]: the pointer by which [`handover`](crate::task::handover) accesses a task's output and
//! join waker.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::Waker;

use super::layout::Cell;
use crate::task::contain::contain;
use crate::task::current::Current;
use crate::task::handover::Joined;
use crate::task::header::{Header, Task};
use crate::task::schedule::Schedule;
use crate::task::state::State;

/// A pointer to a cell, for `handover`. Not a reference: see [`Joined`].
pub(super) struct Raw<F: Future, S>(NonNull<Cell<F, S>>);

impl<F: Future, S> Clone for Raw<F, S> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Future, S> Copy for Raw<F, S> {}

impl<F: Future, S: Schedule> Raw<F, S> {
    /// Wraps a header that comes from `new_task::<F, S>`.
    #[inline]
    pub(super) fn new(header: NonNull<Header>) -> Self {
        Self(header.cast())
    }

    /// # Safety
    /// It comes from `new_task::<F, S>`. The caller owns a reference during `'a`, or until a
    /// function that it calls on the cell releases the reference.
    #[inline]
    unsafe fn cell<'a>(self) -> &'a Cell<F, S> {
        // SAFETY: Whole provenance and Live by reference, by contract.
        unsafe { self.0.as_ref() }
    }
}

impl<F: Future, S: Schedule> Joined for Raw<F, S> {
    type Waker = Waker;

    #[inline]
    unsafe fn state<'a>(self) -> &'a State
    where
        Self: 'a,
    {
        // SAFETY: by contract.
        unsafe { &self.cell().header.state }
    }

    #[inline]
    unsafe fn does_as_well(self, waker: &Waker) -> bool {
        // SAFETY: the JoinHandle owns a reference.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract no thread writes the field.
        let held = unsafe { cell.join_waker.get() };
        held.is_some_and(|held| held.will_wake(waker))
    }

    /// Also contains a panic of the former waker's destructor.
    #[inline]
    unsafe fn set_join_waker(self, waker: Option<&Waker>) {
        let waker = waker.cloned();
        // SAFETY: the owner of the field owns a reference.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract.
        if let Some(former) = unsafe { cell.join_waker.replace(waker) } {
            contain(|| drop(former));
        }
    }

    #[inline]
    unsafe fn wake_joiner(self) {
        // SAFETY: the runner's reference is not released yet.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract no thread writes the field.
        let Some(waker) = (unsafe { cell.join_waker.get() }) else { return };
        // SAFETY: Live by reference: as above, and ManuallyDrop does not release it.
        let ended = ManuallyDrop::new(unsafe { Task::from_raw(self.0.cast()) });
        // The wake-up is attributed to this task, although its poll is over.
        let _current = Current::enter(&ended);
        // A panic of a foreign waker must not reach the worker.
        contain(|| waker.wake_by_ref());
    }

    #[inline]
    unsafe fn drop_output(self) {
        // SAFETY: the owner of the output owns a reference.
        let cell = unsafe { self.cell() };
        // SAFETY: by contract.
        unsafe { cell.clear_ended() };
    }
}
