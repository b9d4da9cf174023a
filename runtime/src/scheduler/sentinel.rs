//! The sentinel: a thread that looks after the workers while any of them is awake.
//!
//! Each look asks two things. Does nobody attend timers and I/O, since the worker that sat in the driver left it for a task that takes
//! long? Is somebody stuck in a poll and holds tasks that others could run, one in its LIFO slot among them? In either case a parked worker
//! is woken, through the same claim as always: it searches, takes what it finds, and in the end sits down in the driver.
//!
//! Who writes: its own thread. It owns nothing of the workers' and takes nothing from them.
//!
//! It sleeps for good while all workers are parked, so that an idle runtime is quiet.
//!
//! Protocol. Doze, by the sentinel that saw all workers parked:
//! 1. say so: `is_dozing`, by a read-modify-write;
//! 2. `fence(SeqCst)`;
//! 3. look at the bitmap once more: somebody is up → not dozing; else sleep until roused.
//!
//! Rouse, by a worker that got up and has found a task, before it runs it:
//! 1. its bit is clear, by a read-modify-write of its own or of its claimer;
//! 2. `fence(SeqCst)`;
//! 3. if `is_dozing`: take that back by a read-modify-write, and unpark the sentinel if it was this one that did.
//!
//! Invariant: *Watched while awake*: no worker runs a task while the sentinel dozes. The two fences are ordered: either Doze (3) sees the bit that
//! is clear, or Rouse (3) sees the doze.

use std::time::Duration;

use crate::driver::parker::{Parker, Unparked};
use crate::scheduler::idle::Idle;
use crate::shim::{AtomicBool, Ordering};

#[cfg(all(test, loom))]
#[path = "sentinel_loom.rs"]
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

    /// Sleeps until the next look: for `interval`, or while all workers are parked, until roused.
    pub(crate) fn sleep(&self, idle: &Idle, interval: Duration) {
        if idle.is_all_parked() {
            // Doze (1)
            // ORDERING: AcqRel; pairs with the swap in `rouse`, which takes it back; before the look by the fence.
            self.is_dozing.swap(true, Ordering::AcqRel);
            // Doze (2)
            idle.fence();
            // Doze (3)
            if idle.is_all_parked() {
                // Roused by a token, which `rouse` leaves after it has taken the doze back; nothing else may end this sleep, or the
                // token would end the next one.
                self.parker.wait_token();
                return;
            }
            // ORDERING: AcqRel; as above.
            if !self.is_dozing.swap(false, Ordering::AcqRel) {
                self.parker.wait_token();
            }
            return;
        }
        // Whether it was the time-out or a token does not matter: a look follows.
        let _slept = self.parker.sleep(Some(interval));
        let _was_roused = self.parker.take_token();
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

    /// Ends the sleep, whichever it is.
    pub(crate) fn wake(&self) {
        let unparked = self.parker.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "the sentinel never sleeps in a driver");
    }
}

#[cfg(not(loom))]
pub(crate) use thread::Sentinel;

#[cfg(not(loom))]
mod thread {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::Doze;
    use crate::clock;
    use crate::scheduler::shared::{Remote, Shared};
    use crate::stats::cells::Counter;

    /// See the header of this file.
    pub(crate) struct Sentinel {
        doze: Doze,
        is_over: AtomicBool,
        looks: Counter,
        rescues: Counter,
    }

    impl Sentinel {
        pub(crate) fn new() -> Self {
            Self {
                doze: Doze::new(),
                is_over: AtomicBool::new(false),
                looks: Counter::default(),
                rescues: Counter::default(),
            }
        }

        /// The sentinel's thread, until [`end`](Self::end).
        pub(crate) fn run(&self, shared: &Shared, interval: Duration) {
            // ORDERING: Acquire; pairs with the Release in `end`. The token that `end` leaves ends any sleep that began before.
            while !self.is_over.load(Ordering::Acquire) {
                self.doze.sleep(&shared.idle, interval);
                self.look(shared, clock::saturating_ns(interval));
            }
        }

        fn look(&self, shared: &Shared, interval_ns: u64) {
            self.looks.add(1);
            if shared.idle.is_nobody_parked() {
                // Nobody to be woken: who is stuck will have to be replaced.
                return;
            }
            let now_ns = clock::now_ns();
            let is_unattended = shared.driver.owner().is_none()
                && now_ns.saturating_sub(shared.driver.last_turn_ns()) >= interval_ns
                && !shared.idle.is_all_parked();
            let is_stranded = |remote: &Remote| {
                remote.queued() > 0 && remote.cells.poll_for_ns(now_ns) >= Some(shared.config.lifo_steal_after_ns)
            };
            let has_stranded = shared.config.enable_stealing && shared.remotes.iter().any(is_stranded);
            if (is_unattended || has_stranded) && shared.wake_one() {
                self.rescues.add(1);
            }
        }

        /// A worker that got up has found a task.
        #[inline]
        pub(crate) fn rouse(&self, shared: &Shared) {
            self.doze.rouse(&shared.idle);
        }

        /// Ends its thread.
        pub(crate) fn end(&self) {
            // ORDERING: Release; pairs with the Acquire in `run`.
            self.is_over.store(true, Ordering::Release);
            self.doze.end_doze();
            self.doze.wake();
        }

        pub(crate) fn telemetry(&self) -> volt_telemetry::Sentinel {
            volt_telemetry::Sentinel { looks: self.looks.get(), rescues: self.rescues.get() }
        }
    }
}
