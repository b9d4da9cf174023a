//! Threads that could run: that do, that do now and then, and that are not let.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use volt_telemetry::incident::Cause;

use super::{Going, LIMIT, Tally, WINDOW, processors, spin, watch};

/// What a thread may be told to do that always could run: on a busy machine it does not always get a processor.
fn could_run(told: &Tally) -> bool {
    told.keys().all(|cause| [Cause::Cpu, Cause::NotScheduled, Cause::Throttled].contains(cause))
}

#[test]
fn a_loop_burns_the_processor_in_windows_shorter_than_a_tick_and_longer() {
    let _alone = processors();
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || spin(&is_going));
    for (window, times) in [(WINDOW, 20), (Duration::from_millis(10), 5)] {
        let others = watched.see(Cause::Cpu, times, window);
        assert!(could_run(&others), "{others:?}");
    }
    going.end();
    watched.join();
}

#[test]
fn the_time_of_a_running_thread_moves_between_ticks() {
    let _alone = processors();
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || spin(&is_going));
    let (until, mut in_a_row) = (Instant::now() + LIMIT, 0);
    // With a count that moves at ticks, 20 pairs in 20 µs each would not all see it move.
    while in_a_row < 20 {
        assert!(Instant::now() < until, "at most {in_a_row} in a row");
        let (before, began) = (watched.probe.times().unwrap(), Instant::now());
        while began.elapsed() < Duration::from_micros(20) {}
        let after = watched.probe.times().unwrap();
        in_a_row = if after.run_ns > before.run_ns { in_a_row + 1 } else { 0 };
    }
    going.end();
    watched.join();
}

/// Watches a thread that spins and sleeps in turn, in windows over several turns.
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
    let others = watched.see(cause, 5, Duration::from_millis(30));
    let wrong = if cause == Cause::Cpu { Cause::Sleep } else { Cause::Cpu };
    assert!(others.get(&wrong).is_none_or(|&times| times < 5), "5 times {cause:?}, and {others:?}");
    going.end();
    watched.join();
}

#[test]
fn who_spins_most_of_the_time_burns_the_processor_and_who_sleeps_most_of_it_sleeps() {
    let _alone = processors();
    alternates(Duration::from_millis(8), Duration::from_millis(1), Cause::Cpu);
    alternates(Duration::from_millis(1), Duration::from_millis(8), Cause::Sleep);
}

/// Threads that take this processor for themselves.
const RIVALS: usize = 5;

/// Keeps the calling thread to one processor of those that it may have.
fn pin() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

#[test]
fn who_gives_way_to_others_on_its_processor_is_not_scheduled() {
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
        // Of this thread alone, whatever the name says.
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
