//! The join waker of a task, in two words that observers may read.
//!
//! The rule `deadlock` needs the task that awaits this one. A join waker that is the waker of
//! a task points to that task's header, so the address identifies the joiner. Observers read it as
//! a number, at any time, and never follow it.
//!
//! Writers: the owner of the join waker (*Join hand-over* in `state`). Readers: the owner, both
//! sides while JOIN_WAKER is set, and observers, for the address only.
//!
//! Rejected: a field for the id of the joiner, which takes 16 bytes per task after the allocator's
//! rounding; an entry in the table of waits, which costs two locks for each await of a JoinHandle.

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::task::{RawWakerVTable, Waker};

/// An optional waker. See the module documentation.
pub(super) struct JoinWaker {
    data: AtomicPtr<()>,
    /// Null if there is no waker.
    vtable: AtomicPtr<RawWakerVTable>,
}

impl JoinWaker {
    pub(super) const fn none() -> Self {
        Self { data: AtomicPtr::new(ptr::null_mut()), vtable: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the waker without its reference.
    ///
    /// # Safety
    /// No thread replaces the waker during the call, or while the result is in use.
    #[inline]
    pub(super) unsafe fn get(&self) -> Option<ManuallyDrop<Waker>> {
        // ORDERING: Relaxed, both: no thread writes during the call, and the task word, by which
        // the caller learned that, orders the earlier writes.
        let vtable = self.vtable.load(Ordering::Relaxed);
        let data = self.data.load(Ordering::Relaxed);
        // SAFETY: null, or the `&'static RawWakerVTable` of a waker that `replace` stored.
        let vtable = unsafe { vtable.as_ref() }?;
        // SAFETY: both are parts of one waker, which `replace` did not drop. ManuallyDrop does not
        // drop it either.
        Some(ManuallyDrop::new(unsafe { Waker::new(data, vtable) }))
    }

    /// Replaces the waker, and returns the former one.
    ///
    /// # Safety
    /// The caller owns the join waker.
    #[inline]
    pub(super) unsafe fn replace(&self, waker: Option<Waker>) -> Option<Waker> {
        // SAFETY: by contract no other thread replaces it.
        let former = unsafe { self.get() };
        let waker = waker.map(ManuallyDrop::new);
        let (data, vtable) = match &waker {
            Some(waker) => (waker.data().cast_mut(), ptr::from_ref(waker.vtable()).cast_mut()),
            None => (ptr::null_mut(), ptr::null_mut()),
        };
        // ORDERING: Relaxed, both: the task word passes the field on. Observers read only the
        // data, as a number.
        self.data.store(data, Ordering::Relaxed);
        self.vtable.store(vtable, Ordering::Relaxed);
        former.map(ManuallyDrop::into_inner)
    }

    /// Returns the data pointer of the waker as a number: the address of a task's header if it is
    /// the waker of a task, and 0 if there is no waker. True of this moment only.
    pub(super) fn address(&self) -> usize {
        // ORDERING: Relaxed: a number for a report.
        self.data.load(Ordering::Relaxed).addr()
    }
}

impl Drop for JoinWaker {
    fn drop(&mut self) {
        // SAFETY: the exclusive borrow proves that no other thread has access.
        drop(unsafe { self.replace(None) });
    }
}
