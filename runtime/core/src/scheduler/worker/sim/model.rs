//! The model of a task: what the simulation expects of it.

use std::task::Waker;

use crate::task::join::JoinHandle;

/// The state of a task, as it follows from polls and wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    /// In exactly one queue.
    Queued,
    /// Taken out of a queue by this worker, and not polled yet.
    InHand(usize),
    Polled {
        by: usize,
        is_woken: bool,
    },
    /// Its last poll is over, and its future is about to be dropped.
    Ending(End),
    Ended(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Completed,
    Cancelled,
    Panicked,
}

/// The model of a task.
pub(super) struct Model {
    pub(super) state: State,
    pub(super) kind: Kind,
    pub(super) is_aborted: bool,
    pub(super) waker: Option<Waker>,
    pub(super) handle: Option<JoinHandle<()>>,
    /// How often the task was queued.
    pub(super) queued_count: u64,
    pub(super) seen: Option<Seen>,
    /// Polls of all workers before it was queued last.
    pub(super) queued_at_polls: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mixed,
    /// Wakes the task of that index, and waits.
    Partner(usize),
    /// Yields.
    Spinner,
}

/// Where a task is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Global,
    Inbox(usize),
    Lifo(usize),
    Ring(usize),
    Batch(usize),
}

/// Where a task was first seen since it was queued, and how many polls its holder had made then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) place: Place,
    pub(super) queued_count: u64,
    pub(super) polls: u64,
    pub(super) bound: u64,
}
