//! loom models of the suspension: workers that wake up while the sentinel, which has seen them
//! parked, goes to sleep; and the same with one step left out, which must fail. With two runtimes,
//! their workers wake the same thread.
//!
//! Afterwards the workers stay awake, like one that is stuck in its poll. If a Resume is lost, the
//! sentinel sleeps for ever, which loom reports as a deadlock.

use loom::thread;
use volt_explore::{breaks, holds};

use super::*;

/// A runtime, as the sentinel sees it.
struct Seen {
    suspension: Suspension,
    idle: Idle,
}

impl Seen {
    fn is_all_parked(&self) -> bool {
        self.idle.parked_count() == self.idle.slots()
    }
}

type Resume = fn(&Seen);
type Begin = fn(&Seen) -> bool;
type Sleep = fn(&Alarm, &[Seen]);

fn resume(seen: &Seen) {
    seen.suspension.resume(&seen.idle);
}

/// Resume without (2).
fn resume_without_the_fence(seen: &Seen) {
    if seen.suspension.is_suspended.load(Ordering::Relaxed) {
        seen.suspension.end();
    }
}

fn begin(seen: &Seen) -> bool {
    seen.suspension.begin(&seen.idle, || seen.is_all_parked())
}

/// Suspend without (3).
fn begin_without_a_second_check(seen: &Seen) -> bool {
    let is_all_parked = seen.is_all_parked();
    if is_all_parked {
        seen.suspension.is_suspended.swap(true, Ordering::AcqRel);
    }
    is_all_parked
}

/// Suspend without (2), and with a plain store in (1).
fn begin_without_the_fence(seen: &Seen) -> bool {
    if !seen.is_all_parked() {
        return false;
    }
    seen.suspension.is_suspended.store(true, Ordering::Release);
    seen.is_all_parked()
}

/// Sleeps until the checks of no runtime are suspended any more.
fn sleep(alarm: &Alarm, runtimes: &[Seen]) {
    alarm.run(|| {
        if runtimes.iter().any(|seen| seen.suspension.is_suspended()) {
            ControlFlow::Continue(None)
        } else {
            ControlFlow::Break(())
        }
    });
}

/// Sleep (5) in the wrong order: reads the flags, and then takes the token.
fn sleep_and_take_the_token_last(alarm: &Alarm, runtimes: &[Seen]) {
    while runtimes.iter().any(|seen| seen.suspension.is_suspended()) {
        let _was_rung = alarm.0.take_token();
        let _slept = alarm.0.sleep(None);
    }
}

/// Runtimes with this many workers each, which are all parked, wake up while the sentinel goes to
/// sleep.
fn model(workers: &'static [usize], resume: Resume, begin: Begin, sleep: Sleep) -> impl Fn() + Send + Sync + 'static {
    move || {
        let alarm = Arc::new(Alarm::new());
        let runtime = |&workers: &usize| {
            let seen = Seen { suspension: Suspension::new(alarm.clone(), false), idle: Idle::new(workers, 0) };
            (0..workers).for_each(|worker| seen.idle.begin_park(worker, false));
            seen
        };
        let runtimes: Arc<[Seen]> = workers.iter().map(runtime).collect();
        let sentinel = thread::spawn({
            let (alarm, runtimes) = (alarm.clone(), runtimes.clone());
            move || {
                runtimes.iter().for_each(|seen| _ = begin(seen));
                sleep(&alarm, &runtimes);
            }
        });
        let slots =
            workers.iter().enumerate().flat_map(|(runtime, &workers)| (0..workers).map(move |at| (runtime, at)));
        let up: Vec<_> = slots
            .map(|(runtime, worker)| {
                let runtimes = runtimes.clone();
                thread::spawn(move || {
                    // Resume (1)
                    assert!(runtimes[runtime].idle.retract(worker), "no thread claims it");
                    resume(&runtimes[runtime]);
                })
            })
            .collect();
        up.into_iter().for_each(|worker| worker.join().unwrap());
        sentinel.join().unwrap();
        assert!(!runtimes.iter().any(|seen| seen.suspension.is_suspended()), "Watched while awake");
    }
}

#[test]
fn loom_a_worker_that_wakes_up_is_watched() {
    holds(None, model(&[1], resume, begin, sleep));
}

#[test]
fn loom_workers_that_wake_up_together_are_watched() {
    holds(Some(2), model(&[2], resume, begin, sleep));
}

#[test]
fn loom_workers_of_two_runtimes_wake_one_sentinel() {
    holds(Some(2), model(&[1, 1], resume, begin, sleep));
}

#[test]
fn loom_a_suspension_without_a_second_check_is_found() {
    breaks("deadlock", None, model(&[1], resume, begin_without_a_second_check, sleep));
}

#[test]
fn loom_a_suspension_without_the_fence_is_found() {
    breaks("deadlock", None, model(&[1], resume, begin_without_the_fence, sleep));
}

#[test]
fn loom_a_resumption_without_the_fence_is_found() {
    breaks("deadlock", None, model(&[1], resume_without_the_fence, begin, sleep));
}

#[test]
fn loom_a_token_taken_after_the_flags_is_found() {
    breaks("deadlock", Some(2), model(&[1, 1], resume, begin, sleep_and_take_the_token_last));
}
