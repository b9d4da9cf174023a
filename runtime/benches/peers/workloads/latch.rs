//! Lets a thread wait until tasks have counted down to 0, by the same means on every runtime.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};

pub(super) struct Latch {
    left: AtomicUsize,
    waiter: Thread,
}

impl Latch {
    /// Creates a latch. The calling thread is the one that will wait.
    pub(super) fn new(count: usize) -> Self {
        Self { left: AtomicUsize::new(count), waiter: thread::current() }
    }

    pub(super) fn reset(&self, count: usize) {
        // ORDERING: Relaxed; the operation that publishes the next round's work publishes this too.
        self.left.store(count, Ordering::Relaxed);
    }

    pub(super) fn count_down(&self) {
        // ORDERING: AcqRel; pairs with the Acquire in `wait`, whose thread therefore sees what each
        // of them did before.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.waiter.unpark();
        }
    }

    pub(super) fn wait(&self) {
        // ORDERING: Acquire; pairs with `count_down`.
        while self.left.load(Ordering::Acquire) > 0 {
            thread::park();
        }
    }
}
