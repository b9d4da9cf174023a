//! The lease of a task on its runtime, and that of a sleep on its driver.
//!
//! The lease of a task is also its `Schedule`: the task reaches the runtime only through it.

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::driver::leases::Leases;
use crate::driver::leases::stock::{Leased, Stock, give_back, pointer, take};
use crate::driver::turn::Driver;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::Worker;
use crate::scheduler::worker::current;

/// An object that leases keep alive, with the worker's stock of them.
pub(in crate::scheduler) trait Owner: Leased + Sized {
    /// Returns the stock of the worker for this owner, unless the worker is another runtime's.
    fn stock<'w>(&self, worker: &'w Worker) -> Option<&'w Stock<Self>>;
}

impl Leased for Shared {
    #[inline]
    fn leases(&self) -> &Leases {
        &self.lifecycle.leases
    }
}

impl Owner for Shared {
    #[inline]
    fn stock<'w>(&self, worker: &'w Worker) -> Option<&'w Stock<Self>> {
        worker.is_of(self).then(|| worker.leases())
    }
}

impl Leased for Driver {
    #[inline]
    fn leases(&self) -> &Leases {
        &self.leases
    }
}

impl Owner for Driver {
    #[inline]
    fn stock<'w>(&self, worker: &'w Worker) -> Option<&'w Stock<Self>> {
        worker.has_driver(self).then(|| worker.driver_leases())
    }
}

/// A lease: keeps its owner's memory alive.
pub(in crate::scheduler) struct Lease<T: Owner>(NonNull<T>);

// SAFETY: it gives access to a `T` by reference, which is Sync, and drops one when the last lease
// is returned, which is Send.
unsafe impl<T: Owner + Send + Sync> Send for Lease<T> {}
// SAFETY: as for Send.
unsafe impl<T: Owner + Send + Sync> Sync for Lease<T> {}

impl<T: Owner> Lease<T> {
    /// Takes a lease from the stock of the current worker, or a new one outside of workers.
    #[inline]
    pub(in crate::scheduler) fn of(owner: &Arc<T>) -> Self {
        current::with_worker(|worker| match worker.and_then(|worker| owner.stock(worker)) {
            Some(stock) => stock.draw(),
            None => take(owner, 1),
        });
        Self(pointer(owner))
    }
}

impl<T: Owner> Deref for Lease<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: ALIVE-WHILE-OUT of `driver::leases`: this lease is out until it is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Owner> Drop for Lease<T> {
    #[inline]
    fn drop(&mut self) {
        current::with_worker(|worker| match worker.and_then(|worker| self.stock(worker)) {
            Some(stock) => stock.keep(),
            // SAFETY: this lease is out, and ends with this call.
            None => unsafe { give_back(self.0, 1) },
        });
    }
}

/// A reference to a driver that keeps it alive. On a worker of its runtime, taking and dropping one
/// changes no memory that the workers share, unlike a clone of the `Arc`.
pub struct DriverLease(Lease<Driver>);

impl DriverLease {
    /// Takes a lease on the driver.
    #[inline]
    pub fn of(driver: &Arc<Driver>) -> Self {
        Self(Lease::of(driver))
    }
}

impl Deref for DriverLease {
    type Target = Driver;

    #[inline]
    fn deref(&self) -> &Driver {
        &self.0
    }
}

impl fmt::Debug for DriverLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::shared::without_threads;

    /// Returns the references to the driver that `Arc` counts.
    fn counts(driver: &Arc<Driver>) -> usize {
        Arc::strong_count(driver)
    }

    #[test]
    fn the_leases_of_a_worker_come_from_its_stock() {
        let (shared, mut cores) = without_threads(1);
        let (shared, other) = (Arc::new(shared), Arc::new(without_threads(1).0));
        let before = counts(&shared.workers.driver);
        let worker = Worker::new(shared.clone(), 0, cores.remove(0));
        let out = counts(&shared.workers.driver);
        current::run_as(&worker, || {
            let first = DriverLease::of(&shared.workers.driver);
            assert_eq!(counts(&shared.workers.driver), out + 1, "one for the whole batch");
            let more: Vec<_> = (0..100).map(|_| DriverLease::of(&shared.workers.driver)).collect();
            let foreign = DriverLease::of(&other.workers.driver);
            assert_eq!(
                (counts(&shared.workers.driver), counts(&other.workers.driver)),
                (out + 1, 2),
                "the other runtime's is counted"
            );
            drop((first, more, foreign));
            assert_eq!(
                (counts(&shared.workers.driver), counts(&other.workers.driver)),
                (out + 1, 1),
                "the stock stays with the worker"
            );
        });
        drop(worker);
        assert_eq!(counts(&shared.workers.driver), before);
    }

    #[test]
    fn a_driver_lives_as_long_as_its_last_lease() {
        let (shared, _cores) = without_threads(1);
        let weak = Arc::downgrade(&shared.workers.driver);
        let leases = [(); 3].map(|()| DriverLease::of(&shared.workers.driver));
        drop(shared);
        assert_eq!(weak.strong_count(), 1, "one count for all leases");
        drop(leases);
        assert!(weak.upgrade().is_none());
    }
}
