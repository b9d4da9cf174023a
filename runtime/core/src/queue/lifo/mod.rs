//! One place for the thing to run next: an atomic pointer.
//!
//! # Who writes, who reads
//!
//! Only the owner puts, so that a thing made ready on one worker stays there while its data is
//! warm. Anybody may *take*, with a swap: the owner for its next poll, a thief as its last resort
//! when the owner's present poll is long.
//!
//! # Invariant
//!
//! * ONE-OWNER: a pointer in the slot came out of [`RawPointer::into_raw`] and belongs to the slot;
//!   the swap that takes it out of the slot gives it to exactly one.
//!
//! # Protocol
//!
//! * Put: (1) a plain load: a slot that is empty stays so, since nobody else puts, and a store is
//!   enough; (2) else swap the new pointer in; what comes out, if a thief was not faster, goes back
//!   to the caller.
//! * Take: (1) a plain load: an empty slot costs no write; (2) swap null in.
//!
//! # Rejected
//!
//! * Load and store in `put` where the slot is filled: a thief's take in between is undone, and the
//!   thing runs twice.
//! * `push` and `pop` names: it holds one.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use volt_shim::{AtomicPtr, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// A type that is one owning pointer.
pub(crate) trait RawPointer: Sized + Send {
    /// Gives the ownership to the raw pointer.
    fn into_raw(self) -> NonNull<()>;

    /// Takes the ownership back.
    ///
    /// # Safety
    ///
    /// `raw` came out of [`into_raw`](Self::into_raw) of this type, and is given back once.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;
}

/// A slot for one `T`.
pub(crate) struct LifoSlot<T: RawPointer> {
    pointer: AtomicPtr<()>,
    /// Owns what is behind the pointer; shared as a function is, since a shared slot only ever
    /// moves it, and `T` is `Send`.
    owns: PhantomData<fn() -> T>,
}

impl<T: RawPointer> LifoSlot<T> {
    pub(crate) fn new() -> Self {
        Self { pointer: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// Puts `item` in and returns what was there. For the owner only.
    #[inline]
    pub(crate) fn put(&self, item: T) -> Option<T> {
        let new = item.into_raw().as_ptr();
        // Put (1)
        if !self.is_filled() {
            // ORDERING: Release; pairs with the Acquire in `take`, publishes the item.
            self.pointer.store(new, Ordering::Release);
            return None;
        }
        // Put (2)
        // ORDERING: AcqRel; the Release pairs with the Acquire in `take` and publishes the item;
        // the Acquire pairs with the Release of the `put` whose item comes out.
        Self::owned(self.pointer.swap(new, Ordering::AcqRel))
    }

    /// Takes what is there. For anybody.
    #[inline]
    pub(crate) fn take(&self) -> Option<T> {
        // Take (1)
        if !self.is_filled() {
            return None;
        }
        // Take (2)
        // ORDERING: Acquire; pairs with the Release in `put`; the item is visible from here on.
        Self::owned(self.pointer.swap(ptr::null_mut(), Ordering::Acquire))
    }

    /// Whether there was something a moment ago. Exact on the owner's thread if it says no.
    #[inline]
    pub(crate) fn is_filled(&self) -> bool {
        // ORDERING: Relaxed: nothing is read through it; who takes, swaps.
        !self.pointer.load(Ordering::Relaxed).is_null()
    }

    /// What a swap took out.
    #[inline]
    fn owned(out: *mut ()) -> Option<T> {
        // SAFETY: ONE-OWNER: the pointer was put in by `put`, from `into_raw`, and a swap took it
        // out, once.
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
