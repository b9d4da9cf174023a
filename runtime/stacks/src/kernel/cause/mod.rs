//! Why a thread does not get on, from two samples of it: pure functions of the samples.
//!
//! Shape: the time between the samples is divided into three shares, the largest of which is the
//! answer; but a thread that was blocked for less than a quarter of the time and ran for a quarter
//! at least burns what it gets, and is told as one that does: on a machine with more such threads
//! than processors, of which spare workers are some, each of them mostly waits.
//!
//! | share   | is                                                                    | means                                |
//! |---------|-----------------------------------------------------------------------|--------------------------------------|
//! | ran     | growth of its time on processors                                      | `Cpu`                                |
//! | ready   | growth of its time waited for one; also the rest, if it waits for one | `Throttled` or `NotScheduled`        |
//! | blocked | what is left                                                          | the second table                     |
//!
//! The kernel counts a wait for a processor when it ends. So a thread that can run, was not on a
//! processor during the sample, and was not seen blocked before, is taken to have been ready for
//! what is left. Where it was given no processor in between at all and can run at both samples, it
//! was ready too, even if it sits on one: then it is the machine below that ran somebody else.
//!
//! `Throttled` rather than `NotScheduled`, if a level of the process's control group has a quota
//! and
//! 1. the count of throttled periods grew, and the time that it was throttled by at least a quarter
//!    of the ready share, or not yet; or
//! 2. it has been throttled before, and the group used less than a quarter of a processor between
//!    samples that are two ticks apart or more: nothing of the group ran, so it was not the group's
//!    own threads that ran instead.
//!
//! The counts move when a throttled period ends: in flight only (2) tells, and the first period of
//! all reads as `NotScheduled` until it ends.
//!
//! A blocked thread, by the first line that holds (see `waits` for what calls and functions mean),
//! told of the later sample if it was blocked then, else of the earlier:
//!
//! | it is                                              | and                                            | cause       |
//! |----------------------------------------------------|------------------------------------------------|-------------|
//! | stopped, or frozen                                 |                                                | `Stopped`   |
//! | in no system call                                  | in a function that waits for a lock            | `Lock`      |
//! | in no system call                                  | else: nothing but a page makes it wait there   | `PageIn`    |
//! | in a call that sleeps, locks, or does I/O          |                                                | that        |
//! | in a call about memory                             | in a function that waits for a lock            | `Lock`      |
//! | in a call about memory                             | waits for a page, or in the state `D`          | `PageIn`    |
//! | in another call, or the call cannot be read        | in a function that sleeps, locks, or does I/O  | that        |
//! | in no call that can be read                        | waits for a page, and major faults grew        | `PageIn`    |
//! | in another call, or the call cannot be read        | waits for a page                               | `Io`        |
//! | in the state `D`                                   | nothing else is known, and major faults grew   | `PageIn`    |
//! | in the state `D`                                   | nothing else is known                          | `Io`        |
//! | anything else                                      |                                                | `Unknown`   |
//!
//! Was blocked, but at neither sample: `PageIn` if major faults grew, else `Unknown`; the next pair
//! of samples will tell.
//!
//! Samples 1 ms apart suffice: the time on processors is exact. Samples as close as a wait is long
//! may take a thread that wakes up for one that was ready; a later pair corrects that.
//!
//! Rejected: the state alone (a spinning thread is `R` whether it gets its processor or not, and a
//! thread that faults its way through a file is found in `R` half of the time); the growth of
//! `schedstat`'s waits alone (a thread that waits now has none); the larger half (a thread that
//! runs, waits and sleeps a third each would have no cause).

use volt_telemetry::incident::Cause;

use crate::kernel::cgroup::CgroupSample;
use crate::kernel::thread::{Inside, ThreadSample, ThreadState};
use crate::kernel::waits::Wait;

/// How late a watcher has to be for its lateness to be told, beyond twice its time: a busy
/// machine's usual hiccups stay below.
const LATE_MIN_NS: u64 = 5_000_000;
/// Ran for this part of the time, was throttled for this part of the time waited, or used this part
/// of a processor: see the header.
const QUARTER: u64 = 4;
/// Ticks after which what ran is sure to be counted.
const SETTLED_TICKS: u64 = 2;

/// Why a thread did not get on between two samples that were `elapsed_ns` apart, 1 ms or more. For
/// `Throttled`, the control group's counts at about the same times, where there is a group.
///
/// A thread that is gone has no sample, and no cause. Not to be believed if the watcher itself was
/// held up meanwhile: see [`held_up`].
pub fn classify(
    before: &ThreadSample,
    after: &ThreadSample,
    cgroup_before: Option<&CgroupSample>,
    cgroup_after: Option<&CgroupSample>,
    elapsed_ns: u64,
) -> Cause {
    let shares = Shares::between(before, after, elapsed_ns);
    let is_largest = shares.ran_ns >= shares.ready_ns.max(shares.blocked_ns);
    let burns_its_part = shares.ran_ns >= elapsed_ns / QUARTER && shares.blocked_ns < elapsed_ns / QUARTER;
    if shares.ran_ns > 0 && (is_largest || burns_its_part) {
        Cause::Cpu
    } else if shares.ready_ns > 0 && shares.ready_ns >= shares.blocked_ns {
        not_run(cgroup_before, cgroup_after, shares.ready_ns, elapsed_ns)
    } else {
        blocked(before, after)
    }
}

/// What held up a watcher that went to sleep for `expected_ns` and sampled again after
/// `elapsed_ns`: the machine, not what it watches. `None` if it is about in time, or was late by
/// its own doing.
///
/// The samples are of the watcher's own thread; the earlier may be older than the sleep, as long as
/// it had few delays in between.
///
/// | its lateness is mostly               | cause                                                                         |
/// |--------------------------------------|-------------------------------------------------------------------------------|
/// | under 5 ms, or under `expected_ns`   | none                                                                          |
/// | its own time on a processor          | none                                                                          |
/// | its own wait for a processor         | `Throttled` or `NotScheduled`, as for any thread                              |
/// | nothing of these, major faults grew  | `PageIn`: the watcher itself was swapped out                                  |
/// | nothing of these                     | `Stopped`: SIGSTOP and SIGCONT, a debugger, a freezer, a machine that stood still |
///
/// What a watcher sees of others over such a time is the machine's doing as well: it should write
/// down this cause instead, and heal nothing.
pub fn held_up(
    expected_ns: u64,
    elapsed_ns: u64,
    before: &ThreadSample,
    after: &ThreadSample,
    cgroup_before: Option<&CgroupSample>,
    cgroup_after: Option<&CgroupSample>,
) -> Option<Cause> {
    let late_ns = elapsed_ns.saturating_sub(expected_ns);
    if late_ns < expected_ns.max(LATE_MIN_NS) {
        return None;
    }
    let is_mostly = |ns: u64| ns >= late_ns / 2;
    let ready_ns = growth(before.times.run_delay_ns, after.times.run_delay_ns);
    if is_mostly(after.times.run_ns.saturating_sub(before.times.run_ns)) {
        None
    } else if is_mostly(ready_ns) {
        Some(not_run(cgroup_before, cgroup_after, ready_ns.min(elapsed_ns), elapsed_ns))
    } else if has_faulted(before, after) {
        Some(Cause::PageIn)
    } else {
        Some(Cause::Stopped)
    }
}

/// How a thread's time was spent.
struct Shares {
    ran_ns: u64,
    ready_ns: u64,
    blocked_ns: u64,
}

impl Shares {
    fn between(before: &ThreadSample, after: &ThreadSample, elapsed_ns: u64) -> Self {
        let ran_ns = after.times.run_ns.saturating_sub(before.times.run_ns).min(elapsed_ns);
        let rest_ns = elapsed_ns - ran_ns;
        let is_runnable = |sample: &ThreadSample| sample.state == Some(ThreadState::Runnable);
        let waits_now = is_runnable(after) && !after.is_on_cpu && !before.is_blocked();
        let was_never_switched = is_runnable(before)
            && is_runnable(after)
            && after.times.timeslices.is_some()
            && before.times.timeslices == after.times.timeslices;
        // A wait that began before the first sample counts as a whole when it ends.
        let waited_ns = growth(before.times.run_delay_ns, after.times.run_delay_ns).min(rest_ns);
        let ready_ns = if waits_now || was_never_switched { rest_ns } else { waited_ns };
        Self { ran_ns, ready_ns, blocked_ns: rest_ns - ready_ns }
    }
}

/// Why a thread that could run did not.
fn not_run(before: Option<&CgroupSample>, after: Option<&CgroupSample>, ready_ns: u64, elapsed_ns: u64) -> Cause {
    let (Some(before), Some(after)) = (before, after) else { return Cause::NotScheduled };
    if after.quota.is_none() {
        return Cause::NotScheduled;
    }
    let throttled_ns = after.throttled_ns.saturating_sub(before.throttled_ns);
    let was_throttled = after.throttles > before.throttles && (throttled_ns == 0 || throttled_ns >= ready_ns / QUARTER);
    let is_settled = elapsed_ns >= SETTLED_TICKS * after.tick_ns;
    let stood_still = match (before.usage_ns, after.usage_ns) {
        (Some(before_ns), Some(after_ns)) => after_ns.saturating_sub(before_ns) < elapsed_ns / QUARTER,
        _ => false,
    };
    let is_throttled = after.throttles > 0 && is_settled && stood_still;
    if was_throttled || is_throttled { Cause::Throttled } else { Cause::NotScheduled }
}

/// What a thread was blocked by.
fn blocked(before: &ThreadSample, after: &ThreadSample) -> Cause {
    let has_faulted = has_faulted(before, after);
    let Some(sample) = [after, before].into_iter().find(|sample| sample.is_blocked()) else {
        return if has_faulted { Cause::PageIn } else { Cause::Unknown };
    };
    let channel = sample.wait_channel.and_then(|channel| Wait::of_channel(channel.as_str()));
    if sample.state == Some(ThreadState::Stopped) || channel == Some(Wait::Stopped) {
        return Cause::Stopped;
    }
    let call = sample.inside.and_then(Wait::of_call);
    let is_on_disk = sample.state == Some(ThreadState::Uninterruptible);
    match (call, channel) {
        (None, Some(Wait::Lock)) => Cause::Lock,
        (None, _) if sample.inside == Some(Inside::Exception) => Cause::PageIn,
        (Some(Wait::Sleep), _) => Cause::Sleep,
        (Some(Wait::Lock), _) | (Some(Wait::Memory), Some(Wait::Lock)) => Cause::Lock,
        (Some(Wait::Io), _) => Cause::Io,
        (Some(Wait::Memory), Some(Wait::Page | Wait::Fault)) => Cause::PageIn,
        (Some(Wait::Memory), _) if is_on_disk => Cause::PageIn,
        (_, Some(Wait::Sleep)) => Cause::Sleep,
        (_, Some(Wait::Io)) => Cause::Io,
        (_, Some(Wait::Fault)) => Cause::PageIn,
        (_, Some(Wait::Page)) if sample.inside.is_none() && has_faulted => Cause::PageIn,
        (_, Some(Wait::Page)) => Cause::Io,
        _ if is_on_disk && has_faulted => Cause::PageIn,
        _ if is_on_disk => Cause::Io,
        _ => Cause::Unknown,
    }
}

/// Whether a page had to come from the disk.
fn has_faulted(before: &ThreadSample, after: &ThreadSample) -> bool {
    growth(before.major_faults, after.major_faults) > 0
}

/// 0 if one of them is not known.
fn growth(before: Option<u64>, after: Option<u64>) -> u64 {
    before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before))
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
