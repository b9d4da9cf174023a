//! Tests of the idle set: which worker is claimed, the count of searchers, and submits that race
//! with parks.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::driver::parker::{Parker, Unparked};

/// Rounds of a stress test; Miri is slow.
const ROUNDS: usize = if cfg!(miri) { 50 } else { 100_000 };

/// Rounds of the litmus test. On a busy machine the test stops after `LITMUS_TIME`, but never
/// before `ROUNDS`.
const LITMUS_ROUNDS: usize = 10 * ROUNDS;
const LITMUS_TIME: Duration = Duration::from_secs(5);

/// A round that is not over after this time will never be over.
const HANGS: Duration = Duration::from_secs(60);

fn all_parked(workers: usize) -> Idle {
    let idle = Idle::new(workers, 0);
    (0..workers).for_each(|worker| idle.begin_park(worker, false));
    idle
}

#[test]
fn every_parked_worker_is_claimed_once_lowest_first() {
    for workers in [1, 63, 64, 65, 128] {
        let idle = all_parked(workers);
        assert_eq!(idle.parked_count(), workers);
        assert_eq!(idle.parked_words(workers).len(), workers.div_ceil(64));
        for worker in 0..workers {
            assert!(idle.is_parked(worker));
            assert_eq!(idle.claim_any(None), Some(worker));
            assert!(!idle.is_parked(worker));
            assert!(!idle.retract(worker), "a claimed worker finds its bit cleared");
            assert_eq!(idle.searching(), worker + 1);
        }
        assert_eq!(idle.claim_any(None), None);
        assert_eq!(idle.parked_count(), 0);
    }
}

#[test]
fn the_worker_to_keep_is_claimed_when_no_other_is_parked() {
    for (workers, kept) in [(1, 0), (64, 0), (64, 63), (65, 64), (128, 3), (128, 64)] {
        let idle = all_parked(workers);
        let claimed: Vec<_> = std::iter::from_fn(|| idle.claim_any(Some(kept))).collect();
        let others = (0..workers).filter(|&worker| worker != kept);
        assert_eq!(claimed, others.chain([kept]).collect::<Vec<_>>());
    }
}

#[test]
fn a_worker_to_keep_that_is_not_parked_is_not_claimed() {
    let idle = Idle::new(128, 0);
    idle.begin_park(100, false);
    assert_eq!(idle.claim_any(Some(70)), Some(100));
    assert_eq!(idle.claim_any(Some(70)), None);
    assert_eq!(idle.searching(), 1);
}

#[test]
fn a_submit_claims_no_worker_while_one_searches() {
    let idle = all_parked(3);
    assert_eq!(idle.claim_for_submit(None), Some(0));
    assert_eq!(idle.claim_for_submit(None), None, "worker 0 searches");
    assert!(!idle.retract(0));
    assert!(idle.stop_searching(), "it was the only one");
    assert_eq!(idle.claim_for_submit(None), Some(1));
}

#[test]
fn one_worker_is_claimed_by_name_or_not_at_all() {
    let idle = Idle::new(65, 0);
    idle.begin_park(64, false);
    assert!(!idle.claim_worker(0));
    assert!(idle.claim_worker(64));
    assert!(!idle.claim_worker(64));
    assert_eq!((idle.searching(), idle.parked_count()), (1, 0));
}

#[test]
fn a_retracted_worker_is_not_claimed() {
    let idle = all_parked(65);
    assert!(idle.retract(64));
    assert!(idle.retract(0));
    assert_eq!(idle.claim_any(None), Some(1));
    assert_eq!(idle.parked_words(65)[1], 0);
}

#[test]
fn a_parked_worker_is_seen_in_every_word() {
    for worker in [0, 63, 64, 127] {
        let idle = Idle::new(128, 0);
        let is_seen = || [idle.is_any_parked(), !idle.is_none_parked(), is_seen_for_surplus(&idle)];
        assert_eq!(is_seen(), [false; 3]);
        idle.begin_park(worker, false);
        assert_eq!(is_seen(), [true; 3]);
        assert!(idle.retract(worker));
        assert_eq!(is_seen(), [false; 3]);
    }
}

/// Returns whether a push of one task sees a parked worker, which does not depend on the number of
/// tasks that are queued already.
fn is_seen_for_surplus(idle: &Idle) -> bool {
    let seen = [2, 3, 4, 100].map(|queued| idle.is_any_parked_for_surplus(queued, 1));
    assert!(seen.iter().all(|&is_seen| is_seen == seen[0]), "{seen:?}");
    seen[0]
}

#[test]
fn the_worker_that_spins_is_claimed_first() {
    let idle = all_parked(66);
    assert!(idle.begin_spin(64));
    assert!(!idle.begin_spin(0), "one worker spins at a time");
    assert_eq!(idle.claim_any(None), Some(64));
    assert_eq!(idle.claim_any(None), Some(0), "the spinner is claimed already");
    idle.end_spin();
    assert!(idle.begin_spin(65));
    idle.end_spin();
    assert_eq!(idle.claim_any(None), Some(1), "it has stopped spinning");
    assert_eq!(idle.searching(), 3);
}

#[test]
fn half_of_the_workers_rounded_up_start_to_search() {
    for (workers, limit) in [(1, 1), (2, 1), (3, 2), (4, 2), (64, 32), (65, 33)] {
        let idle = Idle::new(workers, 0);
        let started = (0..workers).filter(|_| idle.try_start_searching()).count();
        assert_eq!(started, limit, "{workers} workers");
        let last = (0..limit).map(|_| idle.stop_searching()).collect::<Vec<_>>();
        assert_eq!(last.iter().position(|&was_last| was_last), Some(limit - 1));
    }
}

#[test]
fn a_searcher_that_parks_is_none_any_more() {
    let idle = Idle::new(2, 0);
    assert!(idle.try_start_searching());
    idle.begin_park(0, true);
    assert_eq!((idle.searching(), idle.parked_count()), (0, 1));
}

#[test]
#[should_panic(expected = "COUNTED-ONCE")]
#[cfg(debug_assertions)]
fn leaving_the_searchers_without_being_one_is_caught() {
    let _ = Idle::new(2, 0).stop_searching();
}

/// Waits until `value`, which only grows, reaches `expected`. It spins, since a litmus test needs
/// both sides to start at the same time.
fn wait_until(value: &AtomicUsize, expected: usize) {
    let (since, mut spins) = (Instant::now(), 0_u32);
    while value.load(Ordering::Acquire) < expected {
        std::hint::spin_loop();
        spins += 1;
        if spins.is_multiple_of(1024) || cfg!(miri) {
            assert!(since.elapsed() < HANGS, "round {expected} hangs");
            thread::yield_now();
        }
    }
}

/// The store-load litmus test on this hardware.
#[test]
fn a_submit_and_a_park_never_miss_each_other() {
    let idle = Idle::new(1, 0);
    let [work, begun, ended] = [(); 3].map(|()| CachePadded(AtomicUsize::new(0)));
    let (sees_work, since) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                wait_until(&begun, round);
                if begun.load(Ordering::Relaxed) == usize::MAX {
                    return;
                }
                idle.begin_park(0, false);
                sees_work.store(work.load(Ordering::Acquire) == round, Ordering::Relaxed);
                ended.store(round, Ordering::Release);
            }
        });
        for round in 1..=LITMUS_ROUNDS {
            if round > ROUNDS && since.elapsed() > LITMUS_TIME {
                break;
            }
            begun.store(round, Ordering::Release);
            // From round to round the submit comes a little later, so that it meets the park at
            // every point.
            (0..round % 16).for_each(|_| std::hint::spin_loop());
            work.store(round, Ordering::Release);
            let sees_parked = idle.claim_for_submit(None).is_some();
            wait_until(&ended, round);
            assert!(sees_parked || sees_work.load(Ordering::Relaxed), "both missed the other in round {round}");
            assert_eq!(idle.retract(0), !sees_parked);
            assert!(!sees_parked || idle.stop_searching(), "the claim counted one searcher");
        }
        println!("{} rounds in {:?}", ended.load(Ordering::Relaxed), since.elapsed());
        begun.store(usize::MAX, Ordering::Release);
    });
}

#[test]
fn one_worker_that_sleeps_without_time_outs_runs_everything() {
    let (idle, parker, work, done) = (Idle::new(1, 0), Parker::new(), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut is_searching = false;
            loop {
                if work.swap(false, Ordering::Acquire) {
                    if std::mem::take(&mut is_searching) {
                        assert!(idle.stop_searching());
                    }
                    if done.fetch_add(1, Ordering::Release) + 1 == ROUNDS {
                        return;
                    }
                }
                idle.begin_park(0, std::mem::take(&mut is_searching));
                let is_hit = work.load(Ordering::Acquire);
                if !is_hit {
                    parker.sleep(None);
                }
                is_searching = if idle.retract(0) {
                    let _ = parker.take_token();
                    if is_hit {
                        idle.start_searching();
                    }
                    is_hit
                } else {
                    parker.wait_token();
                    true
                };
            }
        });
        for round in 1..=ROUNDS {
            work.store(true, Ordering::Release);
            if idle.claim_for_submit(None).is_some() {
                assert_eq!(parker.unpark(), Unparked::Done);
            }
            wait_until(&done, round);
        }
    });
    assert_eq!((idle.searching(), idle.parked_count()), (0, 0));
}
