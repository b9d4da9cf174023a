//! Counts the submits of tasks to the global queue and the inboxes, and those that are under way.
//!
//! A submit first puts a task into a queue and then wakes a worker for it; see `idle`. The kernel
//! may preempt the submitting thread in between, for any length of time. If a
//! parked worker's time-out ends in that interval, the worker finds a task that no thread has woken
//! it for. That is no lost wake-up: it is still to come. So the worker checks here whether a submit
//! is under way before it counts a lost wake-up.
//!
//! Any thread writes. Both numbers are in one word: a submit costs two read-modify-writes of it.

use std::sync::atomic::{AtomicU64, Ordering};

use volt_shim::CachePadded;

/// One finished submit, in the upper bits. The lower bits count the submits under way, of which
/// there is at most one per thread.
const FINISHED: u64 = 1 << 20;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Submits(CachePadded<AtomicU64>);

/// A submit that is under way until this is dropped.
#[must_use = "the submit is under way only while this lives"]
pub(crate) struct UnderWay<'a> {
    word: &'a AtomicU64,
    /// Added at the end: subtracts this submit from those under way.
    at_end: u64,
}

impl Submits {
    pub(crate) fn new() -> Self {
        Self(CachePadded(AtomicU64::new(0)))
    }

    /// Begins a submit, before its task is put into a queue.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        // ORDERING: Relaxed: `is_any_under_way` is a read-modify-write, which reads the last value.
        self.0.fetch_add(1, Ordering::Relaxed);
        UnderWay { word: &self.0, at_end: 1_u64.wrapping_neg() }
    }

    /// Returns how many submits were [counted](UnderWay::count).
    pub(crate) fn counted(&self) -> u64 {
        // ORDERING: Relaxed: a statistic.
        self.0.load(Ordering::Relaxed) / FINISHED
    }

    /// Returns whether a thread has begun a submit and not ended it.
    pub(crate) fn is_any_under_way(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release at the end of a submit. A read-modify-write, so
        // that it reads the last value and not an old one. Called only when the park of a worker
        // timed out although there was a task.
        !self.0.fetch_add(0, Ordering::Acquire).is_multiple_of(FINISHED)
    }
}

impl UnderWay<'_> {
    /// Counts this submit when it ends: its task was woken outside the workers.
    pub(crate) fn count(&mut self) {
        self.at_end = FINISHED - 1;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // ORDERING: Release; pairs with the Acquire in `is_any_under_way`: the wake-up happened
        // before.
        self.word.fetch_add(self.at_end, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submit_is_under_way_until_it_ends() {
        let submits = Submits::new();
        let first = submits.begin();
        let mut second = submits.begin();
        second.count();
        drop(first);
        assert!(submits.is_any_under_way());
        assert_eq!(submits.counted(), 0);
        drop(second);
        assert!(!submits.is_any_under_way());
        assert_eq!(submits.counted(), 1);
    }
}
