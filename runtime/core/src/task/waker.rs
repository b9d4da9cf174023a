//! The `std::task::Waker` of a task. Its data is the pointer to the task's header, and it owns one
//! reference.
//!
//! If a task wakes itself in its own poll, on the thread that polls it, the wake-up is recorded in
//! that thread (`current`). All other wake-ups change the task word.
//!
//! A poll for a task dump passes a *traced* waker. It differs only in `clone`, which notes the
//! stack of the thread and returns an ordinary waker: a traced waker is never stored. It has its
//! own vtable, so `will_wake` is false for every stored waker, and each future that waits clones
//! it. [`Traced`] is the same for the waker of anything else, such as the future of a
//! `block_on`.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{RawWaker, RawWakerVTable, Waker};

use volt_stacks::Tape;

use super::current::has_noted_own_wake;
use super::header::{Header, Task};
use super::trace;

// Statics, since a waker is recognized by the address of its vtable.

/// The functions of an ordinary waker.
pub(crate) static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);
/// The functions of a traced waker. Its clones note where they were made, on the thread's [`Tape`].
pub(crate) static TRACED_VTABLE: RawWakerVTable = RawWakerVTable::new(clone_traced, wake, wake_by_ref, drop_waker);

fn raw(task: NonNull<Header>) -> RawWaker {
    RawWaker::new(task.as_ptr().cast_const().cast(), &VTABLE)
}

/// A waker for the duration of a poll. It borrows the runner's reference.
pub(crate) struct WakerRef<'a> {
    waker: ManuallyDrop<Waker>,
    _task: &'a Task,
}

impl<'a> WakerRef<'a> {
    /// Returns a waker of `task` with one of the vtables of this module.
    pub(crate) fn new(task: &'a Task, vtable: &'static RawWakerVTable) -> Self {
        let data = task.as_raw().as_ptr().cast_const().cast();
        // SAFETY: the vtable fulfils the contract of Waker. The reference is borrowed from `task`,
        // which outlives this value, and ManuallyDrop prevents its release.
        let waker = unsafe { Waker::from_raw(RawWaker::new(data, vtable)) };
        Self { waker: ManuallyDrop::new(waker), _task: task }
    }
}

impl Deref for WakerRef<'_> {
    type Target = Waker;

    fn deref(&self) -> &Waker {
        &self.waker
    }
}

/// The functions of the waker of a [`Traced`]. It is never owned, so `wake` is that by reference.
static TRACED_REF_VTABLE: RawWakerVTable =
    RawWakerVTable::new(clone_traced_ref, wake_traced_ref, wake_traced_ref, |_| ());

/// Any waker, to be passed to a traced poll: the clones of [`waker`](Self::waker) are those of that
/// waker.
pub(crate) struct Traced<'a> {
    of: &'a Waker,
    is_woken: AtomicBool,
}

impl<'a> Traced<'a> {
    pub(crate) fn new(of: &'a Waker) -> Self {
        Self { of, is_woken: AtomicBool::new(false) }
    }

    /// Returns the traced waker.
    pub(crate) fn waker(&self) -> TracedWaker<'_> {
        // SAFETY: the vtable fulfils the contract of Waker: its data is `self`, which the returned
        // value borrows, and it releases nothing. The waker is only lent, so it lives no longer.
        let waker = unsafe { Waker::from_raw(RawWaker::new((&raw const *self).cast(), &TRACED_REF_VTABLE)) };
        TracedWaker { waker: ManuallyDrop::new(waker), _of: PhantomData }
    }

    /// Returns whether the traced waker itself, and no clone of it, was woken: the poll yielded.
    pub(crate) fn is_woken(&self) -> bool {
        // ORDERING: Relaxed; for a report. The wake-up itself is that of the waker.
        self.is_woken.load(Ordering::Relaxed)
    }
}

/// See [`Traced::waker`].
pub(crate) struct TracedWaker<'a> {
    waker: ManuallyDrop<Waker>,
    _of: PhantomData<&'a ()>,
}

impl Deref for TracedWaker<'_> {
    type Target = Waker;

    fn deref(&self) -> &Waker {
        &self.waker
    }
}

// The name begins like that of `clone_traced`, by which a dump recognizes the frame.
unsafe fn clone_traced_ref(data: *const ()) -> RawWaker {
    Tape::note();
    // SAFETY: `data` is a live `Traced`, as Waker guarantees.
    let traced = unsafe { &*data.cast::<Traced<'_>>() };
    let clone = ManuallyDrop::new(traced.of.clone());
    // The new waker takes the reference of the clone.
    RawWaker::new(clone.data(), clone.vtable())
}

unsafe fn wake_traced_ref(data: *const ()) {
    // SAFETY: as above.
    let traced = unsafe { &*data.cast::<Traced<'_>>() };
    // ORDERING: Relaxed; see `Traced::is_woken`.
    traced.is_woken.store(true, Ordering::Relaxed);
    traced.of.wake_by_ref();
}

/// Returns the task behind a waker's data pointer, without adding a reference.
///
/// # Safety
/// `data` is that of a live waker from this module.
unsafe fn borrow(data: *const ()) -> ManuallyDrop<Task> {
    // SAFETY: `raw` or `WakerRef::new` made it from a NonNull.
    let header = unsafe { NonNull::new_unchecked(data.cast_mut().cast::<Header>()) };
    // SAFETY: Live by reference: the waker's reference is borrowed, and ManuallyDrop does not
    // release it.
    ManuallyDrop::new(unsafe { Task::from_raw(header) })
}

unsafe fn clone(data: *const ()) -> RawWaker {
    if trace::is_on() {
        // SAFETY: `data` is a live waker's, as Waker guarantees.
        unsafe { report(data, "waker.clone") };
    }
    // SAFETY: as above.
    let task = unsafe { borrow(data) };
    raw(Task::clone(&task).into_raw())
}

unsafe fn clone_traced(data: *const ()) -> RawWaker {
    Tape::note();
    // SAFETY: by contract.
    unsafe { clone(data) }
}

unsafe fn wake(data: *const ()) {
    if trace::is_on() {
        // SAFETY: `data` is a live waker's, as Waker guarantees, and is handed over.
        return unsafe { wake_and_report(data) };
    }
    // SAFETY: as above.
    unsafe { wake_unreported(data) }
}

/// A separate function, so that a wake without a subscriber saves no registers for the report.
///
/// # Safety
/// As for `wake_unreported`.
#[cold]
#[inline(never)]
unsafe fn wake_and_report(data: *const ()) {
    // SAFETY: by contract.
    unsafe { report(data, "waker.wake") };
    // SAFETY: by contract.
    unsafe { wake_unreported(data) }
}

/// # Safety
/// `data` is that of a live waker from this module, which is handed over.
#[inline(always)]
unsafe fn wake_unreported(data: *const ()) {
    // SAFETY: `data` is a live waker's, by contract.
    let task = ManuallyDrop::into_inner(unsafe { borrow(data) });
    if has_noted_own_wake(task.as_raw()) { drop(task) } else { task.wake_owned() }
}

unsafe fn wake_by_ref(data: *const ()) {
    if trace::is_on() {
        // SAFETY: `data` is a live waker's, as Waker guarantees.
        unsafe { report(data, "waker.wake_by_ref") };
    }
    // SAFETY: as above.
    let task = unsafe { borrow(data) };
    if !has_noted_own_wake(task.as_raw()) {
        task.wake();
    }
}

unsafe fn drop_waker(data: *const ()) {
    if trace::is_on() {
        // SAFETY: `data` is a live waker's, as Waker guarantees.
        unsafe { report(data, "waker.drop") };
    }
    // SAFETY: as above, and `data` is not used after this.
    drop(ManuallyDrop::into_inner(unsafe { borrow(data) }));
}

/// Reports an operation of a waker.
///
/// # Safety
/// `data` is that of a live waker from this module.
#[cold]
#[inline(never)]
unsafe fn report(data: *const (), op: &'static str) {
    // SAFETY: by contract.
    let task = unsafe { borrow(data) };
    trace::trace_waker(&task, op);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            // ORDERING: Relaxed; one thread.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_clone_of_a_traced_waker_is_the_waker_itself() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let traced = Traced::new(&waker);
        let clone = {
            let traced = traced.waker();
            assert!(!traced.will_wake(&waker), "so each future that waits clones it");
            traced.clone()
        };
        clone.wake_by_ref();
        assert!(!traced.is_woken());
        traced.waker().wake_by_ref();
        assert!(traced.is_woken());
        // Not `will_wake`: two wakers of an `Arc` may have vtables at two addresses, as in Miri.
        assert_eq!(clone.data(), waker.data());
        assert_eq!(Arc::strong_count(&count), 3, "this one, the waker and its clone");
        clone.wake();
        drop(waker);
        // ORDERING: Relaxed; one thread.
        assert_eq!((count.0.load(Ordering::Relaxed), Arc::strong_count(&count)), (3, 1));
    }
}
