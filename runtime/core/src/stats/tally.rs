//! Counts that a shutdown goes by: they are counted whether or not anything is recorded.
//!
//! Who writes: one thread at a time, each its own. Who reads: anybody.

use volt_shim::{AtomicU64, CachePadded, Ordering};

/// A count that its writer alone raises.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    #[inline]
    pub(crate) fn add_one(&self) {
        // ORDERING: the load is a single-writer cell; Release pairs with the Acquire in `get`,
        // whose caller goes on to what came before.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// As [`add_one`](Self::add_one), publishing nothing: a fault of a model.
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

/// A count that is raised under a lock.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(CachePadded<AtomicU64>);

impl Arrivals {
    /// One more; called under the lock.
    pub(crate) fn add_one(&self) {
        // ORDERING: Relaxed, both; one writer at a time, by the lock, which also publishes it.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// To be read after what shows that nothing more arrives, or that something has arrived.
    pub(crate) fn count(&self) -> u64 {
        // ORDERING: Relaxed; ordered by the Acquire of the ends, or of `is_closed`, before.
        self.0.load(Ordering::Relaxed)
    }
}
