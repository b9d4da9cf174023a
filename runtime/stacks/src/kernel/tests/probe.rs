//! Tests which values can be read of a thread, by which process, when, and at which cost.

use std::hint::black_box;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use volt_telemetry::incident::Cause;

use super::{Again, Going, WINDOW, is_child, processors, spin, watch};
use crate::kernel::cgroup::Cgroup;

#[test]
fn a_thread_that_has_exited_has_no_numbers() {
    let watched = watch(|| ());
    let super::Watched { probe, thread, .. } = watched;
    thread.join().unwrap();
    // `join` may return before the kernel has removed the thread from its list.
    let until = Instant::now() + super::LIMIT;
    while probe.sample().is_some() || probe.times().is_some() {
        assert!(Instant::now() < until, "{:?}", probe.sample());
        thread::yield_now();
    }
}

#[test]
fn a_probe_of_no_thread_has_no_numbers() {
    let probe = crate::kernel::thread::ThreadProbe::new(u32::MAX);
    assert_eq!(probe.times(), None);
    assert_eq!(probe.sample(), None);
}

#[test]
fn a_program_that_is_not_dumpable_lacks_only_the_system_call() {
    if is_child() {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock().unwrap();
        let same = Arc::clone(&mutex);
        let locked = watch(move || drop(same.lock().unwrap()));
        locked.see(Cause::Lock, 20, WINDOW);
        drop(guard);
        let asleep = watch(|| thread::sleep(super::LIMIT));
        asleep.see(Cause::Sleep, 20, WINDOW);
        let (mut reader, _writer) = std::io::pipe().unwrap();
        let reads = watch(move || assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0));
        reads.see(Cause::Io, 20, WINDOW);
        let sample = reads.probe.sample().unwrap();
        assert!(sample.state.is_some() && sample.wait_channel.is_some(), "{sample:?}");
        assert!(sample.times.run_delay_ns.is_some() && sample.major_faults.is_some(), "{sample:?}");
        eprintln!("call {}", sample.inside.is_some());
        // The threads end with the program.
        std::process::exit(0);
    }
    let test = "::a_program_that_is_not_dumpable_lacks_only_the_system_call";
    let child = Again::start(&format!("{}{test}", module_path!()));
    let reported = loop {
        let line = child.line();
        if line.starts_with("call") {
            break line;
        }
    };
    // Root may read files that belong to root.
    assert_eq!(reported, format!("call {}", geteuid().is_root()));
}

/// Returns the average cost of one call in µs, the least of several rounds, since other programs
/// run as well.
fn cost_us<T>(call: impl Fn() -> T) -> f64 {
    const CALLS: u32 = 500;
    let round = || {
        let began = Instant::now();
        (0..CALLS).for_each(|_| drop(black_box(call())));
        began.elapsed()
    };
    let least = (0..9).map(|_| round()).min().unwrap_or(Duration::MAX);
    least.as_secs_f64() * 1e6 / f64::from(CALLS)
}

#[test]
fn a_sample_costs_microseconds() {
    let _alone = processors();
    let going = Going::new();
    let is_going = going.clone();
    let (end, is_over) = mpsc::channel::<()>();
    let (spinning, blocked) = (watch(move || spin(&is_going)), watch(move || assert!(is_over.recv().is_err())));
    blocked.see(Cause::Lock, 1, WINDOW);
    let spinning_us = [cost_us(|| spinning.probe.times()), cost_us(|| spinning.probe.sample())];
    let blocked_us = [cost_us(|| blocked.probe.times()), cost_us(|| blocked.probe.sample())];
    eprintln!(
        "times, sample of a thread that spins: {spinning_us:.2?} µs; of one that is blocked: {blocked_us:.2?} µs"
    );
    if let Some(cgroup) = Cgroup::of_this_program() {
        eprintln!("sample of the control groups: {:.2} µs: {:?}", cost_us(|| cgroup.sample()), cgroup.sample());
    }
    going.end();
    drop(end);
    spinning.join();
    blocked.join();
    // Ten times the measured values: the build is not optimized, and the machine is shared.
    assert!(spinning_us[0] < 20.0 && blocked_us[1] < 300.0);
}
