//! A worker's stock of leases, and how leases are taken from the runtime and returned.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use super::BATCH;
use crate::scheduler::shared::Shared;

/// Not made from a reference: the counts of the `Arc` lie outside the memory that a reference to
/// `Shared` may access.
pub(super) fn pointer(shared: &Arc<Shared>) -> NonNull<Shared> {
    NonNull::new(Arc::as_ptr(shared).cast_mut()).expect("an Arc is never null")
}

/// Takes leases from the runtime.
pub(super) fn take(shared: &Arc<Shared>, leases: usize) {
    if shared.lifecycle.leases.take(leases) {
        // The count is removed by the thread that returns the last lease.
        let _counted = Arc::into_raw(shared.clone());
    }
}

/// Returns leases to the runtime.
///
/// # Safety
///
/// The leases must have been taken from that runtime, and must not be used afterwards.
pub(super) unsafe fn give_back(shared: NonNull<Shared>, leases: usize) {
    // SAFETY: ALIVE-WHILE-OUT: these are out.
    if unsafe { shared.as_ref() }.lifecycle.leases.give_back(leases) {
        // SAFETY: the pointer is that of an `Arc`; the count is the one that `take` has added, or
        // is about to add.
        unsafe { Arc::decrement_strong_count(shared.as_ptr()) }
    }
}

/// A worker's stock of leases.
pub(in crate::scheduler) struct Stock {
    shared: Arc<Shared>,
    leases: Cell<usize>,
}

impl Stock {
    pub(in crate::scheduler) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, leases: Cell::new(0) }
    }

    /// Takes one lease out of the stock, which is refilled if it is empty.
    #[inline]
    pub(super) fn draw(&self) {
        if self.leases.get() == 0 {
            take(&self.shared, BATCH);
            self.leases.set(BATCH);
        }
        self.leases.set(self.leases.get() - 1);
    }

    /// Puts one lease into the stock.
    #[inline]
    pub(super) fn keep(&self) {
        self.leases.set(self.leases.get() + 1);
        if self.leases.get() > 2 * BATCH {
            self.give_back(BATCH);
        }
    }

    fn give_back(&self, leases: usize) {
        self.leases.set(self.leases.get() - leases);
        // SAFETY: these leases were in the stock and have just been removed from it.
        unsafe { give_back(pointer(&self.shared), leases) }
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        if self.leases.get() > 0 {
            self.give_back(self.leases.get());
        }
    }
}
