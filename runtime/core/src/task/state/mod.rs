//! The task word: everything about a task that more than one thread may change, in 64 bits.
//!
//! Shape, from the highest bit:
//! `| references 48 | shield depth 8 | flags 4 | reserved 2 | lifecycle 2 |`.
//!
//! | part | meaning | when set | who changes it |
//! |---|---|---|---|
//! | references | owners of the allocation | always ≥ 1 until freed, and far below 2^48: see `MAX_REFERENCES` | anyone who holds one |
//! | shield depth | cancellation waits while > 0 | inside a shield | up: the thread that polls the task; down: whoever drops the guard |
//! | NOTIFIED | woken once more | only while SCHEDULED | any waker; cleared by `start` and `pause` |
//! | CANCELLED | to be dropped instead of polled | from `cancel` on, for good | anyone |
//! | JOIN_INTEREST | a JoinHandle exists | from birth until it is dropped | the JoinHandle |
//! | JOIN_WAKER | the join waker field holds a waker for the completer | while not COMPLETE, and until the completer has woken it | the JoinHandle before completion, the completer after |
//! | lifecycle | IDLE 0, SCHEDULED 1, COMPLETE 3 | | see below |
//!
//! Lifecycle, one arrow a transition; the task is polled between `start` and `pause`, or
//! `complete`, and in a queue the rest of the time that it is SCHEDULED:
//! ```text
//!   wake, cancel                 pause, unless woken
//!  IDLE ───────► SCHEDULED ───────────────────────────► IDLE
//!                 │     ▲ │
//!                 └─────┘ └── complete ───────────────► COMPLETE
//!            start; pause, if woken
//! ```
//!
//! Invariants:
//! * *One Notified*: it exists exactly while the task is SCHEDULED, and holds one reference.
//! * *One runner*: only who holds the `Notified` calls `start`, and owns the future from then on
//!   until `pause` or `complete`. What the runner before did to the future is visible, since the
//!   `Notified` came from there, through whatever queue.
//! * *No lost wake-up*: a waker always does its read-modify-write, even if it finds nothing to
//!   change, so that what it wrote before is seen by the poll that follows. (A plain load and an
//!   early return loses wake-ups: tokio #7622.) `start` only reads: a wake-up that it sees it takes
//!   note of by a read-modify-write, one that it does not see is still there for `pause`. Nor is
//!   one needed for a task that wakes itself in its own poll: what it wrote before is its runner's,
//!   which says so to `pause`.
//! * *Join hand-over*: before COMPLETE the JoinHandle owns the join waker field while JOIN_WAKER is
//!   clear; while it is set both sides may read it and nobody writes it. After COMPLETE the
//!   completer owns the field until it clears JOIN_WAKER; who finds the other gone drops what is
//!   inside. The output belongs to the JoinHandle if JOIN_INTEREST stood at completion, else to the
//!   completer.
//!
//! Legal combinations (`is_legal`, asserted in debug builds at every transition):
//!
//! | lifecycle | NOTIFIED | CANCELLED | shield depth | JOIN_WAKER |
//! |---|---|---|---|---|
//! | IDLE | 0 | only with depth > 0 | any | only with JOIN_INTEREST |
//! | SCHEDULED | any | any | any | only with JOIN_INTEREST |
//! | COMPLETE | 0 | any | 0 | any |
//!
//! Rejected: RUNNING as a state of its own. It costs a read-modify-write a poll, and tells nobody
//! what the `Notified` does not. And 24 bits of references, as the design has that the shields come
//! from: a program that keeps four million clones of one waker is slow and not wrong, and had to be
//! aborted.
//!
//! Source: the shields and the parts of the word, "Shield-based cancellation" in the design of the
//! scheduler; transitions in the manner of tokio's and async-task's `state.rs`.

use volt_shim::{AtomicU64, Ordering};

const IDLE: u64 = 0;
const SCHEDULED: u64 = 1;
const COMPLETE: u64 = 3;

const FLAGS_SHIFT: u32 = 4;
const SHIELD_SHIFT: u32 = 8;
const REFERENCES_SHIFT: u32 = 16;

const LIFECYCLE: u64 = 0b11;
const SHIELD: u64 = 0xff << SHIELD_SHIFT;
const NOTIFIED: u64 = 1 << FLAGS_SHIFT;
const CANCELLED: u64 = 1 << (FLAGS_SHIFT + 1);
const JOIN_INTEREST: u64 = 1 << (FLAGS_SHIFT + 2);
const JOIN_WAKER: u64 = 1 << (FLAGS_SHIFT + 3);
const ONE_SHIELD: u64 = 1 << SHIELD_SHIFT;
const ONE_REFERENCE: u64 = 1 << REFERENCES_SHIFT;
/// A quarter of what 48 bits hold. A program that forgets a clone each nanosecond gets there in 19
/// hours, and is aborted, as with `Arc`: the count must not wrap. Increments check after the fact;
/// no machine has the threads to outrun that.
const MAX_REFERENCES: u64 = 1 << 46;

/// References that a new task starts with: the `Notified`'s, the `JoinHandle`'s.
const INITIAL: u64 = (2 * ONE_REFERENCE) | JOIN_INTEREST | SCHEDULED;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct State(AtomicU64);

/// One reading of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn lifecycle(self) -> u64 {
        self.0 & LIFECYCLE
    }

    fn with_lifecycle(self, lifecycle: u64) -> Word {
        Word(self.0 & !LIFECYCLE | lifecycle)
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn references(self) -> u64 {
        self.0 >> REFERENCES_SHIFT
    }

    fn shield_depth(self) -> u64 {
        (self.0 & SHIELD) >> SHIELD_SHIFT
    }

    /// Whether the task is to be dropped instead of polled.
    fn is_cancellation_due(self) -> bool {
        self.has(CANCELLED) && self.shield_depth() == 0
    }

    /// The table in the header of this file.
    fn is_legal(self) -> bool {
        let waker_fits = !self.has(JOIN_WAKER) || self.has(JOIN_INTEREST) || self.lifecycle() == COMPLETE;
        let lifecycle_fits = match self.lifecycle() {
            IDLE => !self.has(NOTIFIED) && !self.is_cancellation_due(),
            SCHEDULED => true,
            COMPLETE => !self.has(NOTIFIED) && self.shield_depth() == 0,
            _ => false,
        };
        waker_fits && lifecycle_fits
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Word")
            .field("lifecycle", &self.lifecycle())
            .field("is_notified", &self.has(NOTIFIED))
            .field("is_cancelled", &self.has(CANCELLED))
            .field("has_join_interest", &self.has(JOIN_INTEREST))
            .field("has_join_waker", &self.has(JOIN_WAKER))
            .field("shield_depth", &self.shield_depth())
            .field("references", &self.references())
            .finish()
    }
}

/// What follows from a wake-up or a cancellation.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a task that is to be submitted and is not is lost"]
pub(crate) enum Wake {
    /// The task became SCHEDULED; a reference was added for its `Notified`, which the caller must
    /// enqueue.
    Submit,
    /// Somebody else has it in hand, or it is complete.
    Nothing,
}

/// What follows from a wake-up by a waker that goes with it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a task that is to be submitted and is not is lost"]
pub(crate) enum WakeOwned {
    /// The task became SCHEDULED; the caller must enqueue its `Notified`. The waker's reference
    /// became that one's, or was kept.
    Submit,
    /// Somebody else has it in hand, or it is complete; the waker's reference is released.
    Nothing {
        /// It was the last one: free the task.
        was_last_reference: bool,
    },
}

/// What the runner is to do.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the runner owns the future now"]
pub(crate) enum Start {
    /// Poll the future.
    Poll,
    /// Drop the future and complete.
    Cancel,
}

/// What follows from a poll that returned Pending.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the Notified's reference has to go somewhere"]
pub(crate) enum Pause {
    /// IDLE. The `Notified`'s reference is released; the future is no longer the caller's.
    Idle,
    /// Still SCHEDULED, since it was woken meanwhile: the caller enqueues the `Notified`, which
    /// lives on.
    Reschedule,
    /// Still SCHEDULED: it was cancelled meanwhile, drop the future and complete.
    Cancel,
}

/// Who owns the output and the join waker once a task is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the output and the join waker have to go somewhere"]
pub(crate) enum Complete {
    /// Nobody joins: the completer drops the output, and then its references.
    DropOutput,
    /// The JoinHandle has not been polled yet; it will find the output. The completer's references
    /// are released.
    Keep,
    /// Wake the join waker, then call [`State::release_join_waker`].
    WakeJoiner,
}

/// What a JoinHandle that is dropped has to drop with it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what the handle owns has to be dropped"]
pub(crate) enum DropJoin {
    /// The output and the join waker, and then the reference.
    OutputAndWaker,
    /// The output, and then the reference; the completer drops the join waker.
    Output,
    /// The join waker, and then the reference.
    Waker,
    /// Nothing: no waker was ever there, and the reference is released.
    Nothing { was_last_reference: bool },
}

/// See [`State::cancellation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancellation {
    pub(crate) is_requested: bool,
    pub(crate) is_effective: bool,
}

/// The task completed before the transition could take place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IsComplete;

/// A task cannot be shielded 256 times over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ShieldOverflow;

impl State {
    /// The word of a task that is about to be enqueued for the first time.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(INITIAL))
    }

    /// One CAS loop for all transitions: `step` says what the word becomes and what that means.
    ///
    /// It writes even where nothing changes: see *No lost wake-up*.
    fn transition<R>(&self, mut step: impl FnMut(Word) -> (Word, R)) -> R {
        // ORDERING: Relaxed; retry value, the CAS below is what counts.
        let mut now = Word(self.0.load(Ordering::Relaxed));
        loop {
            let (next, result) = step(now);
            debug_assert!(next.is_legal(), "illegal transition of a task: {now:?} to {next:?}");
            // ORDERING: AcqRel; pairs with itself in every other transition. Release publishes what
            // the caller did to the future, to the output, or before its wake-up; Acquire makes the
            // same visible to who owns the task next. Failure is Relaxed: a retry value.
            match self.0.compare_exchange_weak(now.0, next.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return result,
                Err(found) => now = Word(found),
            }
        }
    }

    /// Wakes the task.
    pub(crate) fn wake(&self) -> Wake {
        self.transition(|now| match now.lifecycle() {
            IDLE => (Word(now.0 + ONE_REFERENCE).with_lifecycle(SCHEDULED), Wake::Submit),
            SCHEDULED => (Word(now.0 | NOTIFIED), Wake::Nothing),
            _ => (now, Wake::Nothing),
        })
    }

    /// Wakes the task by a waker that goes with that, in one read-modify-write instead of two.
    /// `keeps_reference`: if there is something to be submitted, the waker's reference is still
    /// the caller's afterwards, and one was added for the `Notified`.
    #[inline]
    pub(crate) fn wake_owned(&self, keeps_reference: bool) -> WakeOwned {
        self.transition(|now| {
            let less = |now: Word| Word(now.0 - ONE_REFERENCE);
            let nothing = WakeOwned::Nothing { was_last_reference: now.references() == 1 };
            match now.lifecycle() {
                IDLE => {
                    let added = if keeps_reference { ONE_REFERENCE } else { 0 };
                    (Word(now.0 + added).with_lifecycle(SCHEDULED), WakeOwned::Submit)
                }
                SCHEDULED => {
                    debug_assert!(now.references() > 1, "One Notified: it holds a reference");
                    (less(Word(now.0 | NOTIFIED)), nothing)
                }
                _ => (less(now), nothing),
            }
        })
    }

    /// Cancels the task: it is dropped at its next turn, or at the end of the present one, unless
    /// it is shielded until then.
    pub(crate) fn cancel(&self) -> Wake {
        self.cancel_with(0)
    }

    /// As [`cancel`](Self::cancel), and takes all shields down.
    pub(crate) fn cancel_unshielded(&self) -> Wake {
        self.cancel_with(SHIELD)
    }

    fn cancel_with(&self, takes_down: u64) -> Wake {
        self.transition(|now| {
            let cancelled = Word(now.0 & !takes_down | CANCELLED);
            match now.lifecycle() {
                // A shielded task is scheduled as well, so that it can see that it is cancelled.
                IDLE => (Word(cancelled.0 + ONE_REFERENCE).with_lifecycle(SCHEDULED), Wake::Submit),
                COMPLETE => (now, Wake::Nothing),
                // For the same reason, once: this poll may have asked already. Whoever shuts down
                // cancels before and after each poll.
                _ if cancelled.shield_depth() > 0 && !now.has(CANCELLED) => {
                    (Word(cancelled.0 | NOTIFIED), Wake::Nothing)
                }
                _ => (cancelled, Wake::Nothing),
            }
        })
    }

    /// A poll begins; the caller holds the `Notified`.
    #[inline]
    pub(crate) fn start(&self) -> Start {
        // ORDERING: Acquire; pairs with the Release of the cancellation that it may see. For
        // wake-ups see *No lost wake-up*.
        let now = Word(self.0.load(Ordering::Acquire));
        debug_assert_eq!(now.lifecycle(), SCHEDULED, "One Notified: only a scheduled task can start");
        if now.has(NOTIFIED | CANCELLED) { self.start_noted() } else { Start::Poll }
    }

    /// As [`start`](Self::start), of a task that was woken in the queue, which is one poll and not
    /// two, or cancelled.
    #[cold]
    fn start_noted(&self) -> Start {
        self.transition(|now| {
            let start = if now.is_cancellation_due() { Start::Cancel } else { Start::Poll };
            (Word(now.0 & !NOTIFIED), start)
        })
    }

    /// SCHEDULED → IDLE, unless it was woken since `start`, or is to be cancelled.
    /// `has_woken_itself`: by its own poll, and the word does not say so.
    #[inline]
    pub(crate) fn pause(&self, has_woken_itself: bool) -> Pause {
        if has_woken_itself {
            // ORDERING: Acquire; pairs with the Release of the cancellation that it may see. One
            // that it does not see, and wake-ups, are left to `start`.
            let now = Word(self.0.load(Ordering::Acquire));
            return if now.is_cancellation_due() { Pause::Cancel } else { Pause::Reschedule };
        }
        self.transition(|now| {
            debug_assert_eq!(now.lifecycle(), SCHEDULED, "One runner: only a running task can pause");
            if now.is_cancellation_due() {
                (now, Pause::Cancel)
            } else if now.has(NOTIFIED) {
                (Word(now.0 & !NOTIFIED), Pause::Reschedule)
            } else {
                debug_assert!(now.references() > 1, "somebody holds a reference to a task that waits");
                (Word(now.0 - ONE_REFERENCE).with_lifecycle(IDLE), Pause::Idle)
            }
        })
    }

    /// Whether nobody is left who could see the task end: no JoinHandle, and no references but the
    /// runner's `references`. It is its to free, complete or not.
    #[inline]
    pub(crate) fn is_unobserved(&self, references: u64) -> bool {
        // ORDERING: Acquire; pairs with the Release of each change by which a reference was given
        // up. Nobody can make another from none.
        let now = Word(self.0.load(Ordering::Acquire));
        now.references() == references && !now.has(JOIN_INTEREST)
    }

    /// SCHEDULED → COMPLETE; the output is in place. The completer's `references` are released with
    /// that if there is nothing left for it to do.
    #[inline]
    pub(crate) fn complete(&self, references: u64) -> Complete {
        self.transition(|now| {
            debug_assert_eq!(now.lifecycle(), SCHEDULED, "One runner: only a running task can complete");
            let complete = match (now.has(JOIN_INTEREST), now.has(JOIN_WAKER)) {
                (false, _) => Complete::DropOutput,
                (true, false) => Complete::Keep,
                (true, true) => Complete::WakeJoiner,
            };
            let released = if complete == Complete::Keep { references } else { 0 };
            debug_assert!(now.references() > released, "the JoinHandle holds a reference");
            // Guards that the output took along do not shield a task that is over.
            (Word((now.0 - released * ONE_REFERENCE) & !(NOTIFIED | SHIELD)).with_lifecycle(COMPLETE), complete)
        })
    }

    /// The completer has woken the join waker. True: the JoinHandle is gone, drop the waker, and
    /// then the `references`. False: they are released.
    #[must_use = "true means that the waker and the references must be dropped"]
    pub(crate) fn release_join_waker(&self, references: u64) -> bool {
        self.transition(|now| {
            let is_handle_gone = !now.has(JOIN_INTEREST);
            let released = if is_handle_gone { 0 } else { references };
            debug_assert!(now.references() > released, "the JoinHandle, or the completer, holds a reference");
            (Word((now.0 - released * ONE_REFERENCE) & !JOIN_WAKER), is_handle_gone)
        })
    }

    /// The JoinHandle has put its waker into the join waker field.
    pub(crate) fn publish_join_waker(&self) -> Result<(), IsComplete> {
        self.transition(|now| match now.lifecycle() {
            COMPLETE => (now, Err(IsComplete)),
            _ => (Word(now.0 | JOIN_WAKER), Ok(())),
        })
    }

    /// The JoinHandle wants to change the waker that it published.
    pub(crate) fn retract_join_waker(&self) -> Result<(), IsComplete> {
        self.transition(|now| match now.lifecycle() {
            COMPLETE => (now, Err(IsComplete)),
            _ => (Word(now.0 & !JOIN_WAKER), Ok(())),
        })
    }

    /// The JoinHandle goes.
    pub(crate) fn drop_join_interest(&self) -> DropJoin {
        // ORDERING: Acquire; pairs with the Release in `complete`, which publishes the output, and
        // in `release_join_waker`, after which the completer does not use the field any more.
        let now = Word(self.0.load(Ordering::Acquire));
        if now.lifecycle() == COMPLETE && !now.has(JOIN_WAKER) {
            // Nobody asks any more whether there is a handle.
            return DropJoin::OutputAndWaker;
        }
        self.transition(|now| match (now.lifecycle(), now.has(JOIN_WAKER)) {
            (COMPLETE, false) => (now, DropJoin::OutputAndWaker),
            (COMPLETE, true) => (Word(now.0 & !JOIN_INTEREST), DropJoin::Output),
            (_, true) => (Word(now.0 & !(JOIN_INTEREST | JOIN_WAKER)), DropJoin::Waker),
            (_, false) => {
                let was_last_reference = now.references() == 1;
                (Word((now.0 - ONE_REFERENCE) & !JOIN_INTEREST), DropJoin::Nothing { was_last_reference })
            }
        })
    }

    /// One shield more; called from inside the task's own poll. If the task was cancelled in this
    /// poll, before there was a shield, it is polled once more, as when it is cancelled under
    /// one: it may have asked before the cancellation.
    pub(crate) fn enter_shield(&self) -> Result<(), ShieldOverflow> {
        self.transition(|now| {
            debug_assert_eq!(now.lifecycle(), SCHEDULED, "shields are entered by the running task");
            let asks_again = if now.has(CANCELLED) && now.shield_depth() == 0 { NOTIFIED } else { 0 };
            if now.shield_depth() == 0xff {
                (now, Err(ShieldOverflow))
            } else {
                (Word((now.0 + ONE_SHIELD) | asks_again), Ok(()))
            }
        })
    }

    /// One shield less. A cancellation that waited takes effect when the poll ends, or at once if
    /// the guard was dropped outside a poll.
    pub(crate) fn leave_shield(&self) -> Wake {
        self.transition(|now| match now.lifecycle() {
            // Completion takes all shields down, and so does the end of a LocalSet.
            _ if now.shield_depth() == 0 => (now, Wake::Nothing),
            lifecycle => {
                let less = Word(now.0 - ONE_SHIELD);
                if lifecycle == IDLE && less.is_cancellation_due() {
                    (Word(less.0 + ONE_REFERENCE).with_lifecycle(SCHEDULED), Wake::Submit)
                } else {
                    (less, Wake::Nothing)
                }
            }
        })
    }

    /// Whether the task waits to be woken. A hint for reports.
    pub(crate) fn is_idle(&self) -> bool {
        // ORDERING: Relaxed; a hint, out of date as soon as it is read.
        Word(self.0.load(Ordering::Relaxed)).lifecycle() == IDLE
    }

    /// Whether the output is in place, and visible to the caller if so.
    pub(crate) fn is_complete(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `complete`, which publishes the output.
        Word(self.0.load(Ordering::Acquire)).lifecycle() == COMPLETE
    }

    /// Whether the join waker field holds a waker; asked by the JoinHandle only.
    pub(crate) fn has_join_waker(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `release_join_waker`: if the completer
        // cleared the flag, its use of the field is over. Before completion only the asking
        // JoinHandle changes the flag.
        Word(self.0.load(Ordering::Acquire)).has(JOIN_WAKER)
    }

    /// One reference more, from a live one.
    pub(crate) fn add_reference(&self) {
        // ORDERING: Relaxed; reference increment from a live reference: who got it got the task
        // with it.
        let before = Word(self.0.fetch_add(ONE_REFERENCE, Ordering::Relaxed));
        if before.references() >= MAX_REFERENCES {
            // As `Arc` does: wrapping would free a task in use, and no caller can handle an error
            // here.
            std::process::abort();
        }
    }

    /// Whether the task waits and nobody is left who could wake it: there is the caller's
    /// reference, and at most the JoinHandle's. True of one moment only.
    pub(crate) fn is_stranded(&self) -> bool {
        // ORDERING: Relaxed; a number for a report, by which nothing is done.
        let now = Word(self.0.load(Ordering::Relaxed));
        now.lifecycle() == IDLE && now.references() == 1 + u64::from(now.has(JOIN_INTEREST))
    }

    /// References but for the caller's, the JoinHandle's and the `Notified`'s: wakers, as a rule.
    /// True of one moment only.
    pub(crate) fn wakers(&self) -> u64 {
        // ORDERING: Relaxed; a number for a report, by which nothing is done.
        let now = Word(self.0.load(Ordering::Relaxed));
        let known = 1 + u64::from(now.has(JOIN_INTEREST)) + u64::from(now.lifecycle() == SCHEDULED);
        now.references().saturating_sub(known)
    }

    /// Whether the caller's reference is the only one, so that it may free the task without giving
    /// it up.
    #[inline]
    pub(crate) fn is_only_reference(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release of each change by which another was given up.
        // Nobody can make another from none.
        Word(self.0.load(Ordering::Acquire)).references() == 1
    }

    /// Whether the task was cancelled, and whether that takes effect: when it is not shielded.
    /// Asked by the running task.
    pub(crate) fn cancellation(&self) -> Cancellation {
        // ORDERING: Relaxed; a hint to the task itself, for which nothing is published with the
        // flag.
        let now = Word(self.0.load(Ordering::Relaxed));
        Cancellation { is_requested: now.has(CANCELLED), is_effective: now.is_cancellation_due() }
    }

    /// So many references less. True: they were the last, free the task.
    #[must_use = "true means that the task must be freed"]
    pub(crate) fn drop_references(&self, count: u64) -> bool {
        // ORDERING: AcqRel; Release: what these owners did is done before the task is freed;
        // Acquire: so is what all others did.
        let before = Word(self.0.fetch_sub(count * ONE_REFERENCE, Ordering::AcqRel));
        debug_assert!(before.references() >= count, "a reference is dropped once");
        before.references() == count
    }
}

#[cfg(all(test, loom))]
mod loom_models;

#[cfg(all(test, not(loom)))]
mod tests;
