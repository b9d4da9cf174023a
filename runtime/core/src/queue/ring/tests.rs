//! Tests of the ring: order, steals, overflow, and every item once under threads.

use std::collections::VecDeque;
use std::thread;

use super::*;

/// Number of items in a stress test. Miri is slow.
const ITEMS: u32 = if cfg!(miri) { 300 } else { 300_000 };
/// The largest capacity under test.
const LARGE: usize = if cfg!(miri) { 32 } else { 256 };
/// First indices: the usual one, and some from which the indices wrap soon.
const FIRSTS: [u32; 4] = [0, u32::MAX - 9, u32::MAX - 1, u32::MAX];

fn filled(capacity: usize, first: u32, items: u32) -> (Producer<u32>, Stealer<u32>) {
    let (mut producer, stealer) = ring_from(capacity, first);
    (0..items).for_each(|item| producer.push(item).unwrap());
    (producer, stealer)
}

fn drain(producer: &mut Producer<u32>) -> Vec<u32> {
    std::iter::from_fn(|| producer.pop()).collect()
}

#[test]
fn items_come_out_in_the_order_in_which_they_went_in() {
    for first in FIRSTS {
        for capacity in [2, 4, LARGE] {
            let (mut producer, stealer) = ring_from(capacity, first);
            let mut model = VecDeque::new();
            for item in 0..4 * capacity as u32 {
                if item % 3 == 2 {
                    assert_eq!(producer.pop(), model.pop_front());
                }
                match producer.push(item) {
                    Ok(()) => model.push_back(item),
                    Err(back) => assert_eq!((back, model.len()), (item, capacity)),
                }
                assert_eq!((producer.len(), stealer.len()), (model.len(), model.len()));
                assert_eq!(producer.free(), capacity - model.len());
            }
            assert_eq!(drain(&mut producer), Vec::from(model));
        }
    }
}

#[test]
fn a_full_ring_hands_the_item_back() {
    for first in FIRSTS {
        let (mut producer, _stealer) = filled(4, first, 4);
        assert_eq!(producer.push(9), Err(9));
        assert_eq!((producer.len(), producer.free()), (4, 0));
        assert_eq!(producer.pop(), Some(0));
        assert_eq!(producer.push(9), Ok(()));
        assert_eq!(drain(&mut producer), [1, 2, 3, 9]);
    }
}

#[test]
fn a_thief_takes_half_rounded_up_oldest_first() {
    for first in FIRSTS {
        for items in 1..=8 {
            let (mut victim, stealer) = filled(8, first, items);
            let (mut thief, _) = ring_from(8, first.wrapping_sub(3));
            let half = items.div_ceil(2);
            assert_eq!(stealer.steal_into(&mut thief), Steal::Taken { next: 0, count: half as usize });
            assert_eq!(drain(&mut thief), (1..half).collect::<Vec<_>>());
            assert_eq!(drain(&mut victim), (half..items).collect::<Vec<_>>());
        }
    }
}

#[test]
fn nothing_is_stolen_from_an_empty_ring() {
    let (_victim, stealer) = filled(4, u32::MAX, 0);
    let (mut thief, _) = ring(4);
    assert_eq!(stealer.steal_into(&mut thief), Steal::Empty);
}

#[test]
fn a_thief_takes_no_more_than_fits_into_its_own_ring() {
    for (inside, count) in [(0, 4), (1, 4), (2, 3), (3, 2), (4, 1)] {
        let (mut victim, stealer) = filled(8, u32::MAX - 2, 8);
        let (mut thief, _) = filled(4, u32::MAX, inside);
        assert_eq!(stealer.steal_into(&mut thief), Steal::Taken { next: 0, count });
        assert_eq!(thief.len(), inside as usize + count - 1);
        assert_eq!(drain(&mut victim).len(), 8 - count);
    }
}

/// Sets the heads to those of a thief that has claimed `count` items and not released them.
fn thief_at_work(shared: &Shared<u32>, count: u32) {
    let heads = Heads::unpack(shared.heads.load(Ordering::Relaxed));
    let claimed = Heads { steal: heads.steal, real: heads.real.wrapping_add(count) };
    shared.heads.store(claimed.pack(), Ordering::Relaxed);
}

#[test]
fn during_a_steal_the_owner_can_pop_and_others_cannot_steal() {
    for first in FIRSTS {
        let (mut victim, stealer) = filled(8, first, 8);
        let (mut thief, _) = ring(8);
        thief_at_work(&victim.shared, 4);
        assert_eq!(stealer.steal_into(&mut thief), Steal::Lost);
        assert!(victim.take_half().is_none());
        assert_eq!(victim.pop(), Some(4), "the four before are the thief's");
        assert_eq!(victim.push(8), Err(8), "the thief may still read the slots");
        assert_eq!((victim.len(), victim.free()), (3, 0));
        victim.shared.release();
        assert_eq!(victim.free(), 5);
        assert_eq!(stealer.steal_into(&mut thief), Steal::Taken { next: 5, count: 2 });
    }
}

#[test]
fn a_thief_counts_slots_being_stolen_from_it_as_occupied() {
    let (_victim, stealer) = filled(8, 0, 8);
    let (mut thief, _) = filled(4, u32::MAX - 1, 4);
    thief_at_work(&thief.shared, 3);
    assert_eq!(thief.len(), 1);
    assert_eq!(stealer.steal_into(&mut thief), Steal::Taken { next: 0, count: 1 });
    assert_eq!(drain(&mut thief), [3]);
    thief.shared.release();
}

#[test]
fn the_overflow_takes_the_oldest_half_of_the_capacity() {
    for first in FIRSTS {
        let (mut producer, _stealer) = filled(8, first, 8);
        let half = producer.take_half().unwrap();
        assert_eq!(half.len(), 4);
        assert_eq!(half.collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!((producer.len(), producer.free()), (4, 4));
        assert_eq!(drain(&mut producer), [4, 5, 6, 7]);
        assert!(producer.take_half().is_none());
    }
}

#[test]
fn items_left_in_the_queue_are_dropped_once() {
    let alive = Arc::new(());
    let (mut producer, stealer) = ring_from(8, u32::MAX - 3);
    (0..8).for_each(|_| producer.push(alive.clone()).unwrap());
    drop(producer.pop());
    assert_eq!(Arc::strong_count(&alive), 8);
    let mut half = producer.take_half().unwrap();
    drop(half.next());
    drop(half);
    assert_eq!(Arc::strong_count(&alive), 4, "the rest of the half is dropped with it");
    drop(producer);
    assert_eq!(Arc::strong_count(&alive), 4, "a thief may still take them");
    drop(stealer);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
#[should_panic(expected = "capacity of a ring is 3")]
fn a_capacity_that_is_no_power_of_two_is_refused() {
    let _ = ring::<u32>(3);
}

/// An owner pushes, pops and overflows, and thieves steal from it and from each other. Each item
/// must come out once.
#[test]
fn every_item_comes_out_once_under_threads() {
    const THIEVES: usize = 3;
    for capacity in [2, 16, LARGE] {
        let (mut owner, stealer) = ring_from::<Box<u32>>(capacity, u32::MAX - ITEMS / 2);
        let rings: Vec<_> = (0..THIEVES).map(|thief| ring_from(capacity, u32::MAX - thief as u32)).collect();
        let victims: Vec<_> = rings.iter().map(|(_, stealer)| stealer.clone()).chain([stealer]).collect();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let mut seen = vec![0_u8; ITEMS as usize];
        thread::scope(|scope| {
            let (victims, is_over) = (&victims, &is_over);
            let thieves: Vec<_> = rings
                .into_iter()
                .enumerate()
                .map(|(thief, (mut own, _))| {
                    scope.spawn(move || {
                        let mut taken = Vec::new();
                        loop {
                            let over_before = is_over.load(Ordering::Acquire);
                            let mut is_idle = true;
                            for victim in (0..=THIEVES).filter(|&victim| victim != thief) {
                                match victims[victim].steal_into(&mut own) {
                                    Steal::Empty => {}
                                    Steal::Lost => is_idle = false,
                                    Steal::Taken { next, count } => {
                                        assert!(count <= capacity.div_ceil(2));
                                        is_idle = false;
                                        taken.push(*next);
                                    }
                                }
                            }
                            // Sometimes the ring keeps its items, for the other thieves to steal.
                            if taken.len() % 4 != 0 || is_idle {
                                taken.extend(std::iter::from_fn(|| own.pop()).map(|item| *item));
                            }
                            if is_idle && over_before {
                                return taken;
                            }
                            if is_idle {
                                thread::yield_now();
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
                    match owner.take_half() {
                        Some(half) => taken.extend(half.map(|item| *item)),
                        None => thread::yield_now(),
                    }
                }
                if taken.len() % 5 == 0 {
                    taken.extend(owner.pop().map(|item| *item));
                }
            }
            taken.extend(std::iter::from_fn(|| owner.pop()).map(|item| *item));
            is_over.store(true, Ordering::Release);
            let stolen = thieves.into_iter().flat_map(|thief| thief.join().unwrap());
            taken.into_iter().chain(stolen).for_each(|item| seen[item as usize] += 1);
        });
        assert!(seen.iter().all(|&times| times == 1), "an item was lost or came out twice");
        assert!(victims.iter().all(|victim| victim.len() == 0));
    }
}
