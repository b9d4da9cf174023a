//! How a waker enqueues a task: the functions of the vtable that use the task's scheduler.

use std::future::Future;
use std::ptr::NonNull;

use super::layout::{cell_of, dealloc};
use crate::task::header::{Header, Notified, Task};
use crate::task::schedule::Schedule;
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
    if cell.scheduler.is_here() && cell.header.state.wake_idle() {
        cell.header.stamp_wake();
        // SAFETY: the transition made the task SCHEDULED, and the reference is the waker's.
        S::schedule_here(unsafe { Notified::from_raw(raw) });
        return;
    }
    // SAFETY: as for `cell`; the waker's reference is handed over.
    unsafe { wake_in_general::<F, S>(raw) }
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
    let is_here = cell.scheduler.is_here();
    match cell.header.state.wake_owned(!is_here) {
        WakeOwned::Submit => {
            cell.header.stamp_wake();
            // SAFETY: the transition made the task SCHEDULED. The reference is the waker's, or was
            // added.
            let notified = unsafe { Notified::from_raw(raw) };
            if is_here {
                S::schedule_here(notified);
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
