//! The global queue: what is handed in from outside, what overflows a ring, what a worker that is
//! going away leaves behind.
//!
//! # Shape
//!
//! A FIFO behind one lock, each item with the time at which it came. Its length and the age of its
//! oldest item are copied out into two atomics while the lock is held, so that workers and
//! snapshots read them with one load and never take the lock for that.
//!
//! # Who writes, who reads
//!
//! Anybody pushes, any worker takes, in batches, so that the lock is taken once for many. The
//! copies are written under the lock only.
//!
//! # Bound
//!
//! None of its own: a wake must never be refused. Who may refuse, a spawn from outside, checks
//! [`Injector::len`] first.
//!
//! # Invariants
//!
//! * SAME-LOCK: `len` and `oldest_at_ns` are stored before the lock that changed the queue is
//!   released. A worker that is about to sleep checks under the lock
//!   ([`Injector::is_empty_locked`]) and so sees every push that was over before.
//! * CLOSED-IS-LAST: after `close` returned, nothing more comes in, so what is taken after it is
//!   all there is. After `close_to_new` returned the same holds for what [`Injector::push_new`]
//!   brings, and whoever knows of that sees what its callers have counted.
//!
//! # Rejected
//!
//! * Giving a large buffer back at once: the next burst takes it again, and freeing more than 64
//!   KiB makes glibc join all its small free chunks, which the tasks that follow then have to be
//!   cut from anew.
//! * A lock-free queue: it is used in batches, a lock a batch is cheaper than an allocation an
//!   item, and the age would need one anyway.
//! * Dropping items that come after `close`: they go back to the caller, which knows how to end
//!   them.

use std::collections::VecDeque;

use volt_shim::{AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// `oldest_at_ns` of an empty queue. As a time it lies 584 years after the clock's first reading.
const NOTHING: u64 = u64::MAX;
/// Slots that an empty queue keeps, 256 KiB for a pointer and its time; a larger buffer, left from
/// a burst, is given back.
const RETAINED_SLOTS: usize = if cfg!(miri) { 64 } else { 16_384 };

/// A FIFO queue that anybody may push into and take from.
pub(crate) struct Injector<T> {
    len: CachePadded<AtomicUsize>,
    oldest_at_ns: AtomicU64,
    queue: Mutex<Queue<T>>,
}

struct Queue<T> {
    items: VecDeque<Item<T>>,
    admits: Admits,
}

/// What may come in; from one to the next and never back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Admits {
    All,
    /// What is new is refused.
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

    /// Puts `item` at the end; hands it back if the queue is closed. `now_ns` is its time of
    /// arrival.
    pub(crate) fn push(&self, item: T, now_ns: u64) -> Result<(), T> {
        let mut queue = self.queue.lock();
        if queue.admits == Admits::Nothing {
            return Err(item);
        }
        self.push_back(&mut queue, item, now_ns);
        Ok(())
    }

    /// As [`push`](Self::push), of something that was never in a queue before; hands it back if the
    /// queue is closed to what is new.
    ///
    /// `count` is called under the lock, before anybody can take the item and only if it is taken
    /// in.
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

    /// Puts all `items` at the end under one lock and returns how many they were; hands them back,
    /// untouched, if the queue is closed.
    ///
    /// `items` is iterated under the lock: it must only move things.
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

    /// Takes at most `max` items, oldest first, under one lock, gives each to `to`, and returns how
    /// many they were.
    ///
    /// `to` is called under the lock: it must only move things.
    pub(crate) fn pop_batch(&self, max: usize, to: impl FnMut(T)) -> usize {
        let mut queue = self.queue.lock();
        let count = max.min(queue.items.len());
        queue.items.drain(..count).map(|item| item.item).for_each(to);
        self.publish(&queue);
        let surplus = queue.take_surplus();
        drop(queue);
        // Freed here, so that nobody waits for it.
        drop(surplus);
        count
    }

    /// Items inside, a moment ago.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // ORDERING: Relaxed: a hint, written under the lock; nothing is read through it.
        self.len.load(Ordering::Relaxed)
    }

    /// Whether the queue is empty, looked up under the lock: sees every push that was over before.
    pub(crate) fn is_empty_locked(&self) -> bool {
        self.queue.lock().items.is_empty()
    }

    /// Shows each item to `f`, oldest first, with the lock held.
    #[cfg(test)]
    pub(crate) fn for_each(&self, f: impl FnMut(&T)) {
        self.queue.lock().items.iter().map(|item| &item.item).for_each(f);
    }

    /// When the oldest item came, in the `now_ns` of its push; `None` if the queue was empty a
    /// moment ago.
    #[inline]
    pub(crate) fn oldest_at_ns(&self) -> Option<u64> {
        // ORDERING: Relaxed: a hint, as `len`.
        Some(self.oldest_at_ns.load(Ordering::Relaxed)).filter(|&at_ns| at_ns != NOTHING)
    }

    /// Refuses every later push. What is inside stays, to be taken.
    pub(crate) fn close(&self) {
        self.admit(Admits::Nothing);
    }

    /// Refuses what is new from now on, and takes the rest in as before.
    pub(crate) fn close_to_new(&self) {
        self.admit(Admits::Known);
    }

    fn admit(&self, admits: Admits) {
        let mut queue = self.queue.lock();
        queue.admits = queue.admits.max(admits);
    }

    /// SAME-LOCK: copies out what others read without the lock.
    fn publish(&self, queue: &Queue<T>) {
        // ORDERING: Relaxed, both: written under the lock only; read as hints.
        self.len.store(queue.items.len(), Ordering::Relaxed);
        let oldest_at_ns = queue.items.front().map_or(NOTHING, |item| item.pushed_at_ns);
        self.oldest_at_ns.store(oldest_at_ns, Ordering::Relaxed);
    }
}

impl<T> Queue<T> {
    /// The buffer of a queue that a burst has left large and empty, for the caller to free after
    /// the lock.
    fn take_surplus(&mut self) -> Option<VecDeque<Item<T>>> {
        (self.items.is_empty() && self.items.capacity() > RETAINED_SLOTS)
            .then(|| std::mem::replace(&mut self.items, VecDeque::with_capacity(RETAINED_SLOTS)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
