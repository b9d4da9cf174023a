//! Tests of the timer wheel, in random runs against a binary heap and at its limits.

use super::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// xorshift64*. A failing test prints the seed.
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

    /// Returns a distance of random magnitude: short ones as often as long ones, and now and then
    /// longer than the span of the wheel.
    fn distance(&mut self) -> u64 {
        let bits = self.below(40);
        self.below(1 << bits)
    }
}

impl<T> Wheel<T> {
    /// Pops without a limit to the work.
    fn pop(&mut self, now: u64) -> Option<T> {
        let mut work = usize::MAX;
        self.pop_due(now, &mut work)
    }
}

/// The expected behaviour of the wheel, in a slow implementation: a heap of (tick, id), with
/// removed ids looked up in a map.
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
fn the_timer_wheel_matches_a_binary_heap_in_random_runs() {
    for seed in 1..=300_u64 {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let start_bits = random.below(50);
        agrees_with_a_heap(&mut random, start_bits);
    }
}

fn agrees_with_a_heap(random: &mut Random, start_bits: u64) {
    // Half of the starts are just before a boundary of a high group, where carries go far.
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
            // Now and then a stall: the clock jumps over any number of slots.
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
            // In half of the cases unlimited work, otherwise a few units per call.
            let limit = if random.below(2) == 0 { usize::MAX } else { random.below(6) as usize };
            let mut limits = std::iter::repeat(limit);
            // Sometimes only a few are taken, and the wheel is used in that state.
            for _ in 0..(if random.below(4) == 0 { 2 } else { usize::MAX }) {
                let (mut work, elapsed) = (limits.next().unwrap(), wheel.elapsed);
                let Some(fired) = wheel.pop_due(now, &mut work) else {
                    if work == 0 {
                        // Stopped in the middle: the wheel is used in that state.
                        break;
                    }
                    assert!(model.earliest().is_none_or(|tick| tick > now), "one that is due was not handed out");
                    break;
                };
                let tick = model.ticks.remove(&fired).expect("handed out twice, or after its removal");
                assert!(tick <= now, "early: due at {tick}, handed out at {now}");
                // One that was due before the call comes whenever it is found.
                assert!(tick >= last || tick <= elapsed, "out of order: {tick} after {last}");
                last = tick;
            }
        }
        assert_eq!(wheel.len(), model.ticks.len());
    }
    // Every entry comes in the end, and nothing else.
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
    // One slot of level 3, another one beyond the levels, and entries that are added in the middle
    // of a cascade.
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
        // Each entry is moved at least once before it is returned.
        assert!(calls as u64 >= 2 * ENTRIES / WORK as u64, "{calls} calls");
    }
}

#[test]
fn entries_of_one_tick_come_in_the_order_of_their_insertion() {
    let mut wheel = Wheel::new(7);
    for id in 0..10 {
        wheel.insert(5_000, id);
    }
    assert_eq!(wheel.next_tick(), Some(5_000), "exact, though the slot is 4,096 ticks wide");
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
fn the_latest_possible_tick_can_be_set_and_fires_last() {
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
fn a_stall_of_weeks_moves_the_wheel_straight_to_now() {
    let mut wheel = Wheel::new(0);
    wheel.insert(1 << 35, ());
    assert_eq!(wheel.pop((1 << 35) - 1), None);
    assert_eq!(wheel.elapsed, (1 << 35) - 1, "the wheel goes straight to now");
    assert_eq!(wheel.pop(1 << 35), Some(()));
}
