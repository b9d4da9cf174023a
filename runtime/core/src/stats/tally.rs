//! Counts on which a shutdown depends. They are maintained even if nothing else is counted.
//!
//! Each is written by one thread at a time, and read by any thread.

use volt_shim::{AtomicU64, CachePadded, Ordering};

/// A count that only its one writer increments.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    #[inline]
    pub(crate) fn add_one(&self) {
        // ORDERING: the load is a single-writer cell; Release pairs with the Acquire in `get`,
        // whose caller then reads what came before.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Same as [`add_one`](Self::add_one), but publishes nothing: a deliberate fault in a model.
    #[cfg(all(test, loom))]
    pub(crate) fn add_one_relaxed(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // ORDERING: Acquire; pairs with the Release in `add_one`.
        self.0.load(Ordering::Acquire)
    }
}

/// A count that is incremented under a lock.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(CachePadded<AtomicU64>);

impl Arrivals {
    /// Adds one. Called under the lock.
    pub(crate) fn add_one(&self) {
        // ORDERING: Relaxed, both; one writer at a time, by the lock, which also publishes it.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the count. Read it after a load that shows that nothing more arrives, or that
    /// something has arrived.
    pub(crate) fn count(&self) -> u64 {
        // ORDERING: Relaxed; ordered by the earlier Acquire of the tallies of ends, or of
        // `is_closed`.
        self.0.load(Ordering::Relaxed)
    }
}
