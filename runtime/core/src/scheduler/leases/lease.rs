//! A task's hold on its runtime.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::stock::{give_back, pointer, take};
use crate::scheduler::current;
use crate::scheduler::shared::Shared;

/// A task's hold on its runtime.
pub(in crate::scheduler) struct Lease(NonNull<Shared>);

// SAFETY: it gives access to a `Shared` by reference, which is Sync, and drops one where the last
// lease goes, which is Send.
unsafe impl Send for Lease {}
// SAFETY: as for Send.
unsafe impl Sync for Lease {}

impl Lease {
    /// From the stock of the worker that this thread is, or a new one.
    #[inline]
    pub(in crate::scheduler) fn of(shared: &Arc<Shared>) -> Self {
        current::with_worker(|worker| match worker.filter(|worker| worker.is_of(shared)) {
            Some(worker) => worker.leases().draw(),
            None => take(shared, 1),
        });
        Self(pointer(shared))
    }
}

impl Deref for Lease {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        // SAFETY: ALIVE-WHILE-OUT.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(worker) => worker.leases().keep(),
            // SAFETY: this lease is out, and gone with this.
            None => unsafe { give_back(self.0, 1) },
        });
    }
}
