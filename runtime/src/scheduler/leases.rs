//! How a task keeps its runtime's memory alive, without a read-modify-write at its spawn and another at its end.
//!
//! A task may be the last that knows of its runtime: its handle, or a waker, may outlive everything else. So each holds a lease of the runtime, and
//! while any is out, one count of the runtime's `Arc` is held for all of them. A worker takes leases in batches and keeps a stock, from which the
//! tasks that are spawned on it get theirs, and into which go those of the tasks that are freed on it.
//!
//! Who writes: whoever takes leases out or brings them back; a worker once a batch.
//!
//! Protocol, with `out` the leases that are out, those in stocks included:
//! 1. Take, by somebody who holds the runtime in another way: `out += n`; it was 0: one count more of the `Arc`.
//! 2. Return: `out -= n`; it is 0 now: one count less of the `Arc`.
//!
//! ALIVE-WHILE-OUT: nobody who holds a lease finds the runtime gone. Proof: the changes of `out` are ordered. Each time it rises from 0 a count is
//! added, once, and each time it falls to 0 one is taken off, once, if in another order. While a lease is out, `out` has risen from 0 once more than it has
//! fallen to it; so what was added is one more than what was taken off, as soon as the one that raised `out` has added its own, and until then
//! it holds the runtime in another way, by (1).
//!
//! Rejected: a count of the `Arc` a task: two read-modify-writes of one word that all workers share, a tenth of what a spawn takes.

use crate::shim::{AtomicUsize, Ordering};

#[cfg(all(test, loom))]
#[path = "leases_loom.rs"]
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

    /// Take. True: the caller, who holds the runtime in another way meanwhile, adds a count to its `Arc`.
    #[must_use = "true means that a count is to be added"]
    pub(super) fn take(&self, leases: usize) -> bool {
        // ORDERING: Relaxed; who takes leases holds the runtime; what counts is the order of the changes of this word.
        self.0.fetch_add(leases, Ordering::Relaxed) == 0
    }

    /// Return. True: the caller takes a count off the `Arc`, and has nothing to do with the runtime afterwards.
    #[must_use = "true means that a count is to be taken off"]
    pub(super) fn give_back(&self, leases: usize) -> bool {
        // ORDERING: AcqRel; what was done under any lease comes before the end of the runtime, whoever brings that about.
        self.0.fetch_sub(leases, Ordering::AcqRel) == leases
    }
}

#[cfg(not(loom))]
pub(super) use of_tasks::{Lease, Stock};

#[cfg(not(loom))]
mod of_tasks {
    use std::cell::Cell;
    use std::ops::Deref;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use super::BATCH;
    use crate::scheduler::current;
    use crate::scheduler::shared::Shared;

    /// A task's hold on its runtime.
    pub(in crate::scheduler) struct Lease(NonNull<Shared>);

    // SAFETY: it gives access to a `Shared` by reference, which is Sync, and drops one where the last lease goes, which is Send.
    unsafe impl Send for Lease {}
    // SAFETY: as for Send.
    unsafe impl Sync for Lease {}

    /// Not made from a reference: what is counted lies beside what a reference may touch.
    fn pointer(shared: &Arc<Shared>) -> NonNull<Shared> {
        NonNull::new(Arc::as_ptr(shared).cast_mut()).expect("an Arc is never null")
    }

    /// Takes leases out.
    fn take(shared: &Arc<Shared>, leases: usize) {
        if shared.leases.take(leases) {
            // Given back by who brings the last lease back.
            let _counted = Arc::into_raw(shared.clone());
        }
    }

    /// Brings leases back.
    ///
    /// # Safety
    /// They were taken out, of that runtime, and are given up.
    unsafe fn give_back(shared: NonNull<Shared>, leases: usize) {
        // SAFETY: ALIVE-WHILE-OUT: these are out.
        if unsafe { shared.as_ref() }.leases.give_back(leases) {
            // SAFETY: the pointer is that of an `Arc`; the count is the one that `take` has added, or is about to.
            unsafe { Arc::decrement_strong_count(shared.as_ptr()) }
        }
    }

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

    /// A worker's stock of leases.
    pub(in crate::scheduler) struct Stock {
        shared: Arc<Shared>,
        leases: Cell<usize>,
    }

    impl Stock {
        pub(in crate::scheduler) fn new(shared: Arc<Shared>) -> Self {
            Self { shared, leases: Cell::new(0) }
        }

        /// One out of the stock, which is filled if it is empty.
        #[inline]
        fn draw(&self) {
            if self.leases.get() == 0 {
                take(&self.shared, BATCH);
                self.leases.set(BATCH);
            }
            self.leases.set(self.leases.get() - 1);
        }

        /// One into the stock.
        #[inline]
        fn keep(&self) {
            self.leases.set(self.leases.get() + 1);
            if self.leases.get() > 2 * BATCH {
                self.give_back(BATCH);
            }
        }

        fn give_back(&self, leases: usize) {
            self.leases.set(self.leases.get() - leases);
            // SAFETY: so many of the stock's, which are not in it any more.
            unsafe { give_back(pointer(&self.shared), leases) }
        }
    }

    impl Drop for Stock {
        fn drop(&mut self) {
            if self.leases.get() > 0 {
                self.give_back(self.leases.get());
            }
        }
    }
}
