//! Tests of which late checks are pauses.

use std::thread;
use std::time::Instant;

use super::*;

/// Returns a turn that began at 0, without checks, and was to sleep for this time.
fn asleep_for(sleep: Duration) -> Turn {
    Turn { began_at_ns: 0, waited: Duration::ZERO, slept_at_ns: 0, sleep }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_check_that_is_late_by_its_own_work_is_no_pause() {
    let mut lateness = Lateness::new();
    let clock_ns = || ThreadProbe::new(own_id().unwrap()).times().unwrap().run_ns;
    for _ in 0..200 {
        assert_eq!(lateness.pause(asleep_for(10 * MS), 12_000_000), None);
    }
    let (began, busy_ns) = (Instant::now(), clock_ns());
    lateness.thread = lateness.own.as_ref().and_then(ThreadProbe::sample);
    while clock_ns() - busy_ns < 80_000_000 {}
    // On a busy machine, this thread may not have run for most of the time.
    let elapsed = began.elapsed();
    if elapsed < 140 * MS {
        assert_eq!(lateness.pause(asleep_for(MS), clock::saturating_ns(elapsed)), None);
    }
}

#[test]
fn a_late_check_without_processor_time_is_a_pause() {
    let mut lateness = Lateness::new();
    let began = Instant::now();
    thread::sleep(80 * MS);
    let elapsed_ns = clock::saturating_ns(began.elapsed());
    let pause = lateness.pause(asleep_for(MS), elapsed_ns).expect("it was late by 79 ms");
    assert_eq!(pause.late_ns, elapsed_ns - 1_000_000);
    assert!([Cause::Stopped, Cause::NotScheduled, Cause::Throttled].contains(&pause.cause), "{pause:?}");
}

#[test]
fn the_clock_is_used_if_the_kernel_has_no_value() {
    let mut lateness = Lateness { own: None, thread: None, cgroup: None, checks: 0 };
    let pause = lateness.pause(asleep_for(MS), 300_000_000);
    assert_eq!(pause, Some(Pause { late_ns: 299_000_000, cause: Cause::Unknown, until_ns: 300_000_000 }));
}

#[test]
fn a_pause_during_the_checks_ends_before_the_sleep() {
    let mut lateness = Lateness { own: None, thread: None, cgroup: None, checks: 0 };
    let turn = Turn { began_at_ns: 1_000, waited: 8 * MS, slept_at_ns: 400_001_000, sleep: 10 * MS };
    let pause = lateness.pause(turn, 411_001_000).expect("the checks were late by 392 ms");
    assert_eq!((pause.late_ns, pause.until_ns), (393_000_000, turn.slept_at_ns));
    let turn = Turn { slept_at_ns: 8_001_000, ..turn };
    assert_eq!(lateness.pause(turn, 411_001_000).map(|pause| pause.until_ns), Some(411_001_000), "in the sleep");
    assert_eq!(lateness.pause(turn, 19_001_000), None, "its waits were expected");
}
