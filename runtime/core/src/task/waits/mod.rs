//! Records which task holds a lock, and which tasks wait for it: the data behind *held by* in a
//! dump and the rule `deadlock`.
//!
//! A lock contains a [`Holder`]: which task acquired it, where, and when. An operation that waits
//! for the lock has a [`Wait`]: an entry in a table of the program, by the address of the holder.
//! From both follow the edges *task → lock → task* of the wait-for graph.
//!
//! An ordinary case: task 1 acquires lock A. Task 2 calls `lock` on A, and its poll is pending. It
//! adds an entry for A to the table, with a copy of the holder: task 1. Task 1 releases A, which
//! clears the holder, and the lock is handed to task 2. When task 2 is polled, it writes itself
//! into the holder, and its entry is removed. If task 3 waits, too, the copy in the table then
//! names task 2.
//!
//! Protocol:
//! 1. Acquire: the new owner stores *since*, *task* and *at*.
//! 2. Release: the owner clears *at*, before the lock is free.
//! 3. Wait: a pending operation, after it joined the queue of the lock, adds its entry and copies
//!    the holder, under the lock of the table's shard. It does so again in each further poll.
//! 4. End of the wait, by success or cancellation: the entry is removed, and the holder is copied
//!    again if others wait. On success that is after *Acquire*.
//!
//! Acquire and release cost two loads and four stores to memory that the lock has in the
//! cache anyway; everything else happens only in operations that are pending.
//!
//! Writers: the task that acquires or releases; operations that wait. Readers: threads that list
//! tasks or take snapshots, which read only the table.
//!
//! Invariants:
//! * *No pointer to a lock is followed*: the table contains copies, and addresses only as keys. A
//!   lock may be moved or freed while a forgotten operation still has its entry.
//! * *Fair locks*: while an operation waits in the queue of a lock, every acquisition comes out of
//!   that queue. So (4) updates the copy in the table.
//! * *A copy may be outdated, which can be seen*: after a release, the copy names the former owner
//!   until the waiter to whom the lock was handed is polled. That waiter has been woken. So the
//!   copy is right if all tasks that wait for the lock have waited, unwoken, since their entries
//!   were made.
//! * *A copy may be missing*: an owner that acquired the lock at the same moment has not stored
//!   *at* yet. Then nothing is known, and nothing is reported.
//!
//! The owner is the task that acquired the lock. An owned guard is meant to be moved to other
//! tasks, so *owned* is recorded. A reader of a reader-writer lock is recorded as *shared*, while
//! it is alone: a second reader clears *at* in (1), and each reader does so in (2). So several
//! readers may write at the same time, and *at* never names a reader that has released the lock.
//!
//! Rejected: an entry per guard (a look-up for each acquisition); a pointer from the table to the
//! lock (a forgotten operation keeps it beyond the life of the lock); a field in the task's header
//! (16 bytes per task, after the allocator's rounding).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;

use super::current;
use super::details::awaits::Awaits;
use crate::clock;

#[cfg(test)]
mod tests;

/// The number of shards of the table: more than threads that wait at the same moment.
const SHARDS: usize = 64;
/// How many locks that no operation waits for any more a shard may keep for the next waits.
const KEPT_MAX: usize = 16;
/// The lowest bits of `Holder::since`, with the kind of the guard.
const GUARD: u64 = 3;

/// Records who holds a lock. See the module documentation.
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
}

/// A copy of a [`Holder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    /// The task that acquired the lock; `None` if that was no task.
    pub(crate) task: Option<u64>,
    pub(crate) at: &'static Location<'static>,
    /// When the task was woken for the poll in which it acquired the lock, on the process clock.
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
    /// Returns the holder of a free lock.
    pub const fn new() -> Self {
        Self { at: AtomicPtr::new(ptr::null_mut()), task: AtomicU64::new(0), since: AtomicU64::new(0) }
    }

    /// Records that the calling task has acquired the lock, at the location `at`.
    #[inline]
    pub fn acquired(&self, at: &'static Location<'static>, guard: Guard) {
        let (task, since_ns) = current::with(|task| {
            task.map_or((0, 0), |task| (task.header().id.as_u64(), task.header().submitted_at_ns()))
        });
        let since = since_ns & !GUARD | guard as u64;
        // ORDERING: Relaxed: only owners of the lock write, and the lock orders owners other than
        // readers.
        self.task.store(task, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire in `read`: a copy with this location has this
        // task, or that of a later owner. A copy that mixes two owners is discarded (`read`),
        // outdated (module documentation), or says *shared*, which is never certain.
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

    /// Records that the owner of the lock now has shared access.
    pub fn share(&self) {
        // ORDERING: Relaxed, both: as in `acquired`; the caller is the only owner.
        let since = self.since.load(Ordering::Relaxed);
        self.since.store(since & !GUARD | Guard::Shared as u64, Ordering::Relaxed);
    }

    fn read(&self) -> Option<Holding> {
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
            _ => Guard::Shared,
        };
        Some(Holding { task: (task > 0).then_some(task), at, since_ns: (task > 0).then_some(since & !GUARD), guard })
    }

    fn key(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// An operation that waits for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// Increases in the order in which the operations began to wait.
    ticket: u64,
    /// The task; `None` if a thread or a future outside of tasks waits.
    pub(crate) task: Option<u64>,
    /// When the task was submitted for the last poll in which the operation was pending.
    pub(crate) submitted_at_ns: u64,
    /// When the task was submitted for the first of them.
    pub(crate) since_ns: u64,
    pub(crate) awaits: Awaits,
    pub(crate) at: &'static Location<'static>,
    /// Whether the operation has the waker of the task itself. A combinator may use a separate
    /// waker for each of its futures.
    pub(crate) has_own_waker: bool,
}

/// The entry of an operation while it is pending; none before. See the module documentation.
#[derive(Debug)]
pub struct Wait<'a> {
    holder: &'a Holder,
    ticket: Option<u64>,
}

impl<'a> Wait<'a> {
    /// Returns a wait for the lock of this holder that has not begun yet.
    pub fn new(holder: &'a Holder) -> Self {
        Self { holder, ticket: None }
    }

    /// Records that a poll of the operation is pending, after the operation joined the lock's
    /// queue.
    #[cold]
    pub fn pending(&mut self, cx: &Context<'_>, awaits: Awaits, at: &'static Location<'static>) {
        let (task, submitted_at_ns) = current::with(|task| match task {
            Some(task) => (Some(task.header().id.as_u64()), task.header().submitted_at_ns()),
            None => (None, clock::now_ns()),
        });
        let has_own_waker = current::is_woken_by(cx.waker());
        self.enter(Waiter { ticket: 0, task, submitted_at_ns, since_ns: submitted_at_ns, awaits, at, has_own_waker });
    }

    /// Records that a thread is about to block until it has the lock.
    #[cold]
    pub fn blocking(&mut self, awaits: Awaits, at: &'static Location<'static>) {
        let now_ns = clock::now_ns();
        let waiter = Waiter {
            ticket: 0,
            task: None,
            submitted_at_ns: now_ns,
            since_ns: now_ns,
            awaits,
            at,
            has_own_waker: false,
        };
        self.enter(waiter);
    }

    fn enter(&mut self, waiter: Waiter) {
        let mut shard = shard_of(self.holder.key());
        self.ticket = Some(shard.enter(self.holder, self.ticket, waiter));
    }
}

impl Drop for Wait<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            shard_of(self.holder.key()).leave(self.holder, ticket);
        }
    }
}

/// A lock that operations wait for.
#[derive(Debug, Default)]
struct Resource {
    holding: Option<Holding>,
    /// By ticket.
    waiters: VecDeque<Waiter>,
}

/// Shards by the address of the holder.
#[repr(align(128))]
struct Room(Mutex<Shard>);

struct Shard {
    resources: HashMap<usize, Resource, BuildHasherDefault<AddressHasher>>,
    /// The number of operations that wait.
    waiting: usize,
    last_ticket: u64,
}

static TABLE: [Room; SHARDS] = [const { Room(Mutex::new(Shard::new())) }; SHARDS];

fn lock(room: &Room) -> MutexGuard<'_, Shard> {
    room.0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard_of(key: usize) -> MutexGuard<'static, Shard> {
    lock(&TABLE[hash(key) as usize % SHARDS])
}

/// Distributes addresses, whose lowest bits are equal.
fn hash(key: usize) -> u64 {
    (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are addresses")
    }

    fn write_usize(&mut self, key: usize) {
        // The map takes its tag from the highest bits, and the position from the lowest.
        self.0 = hash(key).wrapping_mul(0x1_0000_0001);
    }
}

impl Shard {
    const fn new() -> Self {
        Self { resources: HashMap::with_hasher(BuildHasherDefault::new()), waiting: 0, last_ticket: 0 }
    }

    /// Adds the waiter, or updates the one that has this ticket. Returns the ticket.
    fn enter(&mut self, holder: &Holder, ticket: Option<u64>, waiter: Waiter) -> u64 {
        let resource = self.resources.entry(holder.key()).or_default();
        resource.holding = holder.read();
        if let Some(ticket) = ticket {
            if let Some(known) = resource.find(ticket).map(|index| &mut resource.waiters[index]) {
                *known = Waiter { ticket, since_ns: known.since_ns, ..waiter };
            }
            return ticket;
        }
        self.waiting += 1;
        self.last_ticket += 1;
        resource.waiters.push_back(Waiter { ticket: self.last_ticket, ..waiter });
        self.last_ticket
    }

    fn leave(&mut self, holder: &Holder, ticket: u64) {
        let Some(resource) = self.resources.get_mut(&holder.key()) else { return };
        match resource.waiters.front() {
            Some(first) if first.ticket == ticket => drop(resource.waiters.pop_front()),
            _ => match resource.find(ticket) {
                Some(index) => drop(resource.waiters.remove(index)),
                None => return,
            },
        }
        self.waiting -= 1;
        if !resource.waiters.is_empty() {
            resource.holding = holder.read();
            return;
        }
        resource.holding = None;
        // A lock that was waited for is soon waited for again.
        if self.resources.len() > KEPT_MAX {
            self.resources.remove(&holder.key());
        }
    }
}

impl Resource {
    fn find(&self, ticket: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }
}

/// A copy of a lock that operations wait for.
#[derive(Debug)]
pub(crate) struct Held {
    /// Identifies the lock while operations wait for it.
    pub(crate) key: usize,
    pub(crate) holding: Option<Holding>,
    /// The first of those that wait, in the order in which they began to.
    pub(crate) waiters: Vec<Waiter>,
    /// How many wait.
    pub(crate) waiting: usize,
}

impl Held {
    /// Returns whether `waiters` has all that wait.
    pub(crate) fn is_complete(&self) -> bool {
        self.waiters.len() == self.waiting
    }
}

/// Returns whether any operation waits for a lock.
pub(crate) fn is_any() -> bool {
    TABLE.iter().any(|room| lock(room).waiting > 0)
}

/// Returns the locks that operations wait for, each with at most `waiters_max` of these, and with
/// at most `max` in total. Locks one shard after the other, so the copies are of different moments.
pub(crate) fn held(max: usize, waiters_max: usize) -> Vec<Held> {
    let (mut held, mut left) = (Vec::new(), max);
    for room in &TABLE {
        let shard = lock(room);
        for (&key, resource) in shard.resources.iter().filter(|(_, resource)| !resource.waiters.is_empty()) {
            if left == 0 {
                return held;
            }
            let len = resource.waiters.len().min(waiters_max).min(left);
            left -= len;
            let waiters = resource.waiters.iter().take(len).copied().collect();
            held.push(Held { key, holding: resource.holding, waiters, waiting: resource.waiters.len() });
        }
    }
    held
}
