//! The core of a current-thread runtime's only worker, which one thread at a time takes.
//!
//! A current-thread runtime has one worker and no thread for it. A thread that calls `block_on`
//! *takes the core* of the worker: it becomes the worker, and polls its own future (the *main
//! future*) and the tasks in turn. When the main future is ready, the thread *puts the core back*,
//! with all queued tasks in it. The next `block_on` continues with them.
//!
//! If another thread has the core, a thread in `block_on` polls only its main future, and sleeps in
//! between on a parker of its own thread. When the core is put back, the thread that has waited
//! longest is woken and tries to take it.
//!
//! While no thread has the core, the worker counts as parked: its bit in the idle set is set. A
//! thread that submits a task may claim it and give it a token. The next thread to take the core
//! then finds itself claimed, as after a sleep.
//!
//! An ordinary case: thread A has the core, and thread B calls `block_on`. B adds its parker, polls
//! its main future, and sleeps. The main future of A is ready, so A puts the core back and unparks
//! B. B takes the core, and polls the tasks that A left in it.
//!
//! The race: a thread that waits is woken because the core is free, but its main future becomes
//! ready in the same moment, so that it no longer needs the core. The other threads that wait would
//! then sleep for ever although the core is free. So a thread that stops waiting passes the wake-up
//! on.
//!
//! # Protocol
//!
//! Take, under the lock: if the core is there, take it, and remove the own parker from those that
//! wait. Otherwise add the own parker to them, unless it is there already.
//!
//! Put back: under the lock, put the core back; then, without the lock, unpark the first of those
//! that wait, which stays in the list.
//!
//! Withdraw, by a thread that waits no longer: under the lock, remove the own parker; then, without
//! the lock, if the core was there, unpark the first of those that are left.
//!
//! # Invariants
//!
//! * ONE-WORKER: one thread at a time has the core.
//! * NO-FREE-CORE: while the core is there and a thread waits, the first that waits has a token or
//!   is about to get one, or is between its token and its next Take or Withdraw. Put back gives
//!   that token, and Withdraw passes it on.
//!
//! Rejected: a thread that puts the core back hands it directly to the first that waits. If the
//! main future of that thread is ready at the same time, the core would have to travel on.

use std::collections::VecDeque;
use std::fmt;

use volt_shim::{Arc, AtomicBool, Mutex, MutexGuard, Ordering};

use crate::driver::parker::{Parker, Unparked};

#[cfg(all(test, loom))]
mod loom_models;

/// See the header of this file. `C` is the core of the worker.
pub(crate) struct SharedCore<C> {
    state: Mutex<State<C>>,
    /// Whether no thread has the core: for the sentinel, which does not take the lock.
    is_free: AtomicBool,
}

struct State<C> {
    core: Option<C>,
    /// The threads that wait for the core, in the order in which they came.
    waiting: VecDeque<Arc<Parker>>,
}

impl<C> SharedCore<C> {
    pub(crate) fn new(core: C) -> Self {
        let state = State { core: Some(core), waiting: VecDeque::new() };
        Self { state: Mutex::new(state), is_free: AtomicBool::new(true) }
    }

    /// Takes the core. If another thread has it, `parker` is unparked when it becomes free.
    pub(crate) fn take(&self, parker: &Arc<Parker>) -> Option<C> {
        let mut state = self.lock();
        let core = state.core.take();
        let place = state.waiting.iter().position(|waiting| Arc::ptr_eq(waiting, parker));
        match (&core, place) {
            (Some(_), Some(place)) => _ = state.waiting.remove(place),
            (None, None) => state.waiting.push_back(parker.clone()),
            _ => {}
        }
        if core.is_some() {
            self.set_free(false);
        }
        core
    }

    /// Takes the core if it is free, without waiting for it.
    pub(crate) fn try_take(&self) -> Option<C> {
        let core = self.lock().core.take();
        if core.is_some() {
            self.set_free(false);
        }
        core
    }

    /// Puts the core back.
    pub(crate) fn put_back(&self, core: C) {
        let mut state = self.lock();
        debug_assert!(state.core.is_none(), "ONE-WORKER");
        state.core = Some(core);
        self.set_free(true);
        wake_first(state);
    }

    /// Stops waiting for the core.
    pub(crate) fn withdraw(&self, parker: &Arc<Parker>) {
        let mut state = self.lock();
        state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, parker));
        if state.core.is_some() {
            wake_first(state);
        }
    }

    /// Returns whether no thread has the core.
    pub(crate) fn is_free(&self) -> bool {
        // ORDERING: Relaxed; the check that must not miss a thread, Suspend (3) of `suspension`,
        // comes after the fence of Suspend (2). Elsewhere it is a hint.
        self.is_free.load(Ordering::Relaxed)
    }

    /// Under the lock.
    fn set_free(&self, is_free: bool) {
        // ORDERING: Relaxed; a thread that takes the core executes the fence of `suspension`,
        // Resume (2), before it runs a task.
        self.is_free.store(is_free, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock()
    }
}

/// Unparks the first thread that waits, after the lock is released.
fn wake_first<C>(state: MutexGuard<'_, State<C>>) {
    let first = state.waiting.front().cloned();
    drop(state);
    if let Some(parker) = first {
        let unparked = parker.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "a thread in block_on sleeps in no driver here");
    }
}

impl<C> fmt::Debug for SharedCore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCore").field("is_free", &self.is_free()).finish_non_exhaustive()
    }
}
