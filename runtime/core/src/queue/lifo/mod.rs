//! The LIFO slot of a worker: room for one item, the next one to run, in an atomic pointer.
//!
//! If a task wakes another one on the same worker, the woken task goes into the worker's LIFO slot
//! and runs next, while its data is still in the caches. The former content of the slot moves to
//! the ring.
//!
//! An ordinary case: the poll of task A wakes task B. The wake-up puts B into the slot, and the
//! task that was there goes to the ring. When the poll of A has ended, the owner takes B out and
//! polls it.
//!
//! The race: the owner puts a task into a filled slot while a thief takes the task that is in it.
//! Each of the two removes a pointer with a swap, so exactly one of them gets the former task.
//!
//! # Writers and readers
//!
//! Only the owner *puts*. Any thread may *take*, with a swap: the owner for its next poll, and a
//! thief as a last resort, if the owner's current poll takes long.
//!
//! # Invariant
//!
//! * ONE-OWNER: a pointer in the slot came from [`RawPointer::into_raw`] and belongs to the slot.
//!   The swap that removes it gives it to exactly one thread.
//!
//! # Protocol
//!
//! * Put: (1) a plain load. An empty slot stays empty, since only the owner puts, and a store
//!   suffices. (2) Otherwise, swap the new pointer in. Unless a thief has taken the former pointer
//!   in between, the swap returns it, and it goes to the caller.
//! * Take: (1) a plain load, so that an empty slot costs no write; (2) swap null in.
//!
//! # Rejected
//!
//! * A load and a store in `put` if the slot is filled: they undo the take of a thief in between,
//!   and the item runs twice.
//! * The names `push` and `pop`: the slot has room for one item.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use volt_shim::{AtomicPtr, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// A type that is represented by one owning pointer.
pub(crate) trait RawPointer: Sized + Send {
    /// Converts the value into a raw pointer, which owns it.
    fn into_raw(self) -> NonNull<()>;

    /// Converts the raw pointer back into the value.
    ///
    /// # Safety
    ///
    /// `raw` came from [`into_raw`](Self::into_raw) of this type, and is converted back once.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
}

/// A slot for one `T`.
pub(crate) struct LifoSlot<T: RawPointer> {
    pointer: AtomicPtr<()>,
    /// The slot owns the `T` behind the pointer. The type of a function makes the slot `Sync`
    /// without `T: Sync`: a shared slot only moves its item, and `T` is `Send`.
    owns: PhantomData<fn() -> T>,
}

impl<T: RawPointer> LifoSlot<T> {
    pub(crate) fn new() -> Self {
        Self { pointer: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Puts `item` in and returns the former content. Called by the owner only.
    #[inline]
    pub(crate) fn put(&self, item: T) -> Option<T> {
        // Put (1)
        if !self.is_filled() {
            self.fill(item);
            return None;
        }
        // Put (2)
        // ORDERING: AcqRel. The Release pairs with the Acquire in `take` and publishes the item.
        // The Acquire pairs with the Release of the `put` whose item the swap returns.
        Self::owned(self.pointer.swap(item.into_raw().as_ptr(), Ordering::AcqRel))
    }

    /// The rest of Put (1): puts `item` into a slot for which [`is_filled`](Self::is_filled) has
    /// returned false. Called by the owner only.
    #[inline]
    pub(crate) fn fill(&self, item: T) {
        debug_assert!(!self.is_filled(), "an empty slot stays empty, since only the owner puts");
        // ORDERING: Release; pairs with the Acquire in `take`; publishes the item.
        self.pointer.store(item.into_raw().as_ptr(), Ordering::Release);
    }

    /// Takes the content. May be called by any thread.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        // Take (1)
        if !self.is_filled() {
            return None;
        }
        // Take (2)
        // ORDERING: Acquire; pairs with the Release in `put`, which published the item.
        Self::owned(self.pointer.swap(ptr::null_mut(), Ordering::Acquire))
    }

    /// Returns whether the slot was filled at a recent moment. On the owner's thread `false` is
    /// exact.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        // ORDERING: Relaxed: no other data is read through it, since only a swap takes the item.
        !self.pointer.load(Ordering::Relaxed).is_null()
    }

    /// Converts the result of a swap.
    #[inline]
    fn owned(out: *mut ()) -> Option<T> {
        // SAFETY: ONE-OWNER: `put` stored the pointer, from `into_raw`, and one swap removed it.
        NonNull::new(out).map(|raw| unsafe { T::from_raw(raw) })
    }
}

impl<T: RawPointer> Drop for LifoSlot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
