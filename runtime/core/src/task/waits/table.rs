//! The program's table of waits, and the entries of the operations that wait.

use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;

use super::holder::{Holder, Holding};
use super::receivers;
use super::shard::{Shard, Ticketed, hash};
use crate::clock;
use crate::task::current;
use crate::task::details::awaits::Awaits;
use volt_stacks::fork::PerProcess;

/// The number of shards of the table: more than threads that wait at the same moment.
const SHARDS: usize = 64;
/// The number of entries of one semaphore. Each that is removed out of order, as after a time-out,
/// moves half of the others under the shard's lock.
const PERMIT_WAITERS_MAX: usize = 1000;

/// An operation that waits for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// Increases in the order in which the operations began to wait.
    pub(super) ticket: u64,
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
    /// The semaphore whose permits are recorded one by one; 0 for a lock, which has a holder.
    pub(super) semaphore: u64,
}

impl Ticketed for Waiter {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn numbered(self, ticket: u64, former: Option<&Self>) -> Self {
        Self { ticket, since_ns: former.map_or(self.since_ns, |former| former.since_ns), ..self }
    }
}

/// The entry of an operation while it is pending; none before. See the module documentation.
#[derive(Debug)]
pub struct Wait<'a> {
    holder: &'a Holder,
    ticket: Option<u64>,
    semaphore: u64,
}

impl<'a> Wait<'a> {
    /// Returns a wait for the lock of this holder that has not begun yet.
    pub fn new(holder: &'a Holder) -> Self {
        Self { holder, ticket: None, semaphore: 0 }
    }

    /// Returns a wait for permits of the semaphore with this number: of one that may have several
    /// holders, or for several permits. The wait is listed under the address of the semaphore's
    /// `holder`, of which no copy is used.
    pub fn for_permits(holder: &'a Holder, semaphore: u64) -> Self {
        Self { holder, ticket: None, semaphore }
    }

    /// Records that a poll of the operation is pending, after the operation joined the lock's
    /// queue. An operation that waits for room in a channel is recorded only if its task receives
    /// from a channel, too.
    #[cold]
    pub fn pending(&mut self, cx: &Context<'_>, awaits: Awaits, at: &'static Location<'static>) {
        let (task, submitted_at_ns) = current::with(|task| match task {
            Some(task) => (Some(task.header().id.as_u64()), task.header().submitted_at_ns()),
            None => (None, clock::now_ns()),
        });
        if awaits == Awaits::Room && !task.is_some_and(receivers::is_receiver) {
            return;
        }
        let has_own_waker = current::is_woken_by(cx.waker());
        self.enter(Waiter {
            ticket: 0,
            task,
            submitted_at_ns,
            since_ns: submitted_at_ns,
            awaits,
            at,
            has_own_waker,
            semaphore: self.semaphore,
        });
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
            semaphore: self.semaphore,
        };
        self.enter(waiter);
    }

    /// Step (5), for an operation that got a free lock in its first poll, and yielded before it
    /// recorded that. One that has waited does step (4) instead.
    pub fn correct(&self) {
        if self.ticket.is_none() {
            self.holder.copy_again();
        }
    }

    fn enter(&mut self, waiter: Waiter) {
        let mut shard = shard_of(self.holder.key());
        let is_new = self.semaphore > 0 && self.ticket.is_none();
        if is_new && shard.waiting_for(self.holder) >= PERMIT_WAITERS_MAX {
            return;
        }
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

impl Holder {
    /// Step (5): corrects the copy of the operations that wait, after a change of the record that
    /// none of them would see.
    #[cold]
    pub fn copy_again(&self) {
        shard_of(self.key()).copy_again(self);
    }
}

/// Shards by the address of the holder.
#[repr(align(128))]
struct Room(Mutex<Shard<Waiter>>);

/// Returns the table of this program. A forked child has its own: locks in the table of the parent
/// may be held by threads that stayed there, and no task of the parent runs in the child.
fn table() -> &'static [Room; SHARDS] {
    static TABLE: PerProcess<[Room; SHARDS]> = PerProcess::new();
    TABLE.get_or_make(|| [const { Room(Mutex::new(Shard::new())) }; SHARDS])
}

fn lock(room: &Room) -> MutexGuard<'_, Shard<Waiter>> {
    room.0.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn shard_of(key: usize) -> MutexGuard<'static, Shard<Waiter>> {
    lock(&table()[hash(key) as usize % SHARDS])
}

/// A copy of a lock that operations wait for.
#[derive(Debug)]
pub(crate) struct Held {
    /// Identifies the lock while operations wait for it.
    pub(crate) key: usize,
    pub(crate) holding: Option<Holding>,
    /// The number of the semaphore, if its permits have a record each.
    pub(crate) semaphore: Option<u64>,
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
    table().iter().any(|room| lock(room).waiting > 0)
}

/// Returns the locks that operations wait for, each with at most `waiters_max` of these, and with
/// at most `max` in total. Locks one shard after the other, so the copies are of different moments.
pub(crate) fn held(max: usize, waiters_max: usize) -> Vec<Held> {
    let (mut held, mut left) = (Vec::new(), max);
    for room in table() {
        let shard = lock(room);
        for (&key, resource) in shard.resources.iter().filter(|(_, resource)| !resource.waiters.is_empty()) {
            if left == 0 {
                return held;
            }
            let len = resource.waiters.len().min(waiters_max).min(left);
            left -= len;
            let waiters = resource.waiters.iter().take(len).copied().collect();
            // An operation may have begun to wait before the semaphore had more than one permit, or
            // behind one that waits for several.
            let ends = [resource.waiters.front(), resource.waiters.back()];
            let semaphore = ends.into_iter().flatten().map(|waiter| waiter.semaphore).find(|id| *id > 0);
            let holding = resource.holding.filter(|_| semaphore.is_none());
            held.push(Held { key, holding, semaphore, waiters, waiting: resource.waiters.len() });
        }
    }
    held
}
