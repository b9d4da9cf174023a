//! The last wake-up of a task: the record in its header, and the wake-ups through a reference to
//! the task.
//!
//! Each wake-up that makes a task runnable stores when and from where it came: another task, a
//! timer, a socket, or a thread. The schedule delay is measured from that time, and `volt-console
//! why` follows these records from task to task.
//!
//! Writers: the thread that submits the task, before it is enqueued. Readers: its runner, and
//! threads that list tasks.

use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use volt_telemetry::recording::event::Waker as By;

use super::current::{self, WakesHere};
use super::details::account::Account;
use super::details::origin::{Extra, Origin};
use super::header::{BIRTH_MAX, BIRTH_UNIT_BITS, Header, NO_PLACE, Notified, Ran, SHARD_BITS, Task, Vtable};
use super::id::Id;
use super::stage::Stage;
use super::state::{State, Wake};
use crate::stats::counting;

impl Header {
    pub(crate) fn new(
        id: Id,
        location: &'static Location<'static>,
        extra: Option<Box<Extra>>,
        vtable: &'static Vtable,
    ) -> Self {
        let unknown = (By::Unknown as u64, None);
        let now_ns = counting::now_ns();
        let birth = (now_ns >> BIRTH_UNIT_BITS).min(BIRTH_MAX) as u32;
        let (woken_by, woken_from) = if counting::IS_ON { current::with_waker(words_of) } else { unknown };
        Self {
            state: State::new(),
            vtable,
            id,
            origin: Origin::new(location, extra),
            submitted_at_ns: AtomicU64::new(now_ns),
            woken_by: AtomicU64::new(woken_by | IS_SPAWN),
            stage: Stage::new(woken_from),
            slot: AtomicU32::new(NO_PLACE.slot),
            birth_and_shard: AtomicU32::new(birth << SHARD_BITS),
            account: Account::default(),
        }
    }

    /// Records the time of a submission. Called before the task is enqueued.
    #[inline]
    fn stamp_submission(&self, now_ns: u64) {
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        self.submitted_at_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Records that the task is woken now, by the current task or activity of this thread. Called
    /// before the task is enqueued.
    #[inline]
    pub(super) fn stamp_wake(&self) {
        self.stamp_wake_at(counting::now_ns());
    }

    /// Records a wake-up as [`stamp_wake`](Self::stamp_wake) does, for a caller that has already
    /// read the clock: `now_ns` is the current time.
    #[inline]
    pub(super) fn stamp_wake_at(&self, now_ns: u64) {
        self.stamp_submission(now_ns);
        if counting::IS_ON {
            let (woken_by, woken_from) = current::with_waker(words_of);
            // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
            self.woken_by.store(woken_by, Ordering::Relaxed);
            self.stage.set_woken_from(woken_from);
        }
    }

    /// Records that the task woke itself in its poll. Called by its runner before it enqueues the
    /// task.
    #[inline]
    pub(crate) fn stamp_own_wake(&self, now_ns: u64) {
        self.stamp_submission(now_ns);
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        self.woken_by.store(self.id.as_u64() << BY_BITS | By::Task as u64, Ordering::Relaxed);
    }

    /// Records that the task was woken during its poll by an unknown source: a wake-up of a running
    /// task changes only the task word.
    #[inline]
    pub(crate) fn stamp_wake_in_poll(&self, now_ns: u64) {
        self.stamp_submission(now_ns);
        // ORDERING: Relaxed; single-writer cell: see `submitted_at_ns`.
        self.woken_by.store(By::Unknown as u64, Ordering::Relaxed);
        self.stage.set_woken_from(None);
    }

    /// Returns the last submission of the task. If a thread other than the runner calls this, the
    /// values may come from two different submissions.
    pub(crate) fn last_wake(&self) -> LastWake {
        // ORDERING: Relaxed: single-writer cell; see `submitted_at_ns`.
        let word = self.woken_by.load(Ordering::Relaxed);
        let by = By::ALL.iter().copied().find(|by| *by as u64 == word & BY_MASK).unwrap_or(By::Unknown);
        let is_spawn = word & IS_SPAWN != 0;
        let id = word >> BY_BITS;
        // A wake-up in a poll is attributed to the polled task, unless that is a job of the
        // blocking pool.
        let by = if id > 0 && by != By::Blocking { By::Task } else { by };
        let location = if id == self.id.as_u64() { Some(self.location()) } else { self.stage.woken_from() };
        LastWake { by, is_spawn, task: (id > 0).then_some(id), location, at_ns: self.submitted_at_ns() }
    }
}

impl Task {
    /// Wakes the task.
    pub(crate) fn wake(&self) {
        self.submit_if(self.header().state.wake());
    }

    /// Cancels the task: a worker drops its future, unless the task is shielded.
    pub(crate) fn cancel(&self) {
        self.submit_if(self.header().state.cancel());
    }

    /// Cancels the task in spite of its shields: a worker drops its future.
    pub fn cancel_unshielded(&self) {
        self.submit_if(self.header().state.cancel_unshielded());
    }

    /// Removes a shield; see [`State::leave_shield`].
    pub(crate) fn leave_shield(&self) {
        self.submit_if(self.header().state.leave_shield());
    }

    fn submit_if(&self, wake: Wake) {
        if wake == Wake::Submit {
            self.header().stamp_wake();
            // SAFETY: the transition added the reference that `schedule` takes over, and `self`
            // owns another one.
            unsafe { (self.header().vtable.schedule)(self.0) }
        }
    }
}

impl Notified {
    /// Completes the task as cancelled on this thread, without a worker and in spite of its
    /// shields.
    pub fn cancel_now(self) {
        // The task is SCHEDULED, so this only changes the word, and there is nothing to submit. A
        // shield would defer the cancellation, and `run` would poll the task.
        self.0.cancel_unshielded();
        let ran = self.run(0);
        debug_assert!(matches!(ran, Ran::Ended(_)), "a cancelled task without shields is dropped");
    }
}

/// The bits of `woken_by` below the task's id.
const BY_BITS: u32 = 8;
/// The bit that marks a spawn.
const IS_SPAWN: u64 = 1 << (BY_BITS - 1);
const BY_MASK: u64 = IS_SPAWN - 1;

/// Returns the values for `Header::woken_by` and the location in `Header::stage`.
#[inline]
fn words_of(waker: WakesHere<'_>) -> (u64, Option<&'static Location<'static>>) {
    match waker.task {
        // Ids do not reach 2^56 in the lifetime of a program.
        Some(task) => (task.id.as_u64() << BY_BITS | waker.by as u64, Some(task.location())),
        None => (waker.by as u64, None),
    }
}

/// The last submission of a task, by a wake-up or by a spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastWake {
    pub(crate) by: By,
    pub(crate) is_spawn: bool,
    /// The task that did so, in its poll or at its end.
    pub(crate) task: Option<u64>,
    /// Where that task was spawned.
    pub(crate) location: Option<&'static Location<'static>>,
    pub(crate) at_ns: u64,
}
