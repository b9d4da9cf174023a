//! How a task keeps its runtime's memory alive, without a read-modify-write at its spawn and
//! another at its end.
//!
//! A task may be the last that knows of its runtime: its handle, or a waker, may outlive everything
//! else. So each holds a lease of the runtime, and while any is out, one count of the runtime's
//! `Arc` is held for all of them. A worker takes leases in batches and keeps a stock, from which
//! the tasks that are spawned on it get theirs, and into which go those of the tasks that are freed
//! on it.
//!
//! Who writes: whoever takes leases out or brings them back; a worker once a batch.
//!
//! Protocol, with `out` the leases that are out, those in stocks included:
//! 1. Take, by somebody who holds the runtime in another way: `out += n`; it was 0: one count more
//!    of the `Arc`.
//! 2. Return: `out -= n`; it is 0 now: one count less of the `Arc`.
//!
//! ALIVE-WHILE-OUT: nobody who holds a lease finds the runtime gone. Proof: the changes of `out`
//! are ordered. Each time it rises from 0 a count is added, once, and each time it falls to 0 one
//! is taken off, once, if in another order. While a lease is out, `out` has risen from 0 once more
//! than it has fallen to it; so what was added is one more than what was taken off, as soon as the
//! one that raised `out` has added its own, and until then it holds the runtime in another way, by
//! (1).
//!
//! Rejected: a count of the `Arc` a task: two read-modify-writes of one word that all workers
//! share, a tenth of what a spawn takes.

use volt_shim::{AtomicUsize, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// Leases that a worker takes at once. It gives as many back when it has twice as many and more.
#[cfg(not(loom))]
const BATCH: usize = 128;

/// Leases that are out.
#[derive(Debug)]
pub(super) struct Leases(AtomicUsize);

impl Leases {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Take. True: the caller, who holds the runtime in another way meanwhile, adds a count to its
    /// `Arc`.
    #[must_use = "true means that a count is to be added"]
    pub(super) fn take(&self, leases: usize) -> bool {
        // ORDERING: Relaxed; who takes leases holds the runtime; what counts is the order of the
        // changes of this word.
        self.0.fetch_add(leases, Ordering::Relaxed) == 0
    }

    /// Return. True: the caller takes a count off the `Arc`, and has nothing to do with the runtime
    /// afterwards.
    #[must_use = "true means that a count is to be taken off"]
    pub(super) fn give_back(&self, leases: usize) -> bool {
        // ORDERING: AcqRel; what was done under any lease comes before the end of the runtime,
        // whoever brings that about.
        self.0.fetch_sub(leases, Ordering::AcqRel) == leases
    }
}

#[cfg(not(loom))]
pub(super) mod lease;
#[cfg(not(loom))]
pub(super) mod stock;
