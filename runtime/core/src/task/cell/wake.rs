//! How a waker enqueues a task: the functions of the vtable that use the task's scheduler.

use std::future::Future;
use std::ptr::NonNull;

use super::layout::{cell_of, dealloc};
use crate::stats::counting;
use crate::task::header::{Header, Notified, Task};
use crate::task::schedule::{Here, Schedule};
use crate::task::state::WakeOwned;

/// # Safety
/// `raw` comes from `new_task::<F, S>`. The caller made the task SCHEDULED, hands over the
/// reference that this added, and owns another one until this returns.
pub(super) unsafe fn schedule<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the caller made the task SCHEDULED and hands over the reference that this added.
    let notified = unsafe { Notified::from_raw(raw) };
    // SAFETY: the vtable is that of F and S. Another thread may run the task before `schedule`
    // returns, but cannot free it: the caller owns a reference until then.
    let cell = unsafe { cell_of::<F, S>(raw) };
    cell.scheduler.schedule(notified);
}

/// # Safety
/// `raw` comes from `new_task::<F, S>`. The caller hands over a waker's reference.
pub(super) unsafe fn wake<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the vtable is that of F and S, and the caller owns the waker's reference, until it
    // hands it over.
    let cell = unsafe { cell_of::<F, S>(raw) };
    // The usual case: the task waits, and no other thread changes its word at this moment.
    if let Some(here) = cell.scheduler.here()
        && cell.header.state.wake_idle()
    {
        // Each call is the last one of its path, and there is nothing to drop, so this function
        // need not save registers.
        let Some(now_ns) = counting::try_now_ns() else {
            // SAFETY: the transition made the task SCHEDULED, and the reference is the waker's.
            return unsafe { stamp_and_schedule::<S>(here, raw) };
        };
        cell.header.stamp_wake_at(now_ns);
        // SAFETY: as above.
        let notified = unsafe { Notified::from_raw(raw) };
        // SAFETY: `here` is of this call.
        return unsafe { S::schedule_here(here, notified) };
    }
    // SAFETY: as for `cell`; the waker's reference is handed over.
    unsafe { wake_in_general::<F, S>(raw) }
}

/// Enqueues a task that was woken here, when reading the clock takes longer than usual.
///
/// # Safety
/// The caller made the task SCHEDULED, and hands over the `Notified`'s reference. `here` as for
/// `Schedule::schedule_here`.
#[cold]
#[inline(never)]
unsafe fn stamp_and_schedule<S: Schedule>(here: Here, raw: NonNull<Header>) {
    // SAFETY: by contract.
    let task = unsafe { Notified::from_raw(raw) };
    task.header().stamp_wake();
    // SAFETY: by contract.
    unsafe { S::schedule_here(here, task) }
}

/// As [`wake`], from any thread and whatever the state of the task.
///
/// # Safety
/// As for `wake`.
#[inline(never)]
unsafe fn wake_in_general<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // SAFETY: the vtable is that of F and S, and the caller owns the waker's reference. Once
    // other threads may run the task, `cell` is used only while `_task` below owns a reference.
    let cell = unsafe { cell_of::<F, S>(raw) };
    let here = cell.scheduler.here();
    match cell.header.state.wake_owned(here.is_none()) {
        WakeOwned::Submit => {
            cell.header.stamp_wake();
            // SAFETY: the transition made the task SCHEDULED. The reference is the waker's, or was
            // added.
            let notified = unsafe { Notified::from_raw(raw) };
            if let Some(here) = here {
                // SAFETY: `here` is of this call.
                unsafe { S::schedule_here(here, notified) }
            } else {
                // SAFETY: the transition added the Notified's reference. The waker's is still owned
                // here and keeps the scheduler alive during the call.
                let _task = unsafe { Task::from_raw(raw) };
                cell.scheduler.schedule(notified);
            }
        }
        WakeOwned::Nothing { was_last_reference: false } => {}
        // SAFETY: Live by reference: this was the last one.
        WakeOwned::Nothing { was_last_reference: true } => unsafe { dealloc::<F, S>(raw) },
    }
}
