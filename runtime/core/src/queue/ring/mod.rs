//! A bounded FIFO ring with one producer and many thieves: a worker's local queue, and its batch
//! buffer.
//!
//! # Shape
//!
//! ```text
//! heads  u64  | steal 32 | real 32 |   a line of its own; changed by compare-and-swap only
//! tail   u32                           a line of its own; stored by the producer only
//! slots  [T; capacity]                 slot of index i = i mod capacity, a power of two
//!
//!            steal        real               tail
//!   ── free ──┤ being moved ├── items, FIFO ───┤── free ──      steal ≤ real ≤ tail ≤ steal + capacity, all mod 2^32
//! ```
//! `steal == real`: no thief is at work. `steal != real`: one is, and copies the items in between.
//!
//! # Who writes, who reads
//!
//! [`Producer`] is one value that cannot be cloned, and its methods that write take `&mut self`:
//! only the owner pushes and pops. [`Stealer`] is cloned freely; a thief takes into a ring whose
//! `Producer` it holds. Anybody may read the lengths.
//!
//! # Invariants
//!
//! * SOLE-PRODUCER: only the holder of `&mut Producer` writes slots and the tail.
//! * CLAIMED: an index belongs to whoever moved `real` over it with a compare-and-swap; nobody else
//!   reads its item.
//! * FILLED: a slot between `real` and `tail`, and a claimed one that its claimer has not read yet,
//!   holds an item.
//! * ROOM: a slot is written only if its index is less than `steal + capacity`: counted from
//!   `steal`, since up to there a thief may still be reading.
//! * TAIL-NOT-OLDER: whoever sees a value of the heads sees a tail at least as new as the one that
//!   value was made from. Every change of the heads is a Release, and every load that is followed
//!   by a load of the tail is an Acquire.
//!
//! # Protocol
//!
//! * Push: (1) count the room from `steal`; (2) write the slot; (3) publish the tail.
//! * Pop: (1) load the heads; (2) claim one, moving `real`, and `steal` with it if no thief is at
//!   work; (3) read the slot.
//! * Steal: (1) load the heads, refuse if a thief is at work; (2) load the tail, half of what is
//!   there, rounded up; (3) claim by moving `real` alone; (4) only now read the slots: the oldest
//!   goes to the caller, the rest into the thief's own ring, whose room is counted from *its*
//!   `steal`, since that ring may be being stolen from too; (5) release: `steal = real`, by a loop,
//!   since the owner may have popped meanwhile; (6) publish the tail of the thief's own ring.
//! * Overflow: (1) load the heads, refuse if a thief is at work; (2) claim half the capacity at
//!   once, both heads; (3) read the slots.
//!
//! # Rejected
//!
//! * Heads of 16 bits: a thief that sleeps through 65,536 pops claims items that are not there
//!   (tokio #5041). With 32 bits it would have to sleep through exactly 2^32 of them.
//! * Reading a slot and then claiming it: a data race, even where the value is thrown away.
//! * Stealing half of a Chase–Lev deque with one compare-and-swap: its owner takes from the other
//!   end without one.
//! * Repeating a lost claim inside `steal_into`: the next victim is as good, and the caller counts
//!   what it lost.
//! * Refusing to steal when the thief's own ring has no room: the oldest item needs none.
//!
//! Source: the layout of the two heads is that of tokio's `queue.rs`.

use std::mem::MaybeUninit;

use volt_shim::{Arc, AtomicU32, AtomicU64, CachePadded, Ordering, UnsafeCell};

#[cfg(all(test, loom))]
mod loom_models;

/// Largest capacity: small enough that indices never come near half of their 32 bits.
const MAX_CAPACITY: usize = 32_768;

/// A ring of `capacity` slots, a power of two from 2 to 32,768.
///
/// # Panics
///
/// If `capacity` is not such a number.
pub(crate) fn ring<T: Send>(capacity: usize) -> (Producer<T>, Stealer<T>) {
    ring_from(capacity, 0)
}

/// A ring whose first index is `first`, so that tests reach the end of the 32 bits.
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

/// The owner's end: the only one that pushes and pops.
pub(crate) struct Producer<T: Send> {
    shared: Arc<Shared<T>>,
    /// What `shared.tail` holds; nobody else writes that.
    tail: u32,
}

/// A thief's end.
pub(crate) struct Stealer<T: Send> {
    shared: Arc<Shared<T>>,
}

/// What came of an attempt to steal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Steal<T> {
    /// There was nothing.
    Empty,
    /// There was something, but a thief is at work, or somebody was faster: try again, or
    /// elsewhere.
    Lost,
    /// `count` items were taken: `next`, the oldest, and the others, which are in the thief's own
    /// ring now.
    Taken { next: T, count: usize },
}

/// The oldest half of a ring, on its way to another queue. What is not taken out is dropped with
/// this.
pub(crate) struct TakeHalf<'a, T: Send> {
    producer: &'a mut Producer<T>,
    /// Indices claimed and not yet read: from here,
    next: u32,
    /// to here.
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
    /// Puts `item` at the tail; hands it back if the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, item: T) -> Result<(), T> {
        // Push (1)
        if self.free() == 0 {
            return Err(item);
        }
        // Push (2)
        // SAFETY: ROOM: `free` counted at least one from `steal`, and SOLE-PRODUCER: `&mut self` is
        // the only road to the slot.
        unsafe { self.shared.write(self.tail, item) };
        // Push (3)
        self.publish_tail(self.tail.wrapping_add(1));
        Ok(())
    }

    /// Takes the oldest item.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        // Pop (1)
        // ORDERING: Relaxed: retry value, the swap below checks it. The slots and the tail are this
        // thread's own writes.
        let mut heads = Heads::unpack(self.shared.heads.load(Ordering::Relaxed));
        loop {
            // Exact even if the heads are old: `real` never passes the tail.
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
                // SAFETY: CLAIMED: the swap just moved `real` over this index. FILLED: it was
                // before the tail.
                Ok(_) => return Some(unsafe { self.shared.read(heads.real) }),
                Err(now) => heads = Heads::unpack(now),
            }
        }
    }

    /// The road for what does not fit: claims the oldest items, half the capacity, with one swap,
    /// for the caller to move elsewhere.
    ///
    /// `None` if the ring is empty, or if a thief is at work or was faster; then there is room, or
    /// soon will be.
    pub(crate) fn take_half(&mut self) -> Option<TakeHalf<'_, T>> {
        // Overflow (1)
        // ORDERING: Relaxed: the swap below checks it, as in `pop`.
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

    /// How many more items fit now; more fit when a thief that is at work has finished.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        // ORDERING: Acquire; pairs with the Release in `Shared::release`, which publishes that the
        // thief has read the slots before `steal`, so that they may be written again.
        let heads = Heads::unpack(self.shared.heads.load(Ordering::Acquire));
        (self.shared.capacity() - self.tail.wrapping_sub(heads.steal)) as usize
    }

    /// Items inside that nobody has claimed.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
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
    /// Takes half of the items, rounded up: the oldest for the caller, the others, as far as they
    /// fit, into `into`, the thief's own ring.
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
        // The oldest goes to the caller and needs no room.
        let count = (available - available / 2).min(into.free() as u32 + 1);
        let claimed = Heads { steal: heads.steal, real: heads.real.wrapping_add(count) };
        // Steal (3)
        // ORDERING: Release; pairs with the Acquire in `Shared::load`: TAIL-NOT-OLDER. The slots
        // were published to this thread by the tail, in `load`. Relaxed on failure: not used.
        if self
            .shared
            .heads
            .compare_exchange(heads.pack(), claimed.pack(), Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            return Steal::Lost;
        }
        // Steal (4)
        // SAFETY: CLAIMED: the swap just moved `real` over this index. FILLED: it was before the
        // tail.
        let next = unsafe { self.shared.read(heads.real) };
        for offset in 1..count {
            // SAFETY: CLAIMED and FILLED, as above: `real` moved over `count` indices, all of them
            // before the tail.
            let item = unsafe { self.shared.read(heads.real.wrapping_add(offset)) };
            // SAFETY: ROOM: `into.free()` counted at least `count - 1`, and room only grows.
            // SOLE-PRODUCER: `&mut Producer`.
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

    /// Items inside that nobody has claimed.
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
        // SAFETY: CLAIMED: `take_half` moved `real` over the indices from `next` to `end`, and each
        // is read once, since `next` moves on. FILLED: they were before the tail, and nobody pushes
        // while this borrows the producer.
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

    /// The heads, and a tail that is at least as new as they are.
    #[inline]
    fn load(&self) -> (Heads, u32) {
        // ORDERING: Acquire; pairs with the Release of every change of the heads: TAIL-NOT-OLDER.
        let heads = Heads::unpack(self.heads.load(Ordering::Acquire));
        // ORDERING: Acquire; pairs with the Release in `Producer::publish_tail`; the slots before
        // the tail are visible from here on.
        let tail = self.tail.load(Ordering::Acquire);
        (heads, tail)
    }

    #[inline]
    fn len(&self) -> usize {
        let (heads, tail) = self.load();
        // The tail may be newer than the heads by any number of pushes and pops.
        (tail.wrapping_sub(heads.real) as usize).min(self.slots.len())
    }

    /// Ends a steal: `steal = real`, wherever the owner has moved `real` meanwhile.
    fn release(&self) {
        // ORDERING: Relaxed: retry value.
        let mut heads = Heads::unpack(self.heads.load(Ordering::Relaxed));
        loop {
            debug_assert!(heads.has_thief(), "a steal ended twice");
            let released = Heads { steal: heads.real, real: heads.real };
            // ORDERING: Release; pairs with the Acquire in `Producer::free`; publishes that the
            // slots were read. Relaxed on failure: retry value.
            match self.heads.compare_exchange_weak(heads.pack(), released.pack(), Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => heads = Heads::unpack(now),
            }
        }
    }

    /// Moves the item of `index` out.
    ///
    /// # Safety
    ///
    /// CLAIMED by the caller, FILLED, and not read since.
    #[inline]
    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: FILLED, by this function's contract, so the slot holds a valid T; CLAIMED, so
        // nobody else reads or writes it.
        self.slot(index).with(|slot| unsafe { slot.cast::<T>().read() })
    }

    /// Moves `item` into the slot of `index`.
    ///
    /// # Safety
    ///
    /// ROOM for it, and the caller is the SOLE-PRODUCER.
    #[inline]
    unsafe fn write(&self, index: u32, item: T) {
        // SAFETY: ROOM and SOLE-PRODUCER, by this function's contract, so nobody else reads or
        // writes the slot.
        self.slot(index).with_mut(|slot| unsafe { slot.cast::<T>().write(item) });
    }

    #[inline]
    fn slot(&self, index: u32) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Every end is gone, and a thief at work would hold one: `steal == real`.
        let (heads, _) = self.load();
        for offset in 0..self.len() as u32 {
            // SAFETY: FILLED: the index is between `real` and the tail. CLAIMED: `&mut self`
            // excludes everybody else.
            drop(unsafe { self.read(heads.real.wrapping_add(offset)) });
        }
    }
}

// SAFETY: items are only moved in and out, each by one thread at a time (CLAIMED, ROOM), and never
// lent, so T: Send is enough.
unsafe impl<T: Send> Send for Shared<T> {}

// SAFETY: as for Send: a shared reference gives lengths, and items by value.
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

    /// After the owner's claim of `count`: `real` moves, and `steal` with it if no thief is at
    /// work.
    #[inline]
    fn advanced(self, count: u32) -> Self {
        let real = self.real.wrapping_add(count);
        Self { steal: if self.has_thief() { self.steal } else { real }, real }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
