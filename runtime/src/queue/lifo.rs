//! One place for the thing to run next: an atomic pointer.
//!
//! # Who writes, who reads
//!
//! Only the owner puts, so that a thing made ready on one worker stays there while its data is warm. Anybody may *take*, with a swap:
//! the owner for its next poll, a thief as its last resort when the owner's present poll is long.
//!
//! # Invariant
//!
//! * ONE-OWNER: a pointer in the slot came out of [`RawPointer::into_raw`] and belongs to the slot; the swap that takes it out of the slot
//!   gives it to exactly one.
//!
//! # Protocol
//!
//! * Put: (1) a plain look: a slot that is empty stays so, since nobody else puts, and a store is enough; (2) else swap the new
//!   pointer in; what comes out, if a thief was not faster, goes back to the caller.
//! * Take: (1) a plain look: an empty slot costs no write; (2) swap null in.
//!
//! # Rejected
//!
//! * Load and store in `put` where the slot is filled: a thief's take in between is undone, and the thing runs twice.
//! * `push` and `pop` names: it holds one.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use crate::shim::{AtomicPtr, Ordering};

#[cfg(all(test, loom))]
#[path = "lifo_loom.rs"]
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
    /// Owns what is behind the pointer; shared as a function is, since a shared slot only ever moves it, and `T` is `Send`.
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
        // ORDERING: AcqRel; the Release pairs with the Acquire in `take` and publishes the item; the Acquire pairs with the Release of
        // the `put` whose item comes out.
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
        // SAFETY: ONE-OWNER: the pointer was put in by `put`, from `into_raw`, and a swap took it out, once.
        NonNull::new(out).map(|raw| unsafe { T::from_raw(raw) })
    }
}

impl<T: RawPointer> Drop for LifoSlot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// Items that go through the slot in a stress; Miri is slow.
    const ITEMS: usize = if cfg!(miri) { 300 } else { 200_000 };

    impl<T: Send> RawPointer for Box<T> {
        fn into_raw(self) -> NonNull<()> {
            NonNull::from(Box::leak(self)).cast()
        }

        unsafe fn from_raw(raw: NonNull<()>) -> Self {
            // SAFETY: ONE-OWNER: by this function's contract the pointer came from `Box::leak` above, and comes back once.
            unsafe { Box::from_raw(raw.cast().as_ptr()) }
        }
    }

    #[test]
    fn the_slot_holds_the_newest_and_gives_the_former_back() {
        let slot = LifoSlot::new();
        assert!(!slot.is_filled());
        assert_eq!(slot.take(), None);
        assert_eq!(slot.put(Box::new(1)), None);
        assert!(slot.is_filled());
        assert_eq!(slot.put(Box::new(2)), Some(Box::new(1)));
        assert_eq!(slot.take(), Some(Box::new(2)));
        assert_eq!(slot.take(), None);
    }

    #[test]
    fn what_is_left_inside_is_dropped_once() {
        let alive = Arc::new(());
        let slot = LifoSlot::new();
        slot.put(Box::new(alive.clone()));
        drop(slot.put(Box::new(alive.clone())));
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(slot);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn every_item_comes_out_once_under_threads() {
        let slot = LifoSlot::<Box<usize>>::new();
        let is_over = AtomicBool::new(false);
        let mut seen = vec![0_u8; ITEMS];
        thread::scope(|scope| {
            let take = || {
                let mut taken = Vec::new();
                while !is_over.load(Ordering::Acquire) {
                    match slot.take() {
                        Some(item) => taken.push(*item),
                        None => thread::yield_now(),
                    }
                }
                taken
            };
            let thieves = [scope.spawn(take), scope.spawn(take)];
            let mut taken: Vec<usize> =
                (0..ITEMS).filter_map(|item| slot.put(Box::new(item))).map(|item| *item).collect();
            taken.extend(slot.take().map(|item| *item));
            is_over.store(true, Ordering::Release);
            let stolen = thieves.into_iter().flat_map(|thief| thief.join().unwrap());
            taken.into_iter().chain(stolen).for_each(|item| seen[item] += 1);
        });
        assert!(seen.iter().all(|&times| times == 1), "an item was lost or came out twice");
    }
}
