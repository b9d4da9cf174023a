//! A worker's stock of leases, and how leases are taken from their owner and returned. The *owner*
//! is the object that they keep alive: the runtime's shared state, or its driver.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{BATCH, Leases};

/// An object that leases keep alive.
pub(crate) trait Leased {
    /// Returns the number of its leases that are out.
    fn leases(&self) -> &Leases;
}

/// Returns a pointer to the owner, for [`give_back`]. It is not made from a reference: the counts
/// of the `Arc` lie outside the memory that a reference to the owner may access.
pub(crate) fn pointer<T>(owner: &Arc<T>) -> NonNull<T> {
    NonNull::new(Arc::as_ptr(owner).cast_mut()).expect("an Arc is never null")
}

/// Takes leases from their owner.
pub(crate) fn take<T: Leased>(owner: &Arc<T>, leases: usize) {
    if owner.leases().take(leases) {
        // The count is removed by the thread that returns the last lease.
        let _counted = Arc::into_raw(owner.clone());
    }
}

/// Returns leases to their owner.
///
/// # Safety
///
/// The leases must have been taken from that owner, and must not be used afterwards.
pub(crate) unsafe fn give_back<T: Leased>(owner: NonNull<T>, leases: usize) {
    // SAFETY: ALIVE-WHILE-OUT: these are out.
    if unsafe { owner.as_ref() }.leases().give_back(leases) {
        // SAFETY: the pointer is that of an `Arc`; the count is the one that `take` has added, or
        // is about to add.
        unsafe { Arc::decrement_strong_count(owner.as_ptr()) }
    }
}

/// A worker's stock of leases.
pub(crate) struct Stock<T: Leased> {
    owner: Arc<T>,
    leases: Cell<usize>,
}

impl<T: Leased> Stock<T> {
    pub(crate) fn new(owner: Arc<T>) -> Self {
        Self { owner, leases: Cell::new(0) }
    }

    /// Takes one lease out of the stock, which is refilled if it is empty.
    #[inline]
    pub(crate) fn draw(&self) {
        if self.leases.get() == 0 {
            take(&self.owner, BATCH);
            self.leases.set(BATCH);
        }
        self.leases.set(self.leases.get() - 1);
    }

    /// Puts one lease into the stock.
    #[inline]
    pub(crate) fn keep(&self) {
        self.leases.set(self.leases.get() + 1);
        if self.leases.get() > 2 * BATCH {
            self.give_back(BATCH);
        }
    }

    fn give_back(&self, leases: usize) {
        self.leases.set(self.leases.get() - leases);
        // SAFETY: these leases were in the stock and have just been removed from it.
        unsafe { give_back(pointer(&self.owner), leases) }
    }
}

impl<T: Leased> Drop for Stock<T> {
    fn drop(&mut self) {
        if self.leases.get() > 0 {
            self.give_back(self.leases.get());
        }
    }
}
