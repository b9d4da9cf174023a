//! The driver turn: the right of one thread at a time to poll the driver, and who has it.
//!
//! Shape: a lock that is only ever tried, and beside it the index of its holder.
//!
//! Who writes: the holder. Who reads the holder's index: anybody, as a hint.
//!
//! Protocol:
//! 1. Take: the lock is tried; then the holder is published.
//! 2. Give back: the holder is withdrawn; then the lock is released. So whoever gets the lock finds
//!    nobody else published, and a holder that is still published after the release of a former one
//!    is a later one.
//!
//! The turn is handed off by the steps of `turn`; the models stand beside this file.

use std::fmt;
use std::ops::{Deref, DerefMut};

use volt_shim::{AtomicU32, CachePadded, Mutex, MutexGuard, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// "Nobody" as an index.
const NOBODY: u32 = u32::MAX;

/// Something that one thread at a time may use, and everybody can see who.
pub(crate) struct TurnLock<T> {
    inside: Mutex<T>,
    /// On a line of its own: read for each wake-up, beside threads that try the lock.
    owner: CachePadded<AtomicU32>,
}

/// The turn. Dropping it gives it back.
pub(crate) struct Held<'a, T> {
    owner: &'a AtomicU32,
    inside: MutexGuard<'a, T>,
}

impl<T> TurnLock<T> {
    pub(crate) fn new(inside: T) -> Self {
        Self { inside: Mutex::new(inside), owner: CachePadded(AtomicU32::new(NOBODY)) }
    }

    /// The turn, if nobody has it; `index` is its owner until it is dropped. `None` = nobody.
    #[inline]
    pub(crate) fn try_take(&self, index: Option<usize>) -> Option<Held<'_, T>> {
        // Take (1)
        let inside = self.inside.try_lock()?;
        // ORDERING: Relaxed; a single-writer cell (the turn is held), read by telemetry and the
        // choice of whom to wake last.
        self.owner.store(index.map_or(NOBODY, |index| index as u32), Ordering::Relaxed);
        Some(Held { owner: &self.owner, inside })
    }

    /// The thread that has the turn.
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
        // ORDERING: Relaxed; a single-writer cell: the lock goes after this.
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
