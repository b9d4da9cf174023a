//! The part of a task that does not depend on its future, and the pointers to it.
//!
//! Shape: a task is one allocation, `cell::Cell<F, S>`, that begins with a [`Header`]. Pointers to the header are what queues, wakers
//! and handles hold; the vtable in the header leads back to the typed cell.
//!
//! Invariants:
//! * *Live by reference*: every [`Task`], [`Notified`], waker and join handle holds one reference of the task word, so the
//!   allocation outlives it. A pointer without a reference is never kept.
//! * *Whole provenance*: the pointer comes from `blocks::allocate` for the whole cell and is only ever cast, never rebuilt.

use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use volt_telemetry::recording::event::Waker as By;

use super::account::Account;
use super::awaits::{Awaits, Note};
use super::current::{self, WakesHere};
use super::id::Id;
use super::origin::{Extra, Origin};
use super::state::{State, Wake};
use crate::queue::lifo::RawPointer;
use crate::stats::counting;

/// The place of a task that is not in the registry.
pub(crate) const NO_PLACE: Place = Place { slot: u32::MAX, shard: 0 };
/// Shards of the registry that a place can tell apart.
pub(crate) const MAX_SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 6;
/// `birth` counts in units of two to this power ns, about a second: two years fit beside the shard.
const BIRTH_UNIT_BITS: u32 = 30;
const BIRTH_MAX: u64 = (1 << (u32::BITS - SHARD_BITS)) - 1;

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
pub(crate) struct Header {
    pub(crate) state: State,
    pub(crate) vtable: &'static Vtable,
    pub(crate) id: Id,
    /// Where the task was spawned, and what few tasks have, out of line.
    origin: Origin,
    /// When the task was last submitted, on the process clock, ns. Written by whoever submits it, before it is enqueued; read by the
    /// worker that polls it.
    submitted_at_ns: AtomicU64,
    /// Who submitted it then: `| task's id 56 | is it the spawn 1 | By 7 |`; id 0 is no task. Of a task's wake-up it says what thread that was polled
    /// on. Written with the time.
    woken_by: AtomicU64,
    /// Where the task was spawned that did so; null is no task. Written with the time.
    woken_from: AtomicPtr<Location<'static>>,
    /// Where it is in the registry: the slot. Written by its runner, or by its creator before anybody else knows of it.
    slot: AtomicU32,
    /// The shard there, and when the task was spawned: `| birth 26 | shard 6 |`. Written with the slot.
    birth_and_shard: AtomicU32,
    pub(crate) account: Account,
}

/// What the typed cell can do, for those who hold a pointer to its header.
pub(crate) struct Vtable {
    /// Polls or drops the future; the poll begins at that time. Takes over the reference of a `Notified`.
    pub(crate) run: unsafe fn(NonNull<Header>, u64) -> Ran,
    /// Enqueues the task. Takes over a reference, which becomes the `Notified`'s; the caller holds another for the time of the call.
    pub(crate) schedule: unsafe fn(NonNull<Header>),
    /// Wakes the task. Takes over a reference, the waker's.
    pub(crate) wake: unsafe fn(NonNull<Header>),
    /// Frees the allocation; the last reference is gone.
    pub(crate) dealloc: unsafe fn(NonNull<Header>),
    /// Moves the output to `*mut Poll<Result<T, JoinError>>` if there is one, else remembers the waker.
    pub(crate) poll_join: unsafe fn(NonNull<Header>, *mut (), &Waker),
    /// The JoinHandle goes, and its reference with it.
    pub(crate) drop_join: unsafe fn(NonNull<Header>),
}

/// What became of a task when it was run.
#[derive(Debug)]
#[must_use = "a task that was woken during its poll has to be enqueued again"]
pub(crate) enum Ran {
    /// It waits to be woken.
    Pending { at_ns: u64 },
    /// It was woken during the poll, by itself or by others: enqueue it behind the others.
    Woken { task: Notified, by_itself: bool, at_ns: u64 },
    /// It is complete, and how.
    Ended(Ended),
}

impl Ran {
    /// When the poll ended, if that is known: the task's account was closed then, while it was still its runner's.
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
pub(crate) enum Ended {
    Completed,
    Cancelled,
    Panicked,
}

impl Header {
    pub(crate) fn new(
        id: Id,
        location: &'static Location<'static>,
        extra: Option<Box<Extra>>,
        vtable: &'static Vtable,
    ) -> Self {
        let nobody = (By::Unknown as u64, ptr::null_mut());
        let now_ns = counting::now_ns();
        let birth = (now_ns >> BIRTH_UNIT_BITS).min(BIRTH_MAX) as u32;
        let (woken_by, woken_from) = if counting::IS_ON { current::with_waker(words_of) } else { nobody };
        Self {
            state: State::new(),
            vtable,
            id,
            origin: Origin::new(location, extra),
            submitted_at_ns: AtomicU64::new(now_ns),
            woken_by: AtomicU64::new(woken_by | IS_SPAWN),
            woken_from: AtomicPtr::new(woken_from),
            slot: AtomicU32::new(NO_PLACE.slot),
            birth_and_shard: AtomicU32::new(birth << SHARD_BITS),
            account: Account::default(),
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.extra()?.name.as_deref()
    }

    pub(crate) fn location(&self) -> &'static Location<'static> {
        self.origin.location()
    }

    /// Its location, and whether that is all that is known of where it comes from: no name and no span.
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
        // ORDERING: Relaxed, both; single-writer cells: the runner reads what it or the runner before wrote, and the queue, or the task word,
        // orders the two.
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

    /// Its poll that began at `began_at_ns` has ended, and it is going to wait or to be enqueued; for its runner. Returns the time.
    #[inline]
    pub(super) fn end_poll(&self, began_at_ns: u64, awaits: Note) -> u64 {
        let now_ns = counting::now_ns_after(began_at_ns);
        self.account.end(now_ns.saturating_sub(began_at_ns), now_ns, awaits);
        now_ns
    }

    /// What it waits for, and where in the code, as far as an operation that it awaited in its last poll has told.
    pub(crate) fn awaits(&self) -> Option<(Awaits, Option<&'static Location<'static>>)> {
        self.account.awaits().read()
    }

    pub(crate) fn submitted_at_ns(&self) -> u64 {
        // ORDERING: Relaxed; single-writer cell: the submitter wrote it before it enqueued the task, and the queue orders the two.
        self.submitted_at_ns.load(Ordering::Relaxed)
    }

    /// Says when the task was submitted; for whoever is about to enqueue it.
    fn stamp_submission(&self, now_ns: u64) {
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        self.submitted_at_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Says that the task is woken now, by whoever wakes on this thread; for whoever is about to enqueue it.
    #[inline]
    pub(super) fn stamp_wake(&self) {
        self.stamp_submission(counting::now_ns());
        if counting::IS_ON {
            let (woken_by, woken_from) = current::with_waker(words_of);
            // ORDERING: Relaxed, both; single-writer cells: see `submitted_at_ns`.
            self.woken_by.store(woken_by, Ordering::Relaxed);
            self.woken_from.store(woken_from, Ordering::Relaxed);
        }
    }

    /// Says that the task has woken itself in its poll; for its runner, which is about to enqueue it.
    #[inline]
    pub(crate) fn stamp_own_wake(&self, now_ns: u64) {
        self.stamp_submission(now_ns);
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        self.woken_by.store(self.id.as_u64() << BY_BITS | By::Task as u64, Ordering::Relaxed);
    }

    /// Says that the task was woken during its poll by somebody else, who has not said who that was.
    #[inline]
    pub(crate) fn stamp_wake_in_poll(&self, now_ns: u64) {
        self.stamp_submission(now_ns);
        // ORDERING: Relaxed, both; single-writer cells: see `submitted_at_ns`.
        self.woken_by.store(By::Unknown as u64, Ordering::Relaxed);
        self.woken_from.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Who submitted the task last. Read by others than its runner it may be of two submissions.
    pub(crate) fn last_wake(&self) -> LastWake {
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        let word = self.woken_by.load(Ordering::Relaxed);
        let by = By::ALL.iter().copied().find(|by| *by as u64 == word & BY_MASK).unwrap_or(By::Unknown);
        let is_spawn = word & IS_SPAWN != 0;
        let id = word >> BY_BITS;
        // In a poll it is the task that wakes, but for a job of the blocking pool's.
        let by = if id > 0 && by != By::Blocking { By::Task } else { by };
        // ORDERING: Relaxed; as above; what it points to is there since the program began.
        let location = self.woken_from.load(Ordering::Relaxed);
        // SAFETY: only `words_of` makes the pointer, from a `&'static Location`, or null.
        let location = unsafe { location.as_ref() };
        let location = if id == self.id.as_u64() { Some(self.location()) } else { location };
        LastWake { by, is_spawn, task: (id > 0).then_some(id), location, at_ns: self.submitted_at_ns() }
    }
}

/// Bits of `woken_by` that hold who it was.
const BY_BITS: u32 = 8;
/// In these: that it was the spawn.
const IS_SPAWN: u64 = 1 << (BY_BITS - 1);
const BY_MASK: u64 = IS_SPAWN - 1;

/// See `Header::woken_by` and `Header::woken_from`.
#[inline]
fn words_of(waker: WakesHere<'_>) -> (u64, *mut Location<'static>) {
    match waker.task {
        // Ids do not reach 2^56 in the life of a process.
        Some(task) => (task.id.as_u64() << BY_BITS | waker.by as u64, ptr::from_ref(task.location()).cast_mut()),
        None => (waker.by as u64, ptr::null_mut()),
    }
}

/// Who has submitted a task last, be it by waking or by spawning it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastWake {
    pub(crate) by: By,
    pub(crate) is_spawn: bool,
    /// The task that did so, in its poll or at its end.
    pub(crate) task: Option<u64>,
    /// Where that one was spawned.
    pub(crate) location: Option<&'static Location<'static>>,
    pub(crate) at_ns: u64,
}

/// One reference to a task. `repr(transparent)`: it is the pointer, as the registry keeps it.
#[repr(transparent)]
pub(crate) struct Task(NonNull<Header>);

// SAFETY: Live by reference: what is reached through it is either immutable, atomic, or guarded by the task word; the future and
// the output are `Send`, or touched on their own thread only, as every constructor of a cell demands.
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

    /// Wakes the task.
    pub(crate) fn wake(&self) {
        self.submit_if(self.header().state.wake());
    }

    /// As [`wake`](Self::wake), by a waker that goes with that: its reference becomes that of the `Notified`.
    #[inline]
    pub(crate) fn wake_owned(self) {
        let raw = self.into_raw();
        // SAFETY: Live by reference: that of the waker is here until it is handed over.
        let wake = unsafe { raw.as_ref() }.vtable.wake;
        // SAFETY: the waker's reference is handed over.
        unsafe { wake(raw) }
    }

    /// Cancels the task: a worker will drop its future.
    pub(crate) fn cancel(&self) {
        self.submit_if(self.header().state.cancel());
    }

    /// As [`cancel`](Self::cancel), through all shields.
    pub(crate) fn cancel_unshielded(&self) {
        self.submit_if(self.header().state.cancel_unshielded());
    }

    /// One shield less; see [`State::leave_shield`].
    pub(crate) fn leave_shield(&self) {
        self.submit_if(self.header().state.leave_shield());
    }

    fn submit_if(&self, wake: Wake) {
        if wake == Wake::Submit {
            self.header().stamp_wake();
            // SAFETY: the transition added the reference that `schedule` takes over, and `self` is another.
            unsafe { (self.header().vtable.schedule)(self.0) }
        }
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

/// The right to run a task once: what queues hold. There is one exactly while the task is SCHEDULED.
#[derive(Debug)]
pub(crate) struct Notified(Task);

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

    pub(crate) fn task(&self) -> &Task {
        &self.0
    }

    /// Polls the future once, or drops it if the task was cancelled. The poll begins at `began_at_ns`; of a scheduler that does not count,
    /// anything.
    pub(crate) fn run(self, began_at_ns: u64) -> Ran {
        let raw = self.0.into_raw();
        // SAFETY: Live by reference: the Notified's own is handed over to `run`.
        let run = unsafe { raw.as_ref() }.vtable.run;
        // SAFETY: the Notified's reference is handed over.
        unsafe { run(raw, began_at_ns) }
    }

    /// Completes the task as cancelled without a worker.
    pub(crate) fn cancel_now(self) {
        // The task is SCHEDULED, so `cancel` only sets the flag: there is nothing to submit. And it has not begun, so no shield is up.
        self.0.cancel();
        let ran = self.run(0);
        debug_assert!(matches!(ran, Ran::Ended(_)), "a task that has not begun can be dropped at once");
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
