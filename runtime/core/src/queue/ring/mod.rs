//! The local run queue of a worker: a bounded FIFO ring with one producer and many thieves.
//!
//! Each worker of the scheduler owns one ring. The *owner* pushes tasks at the tail and pops the
//! oldest ones. Other workers that have run out of tasks are *thieves*: they steal half of the
//! tasks in one step. The batch buffer of a worker is such a ring, too.
//!
//! A ring has two heads. `real` is the index of the next item to take. `steal` trails behind `real`
//! while a thief copies items out of the ring, and marks the slots that must not be overwritten
//! yet.
//!
//! # Shape
//!
//! ```text
//! heads  u64  | steal 32 | real 32 |   on a separate cache line; changed by compare-and-swap only
//! tail   u32                           on a separate cache line; stored by the producer only
//! slots  [T; capacity]                 slot of index i = i mod capacity, a power of two
//!
//!            steal        real               tail
//!   ── free ──┤ being moved ├── items, FIFO ───┤── free ──      steal ≤ real ≤ tail ≤ steal + capacity, all mod 2^32
//! ```
//! If `steal == real`, no thief is active. If `steal != real`, one thief is active and copies the
//! items in between. At most one thief is active at any time.
//!
//! # Writers and readers
//!
//! There is one [`Producer`]. It cannot be cloned, and its methods that write take `&mut self`, so
//! only the owner pushes and pops. A [`Stealer`] can be cloned freely. A thief steals into a ring
//! whose `Producer` it owns. Any thread may read the lengths.
//!
//! # One ordinary case
//!
//! The owner pushes A, B, C and D: four slots are filled and the tail is 4. A thief loads the heads
//! (0, 0) and the tail (4), and claims two items with one compare-and-swap that changes the heads
//! to `steal` 0, `real` 2. It copies A and B out, while the owner may pop C (`real` becomes 3).
//! Then the thief sets `steal` to the current `real`, and the slots of A, B and C are free again.
//!
//! # The race
//!
//! The owner and several thieves may want the same items at the same time, and the owner may want
//! to overwrite a slot that a thief still reads. The compare-and-swap of the heads decides the
//! first race: an item belongs to the thread that moved `real` past it, and is read only after
//! that. `steal` decides the second one: the owner counts the free slots from `steal`, not from
//! `real`.
//!
//! # Invariants
//!
//! * SOLE-PRODUCER: only the holder of `&mut Producer` writes slots and the tail.
//! * CLAIMED: an item belongs to the thread that moved `real` past its index with a
//!   compare-and-swap. No other thread reads it.
//! * FILLED: a slot between `real` and `tail` holds an item, and so does a claimed slot that the
//!   claiming thread has not read yet.
//! * ROOM: a slot is written only if its index is less than `steal + capacity`. The room is counted
//!   from `steal`, because a thief may still be reading the slots from there on.
//! * TAIL-NOT-OLDER: a thread that loads a value of the heads and then the tail gets a tail at
//!   least as new as the one from which that value was computed. For this, every change of the
//!   heads is a Release, and every load of the heads that is followed by a load of the tail is an
//!   Acquire.
//!
//! # Protocol
//!
//! * Push: (1) count the room from `steal`; (2) write the slot; (3) publish the tail.
//! * Pop: (1) load the heads; (2) claim one item by moving `real`, and `steal` with it if no thief
//!   is active; (3) read the slot.
//! * Steal: (1) load the heads, and give up if another thief is active; (2) load the tail, and aim
//!   for half of the items, rounded up; (3) claim them by moving `real` alone; (4) only then read
//!   the slots: the oldest item goes to the caller, the others into the thief's own ring. The room
//!   there is counted from the `steal` of *that* ring, because a third worker may be stealing from
//!   it; (5) release: set `steal = real`, in a loop, because the owner may have popped in the
//!   meantime; (6) publish the tail of the thief's own ring.
//! * Overflow: (1) load the heads, and give up if a thief is active; (2) claim the oldest items, at
//!   most half the capacity, with one compare-and-swap that moves both heads; (3) read the slots.
//!
//! # Rejected
//!
//! * Heads of 16 bits: a thief that is suspended during 65,536 pops claims items that do not exist
//!   (tokio #5041). With 32 bits it would have to be suspended during exactly 2^32 of them.
//! * Reading a slot before claiming it: a data race, even if the value is discarded.
//! * Stealing half of a Chase–Lev deque with one compare-and-swap: its owner takes items from the
//!   other end without one.
//! * Retrying a lost claim inside `steal_into`: another victim is as good, and the caller counts
//!   the lost attempts.
//! * Refusing to steal when the thief's own ring is full: the oldest item needs no room there.
//!
//! The layout of the two heads is that of tokio's `queue.rs`.

use std::mem::MaybeUninit;

use volt_shim::{Arc, AtomicU32, AtomicU64, CachePadded, Ordering, UnsafeCell};

#[cfg(all(test, loom))]
mod loom_models;

/// The largest capacity. It keeps the distance between two indices far below half of their range.
const MAX_CAPACITY: usize = 32_768;

/// Creates a ring of `capacity` slots.
///
/// # Panics
///
/// If `capacity` is not a power of two from 2 to 32,768.
pub(crate) fn ring<T: Send>(capacity: usize) -> (Producer<T>, Stealer<T>) {
    ring_from(capacity, 0)
}

/// Creates a ring whose first index is `first`, so that tests can cover the wrap of the indices.
fn ring_from<T: Send>(capacity: usize, first: u32) -> (Producer<T>, Stealer<T>) {
    assert!(
        capacity.is_power_of_two() && (2..=MAX_CAPACITY).contains(&capacity),
        "capacity of a ring is {capacity}, it must be a power of two from 2 to {MAX_CAPACITY}"
    );
    let shared = Arc::new(Shared {
        heads: CachePadded(AtomicU64::new(Heads { steal: first, real: first }.pack())),
        tail: CachePadded(AtomicU32::new(first)),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    (Producer { shared: shared.clone(), tail: first }, Stealer { shared })
}

/// The owner's end, the only one that pushes and pops.
pub(crate) struct Producer<T: Send> {
    shared: Arc<Shared<T>>,
    /// A copy of `shared.tail`, which only this producer writes.
    tail: u32,
}

/// A thief's end.
pub(crate) struct Stealer<T: Send> {
    shared: Arc<Shared<T>>,
}

/// The result of an attempt to steal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Steal<T> {
    /// The ring was empty.
    Empty,
    /// The ring has items, but another thief is active, or another thread won the race. Retry, or
    /// try another ring.
    Lost,
    /// `count` items were taken: `next` is the oldest one, and the others are now in the thief's
    /// own ring.
    Taken { next: T, count: usize },
}

/// The oldest items of a ring, claimed in order to be moved to another queue. Dropping this drops
/// the items that have not been taken out.
pub(crate) struct TakeHalf<'a, T: Send> {
    producer: &'a mut Producer<T>,
    /// The first index that was claimed and not yet read.
    next: u32,
    /// The index after the last claimed one.
    end: u32,
}

struct Shared<T> {
    heads: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU32>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

/// The two heads, unpacked.
#[derive(Clone, Copy)]
struct Heads {
    steal: u32,
    real: u32,
}

impl<T: Send> Producer<T> {
    /// Puts `item` at the tail. Returns it if the ring is full.
    #[inline(always)]
    pub(crate) fn push(&mut self, item: T) -> Result<(), T> {
        // Push (1)
        if self.free() == 0 {
            return Err(item);
        }
        // Push (2)
        // SAFETY: ROOM: `free` counted at least one slot from `steal`. SOLE-PRODUCER: slots are
        // written only through `&mut self`.
        unsafe { self.shared.write(self.tail, item) };
        // Push (3)
        self.publish_tail(self.tail.wrapping_add(1));
        Ok(())
    }

    /// Takes the oldest item.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        // Pop (1)
        // ORDERING: Relaxed: a stale value makes the compare-and-swap below fail and be retried.
        // The owner itself wrote the slots and the tail.
        let mut heads = Heads::unpack(self.shared.heads.load(Ordering::Relaxed));
        loop {
            // Exact even if the loaded heads are stale: `real` never passes the tail.
            if heads.real == self.tail {
                return None;
            }
            // Pop (2)
            // ORDERING: Release; pairs with the Acquire in `Shared::load`: TAIL-NOT-OLDER. Relaxed
            // on failure: retry value.
            let claim = self.shared.heads.compare_exchange_weak(
                heads.pack(),
                heads.advanced(1).pack(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match claim {
                // Pop (3)
                // SAFETY: CLAIMED: the swap has just moved `real` past this index. FILLED: it was
                // before the tail.
                Ok(_) => return Some(unsafe { self.shared.read(heads.real) }),
                Err(now) => heads = Heads::unpack(now),
            }
        }
    }

    /// Handles an overflow: claims the oldest items, at most half the capacity, with one swap, so
    /// that the caller can move them to another queue.
    ///
    /// Returns `None` if the ring is empty, or if a thief is active or won the race. In that case
    /// there is room, or there will be soon.
    pub(crate) fn take_half(&mut self) -> Option<TakeHalf<'_, T>> {
        // Overflow (1)
        // ORDERING: Relaxed: the compare-and-swap below fails on a stale value, as in `pop`.
        let heads = Heads::unpack(self.shared.heads.load(Ordering::Relaxed));
        let count = self.tail.wrapping_sub(heads.real).min(self.shared.capacity() / 2);
        if count == 0 || heads.has_thief() {
            return None;
        }
        let claimed = heads.advanced(count);
        // Overflow (2)
        // ORDERING: Release; pairs with the Acquire in `Shared::load`: TAIL-NOT-OLDER. Relaxed on
        // failure: not used.
        self.shared.heads.compare_exchange(heads.pack(), claimed.pack(), Ordering::Release, Ordering::Relaxed).ok()?;
        Some(TakeHalf { producer: self, next: heads.real, end: claimed.real })
    }

    /// Returns how many more items fit. An active thief frees further slots when it finishes.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        // ORDERING: Acquire; pairs with the Release in `Shared::release`. The thief published there
        // that it has read the slots before `steal`, so they may be overwritten.
        let heads = Heads::unpack(self.shared.heads.load(Ordering::Acquire));
        (self.shared.capacity() - self.tail.wrapping_sub(heads.steal)) as usize
    }

    /// Returns the number of items that no thread has claimed.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // ORDERING: Acquire; as in `Shared::load`. The tail is this producer's own, so it is the
        // newest.
        let heads = Heads::unpack(self.shared.heads.load(Ordering::Acquire));
        self.tail.wrapping_sub(heads.real) as usize
    }

    /// Makes the slots before `tail` visible to thieves.
    #[inline]
    fn publish_tail(&mut self, tail: u32) {
        self.tail = tail;
        // ORDERING: Release; pairs with the Acquire in `Shared::load`; publishes the items in the
        // slots before it.
        self.shared.tail.store(tail, Ordering::Release);
    }
}

impl<T: Send> Stealer<T> {
    /// Steals half of the items, rounded up. The oldest one is returned to the caller; the others
    /// go to `into`, the thief's own ring, as far as they fit.
    pub(crate) fn steal_into(&self, into: &mut Producer<T>) -> Steal<T> {
        debug_assert!(!Arc::ptr_eq(&self.shared, &into.shared), "a worker steals from itself");
        // Steal (1) and (2)
        let (heads, tail) = self.shared.load();
        let available = tail.wrapping_sub(heads.real);
        if available == 0 {
            return Steal::Empty;
        }
        if heads.has_thief() {
            return Steal::Lost;
        }
        // The oldest item is returned and needs no room in `into`.
        let count = (available - available / 2).min(into.free() as u32 + 1);
        let claimed = Heads { steal: heads.steal, real: heads.real.wrapping_add(count) };
        // Steal (3)
        // ORDERING: Release; pairs with the Acquire in `Shared::load`: TAIL-NOT-OLDER. The load of
        // the tail in `load` made the slots visible to this thread. Relaxed on failure: not used.
        if self
            .shared
            .heads
            .compare_exchange(heads.pack(), claimed.pack(), Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            return Steal::Lost;
        }
        // Steal (4)
        // SAFETY: CLAIMED: the swap has just moved `real` past this index. FILLED: it was before
        // the tail.
        let next = unsafe { self.shared.read(heads.real) };
        for offset in 1..count {
            // SAFETY: CLAIMED and FILLED, as above: `real` moved past `count` indices, all of them
            // before the tail.
            let item = unsafe { self.shared.read(heads.real.wrapping_add(offset)) };
            // SAFETY: ROOM: `into.free()` counted at least `count - 1`, and other threads only add
            // room. SOLE-PRODUCER: `into` is a `&mut Producer`.
            unsafe { into.shared.write(into.tail.wrapping_add(offset - 1), item) };
        }
        // Steal (5)
        self.shared.release();
        // Steal (6)
        if count > 1 {
            into.publish_tail(into.tail.wrapping_add(count - 1));
        }
        Steal::Taken { next, count: count as usize }
    }

    /// Returns the number of items that no thread has claimed.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }
}

impl<T: Send> Clone for Stealer<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Send> Iterator for TakeHalf<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.next == self.end {
            return None;
        }
        // Overflow (3)
        // SAFETY: CLAIMED: `take_half` moved `real` past the indices from `next` to `end`, and each
        // is read once, since `next` advances. FILLED: they were before the tail, and no item can
        // be pushed while the producer is mutably borrowed.
        let item = unsafe { self.producer.shared.read(self.next) };
        self.next = self.next.wrapping_add(1);
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.wrapping_sub(self.next) as usize;
        (left, Some(left))
    }
}

impl<T: Send> ExactSizeIterator for TakeHalf<'_, T> {}

impl<T: Send> Drop for TakeHalf<'_, T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<T> Shared<T> {
    #[inline]
    fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Loads the heads, and then a tail that is at least as new.
    #[inline]
    fn load(&self) -> (Heads, u32) {
        // ORDERING: Acquire; pairs with the Release of every change of the heads: TAIL-NOT-OLDER.
        let heads = Heads::unpack(self.heads.load(Ordering::Acquire));
        // ORDERING: Acquire; pairs with the Release in `Producer::publish_tail`, which made the
        // slots before the tail visible.
        let tail = self.tail.load(Ordering::Acquire);
        (heads, tail)
    }

    #[inline]
    fn len(&self) -> usize {
        let (heads, tail) = self.load();
        // The tail may be newer than the heads by any number of pushes and pops.
        (tail.wrapping_sub(heads.real) as usize).min(self.slots.len())
    }

    /// Ends a steal: sets `steal = real`. The owner may have moved `real` in the meantime.
    fn release(&self) {
        // ORDERING: Relaxed: a stale value makes the swap below fail and be retried.
        let mut heads = Heads::unpack(self.heads.load(Ordering::Relaxed));
        loop {
            debug_assert!(heads.has_thief(), "a steal ended twice");
            let released = Heads { steal: heads.real, real: heads.real };
            // ORDERING: Release; pairs with the Acquire in `Producer::free`; publishes that the
            // slots were read. Relaxed on failure: the value is only used for the next attempt.
            match self.heads.compare_exchange_weak(heads.pack(), released.pack(), Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => heads = Heads::unpack(now),
            }
        }
    }

    /// Moves the item at `index` out of its slot.
    ///
    /// # Safety
    ///
    /// The item is CLAIMED by the caller, FILLED, and has not been read since.
    #[inline]
    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: by this function's contract the slot is FILLED, so it holds a valid T, and
        // CLAIMED, so no other thread reads or writes it.
        self.slot(index).with(|slot| unsafe { slot.cast::<T>().read() })
    }

    /// Moves `item` into the slot of `index`.
    ///
    /// # Safety
    ///
    /// There is ROOM for it, and the caller is the SOLE-PRODUCER.
    #[inline]
    unsafe fn write(&self, index: u32, item: T) {
        // SAFETY: ROOM and SOLE-PRODUCER, by this function's contract, so no other thread reads or
        // writes the slot.
        self.slot(index).with_mut(|slot| unsafe { slot.cast::<T>().write(item) });
    }

    #[inline]
    fn slot(&self, index: u32) -> &UnsafeCell<MaybeUninit<T>> {
        // SAFETY: the capacity is a power of two, which `ring_from` checks, so the masked index is
        // below it. A checked access costs two instructions more at each push and pop.
        unsafe { self.slots.get_unchecked(index as usize & (self.slots.len() - 1)) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // All producers and stealers were dropped, and an active thief would own one, so
        // `steal == real`.
        let (heads, _) = self.load();
        for offset in 0..self.len() as u32 {
            // SAFETY: FILLED: the index is between `real` and the tail. CLAIMED: `&mut self`
            // excludes all other threads.
            drop(unsafe { self.read(heads.real.wrapping_add(offset)) });
        }
    }
}

// SAFETY: items are only moved in and out, each by one thread at a time (CLAIMED, ROOM), and are
// never lent out, so T: Send suffices.
unsafe impl<T: Send> Send for Shared<T> {}

// SAFETY: as for Send: a shared reference gives access to lengths and to items by value only.
unsafe impl<T: Send> Sync for Shared<T> {}

impl Heads {
    #[inline]
    fn unpack(word: u64) -> Self {
        Self { steal: (word >> 32) as u32, real: word as u32 }
    }

    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.steal) << 32 | u64::from(self.real)
    }

    #[inline]
    fn has_thief(self) -> bool {
        self.steal != self.real
    }

    /// Returns the heads after the owner's claim of `count` items: `real` moves, and `steal` with
    /// it if no thief is active.
    #[inline]
    fn advanced(self, count: u32) -> Self {
        let real = self.real.wrapping_add(count);
        Self { steal: if self.has_thief() { self.steal } else { real }, real }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
