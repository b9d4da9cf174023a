//! The global queue: what is handed in from outside, what overflows a ring, what a worker that is going away leaves behind.
//!
//! # Shape
//!
//! A FIFO behind one lock, each item with the time at which it came. Its length and the age of its oldest item are copied out into
//! two atomics while the lock is held, so that workers and snapshots read them with one load and never take the lock for that.
//!
//! # Who writes, who reads
//!
//! Anybody pushes, any worker takes, in batches, so that the lock is taken once for many. The copies are written under the lock only.
//!
//! # Bound
//!
//! None of its own: a wake must never be refused. Who may refuse, a spawn from outside, looks at [`Injector::len`] first.
//!
//! # Invariants
//!
//! * SAME-LOCK: `len` and `oldest_at_ns` are stored before the lock that changed the queue is released. A worker that is about to sleep
//!   looks under the lock ([`Injector::is_empty_locked`]) and so sees every push that was over before.
//! * CLOSED-IS-LAST: after `close` returned, nothing more comes in, so what is taken after it is all there is. After `close_to_new` returned
//!   the same holds for what [`Injector::push_new`] brings, and whoever knows of that sees what its callers have counted.
//!
//! # Rejected
//!
//! * Giving a large buffer back at once: the next burst takes it again, and freeing more than 64 KiB makes glibc join all its small free chunks,
//!   which the tasks that follow then have to be cut from anew.
//! * A lock-free queue: it is used in batches, a lock a batch is cheaper than an allocation an item, and the age would need one anyway.
//! * Dropping items that come after `close`: they go back to the caller, which knows how to end them.

use std::collections::VecDeque;

use crate::shim::{AtomicU64, AtomicUsize, CachePadded, Mutex, Ordering};

#[cfg(all(test, loom))]
#[path = "injector_loom.rs"]
mod loom_models;

/// `oldest_at_ns` of an empty queue. As a time it lies 584 years after the clock's first reading.
const NOTHING: u64 = u64::MAX;
/// Slots that an empty queue keeps, 256 KiB for a pointer and its time; a larger buffer, left from a burst, is given back.
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

    /// Puts `item` at the end; hands it back if the queue is closed. `now_ns` is its time of arrival.
    pub(crate) fn push(&self, item: T, now_ns: u64) -> Result<(), T> {
        let mut queue = self.queue.lock();
        if queue.admits == Admits::Nothing {
            return Err(item);
        }
        self.push_back(&mut queue, item, now_ns);
        Ok(())
    }

    /// As [`push`](Self::push), of something that was never in a queue before; hands it back if the queue is closed to what is new.
    ///
    /// `count` is called under the lock, before anybody can take the item and only if it is taken in.
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

    /// Puts all `items` at the end under one lock and returns how many they were; hands them back, untouched, if the queue is closed.
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

    /// Takes at most `max` items, oldest first, under one lock, gives each to `to`, and returns how many they were.
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

    /// When the oldest item came, in the `now_ns` of its push; `None` if the queue was empty a moment ago.
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
    /// The buffer of a queue that a burst has left large and empty, for the caller to free after the lock.
    fn take_surplus(&mut self) -> Option<VecDeque<Item<T>>> {
        (self.items.is_empty() && self.items.capacity() > RETAINED_SLOTS)
            .then(|| std::mem::replace(&mut self.items, VecDeque::with_capacity(RETAINED_SLOTS)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    /// Items each thread pushes in a stress; Miri is slow.
    const ITEMS: usize = if cfg!(miri) { 100 } else { 50_000 };

    fn taken<T>(injector: &Injector<T>, max: usize) -> Vec<T> {
        let mut items = Vec::new();
        let count = injector.pop_batch(max, |item| items.push(item));
        assert_eq!(count, items.len());
        items
    }

    #[test]
    fn items_come_out_in_the_order_in_which_they_went_in() {
        let injector = Injector::new();
        injector.push(0, 0).unwrap();
        assert_eq!(injector.push_batch(1..5, 0).ok(), Some(4));
        injector.push(5, 0).unwrap();
        assert_eq!(taken(&injector, 2), [0, 1]);
        assert!(taken(&injector, 0).is_empty());
        assert_eq!(taken(&injector, 100), [2, 3, 4, 5]);
        assert!(taken(&injector, 100).is_empty());
    }

    #[test]
    fn length_and_age_are_those_of_what_is_inside() {
        let injector = Injector::new();
        assert_eq!((injector.len(), injector.oldest_at_ns(), injector.is_empty_locked()), (0, None, true));
        injector.push('a', 0).unwrap();
        assert_eq!((injector.len(), injector.oldest_at_ns(), injector.is_empty_locked()), (1, Some(0), false));
        assert_eq!(injector.push_batch("bc".chars(), 20).ok(), Some(2));
        assert_eq!((injector.len(), injector.oldest_at_ns()), (3, Some(0)));
        taken(&injector, 1);
        assert_eq!((injector.len(), injector.oldest_at_ns()), (2, Some(20)));
        taken(&injector, 2);
        assert_eq!((injector.len(), injector.oldest_at_ns(), injector.is_empty_locked()), (0, None, true));
    }

    #[test]
    fn a_closed_queue_hands_items_back_and_gives_out_what_it_has() {
        let injector = Injector::new();
        injector.push(1, 0).unwrap();
        injector.close();
        assert_eq!(injector.push(2, 0), Err(2));
        assert_eq!(injector.push_batch(3..5, 0).unwrap_err().collect::<Vec<_>>(), [3, 4]);
        assert_eq!(injector.len(), 1);
        assert_eq!(taken(&injector, 9), [1]);
    }

    #[test]
    fn a_queue_that_is_closed_to_what_is_new_takes_the_rest_in_and_counts_what_it_took() {
        let (injector, counted) = (Injector::new(), std::cell::Cell::new(0));
        let count = || counted.set(counted.get() + 1);
        injector.push_new(1, 0, count).unwrap();
        injector.close_to_new();
        assert_eq!(injector.push_new(2, 0, count), Err(2));
        injector.push(3, 0).unwrap();
        assert_eq!(counted.get(), 1);
        injector.close();
        injector.close_to_new();
        assert_eq!(injector.push(4, 0), Err(4), "closed for good");
        assert_eq!(taken(&injector, 9), [1, 3]);
    }

    #[test]
    fn a_burst_leaves_no_large_buffer_behind() {
        let injector = Injector::new();
        assert!(injector.push_batch(0..10 * RETAINED_SLOTS, 0).is_ok());
        taken(&injector, 10 * RETAINED_SLOTS - 1);
        assert_eq!(taken(&injector, 1), [10 * RETAINED_SLOTS - 1]);
        assert!(injector.queue.lock().items.capacity() <= RETAINED_SLOTS);
    }

    #[test]
    fn what_is_left_inside_is_dropped_once() {
        let alive = Arc::new(());
        let injector = Injector::new();
        (0..3).for_each(|_| injector.push(alive.clone(), 0).unwrap());
        drop(injector);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn each_pushers_items_come_out_once_and_in_its_order() {
        let injector = Injector::new();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let injector = &injector;
            let pushers = [0, 1].map(|pusher| {
                scope.spawn(move || {
                    for item in (0..ITEMS).step_by(2) {
                        injector.push((pusher, item), 0).unwrap();
                        assert!(injector.push_batch([(pusher, item + 1)].into_iter(), 0).is_ok());
                    }
                })
            });
            let taker = scope.spawn(|| {
                let mut next = [0, 0];
                loop {
                    let over_before = is_over.load(Ordering::Acquire);
                    let count = injector.pop_batch(32, |(pusher, item): (usize, usize)| {
                        assert_eq!(item, next[pusher]);
                        next[pusher] += 1;
                    });
                    if count == 0 && over_before {
                        return next;
                    }
                }
            });
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            is_over.store(true, Ordering::Release);
            assert_eq!(taker.join().unwrap(), [ITEMS, ITEMS]);
        });
        assert_eq!(injector.len(), 0);
    }
}
