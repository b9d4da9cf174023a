//! The part of a task that does not depend on its future, and the pointers to it.
//!
//! Shape: a task is one allocation, `cell::Cell<F, S>`, that begins with a [`Header`]. Pointers to
//! the header are what queues, wakers and handles hold; the vtable in the header leads back to the
//! typed cell.
//!
//! Invariants:
//! * *Live by reference*: every [`Task`], [`Notified`], waker and join handle holds one reference
//!   of the task word, so the allocation outlives it. A pointer without a reference is never kept.
//! * *Whole provenance*: the pointer comes from `cell::blocks::allocate` for the whole cell and is
//!   only ever cast, never rebuilt.

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use super::account::Account;
use super::awaits::{Awaits, Note};
use super::id::Id;
use super::origin::{Extra, Origin};
use super::state::State;
use crate::queue::lifo::RawPointer;
use crate::stats::counting;

/// The place of a task that is not in the registry.
pub(crate) const NO_PLACE: Place = Place { slot: u32::MAX, shard: 0 };
/// Shards of the registry that a place can tell apart.
pub(crate) const MAX_SHARDS: usize = 1 << SHARD_BITS;
pub(super) const SHARD_BITS: u32 = 6;
/// `birth` counts in units of two to this power ns, about a second: two years fit beside the shard.
pub(super) const BIRTH_UNIT_BITS: u32 = 30;
pub(super) const BIRTH_MAX: u64 = (1 << (u32::BITS - SHARD_BITS)) - 1;

/// Where the registry has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its slot, fewer than `u32::MAX`: so many tasks take half a terabyte.
    pub(crate) slot: u32,
    /// Below [`MAX_SHARDS`].
    pub(crate) shard: u8,
}

impl Place {
    /// As a number, for a cell.
    #[inline]
    pub(crate) fn as_u64(self) -> u64 {
        u64::from(self.slot) << u8::BITS | u64::from(self.shard)
    }

    pub(crate) fn from_u64(number: u64) -> Self {
        Self { slot: (number >> u8::BITS) as u32, shard: number as u8 }
    }
}

/// See the header of this file.
pub struct Header {
    pub(crate) state: State,
    pub(crate) vtable: &'static Vtable,
    /// The task's id.
    pub id: Id,
    /// Where the task was spawned, and what few tasks have, out of line.
    pub(super) origin: Origin,
    /// When the task was last submitted, on the process clock, ns. Written by whoever submits it,
    /// before it is enqueued; read by the worker that polls it.
    pub(super) submitted_at_ns: AtomicU64,
    /// Who submitted it then: `| task's id 56 | is it the spawn 1 | By 7 |`; id 0 is no task. Of a
    /// task's wake-up it says what thread that was polled on. Written with the time.
    pub(super) woken_by: AtomicU64,
    /// Where the task was spawned that did so; null is no task. Written with the time.
    pub(super) woken_from: AtomicPtr<Location<'static>>,
    /// Where it is in the registry: the slot. Written by its runner, or by its creator before
    /// anybody else knows of it.
    pub(super) slot: AtomicU32,
    /// The shard there, and when the task was spawned: `| birth 26 | shard 6 |`. Written with the
    /// slot.
    pub(super) birth_and_shard: AtomicU32,
    pub(crate) account: Account,
}

/// What the typed cell can do, for those who hold a pointer to its header.
pub(crate) struct Vtable {
    /// Polls or drops the future; the poll begins at that time. Takes over the reference of a
    /// `Notified`.
    pub(crate) run: unsafe fn(NonNull<Header>, u64) -> Ran,
    /// Enqueues the task. Takes over a reference, which becomes the `Notified`'s; the caller holds
    /// another for the time of the call.
    pub(crate) schedule: unsafe fn(NonNull<Header>),
    /// Wakes the task. Takes over a reference, the waker's.
    pub(crate) wake: unsafe fn(NonNull<Header>),
    /// Frees the allocation; the last reference is gone.
    pub(crate) dealloc: unsafe fn(NonNull<Header>),
    /// Moves the output to `*mut Poll<Result<T, JoinError>>` if there is one, else remembers the
    /// waker.
    pub(crate) poll_join: unsafe fn(NonNull<Header>, *mut (), &Waker),
    /// The JoinHandle goes, and its reference with it.
    pub(crate) drop_join: unsafe fn(NonNull<Header>),
}

/// What became of a task when it was run.
#[derive(Debug)]
#[must_use = "a task that was woken during its poll has to be enqueued again"]
pub enum Ran {
    /// It waits to be woken.
    Pending {
        /// When the poll ended, ns.
        at_ns: u64,
    },
    /// It was woken during the poll, by itself or by others: enqueue it behind the others.
    Woken {
        /// The task, to be enqueued.
        task: Notified,
        /// Whether it woke itself.
        by_itself: bool,
        /// When the poll ended, ns.
        at_ns: u64,
    },
    /// It is complete, and how.
    Ended(Ended),
}

impl Ran {
    /// When the poll ended, if that is known: the task's account was closed then, while it was
    /// still its runner's.
    #[inline]
    pub(crate) fn at_ns(&self) -> Option<u64> {
        match *self {
            Ran::Pending { at_ns } | Ran::Woken { at_ns, .. } => Some(at_ns),
            Ran::Ended(_) => None,
        }
    }
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its future returned.
    Completed,
    /// It was aborted, or its runtime was shut down.
    Cancelled,
    /// Its future panicked.
    Panicked,
}

impl Header {
    pub(crate) fn name(&self) -> Option<&str> {
        self.extra()?.name.as_deref()
    }

    pub(crate) fn location(&self) -> &'static Location<'static> {
        self.origin.location()
    }

    /// Its location, and whether that is all that is known of where it comes from: no name and no
    /// span.
    #[inline]
    pub(crate) fn told_location(&self) -> (&'static Location<'static>, bool) {
        match self.extra() {
            None => (self.origin.location(), true),
            Some(extra) => (extra.location, false),
        }
    }

    /// A name or a span, if it has one.
    #[inline]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        self.origin.extra()
    }

    /// Its place in the registry, or `NO_PLACE`.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        // ORDERING: Relaxed, both; single-writer cells: the runner reads what it or the runner
        // before wrote, and the queue, or the task word, orders the two.
        let (slot, shard) = (self.slot.load(Ordering::Relaxed), self.birth_and_shard.load(Ordering::Relaxed));
        Place { slot, shard: (shard & (MAX_SHARDS as u32 - 1)) as u8 }
    }

    /// Whether the registry holds it.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        // ORDERING: Relaxed; single-writer cell: see `place`.
        self.slot.load(Ordering::Relaxed) != NO_PLACE.slot
    }

    /// For the registry.
    pub(crate) fn set_place(&self, place: Place) {
        // ORDERING: Relaxed, all; single-writer cells: see `place`.
        self.slot.store(place.slot, Ordering::Relaxed);
        let birth = self.birth_and_shard.load(Ordering::Relaxed) >> SHARD_BITS;
        self.birth_and_shard.store(birth << SHARD_BITS | u32::from(place.shard), Ordering::Relaxed);
    }

    /// When it was spawned, on the process clock, ns: about a second early at most.
    pub(crate) fn born_at_ns(&self) -> u64 {
        // ORDERING: Relaxed; single-writer cell: see `place`.
        u64::from(self.birth_and_shard.load(Ordering::Relaxed) >> SHARD_BITS) << BIRTH_UNIT_BITS
    }

    /// Its poll that began at `began_at_ns` has ended, and it is going to wait or to be enqueued;
    /// for its runner. Returns the time.
    #[inline]
    pub(super) fn end_poll(&self, began_at_ns: u64, awaits: Note) -> u64 {
        let now_ns = counting::now_ns_after(began_at_ns);
        self.account.end(now_ns.saturating_sub(began_at_ns), now_ns, awaits);
        now_ns
    }

    /// What it waits for, and where in the code, as far as an operation that it awaited in its last
    /// poll has told.
    pub(crate) fn awaits(&self) -> Option<(Awaits, Option<&'static Location<'static>>)> {
        self.account.awaits().read()
    }

    pub(crate) fn submitted_at_ns(&self) -> u64 {
        // ORDERING: Relaxed; single-writer cell: the submitter wrote it before it enqueued the
        // task, and the queue orders the two.
        self.submitted_at_ns.load(Ordering::Relaxed)
    }
}

/// One reference to a task. `repr(transparent)`: it is the pointer, as the registry keeps it.
#[repr(transparent)]
pub struct Task(pub(super) NonNull<Header>);

// SAFETY: Live by reference: what is reached through it is either immutable, atomic, or guarded by
// the task word; the future and the output are `Send`, or touched on their own thread only, as
// every constructor of a cell demands.
unsafe impl Send for Task {}
// SAFETY: as for Send.
unsafe impl Sync for Task {}

impl Task {
    /// # Safety
    /// The caller hands over one reference.
    pub(crate) unsafe fn from_raw(raw: NonNull<Header>) -> Self {
        Self(raw)
    }

    pub(crate) fn into_raw(self) -> NonNull<Header> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    pub(crate) fn as_raw(&self) -> NonNull<Header> {
        self.0
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: Live by reference: this Task holds one.
        unsafe { self.0.as_ref() }
    }

    /// Wakes the task, by a waker that goes with that: its reference becomes that of the
    /// `Notified`.
    #[inline]
    pub(crate) fn wake_owned(self) {
        let raw = self.into_raw();
        // SAFETY: Live by reference: that of the waker is here until it is handed over.
        let wake = unsafe { raw.as_ref() }.vtable.wake;
        // SAFETY: the waker's reference is handed over.
        unsafe { wake(raw) }
    }
}

impl Clone for Task {
    fn clone(&self) -> Self {
        self.header().state.add_reference();
        Self(self.0)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.header().state.drop_references(1) {
            let dealloc = self.header().vtable.dealloc;
            // SAFETY: Live by reference: that was the last one.
            unsafe { dealloc(self.0) }
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("id", &self.header().id).finish_non_exhaustive()
    }
}

/// The right to run a task once: what queues hold. There is one exactly while the task is
/// SCHEDULED.
#[derive(Debug)]
pub struct Notified(pub(super) Task);

impl Notified {
    /// # Safety
    /// The caller made the task SCHEDULED and hands over the reference that this added.
    pub(crate) unsafe fn from_raw(raw: NonNull<Header>) -> Self {
        // SAFETY: the caller's contract includes Task's.
        Self(unsafe { Task::from_raw(raw) })
    }

    pub(crate) fn header(&self) -> &Header {
        self.0.header()
    }

    /// The task.
    pub fn task(&self) -> &Task {
        &self.0
    }

    /// Polls the future once, or drops it if the task was cancelled. The poll begins at
    /// `began_at_ns`; of a scheduler that does not count, anything.
    pub fn run(self, began_at_ns: u64) -> Ran {
        let raw = self.0.into_raw();
        // SAFETY: Live by reference: the Notified's own is handed over to `run`.
        let run = unsafe { raw.as_ref() }.vtable.run;
        // SAFETY: the Notified's reference is handed over.
        unsafe { run(raw, began_at_ns) }
    }
}

impl RawPointer for Notified {
    fn into_raw(self) -> NonNull<()> {
        self.0.into_raw().cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller hands back what `into_raw` gave, once.
        unsafe { Notified::from_raw(raw.cast()) }
    }
}
