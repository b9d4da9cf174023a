//! loom models of the doze: a worker that wakes up while the sentinel goes to sleep; and the same
//! with one step left out, which must fail.
//!
//! Afterwards the worker stays awake, like one that is stuck in its poll. If its rouse is lost, the
//! sentinel sleeps for ever, which loom reports as a deadlock.

use std::time::Duration;

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::Arc;

use super::*;

type Rouse = fn(&Doze, &Idle);
type Sleep = fn(&Doze, &Idle);

fn is_all_parked(idle: &Idle) -> bool {
    idle.parked_count() == idle.slots()
}

fn sleep(doze: &Doze, idle: &Idle) {
    let _was_timed = doze.sleep(idle, || is_all_parked(idle), Duration::from_millis(10));
}

/// Doze without (3): publishes the doze, and sleeps.
fn sleep_without_a_second_check(doze: &Doze, idle: &Idle) {
    if is_all_parked(idle) {
        doze.is_dozing.swap(true, Ordering::AcqRel);
        doze.parker.wait_token();
    }
}

/// Doze without (2).
fn sleep_without_the_fence(doze: &Doze, idle: &Idle) {
    if is_all_parked(idle) {
        doze.is_dozing.store(true, Ordering::Release);
        if is_all_parked(idle) {
            doze.parker.wait_token();
        }
    }
}

/// Rouse without (2).
fn rouse_without_the_fence(doze: &Doze, _idle: &Idle) {
    if doze.is_dozing.load(Ordering::Relaxed) {
        doze.end_doze();
    }
}

/// Workers that are all parked wake up while a sentinel, which has seen them parked, goes to sleep.
fn model(workers: usize, rouse: Rouse, sleep: Sleep) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (doze, idle) = (Arc::new(Doze::new()), Arc::new(Idle::new(workers, 0)));
        (0..workers).for_each(|worker| idle.begin_park(worker, false));
        let sentinel = thread::spawn({
            let (doze, idle) = (doze.clone(), idle.clone());
            move || sleep(&doze, &idle)
        });
        let up: Vec<_> = (0..workers)
            .map(|worker| {
                let (doze, idle) = (doze.clone(), idle.clone());
                thread::spawn(move || {
                    // Rouse (1)
                    assert!(idle.retract(worker), "nobody claims");
                    rouse(&doze, &idle);
                })
            })
            .collect();
        up.into_iter().for_each(|worker| worker.join().unwrap());
        sentinel.join().unwrap();
        assert!(!doze.is_dozing.load(Ordering::Relaxed), "Watched while awake");
    }
}

#[test]
fn loom_a_worker_that_gets_up_is_watched() {
    holds(None, model(1, Doze::rouse, sleep));
}

#[test]
fn loom_workers_that_wake_up_at_once_rouse_once() {
    holds(Some(2), model(2, Doze::rouse, sleep));
}

#[test]
fn loom_a_doze_without_a_second_check_is_found() {
    breaks("deadlock", None, model(1, Doze::rouse, sleep_without_a_second_check));
}

#[test]
fn loom_a_doze_without_the_fence_is_found() {
    breaks("deadlock", None, model(1, Doze::rouse, sleep_without_the_fence));
}

#[test]
fn loom_a_rouse_without_the_fence_is_found() {
    breaks("deadlock", None, model(1, rouse_without_the_fence, sleep));
}
