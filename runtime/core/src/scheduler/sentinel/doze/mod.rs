//! How the sentinel sleeps: between two checks, for an interval; while all workers are parked,
//! without a time-out, so that an idle runtime causes no activity.
//!
//! The sentinel *dozes* when it sleeps without a time-out. The first worker that wakes up and finds
//! a task *rouses* it. The sentinel's thread and that worker write the state here. The race: the
//! sentinel sees all workers parked, a worker wakes up and sees no doze yet, and then the sentinel
//! dozes and does not watch that worker.
//!
//! Protocol. Doze, by the sentinel after it saw all workers parked:
//! 1. publish that: set `is_dozing` with a read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. check the bitmap once more. If a worker is not parked: do not doze. Otherwise sleep until
//!    roused.
//!
//! Rouse, by a worker that woke up and has found a task, before it runs it:
//! 1. its bit is clear: it or its claimer cleared the bit with a read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. if `is_dozing` is set: clear it with a read-modify-write, and unpark the sentinel if it was
//!    this worker that cleared it.
//!
//! Invariant: *Watched while awake*: no worker runs a task while the sentinel dozes. The two fences
//! are ordered: either Doze (3) sees the cleared bit, or Rouse (3) sees the doze.

use std::time::Duration;

use volt_shim::{AtomicBool, Ordering};

use crate::driver::parker::{Parker, Unparked};
use crate::scheduler::idle::Idle;

#[cfg(all(test, loom))]
mod loom_models;

/// The state of the sentinel's sleep.
pub(crate) struct Doze {
    parker: Parker,
    is_dozing: AtomicBool,
}

impl Doze {
    pub(crate) fn new() -> Self {
        Self { parker: Parker::new(), is_dozing: AtomicBool::new(false) }
    }

    /// Sleeps until the next check: for `interval`, or, while all workers are parked, until roused.
    /// Returns whether the sleep was for about `interval`.
    pub(crate) fn sleep(&self, idle: &Idle, is_all_parked: impl Fn() -> bool, interval: Duration) -> bool {
        if is_all_parked() {
            // Doze (1)
            // ORDERING: AcqRel; pairs with the swap in `end_doze`, which clears it. The fence
            // orders it before the check.
            self.is_dozing.swap(true, Ordering::AcqRel);
            // Doze (2)
            idle.fence();
            // Doze (3)
            if is_all_parked() {
                // The token that ends this sleep is given after `is_dozing` was cleared. Nothing
                // else may end the sleep, or the token would end the next one.
                self.parker.wait_token();
                return false;
            }
            // ORDERING: AcqRel; as above.
            if !self.is_dozing.swap(false, Ordering::AcqRel) {
                self.parker.wait_token();
            }
            return false;
        }
        // A time-out and a token need no distinction: a check follows in either case.
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
        // ORDERING: Relaxed; ordered by the fence, see the module documentation.
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

    /// Ends the current sleep, or the next one if the sentinel is awake.
    pub(crate) fn end(&self) {
        self.end_doze();
        self.wake();
    }

    fn wake(&self) {
        let unparked = self.parker.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "the sentinel never sleeps in a driver");
    }
}
