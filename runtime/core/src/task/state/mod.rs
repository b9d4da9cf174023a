//! The task word: the state of a task that several threads may change, in one atomic of 64 bits.
//!
//! A task is woken, polled, cancelled and joined by different threads at the same time. Each of
//! these operations is a transition of the word, mostly one compare-and-swap, so that the threads
//! agree on what happens next: whether the task has to be enqueued, which thread may touch the
//! future, and which one drops the output and frees the memory.
//!
//! Terms. A *waker* is a `std::task::Waker` of the task. The `Notified` is the permission to run
//! the task once; queues contain `Notified`s. The *runner* is the thread that owns the `Notified`
//! and polls the future. The *completer* is the runner of the last poll. The *join waker* is the
//! waker of the task that awaits the JoinHandle. A *shield* is a section of a task in which a
//! cancellation is deferred.
//!
//! One ordinary case. A new task is SCHEDULED, and its `Notified` is in a queue. A worker takes it,
//! calls `start`, polls the future, which is pending, and calls `pause`: the task is IDLE, and
//! there is no `Notified`. Later a waker calls `wake`: the task is SCHEDULED again, and the waker
//! enqueues the new `Notified`. The next poll returns an output, and the worker calls `complete`.
//!
//! A task dump *claims* a task that waits: it makes it SCHEDULED, as a wake-up does, but runs the
//! `Notified` itself instead of enqueueing it.
//!
//! The race. A wake-up or a cancellation may come at any moment: while the task is in a queue,
//! during its poll, or between the end of the poll and `pause`. It must lead to one more poll, and
//! to exactly one `Notified`. The invariants below ensure that.
//!
//! Shape, from the highest bit:
//! `| references 48 | shield depth 8 | flags 4 | reserved 2 | lifecycle 2 |`.
//!
//! | part | meaning | when set | changed by |
//! |---|---|---|---|
//! | references | owners of the allocation | always ≥ 1 until freed, and far below 2^48: see `MAX_REFERENCES` | any owner of a reference |
//! | shield depth | cancellation is deferred while > 0 | inside a shield | up: the thread that polls the task; down: the thread that drops the guard; to 0: `complete` and `cancel_unshielded` |
//! | NOTIFIED | to be polled once more | only while SCHEDULED | set by any waker, and if a cancellation meets a shield (`cancel`, `enter_shield`); cleared by `start`, `pause` and `complete` |
//! | CANCELLED | to be dropped instead of polled | from `cancel` on, permanently | any thread |
//! | JOIN_INTEREST | a JoinHandle exists | from the spawn until the handle is dropped; may stay set if that is after COMPLETE | the JoinHandle |
//! | JOIN_WAKER | the join waker field contains a waker for the completer | while not COMPLETE, and until the completer has woken it | the JoinHandle before completion, the completer after |
//! | lifecycle | IDLE 0, SCHEDULED 1, COMPLETE 3 | | see below |
//!
//! The lifecycle, with one arrow per transition. A SCHEDULED task is being polled between `start`
//! and `pause` or `complete`; otherwise it is in a queue.
//! ```text
//!   wake, cancel, claim          pause, unless woken
//!  IDLE ───────► SCHEDULED ───────────────────────────► IDLE
//!                 │     ▲ │
//!                 └─────┘ └── complete ───────────────► COMPLETE
//!            start; pause, if woken
//! ```
//!
//! Invariants:
//! * *One Notified*: a `Notified` exists exactly while the task is SCHEDULED, and owns one
//!   reference.
//! * *One runner*: only the holder of the `Notified` calls `start`. It owns the future from then on
//!   until `pause` or `complete`. It sees what the previous runner did to the future, because the
//!   `Notified` came from that runner through a queue or through this word.
//! * *No lost wake-up*: a waker always does its read-modify-write, even if nothing changes. The
//!   poll that follows therefore sees what the waker wrote before. (A plain load and an early
//!   return lose wake-ups: tokio #7622.) `start` only reads. If it sees a wake-up, it clears it
//!   with a read-modify-write; one that it does not see is still there for `pause`. A task that
//!   wakes itself in its own poll needs no read-modify-write either: its runner wrote the data
//!   itself, and passes the wake-up to `pause` as an argument.
//! * *Join hand-over*: before COMPLETE the JoinHandle owns the join waker field while JOIN_WAKER is
//!   clear. While JOIN_WAKER is set, both sides may read the field and neither writes it. After
//!   COMPLETE the completer owns the field until it clears JOIN_WAKER. The side that finds that the
//!   other has finished drops the waker. The output belongs to the JoinHandle if JOIN_INTEREST was
//!   set at completion, and to the completer otherwise.
//!
//! Legal combinations (`is_legal`, asserted in debug builds at every transition):
//!
//! | lifecycle | NOTIFIED | CANCELLED | shield depth | JOIN_WAKER |
//! |---|---|---|---|---|
//! | IDLE | 0 | only with depth > 0 | any | only with JOIN_INTEREST |
//! | SCHEDULED | any | any | any | only with JOIN_INTEREST |
//! | COMPLETE | 0 | any | 0 | any |
//!
//! Rejected: RUNNING as a separate state. It costs a read-modify-write per poll and adds nothing to
//! what the `Notified` shows. Also rejected: 24 bits of references, which with the same margin
//! allow four million. A program that keeps more clones of one waker is slow but correct, and would
//! have to be aborted.
//!
//! A wake-up on a thread of the task's own scheduler, and `pause`, first try the usual transition:
//! one load and one compare-and-swap, with the same orderings. If that fails, or if the load shows
//! anything unusual, the general transition follows, as if nothing had been tried.
//!
//! The transitions follow those of tokio's and async-task's `state.rs`.

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
/// A quarter of what 48 bits can count. A program that leaks one clone per nanosecond reaches it
/// after 19 hours. It is then aborted, as with `Arc`, because the count must not wrap. An increment
/// checks the limit afterwards; no machine has enough threads to exceed the rest of the range in
/// between.
const MAX_REFERENCES: u64 = 1 << 46;

/// The word of a new task: one reference is the `Notified`'s, the other the `JoinHandle`'s.
const INITIAL: u64 = (2 * ONE_REFERENCE) | JOIN_INTEREST | SCHEDULED;

/// The task word. See the module documentation.
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

    /// Checks the word against the table of legal combinations in the module documentation.
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

/// The action that the caller has to take after a wake-up or a cancellation.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a task that is to be submitted and is not is lost"]
pub(crate) enum Wake {
    /// The task became SCHEDULED. A reference was added for its `Notified`, which the caller must
    /// enqueue.
    Submit,
    /// Nothing: the task is SCHEDULED already, so its runner handles the wake-up, or it is
    /// complete.
    Nothing,
}

/// The action that the caller has to take after a wake-up that consumed the waker.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a task that is to be submitted and is not is lost"]
pub(crate) enum WakeOwned {
    /// The task became SCHEDULED, and the caller must enqueue its `Notified`. The waker's reference
    /// became the `Notified`'s, or was kept.
    Submit,
    /// Nothing, as for [`Wake::Nothing`]. The waker's reference is released.
    Nothing {
        /// The released reference was the last one: the caller must free the task.
        was_last_reference: bool,
    },
}

/// The action that the runner has to take.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the runner owns the future now"]
pub(crate) enum Start {
    /// Poll the future.
    Poll,
    /// Drop the future and complete.
    Cancel,
}

/// The action that the runner has to take after a poll that returned Pending.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the Notified's reference has to go somewhere"]
pub(crate) enum Pause {
    /// Nothing: the task is IDLE. The `Notified`'s reference is released, and the future is no
    /// longer the caller's.
    Idle,
    /// The task is still SCHEDULED, because it was woken during the poll. The caller enqueues the
    /// same `Notified` again.
    Reschedule,
    /// The task is still SCHEDULED, and was cancelled during the poll. The caller drops the future
    /// and completes the task.
    Cancel,
}

/// Which side owns the output and the join waker of a task that is now complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the output and the join waker have to go somewhere"]
pub(crate) enum Complete {
    /// There is no JoinHandle: the completer drops the output, and then its references.
    DropOutput,
    /// The JoinHandle has published no waker and will find the output. The completer's references
    /// are released.
    Keep,
    /// Wake the join waker, then call [`State::release_join_waker`].
    WakeJoiner,
}

/// The parts of a task that a dropped JoinHandle must drop.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "what the handle owns has to be dropped"]
pub(crate) enum DropJoin {
    /// The output and the join waker, and then the reference.
    OutputAndWaker,
    /// The output, and then the reference; the completer drops the join waker.
    Output,
    /// The join waker, and then the reference.
    Waker,
    /// Nothing: no waker was published, and the reference is released.
    Nothing { was_last_reference: bool },
}

/// See [`State::cancellation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cancellation {
    pub(crate) is_requested: bool,
    pub(crate) is_effective: bool,
}

/// The task was complete before the transition could take place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IsComplete;

/// The task is inside 255 shields already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ShieldOverflow;

impl State {
    /// Returns the word of a task that is about to be enqueued for the first time.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(INITIAL))
    }

    /// The compare-and-swap loop of all transitions: `step` maps the word to its next value and a
    /// result.
    ///
    /// It writes the word even if the value does not change: see *No lost wake-up*.
    #[inline]
    fn transition<R>(&self, mut step: impl FnMut(Word) -> (Word, R)) -> R {
        // ORDERING: Relaxed: a stale value makes the CAS below fail and be retried.
        let mut now = Word(self.0.load(Ordering::Relaxed));
        loop {
            let (next, result) = step(now);
            debug_assert!(next.is_legal(), "illegal transition of a task: {now:?} to {next:?}");
            // ORDERING: AcqRel; pairs with itself in every other transition. Release publishes what
            // the caller did to the future, to the output, or before its wake-up. Acquire makes the
            // same visible to the next owner of the task. Relaxed on failure: the value is only
            // used for the next attempt.
            match self.0.compare_exchange_weak(now.0, next.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return result,
                Err(found) => now = Word(found),
            }
        }
    }

    /// Wakes the task.
    #[inline]
    pub(crate) fn wake(&self) -> Wake {
        self.transition(|now| match now.lifecycle() {
            IDLE => (Word(now.0 + ONE_REFERENCE).with_lifecycle(SCHEDULED), Wake::Submit),
            SCHEDULED => (Word(now.0 | NOTIFIED), Wake::Nothing),
            _ => (now, Wake::Nothing),
        })
    }

    /// Wakes the task with a waker that is consumed and whose reference becomes the `Notified`'s.
    /// Tries once: returns false, and does nothing, unless the task is IDLE and no other thread
    /// changes the word at the same moment. Then [`wake_owned`](Self::wake_owned) follows.
    #[inline]
    #[must_use = "false means that the task is not woken yet"]
    pub(crate) fn wake_idle(&self) -> bool {
        // ORDERING: Relaxed: a stale value makes the CAS below fail.
        let now = self.0.load(Ordering::Relaxed);
        // ORDERING: as in `transition`.
        now & LIFECYCLE == IDLE
            && self.0.compare_exchange(now, now | SCHEDULED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Wakes the task with a waker that is consumed, in one read-modify-write instead of two. If
    /// `keeps_reference`, and if there is something to submit, the caller keeps the waker's
    /// reference, and another is added for the `Notified`.
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

    /// Makes a task that waits SCHEDULED, without waking it. If true, a reference was added for its
    /// `Notified`, and the caller must run it. If false, the task does not wait, and nothing has
    /// changed.
    #[must_use = "a task that is claimed and not run is lost"]
    pub(crate) fn claim(&self) -> bool {
        self.transition(|now| match now.lifecycle() {
            IDLE => (Word(now.0 + ONE_REFERENCE).with_lifecycle(SCHEDULED), true),
            _ => (now, false),
        })
    }

    /// Cancels the task: the future is dropped instead of the next poll, or at the end of the
    /// current one, unless a shield defers that.
    pub(crate) fn cancel(&self) -> Wake {
        self.cancel_with(0)
    }

    /// Cancels the task as [`cancel`](Self::cancel) does, and removes all its shields.
    pub(crate) fn cancel_unshielded(&self) -> Wake {
        self.cancel_with(SHIELD)
    }

    fn cancel_with(&self, takes_down: u64) -> Wake {
        self.transition(|now| {
            let cancelled = Word(now.0 & !takes_down | CANCELLED);
            match now.lifecycle() {
                // A shielded task is scheduled as well, so that it can observe the cancellation.
                IDLE => (Word(cancelled.0 + ONE_REFERENCE).with_lifecycle(SCHEDULED), Wake::Submit),
                COMPLETE => (now, Wake::Nothing),
                // For the same reason the task is polled once more: the current poll may have
                // checked for a cancellation before this one. Only the first cancellation causes
                // that: a shutdown cancels before and after each poll, and each poll would then
                // lead to another.
                _ if cancelled.shield_depth() > 0 && !now.has(CANCELLED) => {
                    (Word(cancelled.0 | NOTIFIED), Wake::Nothing)
                }
                _ => (cancelled, Wake::Nothing),
            }
        })
    }

    /// Begins a poll. The caller owns the `Notified`.
    #[inline]
    pub(crate) fn start(&self) -> Start {
        // ORDERING: Acquire; pairs with the Release of a cancellation whose flag this load sees.
        // For wake-ups see *No lost wake-up*.
        let now = Word(self.0.load(Ordering::Acquire));
        debug_assert_eq!(now.lifecycle(), SCHEDULED, "One Notified: only a scheduled task can start");
        if now.has(NOTIFIED | CANCELLED) { self.start_noted() } else { Start::Poll }
    }

    /// Begins a poll of a task that was cancelled, or woken again while it was in a queue. That
    /// wake-up needs no second poll, so it is cleared here.
    #[cold]
    fn start_noted(&self) -> Start {
        self.transition(|now| {
            let start = if now.is_cancellation_due() { Start::Cancel } else { Start::Poll };
            (Word(now.0 & !NOTIFIED), start)
        })
    }

    /// Ends a poll: SCHEDULED → IDLE, unless the task was woken since `start` or must be cancelled.
    /// `has_woken_itself` means that the task woke itself in this poll, which the word does not
    /// record.
    #[inline]
    pub(crate) fn pause(&self, has_woken_itself: bool) -> Pause {
        if has_woken_itself {
            // ORDERING: Acquire; pairs with the Release of a cancellation whose flag this load
            // sees. The next `start` sees wake-ups, and a cancellation that this load misses.
            let now = Word(self.0.load(Ordering::Acquire));
            return if now.is_cancellation_due() { Pause::Cancel } else { Pause::Reschedule };
        }
        // The usual case first: one try, without a wake-up or a cancellation. The general case
        // follows if another thread changes the word at the same moment.
        // ORDERING: Relaxed: a stale value makes the CAS below fail.
        let now = Word(self.0.load(Ordering::Relaxed));
        if !now.has(NOTIFIED | CANCELLED) {
            debug_assert!(now.references() > 1, "a task that waits has a reference");
            let next = now.0 - ONE_REFERENCE - (SCHEDULED - IDLE);
            // ORDERING: as in `transition`.
            if self.0.compare_exchange(now.0, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Pause::Idle;
            }
        }
        self.pause_in_general()
    }

    /// Ends a poll of a task that did not wake itself, whatever other threads do.
    #[cold]
    #[inline(never)]
    fn pause_in_general(&self) -> Pause {
        self.transition(|now| {
            debug_assert_eq!(now.lifecycle(), SCHEDULED, "One runner: only a running task can pause");
            if now.is_cancellation_due() {
                (now, Pause::Cancel)
            } else if now.has(NOTIFIED) {
                (Word(now.0 & !NOTIFIED), Pause::Reschedule)
            } else {
                debug_assert!(now.references() > 1, "a task that waits has a reference");
                (Word(now.0 - ONE_REFERENCE).with_lifecycle(IDLE), Pause::Idle)
            }
        })
    }

    /// Returns whether no other thread can see the task end: there is no JoinHandle, and there are
    /// no references except the runner's `references`. The runner may then free the task, complete
    /// or not.
    #[inline]
    pub(crate) fn is_unobserved(&self, references: u64) -> bool {
        // ORDERING: Acquire; pairs with the Release of each change that released a reference. New
        // references can only be made from existing ones, so the count cannot grow again.
        let now = Word(self.0.load(Ordering::Acquire));
        now.references() == references && !now.has(JOIN_INTEREST)
    }

    /// SCHEDULED → COMPLETE, when the output is in place. If the completer has nothing left to do,
    /// this also releases its `references`.
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
            // Shield guards that were moved into the output do not shield a complete task.
            (Word((now.0 - released * ONE_REFERENCE) & !(NOTIFIED | SHIELD)).with_lifecycle(COMPLETE), complete)
        })
    }

    /// Ends the completer's use of the join waker, which it has woken. Returns true if the
    /// JoinHandle was dropped: the caller must then drop the waker and its `references`. Otherwise
    /// they are released.
    #[must_use = "true means that the waker and the references must be dropped"]
    pub(crate) fn release_join_waker(&self, references: u64) -> bool {
        self.transition(|now| {
            let is_handle_gone = !now.has(JOIN_INTEREST);
            let released = if is_handle_gone { 0 } else { references };
            debug_assert!(now.references() > released, "the JoinHandle, or the completer, holds a reference");
            (Word((now.0 - released * ONE_REFERENCE) & !JOIN_WAKER), is_handle_gone)
        })
    }

    /// Publishes the waker that the JoinHandle has put into the join waker field.
    pub(crate) fn publish_join_waker(&self) -> Result<(), IsComplete> {
        self.transition(|now| match now.lifecycle() {
            COMPLETE => (now, Err(IsComplete)),
            _ => (Word(now.0 | JOIN_WAKER), Ok(())),
        })
    }

    /// Withdraws the published waker, so that the JoinHandle may replace it.
    pub(crate) fn retract_join_waker(&self) -> Result<(), IsComplete> {
        self.transition(|now| match now.lifecycle() {
            COMPLETE => (now, Err(IsComplete)),
            _ => (Word(now.0 & !JOIN_WAKER), Ok(())),
        })
    }

    /// Records that the JoinHandle is dropped.
    pub(crate) fn drop_join_interest(&self) -> DropJoin {
        // ORDERING: Acquire; pairs with the Release in `complete`, which publishes the output, and
        // with that in `release_join_waker`, after which the completer no longer uses the field.
        let now = Word(self.0.load(Ordering::Acquire));
        if now.lifecycle() == COMPLETE && !now.has(JOIN_WAKER) {
            // JOIN_INTEREST may stay set, since it is not read after this.
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

    /// Adds a shield. Called by the task during its own poll. If the task was cancelled in this
    /// poll, before it had a shield, it is polled once more, as after a cancellation under a
    /// shield: it may have checked for the cancellation too early.
    pub(crate) fn enter_shield(&self) -> Result<(), ShieldOverflow> {
        self.transition(|now| {
            debug_assert_eq!(now.lifecycle(), SCHEDULED, "shields are entered by the running task");
            let notified_again = if now.has(CANCELLED) && now.shield_depth() == 0 { NOTIFIED } else { 0 };
            if now.shield_depth() == 0xff {
                (now, Err(ShieldOverflow))
            } else {
                (Word((now.0 + ONE_SHIELD) | notified_again), Ok(()))
            }
        })
    }

    /// Removes a shield. A deferred cancellation takes effect at the end of the poll, or
    /// immediately if the guard was dropped outside a poll.
    pub(crate) fn leave_shield(&self) -> Wake {
        self.transition(|now| match now.lifecycle() {
            // Completion has removed all shields, or the end of a LocalSet or of the runtime has.
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

    /// Returns whether the task waits to be woken. A hint for reports.
    pub(crate) fn is_idle(&self) -> bool {
        // ORDERING: Relaxed: a hint, outdated as soon as it is read.
        Word(self.0.load(Ordering::Relaxed)).lifecycle() == IDLE
    }

    /// Returns whether the task is complete. If so, its output is visible to the caller.
    pub(crate) fn is_complete(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `complete`, which publishes the output.
        Word(self.0.load(Ordering::Acquire)).lifecycle() == COMPLETE
    }

    /// Returns whether the join waker field contains a published waker. Called by the JoinHandle
    /// only.
    pub(crate) fn has_join_waker(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `release_join_waker`: if the completer
        // cleared the flag, it no longer uses the field. Before completion only the calling
        // JoinHandle changes the flag.
        Word(self.0.load(Ordering::Acquire)).has(JOIN_WAKER)
    }

    /// Returns whether a task awaits the JoinHandle. A hint for reports.
    pub(crate) fn is_joined(&self) -> bool {
        // ORDERING: Relaxed: a hint, outdated as soon as it is read.
        let now = Word(self.0.load(Ordering::Relaxed));
        now.has(JOIN_WAKER) && now.lifecycle() != COMPLETE
    }

    /// Adds a reference. The caller owns one already.
    pub(crate) fn add_reference(&self) {
        // ORDERING: Relaxed: the new reference is made from a live one. A thread that receives it
        // receives the task in the same, synchronized way.
        let before = Word(self.0.fetch_add(ONE_REFERENCE, Ordering::Relaxed));
        if before.references() >= MAX_REFERENCES {
            // As in `Arc`: a wrapped count would free a task in use, and no caller can handle an
            // error here.
            std::process::abort();
        }
    }

    /// Returns whether the task is idle and has no waker: the only references are the caller's and,
    /// if there is a JoinHandle, that one's. True of this moment only.
    pub(crate) fn is_stranded(&self) -> bool {
        // ORDERING: Relaxed: a value for a report; nothing depends on it.
        let now = Word(self.0.load(Ordering::Relaxed));
        now.lifecycle() == IDLE && now.references() == 1 + u64::from(now.has(JOIN_INTEREST))
    }

    /// Returns the number of references other than the caller's, the JoinHandle's and the
    /// `Notified`'s. These are usually wakers. True of this moment only.
    pub(crate) fn wakers(&self) -> u64 {
        // ORDERING: Relaxed: a value for a report; nothing depends on it.
        let now = Word(self.0.load(Ordering::Relaxed));
        let known = 1 + u64::from(now.has(JOIN_INTEREST)) + u64::from(now.lifecycle() == SCHEDULED);
        now.references().saturating_sub(known)
    }

    /// Returns whether the caller owns the only reference, so that it may free the task without
    /// releasing it first.
    #[inline]
    pub(crate) fn is_only_reference(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release of each change that released another reference.
        // New references can only be made from existing ones.
        Word(self.0.load(Ordering::Acquire)).references() == 1
    }

    /// Returns whether the task was cancelled, and whether that takes effect, which a shield
    /// prevents. Called by the running task.
    pub(crate) fn cancellation(&self) -> Cancellation {
        // ORDERING: Relaxed: a hint to the task itself; nothing is published with the flag.
        let now = Word(self.0.load(Ordering::Relaxed));
        Cancellation { is_requested: now.has(CANCELLED), is_effective: now.is_cancellation_due() }
    }

    /// Releases `count` references. Returns true if they were the last ones: the caller must free
    /// the task.
    #[must_use = "true means that the task must be freed"]
    pub(crate) fn drop_references(&self, count: u64) -> bool {
        // ORDERING: AcqRel. Release: what these owners did happens before the task is freed.
        // Acquire: so does what all other owners did.
        let before = Word(self.0.fetch_sub(count * ONE_REFERENCE, Ordering::AcqRel));
        debug_assert!(before.references() >= count, "a reference is dropped once");
        before.references() == count
    }
}

#[cfg(all(test, loom))]
mod claim_loom_models;
#[cfg(all(test, loom))]
mod loom_models;

#[cfg(all(test, not(loom)))]
mod tests;
