//! The kinds of cells: a counter, a gauge and a histogram.
//!
//! Invariant: *Single writer*, see `cells`.

use std::sync::atomic::{AtomicU64, Ordering};

use volt_telemetry::Histogram;
use volt_telemetry::histogram::{BUCKETS, unbounded_bucket_of};

use super::counting;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        if !counting::IS_ON {
            return;
        }
        // ORDERING: Relaxed; single-writer cell.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // ORDERING: Relaxed; single-writer cell.
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that may go up and down.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    #[inline]
    pub(crate) fn set(&self, n: u64) {
        if !counting::IS_ON {
            return;
        }
        // ORDERING: Relaxed; single-writer cell.
        self.0.store(n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // ORDERING: Relaxed; single-writer cell.
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts by the buckets of `volt_telemetry::histogram`. Values above the last bucket are counted
/// in the buckets that would follow, and a reader adds those up. So the writer does not have to
/// load the position of the last bucket.
#[derive(Debug)]
pub(crate) struct HistogramCells {
    counts: Box<[Counter; CELLS]>,
    sum_ns: Counter,
}

/// A power of two above the index of every possible bucket.
const CELLS: usize = 1024;
const _: () = assert!(unbounded_bucket_of(u64::MAX) < CELLS);

impl Default for HistogramCells {
    fn default() -> Self {
        Self { counts: Box::new(std::array::from_fn(|_| Counter::default())), sum_ns: Counter::default() }
    }
}

impl HistogramCells {
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        if !counting::IS_ON {
            return;
        }
        // There are more cells than buckets. With the mask, the compiler can infer that the index
        // is in bounds.
        self.counts[unbounded_bucket_of(ns) % CELLS].add(1);
        self.sum_ns.add(ns);
    }

    /// Returns the count of one bucket of [`Histogram`].
    pub(crate) fn count(&self, bucket: usize) -> u64 {
        let end = if bucket == BUCKETS - 1 { CELLS } else { bucket + 1 };
        self.counts[bucket..end].iter().map(Counter::get).sum()
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram::from_counts(self.counts.iter().map(Counter::get), self.sum_ns.get())
    }
}
