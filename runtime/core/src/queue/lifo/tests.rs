//! Tests of the LIFO slot: its content, its drop, and every item once under threads.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

/// Number of items in a stress test. Miri is slow.
const ITEMS: usize = if cfg!(miri) { 300 } else { 200_000 };

impl<T: Send> RawPointer for Box<T> {
    fn into_raw(self) -> NonNull<()> {
        NonNull::from(Box::leak(self)).cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: ONE-OWNER: by this function's contract the pointer came from `Box::leak` above,
        // and is returned once.
        unsafe { Box::from_raw(raw.cast().as_ptr()) }
    }
}

#[test]
fn the_slot_keeps_the_newest_and_returns_the_former() {
    let slot = LifoSlot::new();
    assert!(!slot.is_filled());
    assert_eq!(slot.take(), None);
    assert_eq!(slot.put(Box::new(1)), None);
    assert!(slot.is_filled());
    assert_eq!(slot.put(Box::new(2)), Some(Box::new(1)));
    assert_eq!(slot.take(), Some(Box::new(2)));
    assert_eq!(slot.take(), None);
}

#[test]
fn an_item_left_in_the_slot_is_dropped_once() {
    let alive = Arc::new(());
    let slot = LifoSlot::new();
    slot.put(Box::new(alive.clone()));
    drop(slot.put(Box::new(alive.clone())));
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(slot);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn every_item_comes_out_once_under_threads() {
    let slot = LifoSlot::<Box<usize>>::new();
    let is_over = AtomicBool::new(false);
    let mut seen = vec![0_u8; ITEMS];
    thread::scope(|scope| {
        let take = || {
            let mut taken = Vec::new();
            while !is_over.load(Ordering::Acquire) {
                match slot.take() {
                    Some(item) => taken.push(*item),
                    None => thread::yield_now(),
                }
            }
            taken
        };
        let thieves = [scope.spawn(take), scope.spawn(take)];
        let mut taken: Vec<usize> = (0..ITEMS).filter_map(|item| slot.put(Box::new(item))).map(|item| *item).collect();
        taken.extend(slot.take().map(|item| *item));
        is_over.store(true, Ordering::Release);
        let stolen = thieves.into_iter().flat_map(|thief| thief.join().unwrap());
        taken.into_iter().chain(stolen).for_each(|item| seen[item] += 1);
    });
    assert!(seen.iter().all(|&times| times == 1), "an item was lost or came out twice");
}
