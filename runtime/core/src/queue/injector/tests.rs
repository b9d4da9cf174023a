//! Tests of the global queue: order, length and age, the close, and every item once under threads.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;

/// Number of items that each thread pushes in a stress test. Miri is slow.
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
fn length_and_age_cover_only_the_queued_items() {
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
fn a_queue_closed_to_new_tasks_still_accepts_rescheduled_ones() {
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
    assert!(injector.queue.lock().take_surplus().is_none(), "the buffer that is left is used again");
}

#[test]
fn items_left_in_the_queue_are_dropped_once() {
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
