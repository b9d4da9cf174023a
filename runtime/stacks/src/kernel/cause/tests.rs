//! Tests of the table of rules, line by line, and of every kind of sample that real threads
//! produced.

use std::ffi::c_long;

use volt_telemetry::incident::Cause;

use super::{classify, classify_delay};
use crate::kernel::cgroup::CgroupSample;
use crate::kernel::thread::{Inside, ThreadSample, ThreadState, ThreadTimes, WaitChannel};

const MS: u64 = 1_000_000;
/// Time between the two samples.
const WINDOW_NS: u64 = 10 * MS;

/// On a processor, 1 s after the thread started.
fn running() -> ThreadSample {
    ThreadSample {
        times: ThreadTimes { run_ns: 1_000 * MS, run_delay_ns: Some(5 * MS), timeslices: Some(100) },
        is_on_cpu: true,
        state: Some(ThreadState::Runnable),
        major_faults: Some(7),
        inside: None,
        wait_channel: None,
    }
}

/// Waiting for a processor.
fn waiting() -> ThreadSample {
    ThreadSample { is_on_cpu: false, ..running() }
}

/// Blocked in a call, or in none, and in a kernel function.
fn asleep(state: ThreadState, inside: Option<Inside>, function: &str) -> ThreadSample {
    ThreadSample { state: Some(state), inside, wait_channel: WaitChannel::parse(function), ..waiting() }
}

fn in_call(number: c_long, function: &str) -> ThreadSample {
    asleep(ThreadState::Sleeping, call(number), function)
}

fn call(number: c_long) -> Option<Inside> {
    Some(Inside::Syscall { number, arguments: [3, 1] })
}

/// A later sample, after this much time on a processor and waiting for one, in this many time
/// slices.
fn later(sample: ThreadSample, ran_ns: u64, waited_ns: u64, timeslices: u64) -> ThreadSample {
    let times = ThreadTimes {
        run_ns: sample.times.run_ns + ran_ns,
        run_delay_ns: sample.times.run_delay_ns.map(|ns| ns + waited_ns),
        timeslices: sample.times.timeslices.map(|count| count + timeslices),
    };
    ThreadSample { times, ..sample }
}

fn faulted(sample: ThreadSample) -> ThreadSample {
    ThreadSample { major_faults: Some(9), ..sample }
}

/// The cause, without a control group.
fn cause(before: ThreadSample, after: ThreadSample) -> Cause {
    classify(&before, &after, None, None, WINDOW_NS)
}

/// The cause of a thread that is blocked like this at both samples.
fn cause_of(sample: ThreadSample) -> Cause {
    cause(sample, sample)
}

#[test]
fn the_largest_share_is_the_cause() {
    let sleeping = in_call(libc::SYS_clock_nanosleep, "hrtimer_nanosleep");
    for (expected, before, after) in [
        // Ran all the time; ran and was preempted; ran, and slept at both samples.
        (Cause::Cpu, running(), later(running(), WINDOW_NS, 0, 0)),
        (Cause::Cpu, running(), later(waiting(), 6 * MS, 0, 0)),
        (Cause::Cpu, running(), later(waiting(), WINDOW_NS / 4, 0, 0)),
        (Cause::NotScheduled, running(), later(waiting(), WINDOW_NS / 4 - 1, 0, 0)),
        (Cause::Cpu, sleeping, later(sleeping, 7 * MS, 0, 5)),
        // Ran for the smallest part of the time, whatever the samples show.
        (Cause::Sleep, running(), later(sleeping, 2 * MS, 0, 5)),
        (Cause::Sleep, sleeping, later(running(), 2 * MS, 0, 5)),
        (Cause::Sleep, sleeping, later(waiting(), 2 * MS, 0, 5)),
        // About a third each: ran 3, ready 4, blocked 3.
        (Cause::NotScheduled, sleeping, later(sleeping, 3 * MS, 4 * MS, 5)),
        // Waiting since before the first sample; preempted after it; on and off a processor.
        (Cause::NotScheduled, waiting(), waiting()),
        (Cause::NotScheduled, running(), later(waiting(), MS, 0, 0)),
        (Cause::NotScheduled, waiting(), later(running(), 2 * MS, 30 * MS, 1)),
        // On a processor at both samples, never switched, and got no time: the hypervisor gave the
        // processor to another virtual machine.
        (Cause::NotScheduled, running(), running()),
        // On a processor at both samples, and blocked in between.
        (Cause::Unknown, running(), later(running(), 2 * MS, 0, 3)),
        (Cause::PageIn, running(), faulted(later(running(), 2 * MS, 0, 3))),
    ] {
        assert_eq!(cause(before, after), expected, "{before:?} then {after:?}");
    }
}

#[test]
fn the_system_call_decides_the_cause_of_a_blocked_thread() {
    for (number, function, expected) in [
        (libc::SYS_clock_nanosleep, "hrtimer_nanosleep", Cause::Sleep),
        (libc::SYS_futex, "futex_do_wait", Cause::Lock),
        (libc::SYS_flock, "flock_lock_inode_wait", Cause::Lock),
        (libc::SYS_wait4, "do_wait", Cause::Lock),
        (libc::SYS_read, "anon_pipe_read", Cause::Io),
        (libc::SYS_accept4, "inet_csk_accept", Cause::Io),
        (libc::SYS_recvfrom, "wait_woken", Cause::Io),
        // A read that waits for a lock, or for a page, is a read.
        (libc::SYS_read, "rwsem_down_read_slowpath", Cause::Io),
        (libc::SYS_read, "folio_wait_bit_common", Cause::Io),
        // A function that is not known.
        (libc::SYS_futex, "moon_phase_wait", Cause::Lock),
        // Calls that only the function explains.
        (libc::SYS_mmap, "rwsem_down_write_slowpath", Cause::Lock),
        (libc::SYS_madvise, "folio_wait_bit_common", Cause::PageIn),
        (libc::SYS_prctl, "rwsem_down_read_slowpath", Cause::Lock),
        (libc::SYS_prctl, "folio_wait_bit_common", Cause::Io),
        (libc::SYS_prctl, "moon_phase_wait", Cause::Unknown),
        (libc::SYS_mmap, "moon_phase_wait", Cause::Unknown),
    ] {
        assert_eq!(cause_of(in_call(number, function)), expected, "{number} {function}");
    }
}

#[test]
fn a_thread_blocked_in_an_exception_waits_for_a_page_or_a_lock() {
    let outside = |state, function| asleep(state, Some(Inside::Exception), function);
    for (state, function, expected) in [
        (ThreadState::Uninterruptible, "folio_wait_bit_common", Cause::PageIn),
        (ThreadState::Uninterruptible, "io_schedule", Cause::PageIn),
        (ThreadState::Sleeping, "handle_userfault", Cause::PageIn),
        (ThreadState::Uninterruptible, "0", Cause::PageIn),
        (ThreadState::Uninterruptible, "rwsem_down_read_slowpath", Cause::Lock),
        (ThreadState::Sleeping, "do_freezer_trap", Cause::Stopped),
    ] {
        assert_eq!(cause_of(outside(state, function)), expected, "{function}");
    }
}

#[test]
fn the_cause_falls_back_to_the_function_and_then_to_the_state() {
    let (sleeping, on_disk) = (ThreadState::Sleeping, ThreadState::Uninterruptible);
    for (state, function, has_faulted, expected) in [
        (sleeping, "hrtimer_nanosleep", false, Cause::Sleep),
        (sleeping, "futex_do_wait", false, Cause::Lock),
        (sleeping, "do_epoll_wait", false, Cause::Io),
        (sleeping, "handle_userfault", false, Cause::PageIn),
        (on_disk, "folio_wait_bit_common", true, Cause::PageIn),
        (on_disk, "folio_wait_bit_common", false, Cause::Io),
        (on_disk, "0", true, Cause::PageIn),
        (on_disk, "0", false, Cause::Io),
        (sleeping, "0", false, Cause::Unknown),
        (sleeping, "0", true, Cause::Unknown),
        (sleeping, "moon_phase_wait", false, Cause::Unknown),
    ] {
        let before = asleep(state, None, function);
        let after = if has_faulted { faulted(before) } else { before };
        assert_eq!(cause(before, after), expected, "{state:?} {function} {has_faulted}");
    }
}

#[test]
fn a_stopped_thread_is_stopped_wherever_it_was() {
    for inside in [None, call(libc::SYS_futex), Some(Inside::Exception)] {
        assert_eq!(cause_of(asleep(ThreadState::Stopped, inside, "ptrace_stop")), Cause::Stopped);
        assert_eq!(cause_of(asleep(ThreadState::Stopped, inside, "0")), Cause::Stopped);
    }
    assert_eq!(cause(running(), later(asleep(ThreadState::Stopped, None, "0"), MS, 0, 0)), Cause::Stopped);
}

#[test]
fn cpu_time_alone_identifies_a_cpu_bound_thread() {
    let blind = ThreadSample { times: ThreadTimes { run_ns: MS, ..ThreadTimes::default() }, ..ThreadSample::default() };
    let burnt = ThreadSample { times: ThreadTimes { run_ns: 9 * MS, ..blind.times }, is_on_cpu: true, ..blind };
    assert_eq!(cause(blind, burnt), Cause::Cpu);
    assert_eq!(cause(blind, blind), Cause::Unknown);
    assert_eq!(classify(&blind, &blind, None, None, 0), Cause::Unknown);
}

#[test]
fn a_thread_that_could_run_is_throttled_if_its_group_was() {
    let idle = CgroupSample {
        quota: Some(0.5),
        throttles: 4,
        throttled_ns: 300 * MS,
        usage_ns: Some(900 * MS),
        tick_ns: 4 * MS,
    };
    let busy = CgroupSample { usage_ns: Some(909 * MS), ..idle };
    let first = CgroupSample { throttles: 0, throttled_ns: 0, ..idle };
    for (name, before, after, window_ns, expected) in [
        (
            "a period ended",
            busy,
            CgroupSample { throttles: 5, throttled_ns: 360 * MS, ..busy },
            10 * MS,
            Cause::Throttled,
        ),
        ("its end is not yet counted", busy, CgroupSample { throttles: 5, ..busy }, 10 * MS, Cause::Throttled),
        (
            "a little of it",
            idle,
            CgroupSample { throttles: 5, throttled_ns: 301 * MS, ..busy },
            10 * MS,
            Cause::NotScheduled,
        ),
        ("nothing of the group ran", idle, idle, 10 * MS, Cause::Throttled),
        ("nothing counted that ran", idle, idle, 7 * MS, Cause::NotScheduled),
        ("others of the group ran", idle, busy, 10 * MS, Cause::NotScheduled),
        ("never throttled so far", first, first, 10 * MS, Cause::NotScheduled),
        (
            "no quota",
            CgroupSample { quota: None, ..idle },
            CgroupSample { quota: None, ..idle },
            10 * MS,
            Cause::NotScheduled,
        ),
        (
            "what was used is not known",
            CgroupSample { usage_ns: None, ..idle },
            CgroupSample { usage_ns: None, ..idle },
            10 * MS,
            Cause::NotScheduled,
        ),
    ] {
        let reported = classify(&waiting(), &waiting(), Some(&before), Some(&after), window_ns);
        assert_eq!(reported, expected, "{name}");
        // A thread that runs or sleeps is not throttled, whatever happens to its group.
        let sleeping = in_call(libc::SYS_clock_nanosleep, "hrtimer_nanosleep");
        let reported = classify(&sleeping, &sleeping, Some(&before), Some(&after), window_ns);
        assert_eq!(reported, Cause::Sleep, "{name}");
    }
    assert_eq!(classify(&waiting(), &waiting(), Some(&idle), None, WINDOW_NS), Cause::NotScheduled);
}

#[test]
fn a_late_watcher_reports_the_cause_of_its_delay() {
    let quota = CgroupSample { quota: Some(0.5), throttles: 4, ..CgroupSample::default() };
    let throttled = CgroupSample { throttles: 5, throttled_ns: 60 * MS, ..quota };
    let reported = |expected_ns, elapsed_ns, after: ThreadSample| {
        classify_delay(expected_ns, elapsed_ns, &running(), &after, Some(&quota), Some(&quota))
    };
    let stopped = later(running(), MS, MS, 1);
    // On time; a little late; late by less than it slept.
    assert_eq!(reported(10 * MS, 10 * MS, stopped), None);
    assert_eq!(reported(MS, 5 * MS, stopped), None);
    assert_eq!(reported(50 * MS, 90 * MS, stopped), None);
    // Late because of its own work.
    assert_eq!(reported(MS, 60 * MS, later(running(), 50 * MS, 0, 1)), None);
    // Late for lack of a processor, by the quota, or for a page; if none of these, it was stopped.
    let ready = later(running(), MS, 55 * MS, 1);
    assert_eq!(reported(MS, 60 * MS, ready), Some(Cause::NotScheduled));
    let group_cause = classify_delay(MS, 60 * MS, &running(), &ready, Some(&quota), Some(&throttled));
    assert_eq!(group_cause, Some(Cause::Throttled));
    assert_eq!(reported(MS, 60 * MS, faulted(stopped)), Some(Cause::PageIn));
    assert_eq!(reported(MS, 60 * MS, stopped), Some(Cause::Stopped));
}
