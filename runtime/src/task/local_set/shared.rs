//! The state that a set shares with its tasks; the header of the folder describes it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use volt_core::task::header::{Header, Notified, Ran, Task};
use volt_core::task::schedule::Schedule;
use volt_shim::Mutex;

/// State shared between the set and its tasks.
#[derive(Clone, Default)]
pub(super) struct Shared(pub(super) Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    pub(super) woken: VecDeque<Notified>,
    /// By id, so in the order in which they were spawned.
    pub(super) alive: BTreeMap<u64, Task>,
    pub(super) waker: Option<Waker>,
    /// A poll of the set is running, and polls the tasks that are woken meanwhile: the waker need
    /// not be called.
    pub(super) is_polled: bool,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Open,
    /// `Drop` of the set is running.
    Closing { spawns_left: u32 },
    /// The set has been dropped.
    Closed,
}

/// The result of adding a task.
pub(super) enum Admission {
    Spawned,
    /// The set has been dropped: the task is cancelled immediately.
    Cancelled,
    /// The limit of IT ENDS is reached: the task is cancelled, and its future is leaked.
    Leaked,
}

impl State {
    /// Counts a task that is about to be spawned.
    pub(super) fn admit(&mut self) -> Admission {
        match &mut self.phase {
            Phase::Open => Admission::Spawned,
            Phase::Closing { spawns_left: 0 } => Admission::Leaked,
            Phase::Closing { spawns_left } => {
                *spawns_left -= 1;
                Admission::Spawned
            }
            Phase::Closed => Admission::Cancelled,
        }
    }
}

impl Schedule for Shared {
    /// The polls of these tasks are part of a poll of the task that polls the set.
    const IS_COUNTED: bool = false;

    fn schedule(&self, task: Notified) {
        let mut state = self.0.lock();
        if state.phase == Phase::Closed {
            drop(state);
            // CLOSED FOR GOOD. The task has completed, or is about to.
            drop(task);
            return;
        }
        state.woken.push_back(task);
        let waker = if state.is_polled { None } else { state.waker.take() };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The set cancels its tasks itself.
    fn is_closing(&self) -> bool {
        false
    }

    /// Nothing to do: `spawn_on` has already added the task to `alive`.
    fn keep(&self, _task: &Task) {}

    fn release(&self, task: &Header) -> Option<Task> {
        self.0.lock().alive.remove(&task.id.as_u64())
    }
}

impl Shared {
    /// Returns the next woken task, for a poll of the set. If there is none, a task that is woken
    /// from now on calls the set's waker.
    pub(super) fn pop_or_wait(&self) -> Option<Notified> {
        let mut state = self.0.lock();
        let task = state.woken.pop_front();
        state.is_polled &= task.is_some();
        task
    }

    /// Adds a task to the woken ones if it was woken in the poll with this result.
    pub(super) fn keep_woken(&self, ran: Ran) {
        if let Ran::Woken { task, .. } = ran {
            self.0.lock().woken.push_back(task);
        }
    }

    pub(super) fn pop(&self) -> Option<Notified> {
        self.0.lock().woken.pop_front()
    }
}
