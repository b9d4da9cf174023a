//! The part of a task that does not depend on the type of its future, and the pointers to a task.
//!
//! A task is one allocation, `cell::Cell<F, S>`, which begins with a [`Header`]. Queues, wakers,
//! join handles and the registry store pointers to the header. The header's vtable leads from there
//! to the functions of the typed cell.
//!
//! Invariants:
//! * *Live by reference*: every [`Task`], [`Notified`], waker and join handle owns one reference of
//!   the task word, so the allocation outlives it. A pointer without a reference is never stored.
//! * *Whole provenance*: the pointer comes from `cell::blocks::allocate` for the whole cell. It is
//!   only ever cast, never rebuilt.

use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{RawWakerVTable, Waker};

use super::details::account::{Account, TRACED_AT_NS};
use super::details::awaits::{Awaits, Note};
use super::details::origin::{Extra, Origin};
use super::id::Id;
use super::stage::Stage;
use super::state::State;
use crate::queue::lifo::RawPointer;
use crate::stats::cells::PolledTask;
use crate::stats::counting;
use crate::stats::reasons::Ended;

/// The place of a task that is not in the registry.
pub(crate) const NO_PLACE: Place = Place { slot: u32::MAX, shard: 0 };
/// The number of registry shards that a [`Place`] can distinguish.
pub(crate) const MAX_SHARDS: usize = 1 << SHARD_BITS;
pub(super) const SHARD_BITS: u32 = 6;
/// `birth` counts in units of 2^30 ns, about a second. 26 bits of it, next to the shard, last two
/// years.
pub(super) const BIRTH_UNIT_BITS: u32 = 30;
pub(super) const BIRTH_MAX: u64 = (1 << (u32::BITS - SHARD_BITS)) - 1;

/// The position of a task in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The slot, below `u32::MAX`. That many tasks would take half a terabyte.
    pub(crate) slot: u32,
    /// The shard, below [`MAX_SHARDS`].
    pub(crate) shard: u8,
}

impl Place {
    /// Encodes the place as a number, to be stored in an atomic cell.
    #[inline]
    pub(crate) fn as_u64(self) -> u64 {
        u64::from(self.slot) << u8::BITS | u64::from(self.shard)
    }

    pub(crate) fn from_u64(number: u64) -> Self {
        Self { slot: (number >> u8::BITS) as u32, shard: number as u8 }
    }
}

/// The header of a task. See the module documentation.
pub struct Header {
    pub(crate) state: State,
    pub(crate) vtable: &'static Vtable,
    /// The task's id.
    pub id: Id,
    /// Where the task was spawned, and, out of line, the data that only few tasks have.
    pub(super) origin: Origin,
    /// When the task was last submitted, on the program's clock, ns. Written by the thread that
    /// submits it, before it is enqueued; read by the worker that polls it.
    pub(super) submitted_at_ns: AtomicU64,
    /// The last submission of the task: `| id of the waking task 56 | is it the spawn 1 | By 7 |`.
    /// An id of 0 means no task. If a task did it, `By` names the kind of thread that polled that
    /// task. Written together with `submitted_at_ns`.
    pub(super) woken_by: AtomicU64,
    /// The content of the cell. While that is the future: the spawn location of the task that
    /// submitted this one, if a task did, written together with `submitted_at_ns`.
    pub(super) stage: Stage,
    /// The slot of the task's place in the registry. Written by its runner, or by its creator
    /// before other threads can see the task.
    pub(super) slot: AtomicU32,
    /// The shard of that place, and the time of the spawn: `| birth 26 | shard 6 |`. Written
    /// together with `slot`.
    pub(super) birth_and_shard: AtomicU32,
    pub(crate) account: Account,
}

/// The functions of the typed cell, for code that has only a pointer to its header.
pub(crate) struct Vtable {
    /// Polls or drops the future. The `u64` is the time at which the poll begins; the waker of the
    /// poll has the given functions. Takes over the reference of a `Notified`.
    pub(crate) run: unsafe fn(NonNull<Header>, u64, &'static RawWakerVTable) -> PackedRan,
    /// The functions of the waker of an ordinary poll.
    pub(crate) waker: &'static RawWakerVTable,
    /// The functions of the waker of a poll for a dump.
    pub(crate) traced_waker: &'static RawWakerVTable,
    /// Enqueues the task. Takes over a reference, which becomes the `Notified`'s. The caller owns
    /// another reference until the call returns.
    pub(crate) schedule: unsafe fn(NonNull<Header>),
    /// Wakes the task. Takes over the waker's reference.
    pub(crate) wake: unsafe fn(NonNull<Header>),
    /// Frees the allocation, after the last reference was released.
    pub(crate) dealloc: unsafe fn(NonNull<Header>),
    /// Moves the output to the `*mut Poll<Result<T, JoinError>>` if there is one. Otherwise stores
    /// the waker.
    pub(crate) poll_join: unsafe fn(NonNull<Header>, *mut (), &Waker),
    /// Drops the JoinHandle's interest, and takes over its reference.
    pub(crate) drop_join: unsafe fn(NonNull<Header>),
    /// Returns the address in the join waker, of this moment only.
    pub(crate) joiner: unsafe fn(NonNull<Header>) -> usize,
}

/// The state of a task after it was run.
#[derive(Debug)]
#[must_use = "a task that was woken during its poll has to be enqueued again"]
pub enum Ran {
    /// The task waits to be woken.
    Pending {
        /// When the poll ended, ns.
        at_ns: u64,
    },
    /// The task was woken during the poll, by itself or by others. The caller must enqueue it at
    /// the end of a queue.
    Woken {
        /// The task to enqueue.
        task: Notified,
        /// Whether the task woke itself.
        by_itself: bool,
        /// When the poll ended, ns.
        at_ns: u64,
    },
    /// The task ended, in the given way.
    Ended(Ended),
}

/// A [`Ran`] and when the poll ended, in two words, which a function returns in registers. The
/// first is the task to enqueue, with the lowest bit set if it woke itself, or one of the numbers
/// below in place of a pointer.
#[must_use = "a task that was woken during its poll has to be enqueued again"]
pub(crate) struct PackedRan(*mut (), u64);

// In place of a pointer, lower than every address, with the lowest bit free: the task waits, or has
// ended.
const PENDING: usize = 0;
const ENDS: [Ended; 3] = [Ended::Completed, Ended::Cancelled, Ended::Panicked];
const _: () = assert!(align_of::<Header>() > number_of(Ended::Panicked), "a header has an address above the numbers");

/// Returns the number for an end: twice its place in [`ENDS`], from 1.
const fn number_of(ended: Ended) -> usize {
    (ended as usize + 1) * 2
}

impl PackedRan {
    /// Packs `ran`. For `Ran::Ended`, `ended_at_ns` returns when the poll ended.
    #[inline(always)]
    pub(crate) fn pack(ran: Ran, ended_at_ns: impl FnOnce() -> u64) -> Self {
        match ran {
            Ran::Pending { at_ns } => Self(ptr::without_provenance_mut(PENDING), at_ns),
            Ran::Woken { task, by_itself, at_ns } => {
                let raw = task.0.into_raw().as_ptr().cast::<()>();
                Self(raw.map_addr(|addr| addr | usize::from(by_itself)), at_ns)
            }
            Ran::Ended(ended) => Self(ptr::without_provenance_mut(number_of(ended)), ended_at_ns()),
        }
    }

    /// Returns whether the task waits to be woken.
    #[inline(always)]
    pub(crate) fn is_pending(&self) -> bool {
        self.0.addr() == PENDING
    }

    /// Returns whether the task woke itself and did not end.
    #[inline(always)]
    pub(crate) fn has_woken_itself(&self) -> bool {
        self.0.addr() & 1 != 0
    }

    /// Returns how the task ended, if it did.
    #[inline(always)]
    pub(crate) fn ended(&self) -> Option<Ended> {
        // One comparison. A comparison with each number would become an indirect jump in each poll.
        ENDS.get((self.0.addr() / 2).wrapping_sub(1)).copied()
    }

    /// Returns when the poll ended, ns. The account of a task that waits, or was woken, was updated
    /// at that time, while the caller still was its runner.
    #[inline(always)]
    pub(crate) fn at_ns(&self) -> u64 {
        self.1
    }

    #[inline(always)]
    pub(crate) fn unpack(self) -> Ran {
        let Self(word, at_ns) = self;
        if self.is_pending() {
            return Ran::Pending { at_ns };
        }
        if let Some(ended) = self.ended() {
            return Ran::Ended(ended);
        }
        let raw = word.map_addr(|addr| addr & !1).cast::<Header>();
        let raw = NonNull::new(raw).expect("the other numbers are above 1");
        // SAFETY: `pack` made the word from a Notified, which it did not drop, and it is unpacked
        // once.
        Ran::Woken { task: unsafe { Notified::from_raw(raw) }, by_itself: self.has_woken_itself(), at_ns }
    }
}

impl PolledTask for Header {
    #[inline]
    fn id(&self) -> u64 {
        self.id.as_u64()
    }

    #[inline]
    fn spawned_at(&self) -> (&'static Location<'static>, bool) {
        match self.extra() {
            None => (self.origin.location(), true),
            Some(extra) => (extra.location, false),
        }
    }

    #[inline]
    fn place_number(&self) -> u64 {
        self.place().as_u64()
    }

    #[inline]
    fn submitted_at_ns(&self) -> u64 {
        self.submitted_at_ns()
    }

    #[inline]
    fn count_delay(&self, delay_ns: u64, now_ns: u64) {
        self.account.begin(delay_ns, now_ns);
    }
}

impl Header {
    pub(crate) fn name(&self) -> Option<&str> {
        self.extra()?.name.as_deref()
    }

    #[inline]
    pub(crate) fn location(&self) -> &'static Location<'static> {
        self.origin.location()
    }

    /// Returns the task's name and spans, if it has any.
    #[inline]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        self.origin.extra()
    }

    /// Returns the task's place in the registry, or `NO_PLACE`.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        // ORDERING: Relaxed, both: single-writer cells. The current or an earlier runner wrote
        // them; the queue, or the task word, orders the runners.
        let (slot, shard) = (self.slot.load(Ordering::Relaxed), self.birth_and_shard.load(Ordering::Relaxed));
        Place { slot, shard: (shard & (MAX_SHARDS as u32 - 1)) as u8 }
    }

    /// Returns whether the task is in the registry.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        // ORDERING: Relaxed; single-writer cell: see `place`.
        self.slot.load(Ordering::Relaxed) != NO_PLACE.slot
    }

    /// Sets the task's place. Called by the registry.
    pub(crate) fn set_place(&self, place: Place) {
        // ORDERING: Relaxed, all: single-writer cells; see `place`.
        self.slot.store(place.slot, Ordering::Relaxed);
        let birth = self.birth_and_shard.load(Ordering::Relaxed) >> SHARD_BITS;
        self.birth_and_shard.store(birth << SHARD_BITS | u32::from(place.shard), Ordering::Relaxed);
    }

    /// Returns when the task was spawned, on the program's clock, ns, rounded down to a multiple of
    /// about 1 s.
    pub(crate) fn born_at_ns(&self) -> u64 {
        // ORDERING: Relaxed: single-writer cell; see `place`.
        u64::from(self.birth_and_shard.load(Ordering::Relaxed) >> SHARD_BITS) << BIRTH_UNIT_BITS
    }

    /// Ends a poll that began at `began_at_ns`, after which the task will wait or be enqueued. A
    /// poll for a dump began at [`TRACED_AT_NS`]. Called by the runner. Returns the current time,
    /// ns.
    #[inline]
    pub(super) fn end_poll(&self, began_at_ns: u64, awaits: Note) -> u64 {
        let now_ns = counting::now_ns_after(began_at_ns);
        self.account.end(now_ns.wrapping_sub(began_at_ns), now_ns, awaits);
        now_ns
    }

    /// Returns what the task waits for and where in the code, if an operation in its last own poll
    /// has recorded that. Polls for dumps do not count.
    pub(crate) fn awaits(&self) -> Option<(Awaits, Option<&'static Location<'static>>)> {
        self.account.awaits().read()
    }

    #[inline]
    pub(crate) fn submitted_at_ns(&self) -> u64 {
        // ORDERING: Relaxed: single-writer cell. The submitter wrote it before it enqueued the
        // task, and the queue orders the two.
        self.submitted_at_ns.load(Ordering::Relaxed)
    }
}

/// One reference to a task. `repr(transparent)`, because the registry stores it as a pointer.
#[repr(transparent)]
pub struct Task(pub(super) NonNull<Header>);

// SAFETY: Live by reference. The data behind it is immutable, atomic, or guarded by the task word.
// The future and the output are `Send`, or used on their own thread only, which every constructor
// of a cell requires.
unsafe impl Send for Task {}
// SAFETY: as for Send.
unsafe impl Sync for Task {}

impl Task {
    /// # Safety
    /// The caller hands over one reference.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<Header>) -> Self {
        Self(raw)
    }

    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<Header> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> NonNull<Header> {
        self.0
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: Live by reference: this Task owns one.
        unsafe { self.0.as_ref() }
    }

    /// Wakes the task as `Waker::wake` does: this reference becomes the `Notified`'s, or is
    /// released.
    #[inline]
    pub(crate) fn wake_owned(self) {
        let raw = self.into_raw();
        // SAFETY: Live by reference: the waker's reference is owned here until it is handed over.
        let wake = unsafe { raw.as_ref() }.vtable.wake;
        // SAFETY: the waker's reference is handed over.
        unsafe { wake(raw) }
    }
}

impl Task {
    /// Claims the task for a poll outside the queues, if it waits: see `state`.
    pub fn claim(&self) -> Option<Notified> {
        // SAFETY: the transition made the task SCHEDULED and added a reference.
        self.header().state.claim().then(|| unsafe { Notified::from_raw(self.0) })
    }

    /// Returns the address of the header of the task that awaits this one by its JoinHandle. If
    /// something else awaits it, such as a `block_on`, the address is that of no task. True of this
    /// moment only.
    pub(crate) fn joiner(&self) -> Option<usize> {
        let header = self.header();
        // SAFETY: Live by reference: this Task owns one.
        header.state.is_joined().then(|| unsafe { (header.vtable.joiner)(self.0) })
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
            // SAFETY: Live by reference: this was the last one.
            unsafe { dealloc(self.0) }
        }
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("id", &self.header().id).finish_non_exhaustive()
    }
}

/// The permission to run a task once, which queues contain. One exists exactly while the task is
/// SCHEDULED.
#[derive(Debug)]
pub struct Notified(pub(super) Task);

impl Notified {
    /// # Safety
    /// The caller made the task SCHEDULED and hands over the reference that this transition added.
    pub(crate) unsafe fn from_raw(raw: NonNull<Header>) -> Self {
        // SAFETY: the caller's contract includes Task's.
        Self(unsafe { Task::from_raw(raw) })
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        self.0.header()
    }

    /// The task.
    pub fn task(&self) -> &Task {
        &self.0
    }

    /// Polls the future once, or drops it if the task was cancelled. The poll begins at
    /// `began_at_ns`. A scheduler that does not measure polls may pass any value.
    pub fn run(self, began_at_ns: u64) -> Ran {
        self.run_packed(began_at_ns).unpack()
    }

    /// As [`run`](Self::run).
    #[inline]
    pub(crate) fn run_packed(self, began_at_ns: u64) -> PackedRan {
        let raw = self.0.into_raw();
        // SAFETY: Live by reference: the `Notified`'s is still owned here.
        let vtable = unsafe { raw.as_ref() }.vtable;
        // SAFETY: the Notified's reference is handed over.
        unsafe { (vtable.run)(raw, began_at_ns, vtable.waker) }
    }

    /// Polls the future once as `run` does, with a waker that notes on the thread's
    /// [`Tape`](volt_stacks::Tape) where it is cloned. The poll does not change the task's account.
    pub fn run_traced(self) -> Ran {
        let raw = self.0.into_raw();
        // SAFETY: Live by reference: the `Notified`'s is still owned here.
        let vtable = unsafe { raw.as_ref() }.vtable;
        // SAFETY: the Notified's reference is handed over.
        unsafe { (vtable.run)(raw, TRACED_AT_NS, vtable.traced_waker) }.unpack()
    }
}

impl RawPointer for Notified {
    fn into_raw(self) -> NonNull<()> {
        self.0.into_raw().cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: by contract the caller returns a pointer from `into_raw`, once.
        unsafe { Notified::from_raw(raw.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::{Nowhere, new_task};
    use super::*;

    #[test]
    fn a_result_in_two_words_is_unpacked_as_it_was() {
        for ended in [Ended::Completed, Ended::Cancelled, Ended::Panicked] {
            let packed = PackedRan::pack(Ran::Ended(ended), || 5);
            assert_eq!((packed.ended(), packed.at_ns()), (Some(ended), 5));
            assert!(!packed.is_pending() && !packed.has_woken_itself());
            assert!(matches!(packed.unpack(), Ran::Ended(same) if same == ended));
        }
        let is_no_end = || unreachable!("the task has not ended");
        let packed = PackedRan::pack(Ran::Pending { at_ns: 7 }, is_no_end);
        assert_eq!((packed.ended(), packed.at_ns()), (None, 7));
        assert!(packed.is_pending() && !packed.has_woken_itself());
        assert!(matches!(packed.unpack(), Ran::Pending { at_ns: 7 }));
        for woken_itself in [false, true] {
            let (task, join) = new_task(async { 3 }, Nowhere, Id::next(), Location::caller(), None);
            let id = task.header().id;
            let packed = PackedRan::pack(Ran::Woken { task, by_itself: woken_itself, at_ns: u64::MAX }, is_no_end);
            assert_eq!((packed.ended(), packed.at_ns()), (None, u64::MAX));
            assert_eq!((packed.is_pending(), packed.has_woken_itself()), (false, woken_itself));
            let Ran::Woken { task, by_itself, at_ns } = packed.unpack() else { panic!("it was woken") };
            assert_eq!((task.header().id, by_itself, at_ns), (id, woken_itself, u64::MAX));
            // The pointer has its provenance: the task can be run.
            assert!(matches!(task.run(0), Ran::Ended(Ended::Completed)));
            drop(join);
        }
    }
}
