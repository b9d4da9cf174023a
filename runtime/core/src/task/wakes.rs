//! Who woke a task: what its header keeps of that, and the wake-ups that a handle to it can do.
//!
//! Who writes: whoever submits the task, before it is enqueued. Who reads: its runner, and whoever
//! lists tasks.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use volt_telemetry::recording::event::Waker as By;

use super::account::Account;
use super::current::{self, WakesHere};
use super::header::{BIRTH_MAX, BIRTH_UNIT_BITS, Header, NO_PLACE, Notified, Ran, SHARD_BITS, Task, Vtable};
use super::id::Id;
use super::origin::{Extra, Origin};
use super::state::{State, Wake};
use crate::stats::counting;

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

    /// Says when the task was submitted; for whoever is about to enqueue it.
    fn stamp_submission(&self, now_ns: u64) {
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        self.submitted_at_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Says that the task is woken now, by whoever wakes on this thread; for whoever is about to
    /// enqueue it.
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

    /// Says that the task has woken itself in its poll; for its runner, which is about to enqueue
    /// it.
    #[inline]
    pub(crate) fn stamp_own_wake(&self, now_ns: u64) {
        self.stamp_submission(now_ns);
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        self.woken_by.store(self.id.as_u64() << BY_BITS | By::Task as u64, Ordering::Relaxed);
    }

    /// Says that the task was woken during its poll by somebody else, who has not said who that
    /// was.
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

impl Task {
    /// Wakes the task.
    pub(crate) fn wake(&self) {
        self.submit_if(self.header().state.wake());
    }

    /// Cancels the task: a worker will drop its future.
    pub(crate) fn cancel(&self) {
        self.submit_if(self.header().state.cancel());
    }

    /// Cancels the task through all its shields: a worker will drop its future.
    pub fn cancel_unshielded(&self) {
        self.submit_if(self.header().state.cancel_unshielded());
    }

    /// One shield less; see [`State::leave_shield`].
    pub(crate) fn leave_shield(&self) {
        self.submit_if(self.header().state.leave_shield());
    }

    fn submit_if(&self, wake: Wake) {
        if wake == Wake::Submit {
            self.header().stamp_wake();
            // SAFETY: the transition added the reference that `schedule` takes over, and `self` is
            // another.
            unsafe { (self.header().vtable.schedule)(self.0) }
        }
    }
}

impl Notified {
    /// Completes the task as cancelled without a worker.
    pub fn cancel_now(self) {
        // The task is SCHEDULED, so `cancel` only sets the flag: there is nothing to submit. And it
        // has not begun, so no shield is up.
        self.0.cancel();
        let ran = self.run(0);
        debug_assert!(matches!(ran, Ran::Ended(_)), "a task that has not begun can be dropped at once");
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
