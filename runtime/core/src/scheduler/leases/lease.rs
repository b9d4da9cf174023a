//! The lease of a task on its runtime. It is also the task's `Schedule`: the task reaches the
//! runtime only through it.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::stock::{give_back, pointer, take};
use crate::scheduler::current;
use crate::scheduler::shared::Shared;

/// A task's lease on its runtime: keeps the runtime's memory alive.
pub(in crate::scheduler) struct Lease(NonNull<Shared>);

// SAFETY: it gives access to a `Shared` by reference, which is Sync, and drops one when the last
// lease is returned, which is Send.
unsafe impl Send for Lease {}
// SAFETY: as for Send.
unsafe impl Sync for Lease {}

impl Lease {
    /// Takes a lease from the stock of the current worker, or a new one outside of workers.
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
            // SAFETY: this lease is out, and ends with this call.
            None => unsafe { give_back(self.0, 1) },
        });
    }
}
