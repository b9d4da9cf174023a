//! A bounded stack with one owner and many thieves: what a worker's own tasks woke, where the newest of it is to run first.
//!
//! # Shape
//!
//! ```text
//! ends   u64  | tail 16 | real 16 | steal 16 | – 16 |   a line of its own; changed by read-modify-writes only
//! slots  [T; capacity]                                  slot of index i = i mod capacity, a power of two
//!
//!            steal        real               tail
//!   ── free ──┤ being moved ├── items, oldest first ─┤── free ──      steal ≤ real ≤ tail ≤ steal + capacity, all mod 2^16
//! ```
//! `steal == real`: no thief is at work. `steal != real`: one is, and copies the items in between.
//!
//! # Who writes, who reads
//!
//! [`Producer`] is one value that cannot be cloned, and its methods that write take `&mut self`: only the owner pushes, and pops at either end.
//! [`Stealer`] is shared by all others; a thief takes the oldest half into a ring whose producer it holds. Anybody may read the length.
//!
//! # Invariants
//!
//! * SOLE-PRODUCER: only the holder of `&mut Producer` writes slots, and moves the tail.
//! * WHOLE-STATE: the one word says all that there is to know of the stack. A swap of it that succeeds has found the stack as it was looked at, or come
//!   back to that, which is the same: nothing is read from a slot before the swap.
//! * CLAIMED: an index belongs to whoever moved `real` over it, or the tail back over it, with a compare-and-swap; nobody else reads its item.
//! * FILLED: a slot between `real` and `tail`, and a claimed one that its claimer has not read yet, holds an item.
//! * ROOM: a slot is written only if its index is less than `steal + capacity`: counted from `steal`, since up to there a thief may still be reading.
//!
//! # Protocol
//!
//! * Push: (1) count the room from `steal`; (2) write the slot; (3) move the tail on, by an addition.
//! * Pop the newest: (1) look; (2) claim one, moving the tail back; (3) read the slot.
//! * Pop the oldest: (1) look; (2) claim one, moving `real`, and `steal` with it if no thief is at work; (3) read the slot.
//! * Steal: (1) look, refuse if a thief is at work; (2) claim half, rounded up, by moving `real` alone; (3) only now read the slots: the oldest for
//!   the caller, the rest into the thief's own ring; (4) release: `steal = real`, by a loop, since the owner goes on meanwhile.
//!
//! # Rejected
//!
//! * The ring's layout, with a tail of its own: a thief sees the tail, the owner pops down to below what the thief then claims, and the heads that
//!   the thief compares are as they were. That is the fault of stealing half of a Chase–Lev deque with one compare-and-swap.
//! * Chase–Lev as it is, one item a steal: a thief that takes one comes back for the next.
//! * Popping at the ring's tail: then what yields, or comes from timers and sockets, would run before what it is to let pass. Those have a queue of
//!   their own, the ring, and this is beside it.
//! * A buffer that only its owner sees: what a poll that lasts, or blocks, has woken would wait for its end.
//! * Larger indices: 16 bits hold twice the largest capacity, and by WHOLE-STATE it does no harm when they come round.
//!
//! It costs a locked instruction at a push, which the ring does without.

use std::mem::MaybeUninit;

use super::ring::{self, Steal};
use crate::shim::{Arc, AtomicU64, CachePadded, Ordering, UnsafeCell};

#[cfg(all(test, loom))]
#[path = "stack_loom.rs"]
mod loom_models;

/// Largest capacity: half of what an index of 16 bits tells apart, so that full and empty differ.
const MAX_CAPACITY: usize = 32_768;
/// The tail's place in the word: at the top, so that what an addition carries over is gone.
const TAIL: u32 = 48;
const REAL: u32 = 32;
const STEAL: u32 = 16;

/// A stack of `capacity` slots, a power of two from 2 to 32,768.
///
/// # Panics
///
/// If `capacity` is not such a number.
pub(crate) fn stack<T: Send>(capacity: usize) -> (Producer<T>, Stealer<T>) {
    stack_from(capacity, 0)
}

/// A stack whose first index is `first`, so that tests reach the end of the 16 bits.
fn stack_from<T: Send>(capacity: usize, first: u16) -> (Producer<T>, Stealer<T>) {
    assert!(
        capacity.is_power_of_two() && (2..=MAX_CAPACITY).contains(&capacity),
        "capacity of a stack is {capacity}, it must be a power of two from 2 to {MAX_CAPACITY}"
    );
    let shared = Arc::new(Shared {
        ends: CachePadded(AtomicU64::new(Ends { steal: first, real: first, tail: first }.pack())),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    (Producer { shared: shared.clone() }, Stealer { shared })
}

/// The owner's end: the only one that pushes and pops.
pub(crate) struct Producer<T: Send> {
    shared: Arc<Shared<T>>,
}

/// A thief's end.
pub(crate) struct Stealer<T: Send> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    ends: CachePadded<AtomicU64>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

/// The word, unpacked.
#[derive(Clone, Copy)]
struct Ends {
    steal: u16,
    real: u16,
    tail: u16,
}

impl<T: Send> Producer<T> {
    /// Puts `item` on top; hands it back if the stack is full, or not yet free of what a thief is moving out.
    #[inline]
    pub(crate) fn push(&mut self, item: T) -> Result<(), T> {
        // Push (1)
        // ORDERING: Acquire; pairs with the Release in `Shared::release`, which publishes that the thief has read the slots before `steal`, so
        // that they may be written again.
        let ends = self.shared.look(Ordering::Acquire);
        if usize::from(ends.tail.wrapping_sub(ends.steal)) == self.shared.slots.len() {
            return Err(item);
        }
        // Push (2)
        // SAFETY: ROOM: counted from `steal`, and thieves only make more. SOLE-PRODUCER: `&mut self` is the only road to the slot, and the tail is
        // where it was.
        unsafe { self.shared.write(ends.tail, item) };
        // Push (3)
        // ORDERING: Release; pairs with the Acquire of the claim in `steal_into`, publishes the item. Each change of the word is a
        // read-modify-write and continues its release sequence.
        self.shared.ends.fetch_add(1 << TAIL, Ordering::Release);
        Ok(())
    }

    /// Takes the newest item.
    #[inline]
    pub(crate) fn pop_newest(&mut self) -> Option<T> {
        // Pop the newest (1) and (2)
        // ORDERING: Relaxed: the slots are this thread's own writes.
        let before = self.shared.claim(Ordering::Relaxed, |ends| {
            (ends.len() > 0).then(|| Ends { tail: ends.tail.wrapping_sub(1), ..ends })
        })?;
        // Pop the newest (3)
        // SAFETY: CLAIMED: the swap just moved the tail back over this index. FILLED: it was between `real` and the tail.
        Some(unsafe { self.shared.read(before.tail.wrapping_sub(1)) })
    }

    /// Takes the oldest item.
    #[inline]
    pub(crate) fn pop_oldest(&mut self) -> Option<T> {
        // Pop the oldest (1) and (2)
        // ORDERING: Relaxed: the slots are this thread's own writes.
        let before = self.shared.claim(Ordering::Relaxed, |ends| {
            let real = ends.real.wrapping_add(1);
            let steal = if ends.has_thief() { ends.steal } else { real };
            (ends.len() > 0).then_some(Ends { steal, real, ..ends })
        })?;
        // Pop the oldest (3)
        // SAFETY: CLAIMED: the swap just moved `real` over this index. FILLED: it was between `real` and the tail.
        Some(unsafe { self.shared.read(before.real) })
    }

    /// Items inside that nobody has claimed.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }
}

impl<T: Send> Stealer<T> {
    /// Takes half of the items, rounded up: the oldest for the caller, the others, as far as they fit, into `into`, the thief's own ring.
    pub(crate) fn steal_into(&self, into: &mut ring::Producer<T>) -> Steal<T> {
        // Steal (1)
        // ORDERING: Relaxed: the swap below checks it.
        let ends = self.shared.look(Ordering::Relaxed);
        if ends.len() == 0 {
            return Steal::Empty;
        }
        if ends.has_thief() {
            return Steal::Lost;
        }
        // The oldest goes to the caller and needs no room.
        let count = ends.len().div_ceil(2).min(into.free() + 1);
        let claimed = Ends { real: ends.real.wrapping_add(count as u16), ..ends };
        // Steal (2)
        // ORDERING: Acquire; pairs with the Release of each push, which published the slots before the tail. Relaxed on failure: not used.
        if self.shared.ends.compare_exchange(ends.pack(), claimed.pack(), Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return Steal::Lost;
        }
        // Steal (3)
        // SAFETY: CLAIMED: the swap just moved `real` over this index. FILLED: it was before the tail.
        let next = unsafe { self.shared.read(ends.real) };
        for offset in 1..count as u16 {
            // SAFETY: CLAIMED and FILLED, as above: `real` moved over `count` indices, all of them before the tail.
            let item = unsafe { self.shared.read(ends.real.wrapping_add(offset)) };
            let pushed = into.push(item);
            debug_assert!(pushed.is_ok(), "its room was counted, and only grows");
        }
        // Steal (4)
        self.shared.release();
        Steal::Taken { next, count }
    }

    /// Items inside that nobody has claimed.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.shared.len()
    }
}

impl<T> Shared<T> {
    #[inline]
    fn look(&self, order: Ordering) -> Ends {
        Ends::unpack(self.ends.load(order))
    }

    /// Makes of the word what `to` makes of it; returns what it was, or `None`, and leaves it, if `to` gives nothing.
    #[inline]
    fn claim(&self, order: Ordering, to: impl Fn(Ends) -> Option<Ends>) -> Option<Ends> {
        // ORDERING: Relaxed: retry value.
        let mut ends = self.look(Ordering::Relaxed);
        loop {
            let claimed = to(ends)?;
            // ORDERING: the caller's. Relaxed on failure: retry value.
            match self.ends.compare_exchange_weak(ends.pack(), claimed.pack(), order, Ordering::Relaxed) {
                Ok(_) => return Some(ends),
                Err(now) => ends = Ends::unpack(now),
            }
        }
    }

    /// Ends a steal: `steal = real`, wherever the owner has moved `real` meanwhile.
    fn release(&self) {
        // ORDERING: Release; pairs with the Acquire in `Producer::push`; publishes that the slots were read.
        self.claim(Ordering::Release, |ends| {
            debug_assert!(ends.has_thief(), "a steal ended twice");
            Some(Ends { steal: ends.real, ..ends })
        });
    }

    #[inline]
    fn len(&self) -> usize {
        // ORDERING: Acquire; a length that was published before a fence is seen after it, as the ring's is.
        self.look(Ordering::Acquire).len()
    }

    /// Moves the item of `index` out.
    ///
    /// # Safety
    ///
    /// CLAIMED by the caller, FILLED, and not read since.
    #[inline]
    unsafe fn read(&self, index: u16) -> T {
        // SAFETY: FILLED, by this function's contract, so the slot holds a valid T; CLAIMED, so nobody else reads or writes it.
        self.slot(index).with(|slot| unsafe { slot.cast::<T>().read() })
    }

    /// Moves `item` into the slot of `index`.
    ///
    /// # Safety
    ///
    /// ROOM for it, and the caller is the SOLE-PRODUCER.
    #[inline]
    unsafe fn write(&self, index: u16, item: T) {
        // SAFETY: ROOM and SOLE-PRODUCER, by this function's contract, so nobody else reads or writes the slot.
        self.slot(index).with_mut(|slot| unsafe { slot.cast::<T>().write(item) });
    }

    #[inline]
    fn slot(&self, index: u16) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[usize::from(index) & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Every end is gone, and a thief at work would hold one: `steal == real`.
        // ORDERING: Relaxed: `&mut self`.
        let ends = self.look(Ordering::Relaxed);
        for offset in 0..ends.len() as u16 {
            // SAFETY: FILLED: the index is between `real` and the tail. CLAIMED: `&mut self` excludes everybody else.
            drop(unsafe { self.read(ends.real.wrapping_add(offset)) });
        }
    }
}

// SAFETY: items are only moved in and out, each by one thread at a time (CLAIMED, ROOM), and never lent, so T: Send is enough.
unsafe impl<T: Send> Send for Shared<T> {}

// SAFETY: as for Send: a shared reference gives lengths, and items by value.
unsafe impl<T: Send> Sync for Shared<T> {}

impl Ends {
    #[inline]
    fn unpack(word: u64) -> Self {
        Self { steal: (word >> STEAL) as u16, real: (word >> REAL) as u16, tail: (word >> TAIL) as u16 }
    }

    #[inline]
    fn pack(self) -> u64 {
        u64::from(self.tail) << TAIL | u64::from(self.real) << REAL | u64::from(self.steal) << STEAL
    }

    #[inline]
    fn has_thief(self) -> bool {
        self.steal != self.real
    }

    #[inline]
    fn len(self) -> usize {
        usize::from(self.tail.wrapping_sub(self.real))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;
    use std::thread;

    use super::*;

    /// Items that go through the stack under threads; Miri is slow.
    const ITEMS: u32 = if cfg!(miri) { 500 } else { 300_000 };
    /// First indices: the usual one, and some from which the indices wrap at once.
    const FIRSTS: [u16; 4] = [0, u16::MAX - 9, u16::MAX - 1, u16::MAX];

    fn filled(capacity: usize, first: u16, items: u32) -> (Producer<u32>, Stealer<u32>) {
        let (mut producer, stealer) = stack_from(capacity, first);
        (0..items).for_each(|item| producer.push(item).unwrap());
        (producer, stealer)
    }

    fn oldest_first(producer: &mut Producer<u32>) -> Vec<u32> {
        std::iter::from_fn(|| producer.pop_oldest()).collect()
    }

    fn taken(thief: &mut ring::Producer<u32>) -> Vec<u32> {
        std::iter::from_fn(|| thief.pop()).collect()
    }

    #[test]
    fn it_does_what_a_deque_does() {
        for first in FIRSTS {
            for capacity in [2, 4, 256] {
                let (mut producer, stealer) = stack_from(capacity, first);
                let mut model = VecDeque::new();
                for item in 0..8 * capacity as u32 {
                    match item % 5 {
                        2 => assert_eq!(producer.pop_newest(), model.pop_back()),
                        4 => assert_eq!(producer.pop_oldest(), model.pop_front()),
                        _ => match producer.push(item) {
                            Ok(()) => model.push_back(item),
                            Err(back) => assert_eq!((back, model.len()), (item, capacity)),
                        },
                    }
                    assert_eq!((producer.len(), stealer.len()), (model.len(), model.len()));
                }
                while let Some(newest) = model.pop_back() {
                    assert_eq!(producer.pop_newest(), Some(newest));
                }
                assert_eq!((producer.pop_newest(), producer.pop_oldest()), (None, None));
            }
        }
    }

    #[test]
    fn the_largest_one_tells_full_from_empty() {
        // Miri takes minutes for the largest that there is.
        const LARGEST: usize = if cfg!(miri) { 64 } else { MAX_CAPACITY };
        let (mut producer, _stealer) = filled(LARGEST, u16::MAX - 5, LARGEST as u32);
        assert_eq!((producer.push(9), producer.len()), (Err(9), LARGEST));
        assert_eq!((producer.pop_oldest(), producer.pop_newest()), (Some(0), Some(LARGEST as u32 - 1)));
        while producer.pop_oldest().is_some() {}
        assert_eq!(producer.len(), 0);
    }

    #[test]
    fn a_thief_takes_half_rounded_up_oldest_first() {
        for first in FIRSTS {
            for items in 1..=8 {
                let (mut victim, stealer) = filled(8, first, items);
                let (mut thief, _) = ring::ring(8);
                let half = items.div_ceil(2);
                assert_eq!(stealer.steal_into(&mut thief), Steal::Taken { next: 0, count: half as usize });
                assert_eq!(taken(&mut thief), (1..half).collect::<Vec<_>>());
                assert_eq!(oldest_first(&mut victim), (half..items).collect::<Vec<_>>());
                assert_eq!(stealer.steal_into(&mut thief), Steal::Empty);
            }
        }
    }

    #[test]
    fn a_thief_takes_no_more_than_fits_into_its_own_ring() {
        for (inside, count) in [(0, 4), (1, 4), (2, 3), (3, 2), (4, 1)] {
            let (mut victim, stealer) = filled(8, u16::MAX - 2, 8);
            let (mut thief, _) = ring::ring(4);
            (0..inside).for_each(|item| thief.push(item).unwrap());
            assert_eq!(stealer.steal_into(&mut thief), Steal::Taken { next: 0, count });
            assert_eq!(thief.len(), inside as usize + count - 1);
            assert_eq!(oldest_first(&mut victim).len(), 8 - count);
        }
    }

    #[test]
    fn while_a_thief_is_at_work_the_owner_goes_on_and_nobody_else_takes() {
        for first in FIRSTS {
            let (mut victim, stealer) = filled(8, first, 8);
            let (mut thief, _) = ring::ring(8);
            // One that has claimed four, and has not finished.
            victim.shared.claim(Ordering::Relaxed, |ends| Some(Ends { real: ends.real.wrapping_add(4), ..ends }));
            assert_eq!(stealer.steal_into(&mut thief), Steal::Lost);
            assert_eq!(victim.pop_oldest(), Some(4), "the four before are the thief's");
            assert_eq!(victim.push(8), Err(8), "the thief may still read the slots");
            assert_eq!(victim.pop_newest(), Some(7));
            assert_eq!((victim.push(9), victim.push(10)), (Ok(()), Err(10)), "what the owner took is free");
            victim.shared.release();
            assert_eq!((victim.len(), victim.push(11)), (3, Ok(())));
            assert_eq!(stealer.steal_into(&mut thief), Steal::Taken { next: 5, count: 2 });
            assert_eq!((taken(&mut thief), oldest_first(&mut victim)), (vec![6], vec![9, 11]));
        }
    }

    #[test]
    fn what_is_left_inside_is_dropped_once() {
        let alive = Arc::new(());
        let (mut producer, stealer) = stack_from(8, u16::MAX - 3);
        (0..8).for_each(|_| producer.push(alive.clone()).unwrap());
        drop((producer.pop_newest(), producer.pop_oldest()));
        assert_eq!(Arc::strong_count(&alive), 7);
        drop(producer);
        assert_eq!(Arc::strong_count(&alive), 7, "a thief may still take them");
        drop(stealer);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    #[should_panic(expected = "capacity of a stack is 65536")]
    fn a_capacity_that_the_indices_do_not_tell_apart_is_refused() {
        let _ = stack::<u32>(65_536);
    }

    /// An owner that pushes and pops at both ends, and thieves: each item comes out once.
    #[test]
    fn every_item_comes_out_once_under_threads() {
        const THIEVES: usize = 3;
        for capacity in [2, 16, 256] {
            let (mut owner, stealer) = stack_from::<Box<u32>>(capacity, u16::MAX - 7);
            let is_over = std::sync::atomic::AtomicBool::new(false);
            let mut seen = vec![0_u8; ITEMS as usize];
            thread::scope(|scope| {
                let (stealer, is_over) = (&stealer, &is_over);
                let thieves: Vec<_> = (0..THIEVES)
                    .map(|_| {
                        scope.spawn(move || {
                            let (mut own, _) = ring::ring(capacity);
                            let mut taken = Vec::new();
                            loop {
                                let over_before = is_over.load(Ordering::Acquire);
                                match stealer.steal_into(&mut own) {
                                    Steal::Taken { next, .. } => {
                                        taken.push(*next);
                                        taken.extend(std::iter::from_fn(|| own.pop()).map(|item| *item));
                                    }
                                    Steal::Empty if over_before => return taken,
                                    Steal::Empty | Steal::Lost => thread::yield_now(),
                                }
                            }
                        })
                    })
                    .collect();
                let mut taken = Vec::new();
                for item in 0..ITEMS {
                    let mut item = Box::new(item);
                    while let Err(back) = owner.push(item) {
                        item = back;
                        taken.extend(owner.pop_oldest().map(|item| *item));
                    }
                    if taken.len() % 3 == 0 {
                        taken.extend(owner.pop_newest().map(|item| *item));
                    }
                }
                taken.extend(std::iter::from_fn(|| owner.pop_newest()).map(|item| *item));
                is_over.store(true, Ordering::Release);
                let stolen = thieves.into_iter().flat_map(|thief| thief.join().unwrap());
                taken.into_iter().chain(stolen).for_each(|item| seen[item as usize] += 1);
            });
            assert!(seen.iter().all(|&times| times == 1), "an item was lost or came out twice");
            assert_eq!(owner.len(), 0);
        }
    }
}
