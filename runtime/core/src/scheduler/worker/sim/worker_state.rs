//! The simulation's state of a worker: its next step, and its history.

use std::cell::{Cell, RefCell};

use crate::scheduler::worker::Tick;
use crate::scheduler::worker::park::{ParkTarget, SleptBy};
use crate::task::header::Notified;

/// The next step of a worker.
pub(super) enum Step<'a> {
    Begin,
    Seek(Tick),
    Poll(Tick, Notified),
    EndTick(Tick, bool),
    BeginPark,
    Check,
    PrepareSleep,
    Sleep {
        target: ParkTarget<'a>,
        since_ns: u64,
    },
    Retract(Option<SleptBy>),
    FinishPark(Option<SleptBy>, bool),
    Ended,
    /// A step is being taken, further up the stack.
    Busy,
}

impl Step<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Begin => "begin",
            Step::Seek(_) => "seek",
            Step::Poll(..) => "poll",
            Step::EndTick(..) => "end tick",
            Step::BeginPark => "begin park",
            Step::Check => "check",
            Step::PrepareSleep => "prepare sleep",
            Step::Sleep { .. } => "wake up",
            Step::Retract(_) => "retract",
            Step::FinishPark(..) => "finish park",
            Step::Ended => "ended",
            Step::Busy => "busy",
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        matches!(self, Step::Check | Step::PrepareSleep | Step::Sleep { .. } | Step::Retract(_))
    }

    /// Returns whether the worker is between one check and the next.
    pub(super) fn is_in_transit(&self) -> bool {
        matches!(self, Step::BeginPark | Step::Check | Step::PrepareSleep | Step::Retract(_) | Step::FinishPark(..))
            || matches!(self, Step::EndTick(_, true))
    }
}

/// The simulation's state of a worker.
pub(super) struct WorkerState<'a> {
    pub(super) step: RefCell<Step<'a>>,
    /// Its bit was cleared by a claim; the token is on its way, or has arrived.
    pub(super) is_claimed: Cell<bool>,
    /// The token has arrived.
    pub(super) has_token: Cell<bool>,
    /// It woke up, and has not searched for work since.
    pub(super) is_fresh: Cell<bool>,
    /// It timed out while another actor was delayed on the way to a task that it may find, or to a
    /// wake-up. What the time-out catches then was not lost.
    pub(super) is_excused: Cell<bool>,
    pub(super) watch: RefCell<Watch>,
}

/// The history of a worker that the checks need.
#[derive(Default)]
pub(super) struct Watch {
    /// Whether it is in `next_task`.
    pub(super) is_seeking: bool,
    /// Polls so far.
    pub(super) polls: u64,
    pub(super) lifo_hits_before_tick: u64,
    /// Local polls since the global queue was first found filled and not checked, and when that
    /// was.
    pub(super) passed_over: Option<(u32, u64)>,
    /// Polls since the ring was first found filled and not polled from.
    pub(super) polls_beside_ring: u64,
}
