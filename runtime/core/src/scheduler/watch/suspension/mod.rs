//! How the sentinel sleeps, and how it suspends its checks of a runtime. Between two checks it
//! sleeps for an interval. While all workers of a runtime are parked, it does not check that
//! runtime, so that an idle runtime causes no activity.
//!
//! One thread, the sentinel's, checks all runtimes of the program. It *suspends* its checks of a
//! runtime until a worker *resumes* them: the first worker that wakes up and finds a task. Each
//! runtime has a flag for that. All runtimes share the thread's park word, the *alarm*. The thread
//! sleeps until the next check of any runtime is due, or without a time-out if the checks of all of
//! them are suspended.
//!
//! An ordinary case: the sentinel finds all workers of the runtime parked for a while, sets the
//! flag, and sleeps. A worker wakes up, finds a task, sees the flag, clears it and unparks the
//! sentinel's thread. That thread finds the flag clear, and checks the runtime.
//!
//! The first race: the sentinel sees all workers parked, a worker wakes up and sees no flag yet,
//! and then the sentinel suspends the checks and does not watch that worker. The second race: the
//! thread has read the flag of runtime A and reads that of B when a worker of A resumes the checks.
//!
//! Protocol. Suspend, by the sentinel's thread after it saw all workers of the runtime parked:
//! 1. publish that: set `is_suspended` with a read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. check the bitmap once more. If a worker is not parked: clear `is_suspended`, and check the
//!    runtime again after an interval.
//!
//! Sleep, by the sentinel's thread after it has read the flags of all runtimes (`Alarm::run`):
//! 4. sleep on the alarm. A token ends the sleep, also one that was left before it began;
//! 5. take the token, and only then read the flags again.
//!
//! Resume, by a worker that woke up and has found a task, before it runs it:
//! 1. its bit is clear: it or its claimer cleared the bit with a read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. if `is_suspended` is set: clear it with a read-modify-write, and unpark the sentinel if it
//!    was this worker that cleared it.
//!
//! A runtime begins with `is_suspended` set, before its first worker starts.
//!
//! Invariants:
//! * *Watched while awake*: no worker runs a task while the checks of its runtime are suspended.
//!   The two fences are ordered: either Suspend (3) sees the cleared bit, or Resume (3) sees the
//!   flag.
//! * *Each Resume is seen*: a flag is cleared before the token is left. So a sleep that began
//!   without having seen the clear flag ends, and Sleep (5) sees it: the token acquires what was
//!   done before it. A token that is left after Sleep (5) ends the next sleep. A token that finds
//!   nothing to do costs one turn of the thread.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use volt_shim::{AtomicBool, Ordering};

use crate::driver::parker::{Parker, Unparked};
use crate::scheduler::idle::Idle;

#[cfg(all(test, loom))]
mod loom_models;

/// The park word of the sentinel's thread.
pub(crate) struct Alarm(Parker);

impl Alarm {
    pub(crate) fn new() -> Self {
        Self(Parker::new())
    }

    /// The loop of the sentinel's thread. `turn` reads the flags of all runtimes, and returns how
    /// long the thread sleeps then: without a time-out if `None`. Returns when `turn` breaks.
    pub(in crate::scheduler) fn run(&self, mut turn: impl FnMut() -> ControlFlow<(), Option<Duration>>) {
        while let ControlFlow::Continue(timeout) = turn() {
            self.sleep(timeout);
        }
    }

    /// Sleep (4) and (5), by the sentinel's thread.
    fn sleep(&self, timeout: Option<Duration>) {
        // A time-out and a token need no distinction: the flags are read in either case.
        let _slept = self.0.sleep(timeout);
        let _was_rung = self.0.take_token();
    }

    /// Ends the current sleep, or the next one if the thread is awake.
    pub(in crate::scheduler) fn ring(&self) {
        let unparked = self.0.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "the sentinel never sleeps in a driver");
    }
}

/// Whether the checks of one runtime are suspended.
pub(crate) struct Suspension {
    alarm: Arc<Alarm>,
    is_suspended: AtomicBool,
}

impl Suspension {
    /// `is_suspended`: the sentinel is to check the runtime, and the first worker is to resume the
    /// checks.
    pub(crate) fn new(alarm: Arc<Alarm>, is_suspended: bool) -> Self {
        Self { alarm, is_suspended: AtomicBool::new(is_suspended) }
    }

    /// Suspend (1) to (3), by the sentinel's thread. Returns whether the checks are suspended.
    pub(in crate::scheduler) fn begin(&self, idle: &Idle, is_all_parked: impl Fn() -> bool) -> bool {
        if !is_all_parked() {
            return false;
        }
        // Suspend (1)
        // ORDERING: AcqRel; pairs with the swap in `end`. The fence orders it before the check.
        self.is_suspended.swap(true, Ordering::AcqRel);
        // Suspend (2)
        idle.fence();
        // Suspend (3)
        if is_all_parked() {
            return true;
        }
        // ORDERING: AcqRel; as above. If a worker has cleared it meanwhile, its token ends the next
        // sleep early.
        self.is_suspended.swap(false, Ordering::AcqRel);
        false
    }

    /// Returns whether the runtime needs no check, by the sentinel's thread.
    pub(in crate::scheduler) fn is_suspended(&self) -> bool {
        // ORDERING: Relaxed; if the flag was cleared, either Sleep (5) has acquired that, or a
        // token is there that ends the next sleep.
        self.is_suspended.load(Ordering::Relaxed)
    }

    /// Resume (2) and (3), by a worker whose bit is clear.
    #[inline]
    pub(crate) fn resume(&self, idle: &Idle) {
        // Resume (2)
        idle.fence();
        // Resume (3)
        // ORDERING: Relaxed; ordered by the fence, see the module documentation.
        if self.is_suspended.load(Ordering::Relaxed) {
            self.end();
        }
    }

    /// Ends the suspension, if there is one.
    #[cold]
    pub(in crate::scheduler) fn end(&self) {
        // ORDERING: AcqRel; pairs with the swaps in `begin`.
        if self.is_suspended.swap(false, Ordering::AcqRel) {
            self.alarm.ring();
        }
    }
}
