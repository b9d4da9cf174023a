//! Who is on duty: the handshake of a worker that is stuck, the sentinel that sees it, and the
//! spare that takes over.
//!
//! A worker that does not come back from a poll is not taken apart: its thread stays the only
//! producer of its own ring, others take from it as thieves do, and another worker, a *spare* with
//! queues of its own, goes on duty beside it. So nothing is handed over but a count, and a
//! mistake costs one thread too many for a while, nothing else.
//!
//! # Shape
//!
//! ```text
//! duties   one word a slot; workers first, spares after them
//! able     how many are on duty and not stuck
//! keep     how many of these are to stay; spares beyond them leave
//! in_use   slots that were ever on duty: whoever checks all queues checks these
//! ```
//!
//! | duty | what the slot is | who leaves it |
//! |---|---|---|
//! | GONE | a spare without a thread | whoever calls it → PRESENT |
//! | OFF | a spare that sleeps | whoever calls it → PRESENT; itself, after a long sleep → GONE |
//! | PRESENT | on duty | the sentinel → AWAY; itself → BLOCKING, LEAVING |
//! | AWAY | on duty, and stuck in a poll, as the sentinel says | itself → PRESENT, BLOCKING; the sentinel, if it was wrong → PRESENT |
//! | BLOCKING | on duty, and about to block, as it says itself | itself → PRESENT |
//! | LEAVING | a spare that empties its queues | itself → OFF, or PRESENT if it is to stay |
//!
//! # Protocol
//!
//! Replace, by the sentinel, for a poll that lasts: (1) PRESENT → AWAY, and if that was so, `able
//! -= 1`; (2) check the poll again: it is another one → AWAY → PRESENT, and if that was so, `able
//! += 1`; (3) call a spare.
//!
//! Call, by the sentinel, by a worker that is about to block, by a shutdown: (1) OFF → PRESENT, or
//! GONE → PRESENT; (2) `able += 1`; (3) a token, or a thread, by whoever did (1), and by nobody
//! else.
//!
//! Block, by a worker that is about to: PRESENT → BLOCKING, `able -= 1`; or AWAY → BLOCKING, which
//! is counted already: the sentinel knows from now on that it is meant.
//!
//! Return, by a worker at the end of a poll, of a block, or before it parks: AWAY or BLOCKING →
//! PRESENT, and if that was so, `able += 1`.
//!
//! Leave, by a spare between two polls: (1) PRESENT → LEAVING, which keeps the sentinel away; (2)
//! `able -= 1` unless it would fall below `keep`: then → PRESENT, and stay; (3) empty the own
//! queues, and if nobody polls timers and I/O, wake somebody who will; (4) LEAVING → OFF; (5) sleep
//! until a token comes. Slept for long: OFF → GONE, and the thread ends; if that fails, somebody
//! has called, and the token comes.
//!
//! # Invariants
//!
//! * COUNTED: `able` is the number of slots that are PRESENT, when nobody is between two of these
//!   steps.
//! * ENOUGH: no spare leaves so that fewer than `keep` are able.
//! * ONE-TOKEN: a spare that is called gets exactly one token, or one thread.
//! * POLLED: a dismissed spare is in the I/O driver as often as not, and the others sleep on
//!   futexes. Whoever gives up the driver's turn parks again or leaves; who leaves gives up the
//!   turn, fences, and checks for a parked worker; who parks says so, fences, and tries for the
//!   turn. So one of them sees the other; the check of who has the turn only saves a wake-up.
//!
//! A worker checks whether it was declared AWAY at the end of a poll that was long, and at the
//! begin of each tick. So it may miss what came at the very end of a poll, and for a tick at most
//! one spare too many is on duty.
//!
//! # Rejected
//!
//! * Handing the stuck worker's slot, ring and all, to another thread: two producers of one ring,
//!   unless every step that a worker takes outside a poll first makes sure that the slot is still
//!   its own.
//! * Adding a thread for each task that blocks, without a count: a pause of the whole machine
//!   becomes a storm of threads.

use volt_shim::{AtomicU32, AtomicUsize, CachePadded, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

const GONE: u32 = 0;
const OFF: u32 = 1;
const PRESENT: u32 = 2;
const AWAY: u32 = 3;
const BLOCKING: u32 = 4;
const LEAVING: u32 = 5;

/// See the header of this file.
pub(crate) struct Staff {
    duties: Box<[CachePadded<AtomicU32>]>,
    able: CachePadded<AtomicUsize>,
    keep: AtomicUsize,
    in_use: AtomicUsize,
    workers: usize,
}

/// What is owed to a spare that was called: Call (3).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a spare that was called waits for its token, or for its thread"]
pub(crate) enum Called {
    /// It sleeps: a token.
    Token(usize),
    /// It has no thread: one.
    Thread(usize),
}

/// What a slot is, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Off,
    Present,
    Away,
    Blocking,
}

impl Staff {
    /// `workers` on duty, and `spares` that are gone.
    pub(crate) fn new(workers: usize, spares: usize) -> Self {
        let duty = |slot| AtomicU32::new(if slot < workers { PRESENT } else { GONE });
        Self {
            duties: (0..workers + spares).map(|slot| CachePadded(duty(slot))).collect(),
            able: CachePadded(AtomicUsize::new(workers)),
            keep: AtomicUsize::new(workers),
            in_use: AtomicUsize::new(workers),
            workers,
        }
    }

    pub(crate) fn is_spare(&self, slot: usize) -> bool {
        slot >= self.workers
    }

    /// Slots from 0 on that may hold tasks.
    #[inline]
    pub(crate) fn in_use(&self) -> usize {
        // ORDERING: Acquire; pairs with the Release in `call`. Who checks after a fence sees the
        // slots of all whose submissions came before it.
        self.in_use.load(Ordering::Acquire)
    }

    /// How many are on duty and not stuck.
    pub(crate) fn able(&self) -> usize {
        // ORDERING: Relaxed; a hint.
        self.able.load(Ordering::Relaxed)
    }

    /// How many are on duty, stuck or not.
    pub(crate) fn on_duty(&self) -> usize {
        (0..self.in_use()).filter(|slot| self.duty(*slot) != Duty::Off).count()
    }

    pub(crate) fn duty(&self, slot: usize) -> Duty {
        // ORDERING: Relaxed; a hint.
        match self.duties[slot].load(Ordering::Relaxed) {
            GONE | OFF => Duty::Off,
            AWAY => Duty::Away,
            BLOCKING => Duty::Blocking,
            _ => Duty::Present,
        }
    }

    /// Replace (1): whether `slot` was present, and is away now.
    #[must_use = "who is away is replaced"]
    pub(crate) fn declare_away(&self, slot: usize) -> bool {
        let is_away = self.change(slot, PRESENT, AWAY);
        if is_away {
            self.lower_able();
        }
        is_away
    }

    /// Replace (2), after a second check found another poll.
    pub(crate) fn take_back(&self, slot: usize) {
        if self.change(slot, AWAY, PRESENT) {
            self.raise_able();
        }
    }

    /// Call (1) and (2): a spare that sleeps, or else one without a thread; `None` = all are on
    /// duty.
    pub(crate) fn call(&self) -> Option<Called> {
        self.call_sleeper().map(Called::Token).or_else(|| self.call_from(GONE).map(Called::Thread))
    }

    /// Call (1) and (2), for a spare that sleeps: a token is owed to it.
    #[must_use = "a spare that was called waits for its token"]
    pub(crate) fn call_sleeper(&self) -> Option<usize> {
        self.call_from(OFF)
    }

    fn call_from(&self, duty: u32) -> Option<usize> {
        let slot = (self.workers..self.duties.len()).find(|slot| self.change(*slot, duty, PRESENT))?;
        // ORDERING: Release; pairs with the Acquire in `in_use`; before the token, which is what
        // the spare waits for.
        self.in_use.fetch_max(slot + 1, Ordering::Release);
        self.raise_able();
        Some(slot)
    }

    /// A spare that was called could not be given a thread.
    pub(crate) fn call_failed(&self, slot: usize) {
        if self.change(slot, PRESENT, GONE) {
            self.lower_able();
        }
    }

    /// Whether `slot` is on duty, and neither away nor blocking; if not, and it is the caller's
    /// own, the caller has to return. One load, of a line that is seldom written.
    #[inline]
    pub(crate) fn is_present(&self, slot: usize) -> bool {
        // ORDERING: Relaxed; a worker that misses it checks again in the next tick, and a placement
        // that misses it is mended by a thief.
        self.duties[slot].load(Ordering::Relaxed) == PRESENT
    }

    /// Return, of the caller's own slot.
    #[cold]
    pub(crate) fn come_back(&self, slot: usize) {
        // The sentinel may take AWAY back at the same moment; then it has counted.
        if self.change(slot, AWAY, PRESENT) || self.change(slot, BLOCKING, PRESENT) {
            self.raise_able();
        }
    }

    /// Block, of the caller's own slot.
    pub(crate) fn begin_blocking(&self, slot: usize) {
        loop {
            if self.change(slot, PRESENT, BLOCKING) {
                return self.lower_able();
            }
            // It was declared away, and is counted. If not that either, the sentinel has changed
            // its mind in between: once more.
            if self.change(slot, AWAY, BLOCKING) {
                return;
            }
        }
    }

    /// How many able ones are to stay from now on.
    pub(crate) fn set_keep(&self, able: usize) {
        // ORDERING: Relaxed; a wish.
        self.keep.store(able.max(self.workers), Ordering::Relaxed);
    }

    /// Whether spares are to leave.
    #[inline]
    pub(crate) fn has_too_many(&self) -> bool {
        // ORDERING: Relaxed; a hint, `leave` makes sure.
        self.able() > self.keep.load(Ordering::Relaxed)
    }

    /// Leave (1) and (2): whether the caller's own slot, a spare's, is to go.
    #[must_use = "who leaves empties its queues and says so"]
    pub(crate) fn leave(&self, slot: usize) -> bool {
        debug_assert!(self.is_spare(slot));
        // Leave (1)
        if !self.change(slot, PRESENT, LEAVING) {
            self.come_back(slot);
            return false;
        }
        // Leave (2)
        // ORDERING: Relaxed; a wish.
        let keep = self.keep.load(Ordering::Relaxed);
        // ORDERING: AcqRel, Relaxed for a value that is only tried; the changes of this word are
        // ordered, which is all that ENOUGH needs.
        let is_over =
            self.able.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |able| (able > keep).then(|| able - 1));
        if is_over.is_err() {
            let is_back = self.change(slot, LEAVING, PRESENT);
            debug_assert!(is_back, "only its own thread moves a spare that is leaving");
        }
        is_over.is_ok()
    }

    /// Leave (4): the queues are empty. From here on the caller's own slot may be called.
    pub(crate) fn go_off(&self, slot: usize) {
        let is_off = self.change(slot, LEAVING, OFF);
        debug_assert!(is_off, "only its own thread moves a spare that is leaving");
    }

    /// Leave (5), after a long sleep: whether the thread may end. If not, somebody has called, and
    /// the token comes.
    #[must_use = "false means that a token is on its way"]
    pub(crate) fn go(&self, slot: usize) -> bool {
        self.change(slot, OFF, GONE)
    }

    /// Whether `slot` was `from`, and is `to` now.
    fn change(&self, slot: usize, from: u32, to: u32) -> bool {
        // ORDERING: AcqRel; each change sees what the one before it had done: the core that a
        // thread has put back, the queues that it has emptied. Relaxed for a value that is not
        // acted upon.
        self.duties[slot].compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn raise_able(&self) {
        // ORDERING: AcqRel; as in `leave`.
        self.able.fetch_add(1, Ordering::AcqRel);
    }

    fn lower_able(&self) {
        // ORDERING: AcqRel; as in `leave`.
        let before = self.able.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "COUNTED: more are away than were there");
    }
}

/// A spare that leaves. The methods are for its own thread.
pub(crate) trait Leaves {
    fn staff(&self) -> &Staff;

    fn slot(&self) -> usize;

    /// Hands over to others what is left in the spare's queues. It is no searcher afterwards.
    fn hand_over_all(&self);

    /// Whether somebody has the driver turn, as far as can be seen.
    fn is_driver_polled(&self) -> bool;

    /// Wakes one that is parked, after a fence.
    fn wake_one(&self);

    /// Leave (3), after the queues are empty: if the spare came out of the driver, those that are
    /// parked sleep on without one, and the one that is woken parks in it.
    ///
    /// A step that a model can do wrong.
    #[inline]
    fn leave_driver(&self) {
        if !self.is_driver_polled() {
            self.wake_one();
        }
    }
}

/// Leave (1) to (3), for a spare between two polls, which does not have the driver turn. Returns
/// whether it goes.
#[inline]
pub(crate) fn leave_duty<S: Leaves>(spare: &S) -> bool {
    // Leave (1), Leave (2)
    if !spare.staff().leave(spare.slot()) {
        return false;
    }
    // Leave (3)
    spare.hand_over_all();
    spare.leave_driver();
    true
}

#[cfg(all(test, not(loom)))]
mod tests;
