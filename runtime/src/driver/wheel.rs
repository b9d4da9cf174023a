//! A hashed hierarchical timing wheel: 6 levels of 64 slots, one tick (160 µs) a slot at the lowest level.
//!
//! Shape. Ticks are absolute, 64 bits, cut into groups of 6 bits. An entry lies on the level of the highest group in which its
//! tick differs from `elapsed`, in the slot that this group of its tick names:
//!
//! ```text
//! tick     | 28 bits: beyond | level 5 | level 4 | level 3 | level 2 | level 1 | level 0 |
//! one slot |        -        | 48 h    | 45 min  | 42 s    | 655 ms  | 10 ms   | 160 µs  |
//! ```
//! Entries that differ above level 5 (over 127 days ahead, or across that boundary) wait in one list of their own, `BEYOND`.
//! Entries live in a slab and are linked, in both directions, by their indices in it; a slot is the two ends of such a list.
//!
//! Who writes, who reads: whoever holds the lock of `Timers`; the wheel itself knows no clock, no lock and no waker.
//!
//! A slot of a higher level is emptied entry by entry (a *cascade*), and a caller may stop in the midst of it: a million timers of one
//! slot must not keep the lock for as long as it takes to move them all.
//!
//! Invariants. *Placed*: between two calls every entry lies where `place(elapsed, tick)` says, but for those that a cascade has yet
//! to move. It follows that all entries of a level are due before all entries of the levels above it, that on each level the lowest
//! occupied slot is the earliest, and that slots never wrap. *One cascade*: while a slot is emptied, `elapsed` is its start, nothing
//! is added to it, and nothing is handed out. *Bound*: a slot's `earliest` is never later than any tick in it (removal may leave it
//! too early: that costs a look, never a late timer). *Forward*: `elapsed` only grows and never passes an occupied slot that was not
//! emptied.
//!
//! Protocol of `pop_due(now, work)`: (1) take the slot that is being emptied, else the earliest occupied one; (2) if it starts after
//! `now`, move `elapsed` to `now` and stop; (3) if `work` is used up, stop; (4) move `elapsed` to its start; (5) on level 0 hand out
//! its oldest entry; (6) on a higher level place its oldest entry anew, now at least one level lower, and begin again. The list
//! `BEYOND` has a second one beside it: what a cascade of the one finds to be beyond the levels still goes to the other.
//!
//! Rejected: a binary heap (cancelling is what most timers end in, and a heap does it in O(log n) or leaves corpses); keying
//! slots by the time that is left instead of by absolute ticks (an entry is then right only for a wheel that starts at 0 and
//! never stalls).
//!
//! Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987, scheme 7.

/// Bits of a tick that one level decides.
const LEVEL_BITS: u32 = 6;
/// Slots of a level: as many as a word of the occupancy bitmap has bits.
const SLOTS: usize = 1 << LEVEL_BITS;
/// Levels.
const LEVELS: usize = 6;
/// Ticks that the levels span together: 127 days.
const SPAN_BITS: u32 = LEVEL_BITS * LEVELS as u32;
/// The first of two lists for entries that the levels cannot hold, behind the slots of the last level.
const BEYOND: usize = LEVELS * SLOTS;
/// Slots of all levels, and the two lists.
const PLACES: usize = BEYOND + 2;
/// "No entry" in a link.
const NONE: u32 = u32::MAX;

const _: () = assert!(SLOTS == u64::BITS as usize);

/// Names an entry; stale once the entry was handed out or removed, and then refers to nothing, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    /// How many entries were inserted before it: 64 bits do not come round.
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

/// The wheel; `T` is what an entry carries.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// Every tick up to here, exclusive of itself, was handed out.
    elapsed: u64,
    /// Bit `s` of word `l` is set while slot `s` of level `l` holds an entry.
    occupied: [u64; LEVELS],
    slots: Box<[Slot; PLACES]>,
    /// Which of the two lists takes what is beyond the levels.
    beyond: usize,
    /// The place that is being emptied; it holds an entry then. See *One cascade*.
    cascading: Option<usize>,
    entries: slab::Slab<Entry<T>>,
    next_serial: u64,
    /// Entries that cascades have moved.
    #[cfg(test)]
    moves: usize,
}

impl<T> Wheel<T> {
    /// An empty wheel that begins at tick `now`.
    pub(crate) fn new(now: u64) -> Self {
        Self {
            elapsed: now,
            occupied: [0; LEVELS],
            slots: Box::new([Slot { head: NONE, tail: NONE, earliest: 0 }; PLACES]),
            beyond: BEYOND,
            cascading: None,
            entries: slab::Slab::new(),
            next_serial: 0,
            #[cfg(test)]
            moves: 0,
        }
    }

    /// Entries in it.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry due at `tick`; one that has passed is due at once.
    ///
    /// # Panics
    /// With 2^32 - 1 entries in it.
    pub(crate) fn insert(&mut self, tick: u64, payload: T) -> Key {
        let serial = self.next_serial;
        self.next_serial += 1;
        let entry = Entry { serial, tick, place: BEYOND, previous: NONE, next: NONE, payload };
        let index = u32::try_from(self.entries.insert(entry)).ok().filter(|&index| index != NONE);
        let index = index.expect("too many timers: the limit is 4,294,967,295");
        self.link(index);
        Key { index, serial }
    }

    /// Takes an entry out; `None` if it is no longer in.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        Some(self.take(key.index).payload)
    }

    /// Moves an entry to another tick; whether it was still in.
    pub(crate) fn reschedule(&mut self, key: Key, tick: u64) -> bool {
        if self.get(key).is_none() {
            return false;
        }
        self.unlink(key.index);
        self.entry_mut(key.index).tick = tick;
        self.link(key.index);
        true
    }

    /// What the entry carries, to be changed; `None` if it is no longer in.
    pub(crate) fn payload_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        (entry.serial == key.serial).then_some(&mut entry.payload)
    }

    /// A tick that is not later than the earliest entry's; exact unless that slot lost its earliest entry by removal.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        let of = |place: usize| self.slots[place].earliest;
        // Of a slot that is being emptied some entries are on lower levels already, and others were added there.
        let placed = self.earliest_placed().map(|(place, _)| of(place));
        self.cascading.map(of).into_iter().chain(placed).min()
    }

    /// Hands out one entry that is due at `now`, in order of ticks; `None` when no more is due, or when `work` is used up. Each entry
    /// that is handed out or moved to another slot is a unit of work. See the protocol above.
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

    /// Every entry, in no particular order.
    pub(crate) fn into_payloads(self) -> impl Iterator<Item = T> {
        self.entries.into_iter().map(|(_, entry)| entry.payload)
    }

    /// Of the entries that are where they belong, the slot of the earliest and the tick at which it begins: by *Placed* the lowest slot
    /// of the lowest level.
    fn earliest_placed(&self) -> Option<(usize, u64)> {
        if let Some(level) = self.occupied.iter().position(|&word| word != 0) {
            let slot = self.occupied[level].trailing_zeros() as usize;
            let shift = LEVEL_BITS * level as u32;
            let above = self.elapsed & !((1 << (shift + LEVEL_BITS)) - 1);
            return Some((level * SLOTS + slot, above | (slot as u64) << shift));
        }
        // Nothing within the span. What lies beyond is looked at when the span that holds the earliest of it begins.
        let beyond = &self.slots[self.beyond];
        (beyond.head != NONE).then_some((self.beyond, (beyond.earliest >> SPAN_BITS) << SPAN_BITS))
    }

    /// Appends an entry to the slot where *Placed* wants it.
    fn link(&mut self, index: u32) {
        let tick = self.entry_mut(index).tick.max(self.elapsed);
        let place = place(self.elapsed, tick).unwrap_or(self.beyond);
        debug_assert_ne!(Some(place), self.cascading, "One cascade: nothing is added to the slot that is emptied");
        let tail = self.slots[place].tail;
        let entry = self.entry_mut(index);
        (entry.place, entry.previous, entry.next) = (place, tail, NONE);
        let slot = &mut self.slots[place];
        slot.tail = index;
        if tail == NONE {
            (slot.head, slot.earliest) = (index, tick);
        } else {
            slot.earliest = slot.earliest.min(tick);
            self.entry_mut(tail).next = index;
        }
        if place < BEYOND {
            self.occupied[place / SLOTS] |= 1 << (place % SLOTS);
        }
    }

    fn unlink(&mut self, index: u32) {
        let entry = self.entry_mut(index);
        let (place, previous, next) = (entry.place, entry.previous, entry.next);
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
        self.unlink(index);
        self.entries.remove(index as usize)
    }

    fn get(&self, key: Key) -> Option<&Entry<T>> {
        self.entries.get(key.index as usize).filter(|entry| entry.serial == key.serial)
    }

    fn entry_mut(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.entries[index as usize]
    }
}

/// Where an entry due at `tick`, not before `elapsed`, belongs; `None` = beyond the levels.
fn place(elapsed: u64, tick: u64) -> Option<usize> {
    // The lowest group is set so that equal ticks, too, give level 0.
    let differing = (elapsed ^ tick) | (SLOTS as u64 - 1);
    let level = (u64::BITS - 1 - differing.leading_zeros()) / LEVEL_BITS;
    if level as usize >= LEVELS {
        return None;
    }
    let slot = (tick >> (LEVEL_BITS * level)) as usize % SLOTS;
    Some(level as usize * SLOTS + slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, HashMap};

    /// xorshift64*; the seed is printed by the test that fails.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
        }

        fn below(&mut self, bound: u64) -> u64 {
            self.next() % bound
        }

        /// A distance of random magnitude: as many short ones as long ones, now and then longer than the wheel.
        fn distance(&mut self) -> u64 {
            let bits = self.below(40);
            self.below(1 << bits)
        }
    }

    impl<T> Wheel<T> {
        /// Without a limit to the work.
        fn pop(&mut self, now: u64) -> Option<T> {
            let mut work = usize::MAX;
            self.pop_due(now, &mut work)
        }
    }

    /// What the wheel must do, done slowly: a heap of (tick, id), with removed ids looked up in a map.
    #[derive(Default)]
    struct Model {
        heap: BinaryHeap<Reverse<(u64, u64)>>,
        ticks: HashMap<u64, u64>,
    }

    impl Model {
        fn earliest(&mut self) -> Option<u64> {
            while let Some(&Reverse((tick, id))) = self.heap.peek() {
                if self.ticks.get(&id) == Some(&tick) {
                    return Some(tick);
                }
                self.heap.pop();
            }
            None
        }

        fn set(&mut self, id: u64, tick: u64) {
            self.ticks.insert(id, tick);
            self.heap.push(Reverse((tick, id)));
        }
    }

    #[test]
    fn the_wheel_agrees_with_a_binary_heap_whatever_the_start_and_the_stalls() {
        for seed in 1..=300_u64 {
            println!("seed {seed}");
            let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let start_bits = random.below(50);
            agrees_with_a_heap(&mut random, start_bits);
        }
    }

    fn agrees_with_a_heap(random: &mut Random, start_bits: u64) {
        // Half of the starts lie just before a boundary of a high group, where carries go far.
        let boundary = (1_u64 << start_bits).saturating_sub(random.below(80));
        let mut now = if random.below(2) == 0 { boundary } else { random.below(1 << 50) };
        let mut wheel = Wheel::new(now);
        let mut model = Model::default();
        let mut keys: Vec<(u64, Key)> = Vec::new();
        for id in 0..400_u64 {
            match random.below(10) {
                0..=4 => {
                    let tick = (now + random.distance()).saturating_sub(random.below(3));
                    keys.push((id, wheel.insert(tick, id)));
                    model.set(id, tick);
                }
                5 if !keys.is_empty() => {
                    let (removed, key) = keys.swap_remove(random.below(keys.len() as u64) as usize);
                    let was_in = model.ticks.remove(&removed).is_some();
                    assert_eq!(wheel.remove(key), was_in.then_some(removed));
                    assert_eq!(wheel.remove(key), None, "a stale key names nothing");
                }
                6 if !keys.is_empty() => {
                    let (moved, key) = keys[random.below(keys.len() as u64) as usize];
                    let tick = now + random.distance();
                    let was_in = model.ticks.contains_key(&moved);
                    assert_eq!(wheel.reschedule(key, tick), was_in);
                    if was_in {
                        model.set(moved, tick);
                    }
                }
                // A stall now and then: the clock jumps over any number of slots.
                _ => now += if random.below(8) == 0 { random.distance() } else { random.below(20) },
            }
            let earliest = model.earliest();
            match (wheel.next_tick(), earliest) {
                (None, None) => {}
                (Some(bound), Some(earliest)) => assert!(bound <= earliest.max(wheel.elapsed)),
                other => panic!("one is empty: {other:?}"),
            }
            if random.below(3) != 0 {
                let mut last = 0;
                // Half of the times all work that there is, else a few units a call.
                let limit = if random.below(2) == 0 { usize::MAX } else { random.below(6) as usize };
                let mut limits = std::iter::repeat(limit);
                // Sometimes only a few are taken, and the wheel is used in that state.
                for _ in 0..(if random.below(4) == 0 { 2 } else { usize::MAX }) {
                    let mut work = limits.next().unwrap();
                    let Some(fired) = wheel.pop_due(now, &mut work) else {
                        if work == 0 {
                            // Stopped in the midst: the wheel is used in that state.
                            break;
                        }
                        assert!(model.earliest().is_none_or(|tick| tick > now), "one that is due was not handed out");
                        break;
                    };
                    let tick = model.ticks.remove(&fired).expect("handed out twice, or after its removal");
                    assert!(tick <= now, "early: due at {tick}, handed out at {now}");
                    assert!(tick >= last || tick <= wheel.elapsed, "out of order");
                    last = tick;
                }
            }
            assert_eq!(wheel.len(), model.ticks.len());
        }
        // Everything comes in the end, and nothing else.
        while let Some(tick) = wheel.next_tick() {
            now = now.max(tick);
            while let Some(fired) = wheel.pop(now) {
                assert!(model.ticks.remove(&fired).expect("handed out twice") <= now);
            }
        }
        assert!(model.ticks.is_empty(), "lost: {:?}", model.ticks);
    }

    #[test]
    fn no_call_moves_more_entries_than_it_may() {
        const ENTRIES: u64 = 100_000;
        const WORK: usize = 256;
        let mut wheel = Wheel::new(0);
        // One slot of level 3, another one beyond the levels, and what is added in the midst of a cascade.
        let begins = [1 << (3 * LEVEL_BITS), 1 << SPAN_BITS];
        for (round, begin) in begins.into_iter().enumerate() {
            for id in 0..ENTRIES {
                wheel.insert(begin + id, id);
            }
            let place_of_all = place(wheel.elapsed, begin);
            assert_eq!(place_of_all, place(wheel.elapsed, begin + ENTRIES - 1), "they are in one slot");
            let mut calls = 0;
            let mut due = 0;
            while wheel.len() > 0 {
                let (before, mut work) = (wheel.moves, WORK);
                while wheel.pop_due(begin + ENTRIES, &mut work).is_some() {
                    due += 1;
                }
                assert!(wheel.moves - before <= WORK, "{} entries were moved in one call", wheel.moves - before);
                calls += 1;
                if calls % 100 == 0 {
                    let key = wheel.insert(begin + ENTRIES / 2, 0);
                    assert_eq!(wheel.remove(key), Some(0));
                }
            }
            assert_eq!(due, ENTRIES, "round {round}");
            // Each entry is moved at least once before it is handed out.
            assert!(calls as u64 >= 2 * ENTRIES / WORK as u64, "{calls} calls");
        }
    }

    #[test]
    fn entries_of_one_tick_come_in_the_order_of_their_insertion() {
        let mut wheel = Wheel::new(7);
        for id in 0..10 {
            wheel.insert(5_000, id);
        }
        assert_eq!(wheel.next_tick(), Some(5_000), "exact, though the slot is 4 s wide");
        assert_eq!(wheel.pop(4_999), None);
        for id in 0..10 {
            assert_eq!(wheel.pop(5_000), Some(id));
        }
        assert_eq!(wheel.pop(u64::MAX), None);
    }

    #[test]
    fn a_stale_key_does_not_name_the_entry_that_got_its_index() {
        let mut wheel = Wheel::new(0);
        let stale = wheel.insert(1, "first");
        assert_eq!(wheel.pop(1), Some("first"));
        let key = wheel.insert(2, "second");
        assert_eq!(stale.index, key.index, "the index was not used again, the test tests nothing");
        assert_eq!(wheel.payload_mut(stale), None);
        assert!(!wheel.reschedule(stale, 3));
        assert_eq!(wheel.remove(stale), None);
        assert_eq!(wheel.remove(key), Some("second"));
    }

    #[test]
    fn the_latest_tick_there_is_can_be_set_and_comes_last() {
        let mut wheel = Wheel::new(3);
        wheel.insert(u64::MAX, "never");
        wheel.insert(1 << SPAN_BITS, "beyond the span");
        wheel.insert(10, "soon");
        assert_eq!(wheel.pop(10), Some("soon"));
        assert_eq!(wheel.pop((1 << SPAN_BITS) - 1), None);
        assert_eq!(wheel.pop(1 << SPAN_BITS), Some("beyond the span"));
        assert_eq!(wheel.pop(u64::MAX - 1), None);
        assert_eq!(wheel.pop(u64::MAX), Some("never"));
    }

    #[test]
    fn a_stall_of_a_second_costs_a_look_a_level_and_not_a_look_a_tick() {
        let mut wheel = Wheel::new(0);
        wheel.insert(1 << 35, ());
        assert_eq!(wheel.pop((1 << 35) - 1), None);
        assert_eq!(wheel.elapsed, (1 << 35) - 1, "the wheel goes straight to now");
        assert_eq!(wheel.pop(1 << 35), Some(()));
    }
}
