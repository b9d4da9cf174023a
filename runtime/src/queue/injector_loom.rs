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

/// What is done wrong in `how_it_ends`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// An outsider counts its task after the push.
    CountedLate,
    /// The runtime says that it is closed before the queue is.
    ClosedEarly,
    /// Spawns are read before ends.
    SpawnsFirst,
    /// A task's end is counted before the task that it has spawned.
    EndFirst,
    /// An end is counted without a Release.
    EndRelaxed,
}

#[derive(Default)]
struct Counts {
    /// By outsiders, under the queue's lock.
    arrived: AtomicU64,
    /// By the worker.
    spawned: AtomicU64,
    ended: AtomicU64,
    is_closed: AtomicBool,
}

impl Counts {
    fn add(counter: &AtomicU64, order: Ordering) {
        counter.store(counter.load(Ordering::Relaxed) + 1, order);
    }

    fn spawns(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed) + self.spawned.load(Ordering::Relaxed)
    }

    /// End (4): how many tasks there were, if there are none left.
    fn are_all(&self, fault: Fault) -> Option<u64> {
        if !self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        let early = self.spawns();
        let ended = self.ended.load(Ordering::Acquire);
        let spawned = if fault == Fault::SpawnsFirst { early } else { self.spawns() };
        (ended == spawned).then_some(ended)
    }
}

/// "How it ends" of `scheduler/shared.rs`: an outsider spawns, a worker runs that and spawns another meanwhile, somebody closes, another worker
/// looks whether all is over. If it is, no task comes after that.
fn how_it_ends(fault: Fault) {
    let shared = Arc::new((Injector::new(), Counts::default()));
    let outsider = shared.clone();
    let outsider = thread::spawn(move || {
        // End (1)
        let (queue, counts) = &*outsider;
        let count = || Counts::add(&counts.arrived, Ordering::Relaxed);
        if fault == Fault::CountedLate {
            if queue.push_new(7, 0, || ()).is_ok() {
                count();
            }
        } else {
            let _refused = queue.push_new(7, 0, count);
        }
    });
    let worker = shared.clone();
    let worker = thread::spawn(move || {
        let (queue, counts) = &*worker;
        let order = if fault == Fault::EndRelaxed { Ordering::Relaxed } else { Ordering::Release };
        if queue.pop_batch(1, |_| ()) == 0 {
            return;
        }
        let spawn = || Counts::add(&counts.spawned, Ordering::Relaxed);
        if fault == Fault::EndFirst {
            Counts::add(&counts.ended, order);
            spawn();
        } else {
            // End (1)
            spawn();
            Counts::add(&counts.ended, order);
        }
        Counts::add(&counts.ended, order);
    });
    let looker = shared.clone();
    let looker = thread::spawn(move || looker.1.are_all(fault));
    let (queue, counts) = &*shared;
    if fault == Fault::ClosedEarly {
        counts.is_closed.store(true, Ordering::Release);
        queue.close_to_new();
    } else {
        // End (2), End (3)
        queue.close_to_new();
        counts.is_closed.store(true, Ordering::Release);
    }
    outsider.join().unwrap();
    worker.join().unwrap();
    if let Some(tasks) = looker.join().unwrap() {
        assert_eq!(tasks, counts.spawns(), "a worker has ended before the last task");
    }
}

const ENDED_EARLY: &str = "a worker has ended before the last task";

#[test]
fn a_worker_that_ends_has_seen_the_last_task() {
    holds(None, || how_it_ends(Fault::None));
}

#[test]
fn a_task_counted_after_its_push_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::CountedLate));
}

#[test]
fn a_runtime_that_says_it_is_closed_before_its_queue_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::ClosedEarly));
}

#[test]
fn spawns_read_before_ends_are_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::SpawnsFirst));
}

#[test]
fn an_end_counted_before_the_spawns_of_its_task_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::EndFirst));
}

#[test]
fn an_end_that_publishes_nothing_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::EndRelaxed));
}
