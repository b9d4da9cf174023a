//! The record of a lock's owner: steps (1) and (2) of the protocol of the parent module.
//!
//! The record has three words. The owner stores *at* last when it acquires, and clears only *at*
//! when it releases. An operation that waits may copy the record at any moment: it loads *at*, the
//! other two words, and *at* once more.
//!
//! The race: the owner changes between these loads, and the copy has words of two owners. If *at*
//! has changed, the copy is discarded. If the second owner acquired the lock at the same line, *at*
//! is the same, and the copy stays. But a copy is kept only while operations are in the queue of
//! the lock. So the second owner came out of that queue, and replaces the copy at the end of its
//! wait, step (4). The copy of a lock with shared access may stay wrong. It is never certain.

use std::panic::Location;
use std::ptr;

use volt_shim::{AtomicPtr, AtomicU64, Ordering};

#[cfg(not(loom))]
use crate::task::current;

/// The lowest bits of `Holder::since`, with the kind of the guard.
const GUARD: u64 = 3;

/// Records which task holds a lock. See the module documentation.
#[derive(Debug)]
pub struct Holder {
    /// Where the lock was acquired; null if it is not held, or the owner is not known.
    at: AtomicPtr<Location<'static>>,
    /// The id of the task that acquired it; 0 if that was no task.
    task: AtomicU64,
    /// `| when the owner was woken for the poll in which it acquired the lock, ns 62 | Guard 2 |`,
    /// where the time has a precision of 4 ns.
    since: AtomicU64,
}

/// The kind of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Guard {
    /// It borrows the lock, and no other guard of it exists.
    Borrowed,
    /// It contains an `Arc` of the lock, and can be moved to any task.
    Owned,
    /// It gives shared access. Other tasks may acquire the lock for shared access, too.
    Shared,
    /// It is no lock but a channel, and the task is the one that receives from it.
    Receiver,
}

/// A copy of a [`Holder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The task that acquired the lock; `None` if that was no task.
    pub(crate) task: Option<u64>,
    pub(crate) at: &'static Location<'static>,
    /// When the task was woken for the poll in which it acquired the lock, on the program's clock.
    /// `None` if it was no task.
    pub(crate) since_ns: Option<u64>,
    pub(crate) guard: Guard,
}

impl Default for Holder {
    fn default() -> Self {
        Self::new()
    }
}

impl Holder {
    volt_shim::const_new! {
        /// Returns the holder of a free lock.
        pub fn new() -> Self {
            Self { at: AtomicPtr::new(ptr::null_mut()), task: AtomicU64::new(0), since: AtomicU64::new(0) }
        }
    }

    /// Records that the calling task has acquired the lock, at the location `at`.
    #[cfg(not(loom))]
    #[inline]
    pub fn acquired(&self, at: &'static Location<'static>, guard: Guard) {
        let (task, since_ns) = current::with(|task| {
            task.map_or((0, 0), |task| (task.header().id.as_u64(), task.header().submitted_at_ns()))
        });
        self.acquired_by(task, since_ns, at, guard);
    }

    /// Records that this task, or 0 for no task, has acquired the lock in a poll for which it was
    /// woken at this time.
    #[inline]
    pub(super) fn acquired_by(&self, task: u64, since_ns: u64, at: &'static Location<'static>, guard: Guard) {
        let since = since_ns & !GUARD | guard as u64;
        // ORDERING: Relaxed: only owners of the lock write, and the lock orders owners other than
        // readers.
        self.task.store(task, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire in `read`: a copy with this location has this
        // task, or that of a later owner. A copy that mixes two owners is discarded (`read`),
        // outdated (module documentation), or is marked *shared*, which is never certain.
        self.at.store(ptr::from_ref(at).cast_mut(), Ordering::Release);
    }

    /// Records that the lock is about to be released.
    #[inline]
    pub fn released(&self) {
        // ORDERING: Relaxed: as in `acquired`.
        self.at.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Records that the holder is not known: a reader that is not alone acquires the lock, or a
    /// reader is about to release it.
    #[inline]
    pub fn forget(&self) {
        // ORDERING: Relaxed: as in `acquired`. The load saves readers the contention of a store.
        if !self.at.load(Ordering::Relaxed).is_null() {
            self.released();
        }
    }

    /// Returns whether a task or other code is recorded as the holder, at this moment.
    pub fn is_recorded(&self) -> bool {
        // ORDERING: Relaxed: a hint for a report, and the location is not read.
        !self.at.load(Ordering::Relaxed).is_null()
    }

    /// Returns whether this task, or 0 for no task, is recorded as the holder, at this moment.
    #[inline]
    pub(super) fn is_held_by(&self, task: u64) -> bool {
        // ORDERING: Relaxed, both: only the owner calls this, and only owners write.
        self.is_recorded() && self.task.load(Ordering::Relaxed) == task
    }

    /// Records that the owner of the lock now has shared access.
    pub fn share(&self) {
        // ORDERING: Relaxed, both: as in `acquired`; the caller is the only owner.
        let since = self.since.load(Ordering::Relaxed);
        self.since.store(since & !GUARD | Guard::Shared as u64, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Option<Holding> {
        // ORDERING: Acquire; pairs with the Release in `acquired`. The others are Relaxed: a copy
        // for a report, which is checked for a change meanwhile.
        let at = self.at.load(Ordering::Acquire);
        let (task, since) = (self.task.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
        if at != self.at.load(Ordering::Relaxed) {
            return None;
        }
        // SAFETY: null, or a `&'static Location` that `acquired` stored.
        let at = unsafe { at.as_ref() }?;
        let guard = match since & GUARD {
            0 => Guard::Borrowed,
            1 => Guard::Owned,
            2 => Guard::Shared,
            _ => Guard::Receiver,
        };
        Some(Holding { task: (task > 0).then_some(task), at, since_ns: (task > 0).then_some(since & !GUARD), guard })
    }

    pub(super) fn key(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}
