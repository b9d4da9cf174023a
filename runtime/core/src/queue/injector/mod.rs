//! The global queue of a runtime, also called injector. Three kinds of tasks go into it: tasks that
//! are spawned or woken by threads other than the workers, tasks that overflow a worker's ring, and
//! tasks that a stopping or stuck worker leaves behind. Each worker checks it from time to time and
//! fetches a batch.
//!
//! An ordinary case: a thread outside the workers spawns three tasks, which are pushed. A worker
//! sees that the length is 3, takes the lock once, and moves the tasks into its batch buffer.
//!
//! The race: a worker finds the queue empty and is about to sleep, while another thread pushes a
//! task. The last check before the sleep takes the lock, so it sees every push that has returned.
//! After a later push, the pushing thread wakes a worker (`scheduler/idle`).
//!
//! # Shape
//!
//! A FIFO behind one lock. Each item is stored with the time at which it was pushed. The length of
//! the queue and the time of its oldest item are copied into two atomics while the lock is held.
//! Workers and snapshots read these with one load and without the lock.
//!
//! # Writers and readers
//!
//! Any thread pushes. Workers take items in batches, so that they take the lock once for many
//! items. The copies are written under the lock only.
//!
//! # Bound
//!
//! The queue is unbounded, because a wake-up must never be refused. `try_spawn`, which may refuse
//! its task, checks [`Injector::len`] first.
//!
//! # Invariants
//!
//! * SAME-LOCK: `len` and `oldest_at_ns` are stored before the lock that changed the queue is
//!   released. A worker that is about to sleep checks the queue under the lock
//!   ([`Injector::is_empty_locked`]), and therefore sees every push that has returned before.
//! * CLOSED-IS-LAST: after `close` has returned, no item enters the queue, so the remaining items
//!   are the last ones. After `close_to_new` has returned, the same is true of the items of
//!   [`Injector::push_new`]. A thread that sees that the queue is closed to new items also sees
//!   what the successful calls of `push_new` have counted.
//!
//! # Rejected
//!
//! * Freeing a large buffer as soon as the queue is empty: the next burst allocates it again. In
//!   addition, freeing more than 64 KiB makes glibc merge all its small free chunks, which it then
//!   has to split again for the next tasks.
//! * A lock-free queue: the queue is used in batches, and a lock per batch costs less than an
//!   allocation per item. The time of the oldest item would need a lock anyway.
//! * Dropping items that are pushed after `close`: they are returned to the caller, which can end
//!   them properly.

use std::collections::VecDeque;

use volt_shim::{AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// The value of `oldest_at_ns` if the queue is empty. As a time it is 584 years after the clock's
/// start.
const NOTHING: u64 = u64::MAX;
/// The number of slots that an empty queue retains: 256 KiB for pointers with their times. A larger
/// buffer that a burst has left is freed.
const RETAINED_SLOTS: usize = if cfg!(miri) { 64 } else { 16_384 };

/// A FIFO queue into which any thread may push, and from which any thread may take.
pub(crate) struct Injector<T> {
    len: CachePadded<AtomicUsize>,
    oldest_at_ns: AtomicU64,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    items: VecDeque<Item<T>>,
    admits: Admits,
}

/// Which items the queue accepts. The value only ever advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Admits {
    All,
    /// Items that were in a queue before. New ones are refused.
    Known,
    Nothing,
}

struct Item<T> {
    item: T,
    pushed_at_ns: u64,
}

impl<T> Injector<T> {
    pub(crate) fn new() -> Self {
        Self {
            len: CachePadded(AtomicUsize::new(0)),
            oldest_at_ns: AtomicU64::new(NOTHING),
            queue: Mutex::new(Queue { items: VecDeque::new(), admits: Admits::All }),
        }
    }

    /// Puts `item` at the end, or returns it if the queue is closed. `now_ns` is the time of the
    /// push.
    pub(crate) fn push(&self, item: T, now_ns: u64) -> Result<(), T> {
        let mut queue = self.queue.lock();
        if queue.admits == Admits::Nothing {
            return Err(item);
        }
        self.push_back(&mut queue, item, now_ns);
        Ok(())
    }

    /// Puts an item at the end that was never in a queue before, or returns it if the queue is
    /// closed to new items. See [`push`](Self::push).
    ///
    /// `count` is called under the lock, before another thread can take the item, and only if the
    /// item is accepted.
    pub(crate) fn push_new(&self, item: T, now_ns: u64, count: impl FnOnce()) -> Result<(), T> {
        let mut queue = self.queue.lock();
        if queue.admits != Admits::All {
            return Err(item);
        }
        count();
        self.push_back(&mut queue, item, now_ns);
        Ok(())
    }

    fn push_back(&self, queue: &mut Queue<T>, item: T, now_ns: u64) {
        queue.items.push_back(Item { item, pushed_at_ns: now_ns });
        self.publish(queue);
    }

    /// Puts all `items` at the end under one lock, and returns their number. Returns the iterator
    /// untouched if the queue is closed.
    ///
    /// `items` is iterated under the lock, so it must do no more than move values.
    pub(crate) fn push_batch<I: Iterator<Item = T>>(&self, items: I, now_ns: u64) -> Result<usize, I> {
        let mut queue = self.queue.lock();
        if queue.admits == Admits::Nothing {
            return Err(items);
        }
        let before = queue.items.len();
        queue.items.extend(items.map(|item| Item { item, pushed_at_ns: now_ns }));
        self.publish(&queue);
        Ok(queue.items.len() - before)
    }

    /// Takes up to `max` items under one lock, oldest first, passes each to `to`, and returns their
    /// number.
    ///
    /// `to` is called under the lock, so it must do no more than move values.
    pub(crate) fn pop_batch(&self, max: usize, to: impl FnMut(T)) -> usize {
        let mut queue = self.queue.lock();
        let count = max.min(queue.items.len());
        queue.items.drain(..count).map(|item| item.item).for_each(to);
        self.publish(&queue);
        let surplus = queue.take_surplus();
        drop(queue);
        // Freed after the lock was released, so that no thread waits for it.
        drop(surplus);
        count
    }

    /// Returns the number of items at a recent moment.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // ORDERING: Relaxed: a hint, written under the lock; no other data is read through it.
        self.len.load(Ordering::Relaxed)
    }

    /// Returns whether the queue is empty. Takes the lock, and so sees every push that has returned
    /// before.
    pub(crate) fn is_empty_locked(&self) -> bool {
        self.queue.lock().items.is_empty()
    }

    /// Calls `f` for each item, oldest first, under the lock.
    #[cfg(test)]
    pub(crate) fn for_each(&self, f: impl FnMut(&T)) {
        self.queue.lock().items.iter().map(|item| &item.item).for_each(f);
    }

    /// Returns when the oldest item was pushed, as the `now_ns` of its push, or `None` if the queue
    /// was empty at that recent moment.
    #[inline]
    pub(crate) fn oldest_at_ns(&self) -> Option<u64> {
        // ORDERING: Relaxed: a hint, as in `len`.
        Some(self.oldest_at_ns.load(Ordering::Relaxed)).filter(|&at_ns| at_ns != NOTHING)
    }

    /// Refuses all later pushes. Items inside the queue stay and can be taken.
    pub(crate) fn close(&self) {
        self.admit(Admits::Nothing);
    }

    /// Refuses new items from now on, but accepts all others.
    pub(crate) fn close_to_new(&self) {
        self.admit(Admits::Known);
    }

    fn admit(&self, admits: Admits) {
        let mut queue = self.queue.lock();
        queue.admits = queue.admits.max(admits);
    }

    /// SAME-LOCK: copies the values that other threads read without the lock.
    fn publish(&self, queue: &Queue<T>) {
        // ORDERING: Relaxed, both: written under the lock only, and read as hints.
        self.len.store(queue.items.len(), Ordering::Relaxed);
        let oldest_at_ns = queue.items.front().map_or(NOTHING, |item| item.pushed_at_ns);
        self.oldest_at_ns.store(oldest_at_ns, Ordering::Relaxed);
    }
}

impl<T> Queue<T> {
    /// Returns the large buffer of a queue that a burst has left and that is now empty. The caller
    /// frees it after it has released the lock.
    fn take_surplus(&mut self) -> Option<VecDeque<Item<T>>> {
        (self.items.is_empty() && self.items.capacity() > RETAINED_SLOTS)
            .then(|| std::mem::replace(&mut self.items, VecDeque::with_capacity(RETAINED_SLOTS)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
