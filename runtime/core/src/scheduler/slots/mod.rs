//! The states of the workers' slots, and how a spare worker replaces a worker that is stuck.
//!
//! A runtime starts with its configured workers. The *sentinel* is a thread that samples them at
//! intervals. If a worker is stuck in a poll, the sentinel *declares it stuck* and calls a *spare*:
//! one more worker, with its own queues, that is *active* until it is no longer needed. A worker
//! that is about to block (`block_in_place`) reports that itself. Workers and spares are numbered
//! together; each number is a *slot*. The sentinel, the workers and the spares all change the
//! states below.
//!
//! An ordinary case: worker 1 is in a poll that lasts. The sentinel changes its slot from PRESENT
//! to STUCK, lowers `able`, and calls spare 4, which starts to run tasks. Later the poll of worker
//! 1 ends: it changes its slot back to PRESENT and raises `able`. Now `able` is greater than
//! `keep`, so spare 4 hands over its queues and goes OFF.
//!
//! The stuck worker keeps its slot: its thread stays the only producer of its own ring, and other
//! workers steal from the ring as usual. Nothing but a count is transferred. So a wrong decision
//! costs one surplus thread for a while and nothing else. The race is between the sentinel that
//! declares a worker stuck and the worker that returns in the same moment. Each change of a state
//! is a compare-exchange, and the thread whose compare-exchange succeeds is the one that adjusts
//! `able`.
//!
//! # Shape
//!
//! ```text
//! states   one word per slot; workers first, spares after them
//! able     how many slots are active and not stuck
//! keep     how many of these are to stay; spares beyond that number leave
//! in_use   slots that were ever active; a thread that checks all queues checks these
//! ```
//!
//! | state | meaning | transitions |
//! |---|---|---|
//! | NO_THREAD | a spare without a thread | its caller → PRESENT |
//! | OFF | a spare that sleeps | its caller → PRESENT; its own thread, after a long sleep → NO_THREAD |
//! | PRESENT | active | the sentinel → STUCK; its own thread → BLOCKING, LEAVING; its caller, if no thread could be started → NO_THREAD |
//! | STUCK | active, declared stuck in a poll by the sentinel | its own thread → PRESENT, BLOCKING; the sentinel, if it was wrong → PRESENT |
//! | BLOCKING | active, about to block as it reported itself | its own thread → PRESENT |
//! | LEAVING | a spare that empties its queues | its own thread → OFF, or PRESENT if it is to stay |
//!
//! # Protocol
//!
//! Replace, by the sentinel, for a long poll:
//! 1. PRESENT → STUCK, and if that succeeded, `able -= 1`;
//! 2. check the poll again. If it is a different one: STUCK → PRESENT, and if that succeeded, `able
//!    += 1`;
//! 3. otherwise call a spare.
//!
//! Call, by the sentinel, by a worker that is about to block, or by a shutdown:
//! 1. OFF → PRESENT, or NO_THREAD → PRESENT;
//! 2. `able += 1`;
//! 3. give the spare a token, or a thread. Only the thread that did (1) does this. If no thread can
//!    be started: PRESENT → NO_THREAD, `able -= 1`.
//!
//! Block, by a worker that is about to block: PRESENT → BLOCKING, `able -= 1`; or STUCK → BLOCKING,
//! for which `able` was already lowered. From then on the sentinel treats the block as intended.
//!
//! Return, by a worker at the end of a poll or of a block, or before it parks: STUCK or BLOCKING →
//! PRESENT, and if that succeeded, `able += 1`.
//!
//! Leave, by a spare between two polls:
//! 1. PRESENT → LEAVING, which keeps the sentinel from declaring it stuck;
//! 2. `able -= 1`, unless it would fall below `keep`: in that case → PRESENT, and stay;
//! 3. empty its own queues, and if no worker polls timers and I/O, wake one that will;
//! 4. LEAVING → OFF;
//! 5. sleep until a token comes. After a long sleep: OFF → NO_THREAD, and the thread ends. If that
//!    fails, the spare was called, and the token comes.
//!
//! # Invariants
//!
//! * COUNTED: `able` is the number of PRESENT slots whenever no thread is between two of these
//!   steps.
//! * ENOUGH: a spare never leaves if fewer than `keep` able slots would remain.
//! * ONE-TOKEN: a spare that is called gets exactly one token, or one thread.
//! * POLLED: when a spare leaves, some worker still polls the driver. The spare may be the worker
//!   that was in the I/O driver while the others sleep on futexes. It gives up the driver turn,
//!   executes a fence, and claims a parked worker, which will try to get the turn. A worker that
//!   parks publishes that it is parked, executes a fence, and tries to get the turn. So either the
//!   spare sees the parked worker, or that worker finds the turn free. If another thread has the
//!   turn, the spare claims no worker: that thread parks again, or leaves in the same way.
//!
//! A worker checks whether it was declared STUCK at the end of a long poll, and at the start of
//! each tick. So it may miss a declaration that comes at the very end of a poll; then one spare too
//! many is active for at most one tick.
//!
//! # Rejected
//!
//! * Handing the slot of the stuck worker, with its ring, to another thread: the ring would have
//!   two producers, unless every step that a worker takes outside a poll first verified that the
//!   slot still belongs to it.
//! * Adding a thread for each task that blocks, without a count: a pause of the whole machine would
//!   start a storm of threads.

use volt_shim::{Arc, AtomicU32, AtomicUsize, CachePadded, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

const NO_THREAD: u32 = 0;
const OFF: u32 = 1;
const PRESENT: u32 = 2;
const STUCK: u32 = 3;
const BLOCKING: u32 = 4;
const LEAVING: u32 = 5;

/// The states of all slots: see the module documentation.
pub(crate) struct WorkerSlots {
    states: Box<[Arc<CachePadded<AtomicU32>>]>,
    able: CachePadded<AtomicUsize>,
    keep: AtomicUsize,
    in_use: AtomicUsize,
    workers: usize,
}

/// The state of one slot, for the slot's own thread, which checks it at every wake-up.
pub(crate) struct OwnSlot(Arc<CachePadded<AtomicU32>>);

impl OwnSlot {
    /// As [`WorkerSlots::is_present`].
    #[inline]
    pub(crate) fn is_present(&self) -> bool {
        // ORDERING: Relaxed; as in `WorkerSlots::is_present`.
        self.0.load(Ordering::Relaxed) == PRESENT
    }
}

/// The token or thread that a spare needs after it was called: Call (3).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a spare that was called waits for its token, or for its thread"]
pub(crate) enum Called {
    /// The spare in this slot sleeps and needs a token.
    Token(usize),
    /// The spare in this slot has no thread and needs one.
    Thread(usize),
}

/// The state of a slot, as it is reported to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Off,
    Present,
    Stuck,
    Blocking,
}

impl WorkerSlots {
    /// Creates `workers` active slots and `spares` slots without threads.
    pub(crate) fn new(workers: usize, spares: usize) -> Self {
        let state = |slot| AtomicU32::new(if slot < workers { PRESENT } else { NO_THREAD });
        Self {
            states: (0..workers + spares).map(|slot| Arc::new(CachePadded(state(slot)))).collect(),
            able: CachePadded(AtomicUsize::new(workers)),
            keep: AtomicUsize::new(workers),
            in_use: AtomicUsize::new(workers),
            workers,
        }
    }

    /// Returns the state of `slot`, for its own thread.
    pub(crate) fn own_slot(&self, slot: usize) -> OwnSlot {
        OwnSlot(self.states[slot].clone())
    }

    pub(crate) fn is_spare(&self, slot: usize) -> bool {
        slot >= self.workers
    }

    /// Returns the number of slots, from 0 on, that may hold tasks.
    #[inline]
    pub(crate) fn in_use(&self) -> usize {
        // ORDERING: Acquire; pairs with the Release in `call`. A thread that checks after a fence
        // sees the slots of all workers whose submissions came before that fence.
        self.in_use.load(Ordering::Acquire)
    }

    /// Returns how many slots are active and not stuck.
    pub(crate) fn able(&self) -> usize {
        // ORDERING: Relaxed; a hint.
        self.able.load(Ordering::Relaxed)
    }

    /// Returns how many slots are active, stuck or not.
    pub(crate) fn active_count(&self) -> usize {
        (0..self.in_use()).filter(|slot| self.state(*slot) != SlotState::Off).count()
    }

    pub(crate) fn state(&self, slot: usize) -> SlotState {
        // ORDERING: Relaxed; a hint.
        match self.states[slot].load(Ordering::Relaxed) {
            NO_THREAD | OFF => SlotState::Off,
            STUCK => SlotState::Stuck,
            BLOCKING => SlotState::Blocking,
            _ => SlotState::Present,
        }
    }

    /// Replace (1) and (2): returns whether `slot` was present and is now stuck. `is_same_poll`
    /// checks whether its worker is still in the poll for which it is declared stuck.
    #[must_use = "true means that the caller must call a spare: Replace (3)"]
    pub(crate) fn replace(&self, slot: usize, is_same_poll: impl FnOnce() -> bool) -> bool {
        // Replace (1)
        if !self.declare_stuck(slot) {
            return false;
        }
        // Replace (2)
        let is_same_poll = is_same_poll();
        if !is_same_poll {
            self.take_back(slot);
        }
        is_same_poll
    }

    /// Replace (1): returns whether `slot` was present and is now stuck.
    #[must_use = "true means that the caller must check the poll again: Replace (2)"]
    pub(crate) fn declare_stuck(&self, slot: usize) -> bool {
        let is_stuck = self.change(slot, PRESENT, STUCK);
        if is_stuck {
            self.lower_able();
        }
        is_stuck
    }

    /// Replace (2), if the second check found another poll.
    pub(crate) fn take_back(&self, slot: usize) {
        if self.change(slot, STUCK, PRESENT) {
            self.raise_able();
        }
    }

    /// Call (1) and (2): calls a spare that sleeps, or else one without a thread. Returns `None` if
    /// all spares are active.
    pub(crate) fn call(&self) -> Option<Called> {
        self.call_sleeper().map(Called::Token).or_else(|| self.call_from(NO_THREAD).map(Called::Thread))
    }

    /// Call (1) and (2), only for a spare that sleeps. The caller must give it a token.
    #[must_use = "a spare that was called waits for its token"]
    pub(crate) fn call_sleeper(&self) -> Option<usize> {
        self.call_from(OFF)
    }

    fn call_from(&self, state: u32) -> Option<usize> {
        let slot = (self.workers..self.states.len()).find(|slot| self.change(*slot, state, PRESENT))?;
        // ORDERING: Release; pairs with the Acquire in `in_use`. It comes before the token, which
        // the spare waits for.
        self.in_use.fetch_max(slot + 1, Ordering::Release);
        self.raise_able();
        Some(slot)
    }

    /// Undoes a call: no thread could be started for the spare.
    pub(crate) fn call_failed(&self, slot: usize) {
        if self.change(slot, PRESENT, NO_THREAD) {
            self.lower_able();
        }
    }

    /// Returns whether `slot` is active and neither stuck nor blocking. If not, and the slot is the
    /// caller's own, the caller must return. Costs one load of a rarely written cache line.
    #[inline]
    pub(crate) fn is_present(&self, slot: usize) -> bool {
        // ORDERING: Relaxed; a worker that misses a change checks again in the next tick. If a
        // placement misses one, a thief takes the task.
        self.states[slot].load(Ordering::Relaxed) == PRESENT
    }

    /// Return, for the caller's own slot.
    #[cold]
    pub(crate) fn come_back(&self, slot: usize) {
        // The sentinel may take STUCK back at the same moment; in that case it has raised `able`
        // itself.
        if self.change(slot, STUCK, PRESENT) || self.change(slot, BLOCKING, PRESENT) {
            self.raise_able();
        }
    }

    /// Block, for the caller's own slot.
    pub(crate) fn begin_blocking(&self, slot: usize) {
        loop {
            if self.change(slot, PRESENT, BLOCKING) {
                return self.lower_able();
            }
            // The sentinel declared the slot stuck, and `able` is already lowered. If this fails
            // too, the sentinel has taken the declaration back in between: try again.
            if self.change(slot, STUCK, BLOCKING) {
                return;
            }
        }
    }

    /// Sets how many able slots are to stay from now on; never fewer than the workers.
    pub(crate) fn set_keep(&self, able: usize) {
        // ORDERING: Relaxed; a target value that nothing else depends on.
        self.keep.store(able.max(self.workers), Ordering::Relaxed);
    }

    /// Returns whether there are more able slots than are to stay, so that spares should leave.
    #[inline]
    pub(crate) fn has_too_many(&self) -> bool {
        // ORDERING: Relaxed; a hint, which `leave` verifies.
        self.able() > self.keep.load(Ordering::Relaxed)
    }

    /// Leave (1) and (2): returns whether the caller's own slot, which is a spare's, leaves.
    #[must_use = "a worker that leaves must empty its queues"]
    pub(crate) fn leave(&self, slot: usize) -> bool {
        debug_assert!(self.is_spare(slot));
        // Leave (1)
        if !self.change(slot, PRESENT, LEAVING) {
            self.come_back(slot);
            return false;
        }
        // Leave (2)
        // ORDERING: Relaxed; a target value that nothing else depends on.
        let keep = self.keep.load(Ordering::Relaxed);
        // ORDERING: AcqRel for the change, Relaxed for a value that is only tried. ENOUGH needs
        // only the modification order of this word.
        let is_over =
            self.able.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |able| (able > keep).then(|| able - 1));
        if is_over.is_err() {
            let is_back = self.change(slot, LEAVING, PRESENT);
            debug_assert!(is_back, "only its own thread moves a spare that is leaving");
        }
        is_over.is_ok()
    }

    /// Leave (4): the queues are empty. From here on the caller's own slot may be called again.
    pub(crate) fn finish_leaving(&self, slot: usize) {
        let is_off = self.change(slot, LEAVING, OFF);
        debug_assert!(is_off, "only its own thread moves a spare that is leaving");
    }

    /// Leave (5), after a long sleep: returns whether the thread may end. If not, the spare was
    /// called, and the token comes.
    #[must_use = "false means that a token is on its way"]
    pub(crate) fn end_thread(&self, slot: usize) -> bool {
        self.change(slot, OFF, NO_THREAD)
    }

    /// Changes `slot` from `from` to `to`; returns whether it was `from`.
    fn change(&self, slot: usize, from: u32, to: u32) -> bool {
        // ORDERING: AcqRel; each change sees what was done before the previous change: the core
        // that a thread has put back, the queues that it has emptied. Relaxed on failure, since
        // that value is not used.
        self.states[slot].compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn raise_able(&self) {
        // ORDERING: AcqRel; as in `leave`.
        self.able.fetch_add(1, Ordering::AcqRel);
    }

    fn lower_able(&self) {
        // ORDERING: AcqRel; as in `leave`.
        let before = self.able.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "COUNTED: more are stuck or blocked than were present");
    }
}

/// A spare that can leave. Its own thread calls the methods.
pub(crate) trait Leaves {
    fn slots(&self) -> &WorkerSlots;

    fn slot(&self) -> usize;

    /// Hands the remaining tasks of the spare's queues over to other workers. Afterwards the spare
    /// is not a searcher.
    fn hand_over_all(&self);

    /// Returns whether some worker has the driver turn, as far as can be seen.
    fn is_driver_polled(&self) -> bool;

    /// Executes a fence and wakes one parked worker, if there is one.
    fn wake_one(&self);

    /// Leave (3), after the queues are empty. If the spare was the one that polled the driver, the
    /// parked workers sleep and no worker polls it; the worker that is woken here will park in the
    /// driver.
    ///
    /// A model can replace this step with a faulty one.
    #[inline]
    fn leave_driver(&self) {
        if !self.is_driver_polled() {
            self.wake_one();
        }
    }
}

/// Leave (1) to (3), for a spare that is between two polls and does not have the driver turn.
/// Returns whether it leaves.
#[inline]
pub(crate) fn leave_slot<S: Leaves>(spare: &S) -> bool {
    // Leave (1), Leave (2)
    if !spare.slots().leave(spare.slot()) {
        return false;
    }
    // Leave (3)
    spare.hand_over_all();
    spare.leave_driver();
    true
}

#[cfg(all(test, not(loom)))]
mod tests;
