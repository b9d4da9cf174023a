//! A hashed hierarchical timing wheel: the data structure in which a runtime keeps its timers.
//!
//! `driver::timers` uses it, under its lock; the wheel itself contains no clock, no lock and no
//! waker. It has 6 levels of 64 slots. A slot of the lowest level spans one tick (160 µs), a slot
//! of each further level 64 times as much as one of the level below. Inserting, moving and removing
//! an entry take constant time.
//!
//! An ordinary case. A timer that is due in 50 ms lies in a slot of level 1, which spans 10 ms.
//! When that slot's time begins, its entries move to slots of level 0. This is a *cascade*. At its
//! tick, the timer is taken out of its slot of level 0 and fires.
//!
//! Shape. Ticks are absolute, 64 bits, cut into groups of 6 bits. An entry lies on the level of the
//! highest group in which its tick differs from `elapsed`. The value of that group in its tick is
//! the number of its slot:
//!
//! ```text
//! tick     | 28 bits: beyond | level 5 | level 4 | level 3 | level 2 | level 1 | level 0 |
//! one slot |        -        | 48 h    | 45 min  | 42 s    | 655 ms  | 10 ms   | 160 µs  |
//! ```
//! Entries that differ above level 5 (over 127 days ahead, or across that boundary) wait in a
//! separate list, `BEYOND`. Entries are stored in a slab and doubly linked by their indices in it.
//! A slot is the two ends of such a list.
//!
//! A cascade moves entry by entry, and a caller may stop in the middle of it. A million timers in
//! one slot must not keep the lock taken for as long as it takes to move them all.
//!
//! Invariants:
//! * *Placed*: between two calls every entry lies where `place(elapsed, tick)` puts it, except
//!   those that a cascade has yet to move. It follows that all entries of a level are due before
//!   all entries of the levels above it, that on each level the lowest occupied slot is the
//!   earliest, and that slots never wrap.
//! * *One cascade*: while a slot is emptied, `elapsed` is its start, nothing is added to it, and no
//!   entry is returned.
//! * *Bound*: a slot's `earliest` is never later than any tick in it. Removal may leave it too
//!   early; that costs a check, never a late timer.
//! * *Forward*: `elapsed` only grows and never passes an occupied slot that was not emptied.
//!
//! Protocol of `pop_due(now, work)`: (1) take the slot that is being emptied, else the earliest
//! occupied one; (2) if it starts after `now`, move `elapsed` to `now` and stop; (3) if `work` is
//! used up, stop; (4) move `elapsed` to its start; (5) on level 0 return its oldest entry; (6) on a
//! higher level place its oldest entry anew, now at least one level lower, and begin again. There
//! are two lists `BEYOND`. While a cascade empties one of them, entries that are still beyond the
//! levels go to the other.
//!
//! Rejected:
//! * A binary heap: most timers are cancelled, which a heap does in O(log n) or by leaving dead
//!   entries.
//! * Choosing slots by the remaining time instead of by absolute ticks: an entry is then right only
//!   for a wheel that starts at 0 and never stalls.
//!
//! Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987, scheme 7.

/// Bits of a tick per level.
const LEVEL_BITS: u32 = 6;
/// Slots per level: as many as a word of the occupancy bitmap has bits.
const SLOTS: usize = 1 << LEVEL_BITS;
/// Number of levels.
const LEVELS: usize = 6;
/// Bits of a tick in all levels together, which span 127 days.
const SPAN_BITS: u32 = LEVEL_BITS * LEVELS as u32;
/// The first of two lists for entries beyond the levels. It comes after the slots of the last
/// level.
const BEYOND: usize = LEVELS * SLOTS;
/// Number of slots of all levels, plus the two lists.
const PLACES: usize = BEYOND + 2;
/// In a link: no entry.
const NONE: u32 = u32::MAX;

const _: () = assert!(SLOTS == u64::BITS as usize);

/// Identifies an entry. Once that entry was returned or removed, the key never refers to any entry
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    /// How many entries were inserted before it. 64 bits do not wrap around.
    serial: u64,
}

#[derive(Debug)]
struct Entry<T> {
    serial: u64,
    tick: u64,
    /// Level * 64 + slot, or one of the lists from `BEYOND` on.
    place: usize,
    previous: u32,
    next: u32,
    payload: T,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    head: u32,
    tail: u32,
    /// See *Bound*; meaningless while the slot is empty.
    earliest: u64,
}

const EMPTY: Slot = Slot { head: NONE, tail: NONE, earliest: 0 };

/// The wheel. `T` is the payload of an entry.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// Entries of all ticks before this one were returned.
    elapsed: u64,
    /// Bit `s` of word `l` is set while slot `s` of level `l` holds an entry.
    occupied: [u64; LEVELS],
    slots: Box<[Slot; PLACES]>,
    /// The list that takes new entries beyond the levels.
    beyond: usize,
    /// The place that is being emptied. It is not empty. See *One cascade*.
    cascading: Option<usize>,
    entries: slab::Slab<Entry<T>>,
    next_serial: u64,
    /// Entries moved by cascades.
    #[cfg(test)]
    moves: usize,
}

impl<T> Wheel<T> {
    /// Creates an empty wheel that begins at tick `now`.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            elapsed: now,
            occupied: [0; LEVELS],
            // Not `Box::new`, which would copy the array from the stack.
            slots: vec![EMPTY; PLACES].into_boxed_slice().try_into().expect("it has that length"),
            beyond: BEYOND,
            cascading: None,
            entries: slab::Slab::new(),
            next_serial: 0,
            #[cfg(test)]
            moves: 0,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Inserts an entry due at `tick`. If that tick has passed, the entry is due immediately.
    ///
    /// # Panics
    /// Panics if the wheel contains 2^32 - 1 entries.
    // It has one caller. Without this, the payload would be copied once more.
    #[inline(always)]
    pub(crate) fn insert(&mut self, tick: u64, payload: T) -> Key {
        let serial = self.next_serial;
        self.next_serial += 1;
        let due = tick.max(self.elapsed);
        let (place, previous) = self.tail_for(due);
        let entry = Entry { serial, tick, place, previous, next: NONE, payload };
        let index = u32::try_from(self.entries.insert(entry)).ok().filter(|&index| index != NONE);
        let index = index.expect("too many timers: the limit is 4,294,967,295");
        self.append(index, place, previous, due);
        Key { index, serial }
    }

    /// Removes an entry. Returns `None` if it is no longer in the wheel.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        Some(self.take(key.index).payload)
    }

    /// Moves an entry to another tick. Returns false if it is no longer in the wheel.
    pub(crate) fn reschedule(&mut self, key: Key, tick: u64) -> bool {
        if self.get(key).is_none() {
            return false;
        }
        self.unlink(key.index);
        self.entry_mut(key.index).tick = tick;
        self.link(key.index);
        true
    }

    /// Returns the payload of an entry, `None` if it is no longer in the wheel.
    pub(crate) fn payload_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        (entry.serial == key.serial).then_some(&mut entry.payload)
    }

    /// Returns a tick that is not later than that of the earliest entry. It is exact unless that
    /// entry's slot lost its earliest entry by removal.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        let of = |place: usize| self.slots[place].earliest;
        // While a slot is being emptied, some of its entries are already on lower levels, where
        // others were added.
        let placed = self.earliest_placed().map(|(place, _)| of(place));
        self.cascading.map(of).into_iter().chain(placed).min()
    }

    /// Returns one entry that is due at `now`, in order of ticks; `None` if no more are due, or if
    /// `work` is used up. Each entry that is returned or moved to another slot uses one unit of
    /// work. See the protocol above.
    pub(crate) fn pop_due(&mut self, now: u64, work: &mut usize) -> Option<T> {
        loop {
            let slot = self.cascading.map(|place| (place, self.elapsed)).or_else(|| self.earliest_placed());
            let Some((place, start)) = slot.filter(|&(_, start)| start <= now) else {
                self.elapsed = self.elapsed.max(now);
                return None;
            };
            debug_assert!(start >= self.elapsed, "Forward: {start} lies before {}", self.elapsed);
            *work = work.checked_sub(1)?;
            self.elapsed = start;
            let head = self.slots[place].head;
            if place < SLOTS {
                return Some(self.take(head).payload);
            }
            if self.cascading.is_none() {
                self.cascading = Some(place);
                if place >= BEYOND {
                    self.beyond = if place == BEYOND { BEYOND + 1 } else { BEYOND };
                }
            }
            self.unlink(head);
            self.link(head);
            #[cfg(test)]
            (self.moves += 1);
        }
    }

    /// Removes all entries. Returns their payloads, in no particular order.
    pub(crate) fn take_payloads(&mut self) -> impl Iterator<Item = T> + use<T> {
        if self.len() > 0 {
            self.slots.fill(EMPTY);
            self.occupied = [0; LEVELS];
            self.cascading = None;
        }
        std::mem::take(&mut self.entries).into_iter().map(|(_, entry)| entry.payload)
    }

    /// Returns the slot of the earliest entry among those not being moved by a cascade, and the
    /// tick at which the slot begins. By *Placed* it is the lowest slot of the lowest level.
    fn earliest_placed(&self) -> Option<(usize, u64)> {
        if let Some(level) = self.occupied.iter().position(|&word| word != 0) {
            let slot = self.occupied[level].trailing_zeros() as usize;
            let shift = LEVEL_BITS * level as u32;
            let above = self.elapsed & !((1 << (shift + LEVEL_BITS)) - 1);
            return Some((level * SLOTS + slot, above | (slot as u64) << shift));
        }
        // Nothing within the span. Entries beyond it are checked when the span that contains the
        // earliest of them begins.
        let beyond = &self.slots[self.beyond];
        (beyond.head != NONE).then_some((self.beyond, (beyond.earliest >> SPAN_BITS) << SPAN_BITS))
    }

    /// Appends an entry to its slot according to *Placed*.
    fn link(&mut self, index: u32) {
        let due = self.entry_mut(index).tick.max(self.elapsed);
        let (place, previous) = self.tail_for(due);
        let entry = self.entry_mut(index);
        (entry.place, entry.previous, entry.next) = (place, previous, NONE);
        self.append(index, place, previous, due);
    }

    /// Returns the place for an entry due at `due`, and the last entry there.
    #[inline]
    fn tail_for(&self, due: u64) -> (usize, u32) {
        let place = place(self.elapsed, due).unwrap_or(self.beyond);
        debug_assert_ne!(Some(place), self.cascading, "One cascade: nothing is added to the slot that is emptied");
        (place, self.slots[place].tail)
    }

    /// Appends an entry due at `due` to its place after `previous`, which the entry refers to.
    #[inline]
    fn append(&mut self, index: u32, place: usize, previous: u32, due: u64) {
        let slot = &mut self.slots[place];
        slot.tail = index;
        if previous == NONE {
            (slot.head, slot.earliest) = (index, due);
        } else {
            slot.earliest = slot.earliest.min(due);
            self.entry_mut(previous).next = index;
        }
        if place < BEYOND {
            self.occupied[place / SLOTS] |= 1 << (place % SLOTS);
        }
    }

    fn unlink(&mut self, index: u32) {
        let entry = self.entry_mut(index);
        let (place, previous, next) = (entry.place, entry.previous, entry.next);
        self.close_gap(place, previous, next);
    }

    /// Removes an entry with these neighbours from the list of its place.
    #[inline]
    fn close_gap(&mut self, place: usize, previous: u32, next: u32) {
        match previous {
            NONE => self.slots[place].head = next,
            _ => self.entry_mut(previous).next = next,
        }
        match next {
            NONE => self.slots[place].tail = previous,
            _ => self.entry_mut(next).previous = previous,
        }
        if self.slots[place].head == NONE {
            if place < BEYOND {
                self.occupied[place / SLOTS] &= !(1 << (place % SLOTS));
            }
            self.cascading = self.cascading.filter(|&cascading| cascading != place);
        }
    }

    fn take(&mut self, index: u32) -> Entry<T> {
        let entry = self.entries.remove(index as usize);
        self.close_gap(entry.place, entry.previous, entry.next);
        entry
    }

    fn get(&self, key: Key) -> Option<&Entry<T>> {
        self.entries.get(key.index as usize).filter(|entry| entry.serial == key.serial)
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.entries[index as usize]
    }
}

/// Returns the place of an entry due at `tick`, which is not before `elapsed`; `None`: beyond the
/// levels.
fn place(elapsed: u64, tick: u64) -> Option<usize> {
    // The bits of the lowest group are set, so that equal ticks give level 0 too.
    let differing = (elapsed ^ tick) | (SLOTS as u64 - 1);
    let level = (u64::BITS - 1 - differing.leading_zeros()) / LEVEL_BITS;
    if level as usize >= LEVELS {
        return None;
    }
    let slot = (tick >> (LEVEL_BITS * level)) as usize % SLOTS;
    Some(level as usize * SLOTS + slot)
}

#[cfg(test)]
mod tests;
