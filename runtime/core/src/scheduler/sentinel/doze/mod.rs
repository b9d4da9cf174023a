//! How the sentinel sleeps: for a while between two checks, and for good while all workers are
//! parked, so that an idle runtime is quiet.
//!
//! Who writes: the sentinel's thread, and a worker that gets up.
//!
//! Protocol. Doze, by the sentinel that saw all workers parked:
//! 1. say so: `is_dozing`, by a read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. check the bitmap once more: somebody is up → not dozing; else sleep until roused.
//!
//! Rouse, by a worker that got up and has found a task, before it runs it:
//! 1. its bit is clear, by a read-modify-write of its own or of its claimer;
//! 2. `fence(SeqCst)`;
//! 3. if `is_dozing`: take that back by a read-modify-write, and unpark the sentinel if it was this
//!    one that did.
//!
//! Invariant: *Watched while awake*: no worker runs a task while the sentinel dozes. The two fences
//! are ordered: either Doze (3) sees the bit that is clear, or Rouse (3) sees the doze.

use std::time::Duration;

use volt_shim::{AtomicBool, Ordering};

use crate::driver::parker::{Parker, Unparked};
use crate::scheduler::idle::Idle;

#[cfg(all(test, loom))]
mod loom_models;

/// What the sentinel sleeps on.
pub(crate) struct Doze {
    parker: Parker,
    is_dozing: AtomicBool,
}

impl Doze {
    pub(crate) fn new() -> Self {
        Self { parker: Parker::new(), is_dozing: AtomicBool::new(false) }
    }

    /// Sleeps until the next check: for `interval`, or while all workers are parked, until roused.
    /// Whether it was for `interval`, about.
    pub(crate) fn sleep(&self, idle: &Idle, is_all_parked: impl Fn() -> bool, interval: Duration) -> bool {
        if is_all_parked() {
            // Doze (1)
            // ORDERING: AcqRel; pairs with the swap in `rouse`, which takes it back; before the
            // check by the fence.
            self.is_dozing.swap(true, Ordering::AcqRel);
            // Doze (2)
            idle.fence();
            // Doze (3)
            if is_all_parked() {
                // Roused by a token, which `rouse` leaves after it has taken the doze back; nothing
                // else may end this sleep, or the token would end the next one.
                self.parker.wait_token();
                return false;
            }
            // ORDERING: AcqRel; as above.
            if !self.is_dozing.swap(false, Ordering::AcqRel) {
                self.parker.wait_token();
            }
            return false;
        }
        // Whether it was the time-out or a token does not matter: a check follows.
        let _slept = self.parker.sleep(Some(interval));
        let _was_roused = self.parker.take_token();
        true
    }

    /// Rouse (2) and (3), by a worker whose bit is clear.
    #[inline]
    pub(crate) fn rouse(&self, idle: &Idle) {
        // Rouse (2)
        idle.fence();
        // Rouse (3)
        // ORDERING: Relaxed; ordered by the fence, see the header.
        if self.is_dozing.load(Ordering::Relaxed) {
            self.end_doze();
        }
    }

    #[cold]
    fn end_doze(&self) {
        // ORDERING: AcqRel; pairs with the swaps in `sleep`.
        if self.is_dozing.swap(false, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Ends whatever sleep there is, for good: the next one too.
    pub(crate) fn end(&self) {
        self.end_doze();
        self.wake();
    }

    fn wake(&self) {
        let unparked = self.parker.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "the sentinel never sleeps in a driver");
    }
}
