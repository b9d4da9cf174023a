//! The driver turn: the right of one thread at a time to poll the driver, and the index of its
//! owner.
//!
//! Workers use it. [`TurnLock`] contains the protected value behind a lock that is only ever tried,
//! and next to it the index of the thread that has the turn. Only the owner writes that index. Any
//! thread may read it, as a hint.
//!
//! Protocol:
//! 1. Take: try the lock, then publish the owner.
//! 2. Give back: withdraw the owner, then release the lock. So a thread that gets the lock finds no
//!    other owner published. An owner that is published after an earlier owner's release is a later
//!    one.
//!
//! The turn passes from worker to worker by the steps in the header of `turn`. The loom models are
//! in this folder.

use std::fmt;
use std::ops::{Deref, DerefMut};

use volt_shim::{AtomicU32, CachePadded, Mutex, MutexGuard, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// The index that means "no owner".
const NOBODY: u32 = u32::MAX;

/// A value that one thread at a time may use, with the index of that thread readable by all.
pub(crate) struct TurnLock<T> {
    inside: Mutex<T>,
    /// On its own cache line: it is read for each wake-up, while other threads try the lock.
    owner: CachePadded<AtomicU32>,
}

/// The turn. Dropping it gives the turn back.
pub(crate) struct Held<'a, T> {
    owner: &'a AtomicU32,
    inside: MutexGuard<'a, T>,
}

impl<T> TurnLock<T> {
    pub(crate) fn new(inside: T) -> Self {
        Self { inside: Mutex::new(inside), owner: CachePadded(AtomicU32::new(NOBODY)) }
    }

    /// Takes the turn, if no thread has it. `index` is published as its owner until the turn is
    /// dropped; `None` publishes no owner.
    #[inline]
    pub(crate) fn try_take(&self, index: Option<usize>) -> Option<Held<'_, T>> {
        // Take (1)
        let inside = self.inside.try_lock()?;
        // ORDERING: Relaxed; a single-writer cell (the turn is held). Telemetry reads it, and so
        // does a thread that chooses which worker to wake last.
        self.owner.store(index.map_or(NOBODY, |index| index as u32), Ordering::Relaxed);
        Some(Held { owner: &self.owner, inside })
    }

    /// Returns the index of the thread that has the turn.
    #[inline]
    pub(crate) fn owner(&self) -> Option<usize> {
        // ORDERING: Relaxed; a hint, out of date as soon as it is read.
        let owner = self.owner.load(Ordering::Relaxed);
        (owner != NOBODY).then_some(owner as usize)
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inside
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inside
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Give back (2)
        // ORDERING: Relaxed; a single-writer cell: the lock is released after this.
        self.owner.store(NOBODY, Ordering::Relaxed);
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
