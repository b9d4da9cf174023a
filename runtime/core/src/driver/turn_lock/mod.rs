//! The driver turn: the right of one thread at a time to poll the driver, and the index of its
//! owner.
//!
//! [`TurnLock`] contains the protected value, which is the poller of `turn`, behind a lock that is
//! only ever tried. Next to it is the index of the worker that has the turn. Only the owner writes
//! that index. Any thread may read it, as a hint. The header of `turn` has an ordinary case, and
//! the race that the hand-off below prevents.
//!
//! Protocol of the lock:
//! 1. Take: try the lock, then publish the owner.
//! 2. Give back: withdraw the owner, then release the lock. So a thread that gets the lock finds no
//!    other owner published. An owner that is published after an earlier owner's release is a later
//!    one.
//!
//! The turn passes from worker to worker by the hand-off. The loom models in this folder run its
//! steps.
//!
//! Protocol of the hand-off, for a worker that is about to sleep:
//! 1. it sets its bit, so that it may be claimed;
//! 2. it tries to take the turn: it sleeps in the poller if it gets the turn, and on the futex if
//!    another thread has it.
//!
//! A thread gives the turn back after a sleep, or after polling the driver between two polls of
//! tasks. It then continues to run, and does (1) and (2) again before it sleeps. Hence *Polled*:
//! while all workers sleep, one of them sleeps in the poller. To see why, consider the last worker
//! to do (2). It got the turn, or found it taken by a worker that was asleep in the poller; any
//! other holder would do (2) later.
//!
//! With the eager hand-off there is one more step: (3) a worker that continues with tasks after a
//! sleep, a search or a poll of the driver executes a fence. Then, if no thread has the turn and no
//! worker searches, it claims a parked worker. The claimed worker finds other work and does (3)
//! itself, or finds none and does (2). Hence *Polled, eagerly*: while any worker sleeps, one worker
//! is in the poller or on its way there, however many are stuck in polls.
//!
//! Why that holds. A turn given back is like submitted work, and (2) is the check for it. Let P be
//! the fence of a park, and S the fence of the next (3) of the thread that had the turn when (2)
//! was refused. If P comes before S, (3) sees the parked worker's bit. If S comes before P, (2) no
//! longer sees that turn. If (3) sees a searching worker instead, that worker does (2) or (3) after
//! it has left the searchers, with a fence in between. If (3) sees a holder that has already given
//! the turn back, that holder's own (3) is still to come. So (3) is not only for a worker that
//! brings events out of the poller. A worker that was claimed for other work, or that only
//! polled the driver, also leaves the poller empty; and a worker that was woken to park here may
//! find work first.

use std::fmt;
use std::ops::{Deref, DerefMut};

use volt_shim::{AtomicU32, CachePadded, Mutex, MutexGuard, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// The index that means "no owner".
const NO_OWNER: u32 = u32::MAX;

/// A value that one thread at a time may use, with the index of that thread readable by all.
pub(crate) struct TurnLock<T> {
    value: Mutex<T>,
    /// On its own cache line: it is read for each wake-up, while other threads try the lock.
    owner: CachePadded<AtomicU32>,
}

/// The turn. Dropping it gives the turn back.
pub(crate) struct Held<'a, T> {
    owner: &'a AtomicU32,
    value: MutexGuard<'a, T>,
}

impl<T> TurnLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), owner: CachePadded(AtomicU32::new(NO_OWNER)) }
    }

    /// Takes the turn, if no thread has it. `index` is published as its owner until the turn is
    /// dropped; `None` publishes no owner.
    #[inline]
    pub(crate) fn try_take(&self, index: Option<usize>) -> Option<Held<'_, T>> {
        // Take (1)
        let value = self.value.try_lock()?;
        // ORDERING: Relaxed; a single-writer cell (the turn is held). Telemetry reads it, and so
        // does a thread that chooses which worker to wake last.
        self.owner.store(index.map_or(NO_OWNER, |index| index as u32), Ordering::Relaxed);
        Some(Held { owner: &self.owner, value })
    }

    /// Returns the index of the thread that has the turn.
    #[inline]
    pub(crate) fn owner(&self) -> Option<usize> {
        // ORDERING: Relaxed; a hint, out of date as soon as it is read.
        let owner = self.owner.load(Ordering::Relaxed);
        (owner != NO_OWNER).then_some(owner as usize)
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Give back (2)
        // ORDERING: Relaxed; a single-writer cell: the lock is released after this.
        self.owner.store(NO_OWNER, Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for TurnLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnLock").field("owner", &self.owner()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}
