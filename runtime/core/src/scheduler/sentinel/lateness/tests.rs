//! Tests of which late checks are pauses.

use std::thread;
use std::time::Instant;

use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_check_that_is_late_by_its_own_work_is_no_pause() {
    let mut lateness = Lateness::new();
    let clock_ns = || ThreadProbe::new(own_id().unwrap()).times().unwrap().run_ns;
    for _ in 0..200 {
        assert_eq!(lateness.pause(10 * MS, 12_000_000), None);
    }
    let (began, busy_ns) = (Instant::now(), clock_ns());
    lateness.thread = lateness.own.as_ref().and_then(ThreadProbe::sample);
    while clock_ns() - busy_ns < 80_000_000 {}
    // On a busy machine, this thread may not have run for most of the time.
    let elapsed = began.elapsed();
    if elapsed < 140 * MS {
        assert_eq!(lateness.pause(MS, clock::saturating_ns(elapsed)), None);
    }
}

#[test]
fn a_late_check_without_processor_time_is_a_pause() {
    let mut lateness = Lateness::new();
    let began = Instant::now();
    thread::sleep(80 * MS);
    let elapsed_ns = clock::saturating_ns(began.elapsed());
    let pause = lateness.pause(MS, elapsed_ns).expect("it was late by 79 ms");
    assert_eq!(pause.late_ns, elapsed_ns - 1_000_000);
    assert!([Cause::Stopped, Cause::NotScheduled, Cause::Throttled].contains(&pause.cause), "{pause:?}");
}

#[test]
fn the_clock_is_used_if_the_kernel_has_no_value() {
    let mut lateness = Lateness { own: None, thread: None, cgroup: None, checks: 0 };
    let pause = lateness.pause(MS, 300_000_000);
    assert_eq!(pause, Some(Pause { late_ns: 299_000_000, cause: Cause::Unknown }));
}
