//! Tests of runnable threads: threads that run, that run now and then, and that get no processor.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use volt_telemetry::incident::Cause;

use super::{Going, Tally, WINDOW, own_tid, processors, spin, watch};
use crate::kernel::thread::ThreadProbe;

/// Returns whether all causes are possible for a thread that is always runnable: on a busy machine
/// it does not always get a processor.
fn could_run(reported: &Tally) -> bool {
    reported.keys().all(|cause| [Cause::Cpu, Cause::NotScheduled, Cause::Throttled].contains(cause))
}

#[test]
fn a_busy_loop_is_classified_as_cpu_in_any_window() {
    let _alone = processors();
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || spin(&is_going));
    let others = watched.see(Cause::Cpu, 20, WINDOW);
    assert!(could_run(&others), "{others:?}");
    // On a busy machine it may not get the larger part of such a long window.
    for _ in 0..20 {
        let reported = watched.cause(Duration::from_millis(10));
        assert!(could_run(&Tally::from([(reported, 1)])), "{reported:?}");
    }
    going.end();
    watched.join();
}

#[test]
fn the_time_of_a_thread_that_runs_is_exact() {
    let probe = ThreadProbe::new(own_tid());
    let clock_ns = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
    };
    const SPIN: Duration = Duration::from_micros(100);
    for _ in 0..500 {
        // Each reading of the clock brings the kernel's count up to date. After that, the count
        // falls behind by the time spun here.
        let began = Instant::now();
        while began.elapsed() < SPIN {}
        let requested_at = Instant::now();
        let reported_ns = probe.times().unwrap().run_ns;
        let behind_ns = clock_ns().checked_sub(reported_ns).expect("not ahead of the clock");
        // Since the probe, the thread cannot have run for longer than time has passed, but for the
        // difference between the two clocks.
        let passed = requested_at.elapsed() + SPIN / 20;
        assert!(u128::from(behind_ns) <= passed.as_nanos(), "{behind_ns} ns behind after {passed:?}");
    }
}

/// Watches a thread that alternates between spinning and sleeping, in windows over several turns.
fn alternates(spin_for: Duration, sleep_for: Duration, cause: Cause) {
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || {
        while is_going.is_on() {
            let began = Instant::now();
            while began.elapsed() < spin_for {}
            thread::sleep(sleep_for);
        }
    });
    let others = watched.see(cause, 5, Duration::from_millis(3));
    let wrong = if cause == Cause::Cpu { Cause::Sleep } else { Cause::Cpu };
    assert!(others.get(&wrong).is_none_or(|&times| times < 5), "5 times {cause:?}, and {others:?}");
    going.end();
    watched.join();
}

#[test]
fn the_dominant_activity_determines_the_cause() {
    let _alone = processors();
    // The turns are short enough for several to fit into one time slice of a busy machine.
    alternates(Duration::from_micros(900), Duration::from_micros(20), Cause::Cpu);
    alternates(Duration::from_micros(100), Duration::from_micros(800), Cause::Sleep);
}

/// Number of threads that compete for this processor.
const RIVALS: usize = 5;

/// Restricts the calling thread to one of the processors that it may use.
fn pin() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

#[test]
fn a_thread_preempted_on_its_processor_is_not_scheduled() {
    let _alone = processors();
    let going = Going::new();
    let rivals: Vec<_> = (0..RIVALS)
        .map(|_| {
            let going = going.clone();
            thread::spawn(move || {
                pin();
                spin(&going);
            })
        })
        .collect();
    let is_going = going.clone();
    let watched = watch(move || {
        pin();
        let own: Pid = gettid();
        // Affects only this thread, despite the function's name.
        setpriority_process(Some(own), 19).unwrap();
        spin(&is_going);
    });
    for window in [WINDOW, Duration::from_millis(10)] {
        let others = watched.see(Cause::NotScheduled, 20, window);
        assert!(others.values().sum::<u32>() < 20, "{others:?}");
        assert!(could_run(&others), "{others:?}");
    }
    going.end();
    for rival in rivals {
        rival.join().unwrap();
    }
    watched.join();
}
