//! The `std::task::Waker` of a task. Its data is the pointer to the task's header, and it owns one
//! reference.
//!
//! If a task wakes itself in its own poll, on the thread that polls it, the wake-up is recorded in
//! that thread (`current`). All other wake-ups change the task word.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::current::has_noted_own_wake;
use super::header::{Header, Task};
use super::trace;

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

fn raw(task: NonNull<Header>) -> RawWaker {
    RawWaker::new(task.as_ptr().cast_const().cast(), &VTABLE)
}

/// A waker for the duration of a poll. It borrows the runner's reference.
pub(crate) struct WakerRef<'a> {
    waker: ManuallyDrop<Waker>,
    _task: &'a Task,
}

impl<'a> WakerRef<'a> {
    pub(crate) fn new(task: &'a Task) -> Self {
        // SAFETY: the vtable fulfils the contract of Waker. The reference is borrowed from `task`,
        // which outlives this value, and ManuallyDrop prevents its release.
        let waker = unsafe { Waker::from_raw(raw(task.as_raw())) };
        Self { waker: ManuallyDrop::new(waker), _task: task }
    }
}

impl Deref for WakerRef<'_> {
    type Target = Waker;

    fn deref(&self) -> &Waker {
        &self.waker
    }
}

/// Returns the task behind a waker's data pointer, without adding a reference.
///
/// # Safety
/// `data` is that of a live waker from this module.
unsafe fn borrow(data: *const ()) -> ManuallyDrop<Task> {
    let header = NonNull::new(data.cast_mut().cast::<Header>()).expect("made from a NonNull");
    // SAFETY: Live by reference: the waker's reference is borrowed, and ManuallyDrop does not
    // release it.
    ManuallyDrop::new(unsafe { Task::from_raw(header) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: `data` is a live waker's, as Waker guarantees.
    let task = unsafe { borrow(data) };
    trace::waker(&task, "waker.clone");
    raw(Task::clone(&task).into_raw())
}

unsafe fn wake(data: *const ()) {
    // SAFETY: `data` is a live waker's, as Waker guarantees.
    let task = ManuallyDrop::into_inner(unsafe { borrow(data) });
    trace::waker(&task, "waker.wake");
    if !has_noted_own_wake(task.as_raw()) {
        task.wake_owned();
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: `data` is a live waker's, as Waker guarantees.
    let task = unsafe { borrow(data) };
    trace::waker(&task, "waker.wake_by_ref");
    if !has_noted_own_wake(task.as_raw()) {
        task.wake();
    }
}

unsafe fn drop(data: *const ()) {
    // SAFETY: `data` is a live waker's, as Waker guarantees, and is not used after this.
    let task = ManuallyDrop::into_inner(unsafe { borrow(data) });
    trace::waker(&task, "waker.drop");
}
