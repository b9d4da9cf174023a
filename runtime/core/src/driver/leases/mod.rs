//! Leases: how a task keeps its runtime's memory alive, without a read-modify-write at its spawn
//! and another at its end; and how a sleep keeps its driver's memory alive.
//!
//! A task may be the last owner of its runtime: its handle, or a waker, may outlive everything
//! else. So each task holds a *lease*, and while any lease is out, one count of the runtime's `Arc`
//! is held for all of them. A sleep may outlive its runtime, too. It holds a lease on the driver,
//! by the same protocol. A worker takes leases in batches and keeps a *stock*. Tasks that are
//! spawned on the worker get their leases from the stock, and the leases of tasks that are freed on
//! it go back there. So a worker changes the shared count once per batch; other threads change it
//! for each lease.
//!
//! An ordinary case: a worker with an empty stock spawns a task. It takes `BATCH` leases, which
//! adds one count to the `Arc`, and the task gets one of them. The task ends, and a thread outside
//! the workers frees it: that thread returns the lease. When the runtime ends, the worker returns
//! its stock, which removes the count.
//!
//! The race: one thread returns the last lease while another one takes a new one, so the count is
//! removed and added at the same time.
//!
//! Protocol, where `out` is the number of leases that are out, including those in stocks:
//! 1. Take, by a thread that holds the runtime in another way: `out += n`; if it was 0, add a count
//!    to the `Arc`.
//! 2. Return: `out -= n`; if it is 0 now, remove a count from the `Arc`.
//!
//! ALIVE-WHILE-OUT: the runtime exists as long as a lease is out. Proof: the changes of `out` are
//! ordered. Each rise from 0 adds one count, and each fall to 0 removes one, though perhaps in
//! another order. While a lease is out, `out` has risen from 0 once more than it has fallen to 0.
//! So the counts added are one more than those removed, as soon as the thread that raised `out` has
//! added its own. Until then that thread holds the runtime in another way, by (1).
//!
//! Rejected: a count of the `Arc` per task or sleep. That takes two read-modify-writes of one word
//! that all workers share, a tenth of the cost of a spawn. For a timeout whose future is ready
//! immediately, it would be the only shared word.

use volt_shim::{AtomicUsize, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// How many leases a worker takes together. It returns as many when its stock exceeds twice this
/// number.
#[cfg(not(loom))]
const BATCH: usize = 128;

/// The number of leases that are out.
#[derive(Debug)]
pub(crate) struct Leases(AtomicUsize);

impl Leases {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Take. If it returns `true`, the caller, which holds the runtime in another way meanwhile,
    /// must add a count to its `Arc`.
    #[must_use = "true means that a count is to be added"]
    pub(super) fn take(&self, leases: usize) -> bool {
        // ORDERING: Relaxed; the thread that takes leases holds the runtime. Only the modification
        // order of this word matters.
        self.0.fetch_add(leases, Ordering::Relaxed) == 0
    }

    /// Return. If it returns `true`, the caller must remove a count from the `Arc`, and must not
    /// use the runtime afterwards.
    #[must_use = "true means that a count is to be taken off"]
    pub(super) fn give_back(&self, leases: usize) -> bool {
        // ORDERING: AcqRel; all that was done under any lease comes before the end of the runtime,
        // on whichever thread that happens.
        self.0.fetch_sub(leases, Ordering::AcqRel) == leases
    }
}

#[cfg(not(loom))]
pub(crate) mod stock;
