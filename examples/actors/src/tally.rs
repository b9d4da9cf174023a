//! Counts what processes report to the benchmark: that they have begun and ended, that a token has
//! arrived, and how many there were.
//!
//! There is one counter of each kind for the whole program, so that processes need no reference to
//! it. Only one workload runs at a time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use std::sync::Mutex;

/// Processes that have not begun yet.
pub(crate) static BEGUN: Latch = Latch::new();
/// Processes that have not ended yet.
pub(crate) static ENDED: Latch = Latch::new();
/// Tokens, or sinks, that have not finished yet.
pub(crate) static ARRIVED: Latch = Latch::new();
/// Tokens that nodes received; nodes add them when they end.
pub(crate) static TOKENS: AtomicU64 = AtomicU64::new(0);
/// The sum of the tokens that sinks received; sinks add it when they end.
pub(crate) static SUM: AtomicU64 = AtomicU64::new(0);

/// No batch takes this long unless a message was lost.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Counts down to zero, and then wakes the one thread that waits for it.
pub(crate) struct Latch {
    left: AtomicU64,
    waiter: Mutex<Option<Thread>>,
}

impl Latch {
    const fn new() -> Self {
        Self { left: AtomicU64::new(0), waiter: Mutex::new(None) }
    }

    /// Starts counting down from `count`. The calling thread is the one that will wait.
    pub(crate) fn arm(&self, count: usize) {
        *self.waiter.lock().expect("no thread panics here") = Some(thread::current());
        // ORDERING: Release; pairs with the Acquire in `hit`.
        let before = self.left.swap(count as u64, Ordering::Release);
        assert_eq!(before, 0, "the previous batch has completed");
    }

    pub(crate) fn hit(&self) {
        // ORDERING: AcqRel; pairs with the `hit` of other threads and with the Acquire in `wait`.
        let before = self.left.fetch_sub(1, Ordering::AcqRel);
        assert_ne!(before, 0, "more happened than was requested");
        if before == 1
            && let Some(waiter) = self.waiter.lock().expect("no thread panics here").as_ref()
        {
            waiter.unpark();
        }
    }

    pub(crate) fn wait(&self) {
        let deadline = std::time::Instant::now() + TIMEOUT;
        // ORDERING: Acquire; pairs with the AcqRel in `hit`.
        while self.left.load(Ordering::Acquire) != 0 {
            thread::park_timeout(Duration::from_secs(1));
            // ORDERING: Relaxed; only for the text.
            let left = self.left.load(Ordering::Relaxed);
            assert!(left == 0 || std::time::Instant::now() < deadline, "{left} did not happen within {TIMEOUT:?}");
        }
    }
}

/// The tokens of a node; reported when it ends.
#[derive(Default)]
pub(crate) struct Seen {
    tokens: u64,
    sum: u64,
    expected: u64,
}

impl Seen {
    pub(crate) fn expect(&mut self, tokens: u64) {
        self.expected = tokens;
    }

    /// Counts a token that a node passes on.
    pub(crate) fn pass(&mut self) {
        self.tokens += 1;
    }

    /// Counts a token that a sink receives.
    pub(crate) fn sink(&mut self, token: u64) {
        self.tokens += 1;
        self.sum += token;
        self.expected -= 1;
        if self.expected == 0 {
            ARRIVED.hit();
        }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the reader has waited for `ENDED`, which is reported after this.
        TOKENS.fetch_add(self.tokens, Ordering::Relaxed);
        // ORDERING: Relaxed, as above.
        SUM.fetch_add(self.sum, Ordering::Relaxed);
        ENDED.hit();
    }
}
