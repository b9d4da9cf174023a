//! The kinds of cell: a number that only grows, one that is what it is now, and a histogram.
//!
//! Invariant: *Single writer*, see `cells`.

use std::sync::atomic::{AtomicU64, Ordering};

use volt_telemetry::Histogram;
use volt_telemetry::histogram::unbounded_bucket_of;

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

/// A number that is what it is now.
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

/// Counts by the buckets of `volt_telemetry::histogram`, and for what lies above the last one by
/// those that would follow: a reader adds these up, so that the writer need not read where the last
/// one is.
#[derive(Debug)]
pub(crate) struct HistogramCells {
    counts: Box<[Counter; CELLS]>,
    sum_ns: Counter,
}

/// A power of two above every bucket there could be.
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
        // More cells than buckets, and the mask says so to the compiler.
        self.counts[unbounded_bucket_of(ns) % CELLS].add(1);
        self.sum_ns.add(ns);
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram::from_counts(self.counts.iter().map(Counter::get), self.sum_ns.get())
    }
}
