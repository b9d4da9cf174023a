//! Memory for cells and for the recorder's rings: ordinary memory, or that of a black box.
//!
//! A worker writes its cells at every poll, and does not depend on where they are. By default they
//! are on the heap. With a black box they are in a mapping of its file, so that they outlive a
//! program that is killed. The accesses are the same: the worker has a pointer in either case.
//!
//! Invariant *Alive*: the owner keeps the value alive at its place, and drops it with the last
//! reference.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A shared value whose owner decides where it is.
pub(crate) struct Placed<T: ?Sized> {
    value: NonNull<T>,
    owner: Arc<dyn Any + Send + Sync>,
    shared: PhantomData<Arc<T>>,
}

// SAFETY: a shared reference to the value with an owner that can be shared, like an `Arc`.
unsafe impl<T: ?Sized + Send + Sync> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for Placed<T> {}

impl<T: ?Sized + Send + Sync + 'static> Placed<T> {
    /// Places a value on the heap.
    pub(crate) fn on_heap(value: Box<T>) -> Self {
        let value = Arc::new(value);
        Self { value: NonNull::from(&**value), owner: value, shared: PhantomData }
    }

    /// Refers to a value of `owner`.
    ///
    /// # Safety
    /// `value` must point to a value that stays valid at its place until `owner` is dropped, and
    /// that is accessed only through shared references.
    #[cfg(all(target_os = "linux", not(any(loom, miri))))]
    pub(crate) unsafe fn of(value: NonNull<T>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { value, owner, shared: PhantomData }
    }
}

impl<T: ?Sized> Clone for Placed<T> {
    fn clone(&self) -> Self {
        Self { value: self.value, owner: self.owner.clone(), shared: PhantomData }
    }
}

impl<T: ?Sized> Deref for Placed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: Alive: `owner` keeps the value at its place for as long as this exists.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
