//! loom models of the global queue: nothing is lost, and a worker that looks under the lock needs no fence.

use loom::thread;

use super::*;
use crate::shim::explore::{breaks, holds};
use crate::shim::{Arc, AtomicBool};

/// Two push, one of them in a batch, one takes, one closes.
fn pushers_and_taker() {
    let injector = Arc::new(Injector::new());
    let pusher = injector.clone();
    let pusher = thread::spawn(move || pusher.push(0, 7).err().into_iter().collect::<Vec<_>>());
    let batch = injector.clone();
    let batch = thread::spawn(move || batch.push_batch(1..3, 7).err().into_iter().flatten().collect());
    let taker = injector.clone();
    let taker = thread::spawn(move || {
        let mut taken = Vec::new();
        let count = taker.pop_batch(2, |item| taken.push(item));
        assert_eq!(count, taken.len());
        taker.close();
        taken
    });
    let mut out: Vec<_> = [pusher, batch, taker].into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let left = injector.pop_batch(9, |item| out.push(item));
    assert!(left <= 3);
    assert!(injector.push(9, 7).is_err(), "CLOSED-IS-LAST");
    assert_eq!((injector.len(), injector.oldest_at_ns()), (0, None), "SAME-LOCK");
    out.sort_unstable();
    assert_eq!(out, [0, 1, 2], "an item was lost or came out twice");
}

#[test]
fn every_item_comes_out_once_or_goes_back() {
    holds(None, pushers_and_taker);
}

/// Submit and Park of `scheduler/idle.rs` without their fences: whether one of the two sees the other.
fn submit_against_park(look: fn(&Injector<u32>) -> bool) {
    let shared = Arc::new((Injector::new(), AtomicBool::new(false)));
    let submitter = shared.clone();
    let submitter = thread::spawn(move || {
        submitter.0.push(0, 7).unwrap();
        submitter.1.load(Ordering::Relaxed)
    });
    let parker = thread::spawn(move || {
        shared.1.swap(true, Ordering::AcqRel);
        look(&shared.0)
    });
    let (sees_parked, sees_empty) = (submitter.join().unwrap(), parker.join().unwrap());
    assert!(sees_parked || !sees_empty, "both missed the other");
}

#[test]
fn a_look_under_the_lock_needs_no_fence() {
    holds(None, || submit_against_park(Injector::is_empty_locked));
}

#[test]
fn a_look_at_the_length_without_a_fence_is_found() {
    breaks("both missed the other", None, || submit_against_park(|injector| injector.len() == 0));
}
