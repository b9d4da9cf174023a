//! Determines why a thread does not make progress, from two samples of it. All functions are pure.
//!
//! The runtime's sentinel calls [`classify`] for a worker whose poll is stuck, and
//! [`classify_delay`] for its own thread.
//!
//! # Shares
//!
//! The time between the samples is divided into three shares. The largest share gives the cause,
//! with one exception. A thread that was blocked for less than a quarter of the time and ran for at
//! least a quarter is classified as `Cpu`. Such threads use the processor time that they get. If
//! there are more of them than processors, each waits most of the time, and spare workers add to
//! their number.
//!
//! | share   | is                                                                    | means                                |
//! |---------|-----------------------------------------------------------------------|--------------------------------------|
//! | ran     | growth of its time on processors                                      | `Cpu`                                |
//! | ready   | growth of its time waited for one; also the rest, if it waits now     | `Throttled` or `NotScheduled`        |
//! | blocked | the remaining time                                                    | the second table                     |
//!
//! The kernel counts a wait for a processor when the wait ends. A wait in progress is therefore
//! inferred. If the thread is runnable, was not on a processor during the later sample, and was not
//! blocked in the earlier one, the remaining time counts as ready. The same holds for a thread that
//! is runnable at both samples and received no processor in between, even if it is on one now. In
//! that case the hypervisor gave the processor to another virtual machine.
//!
//! # Throttled or not scheduled
//!
//! The cause is `Throttled` rather than `NotScheduled` if a level of the program's control group
//! has a quota and one of these holds:
//! 1. The count of throttled periods grew. The time that the group was throttled grew by at least a
//!    quarter of the ready share, or has not been updated yet.
//! 2. The group has been throttled before, and used less than a quarter of a processor between
//!    samples that are at least two ticks apart. Nothing in the group ran, so the thread was not
//!    displaced by other threads of its group.
//!
//! The counts change when a throttled period ends. During a throttled period only (2) can hold, and
//! the very first period is classified as `NotScheduled` until it ends.
//!
//! # Blocked threads
//!
//! The first line that holds applies (`waits` lists the meanings of calls and functions). It
//! applies to the later sample if the thread was blocked then, else to the earlier one:
//!
//! | the thread is                                      | and                                            | cause       |
//! |----------------------------------------------------|------------------------------------------------|-------------|
//! | stopped, or frozen                                 |                                                | `Stopped`   |
//! | in no system call                                  | in a function that waits for a lock            | `Lock`      |
//! | in no system call                                  | otherwise: only a page makes it wait there     | `PageIn`    |
//! | in a call that sleeps, locks, or does I/O          |                                                | that one    |
//! | in a call about memory                             | in a function that waits for a lock            | `Lock`      |
//! | in a call about memory                             | it waits for a page, or in the state `D`       | `PageIn`    |
//! | in another call, or the call cannot be read        | in a function that sleeps, locks, or does I/O  | that one    |
//! | in another call, or the call cannot be read        | it waits for a handler of `userfaultfd`        | `PageIn`    |
//! | in no call that can be read                        | it waits for a page, and major faults grew     | `PageIn`    |
//! | in another call, or the call cannot be read        | it waits for a page                            | `Io`        |
//! | in the state `D`                                   | nothing else is known, and major faults grew   | `PageIn`    |
//! | in the state `D`                                   | nothing else is known                          | `Io`        |
//! | anything else                                      |                                                | `Unknown`   |
//!
//! If it was blocked, but at neither sample: `PageIn` if major faults grew, else `Unknown`. The
//! next pair of samples will decide.
//!
//! # Accuracy
//!
//! Samples 1 ms apart suffice, since the time on processors is exact. If the interval is about as
//! short as a wait, a thread that is just waking up may be classified as ready. A later pair of
//! samples corrects that.
//!
//! # Rejected alternatives
//!
//! * The state alone: a spinning thread is `R` whether it gets its processor or not. A thread that
//!   reads a mapped file by page faults is `R` half of the time.
//! * The growth of `schedstat`'s waits alone: a wait in progress is not in it.
//! * Requiring more than half of the time: a thread that runs, waits and sleeps a third each would
//!   have no cause.

use volt_telemetry::incident::Cause;

use crate::kernel::cgroup::CgroupSample;
use crate::kernel::thread::{Inside, ThreadSample, ThreadState};
use crate::kernel::waits::Wait;

/// How late a watcher must be to be reported, in addition to twice its time. The usual delays of a
/// busy machine are shorter.
const LATE_MIN_NS: u64 = 5_000_000;
/// Divisor for each threshold of a quarter in the header: of the time that a thread ran or was
/// blocked, of the ready share, and of a processor.
const QUARTER: u64 = 4;
/// Number of ticks after which the kernel's count of processor time is certainly up to date.
const SETTLED_TICKS: u64 = 2;

/// Returns why a thread made no progress between two samples that were `elapsed_ns` apart, 1 ms or
/// more. `Throttled` requires samples of the control group at about the same times, if there is a
/// group.
///
/// A thread that has exited has no sample, and so no cause. Do not rely on the result if the
/// watcher itself was delayed meanwhile: see [`classify_delay`].
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

/// Returns why a watcher woke up late that slept for `expected_ns` and sampled again after
/// `elapsed_ns`, if the machine caused it. Returns `None` if it was about on time, or was late
/// because of its own work.
///
/// The samples are of the watcher's own thread. The earlier one may be older than the sleep,
/// provided that the thread had few delays in between.
///
/// | most of its lateness is              | cause                                                                         |
/// |--------------------------------------|-------------------------------------------------------------------------------|
/// | below 5 ms, or below `expected_ns`   | none                                                                          |
/// | its own time on a processor          | none                                                                          |
/// | its own wait for a processor         | `Throttled` or `NotScheduled`, as for any thread                              |
/// | none of these, and major faults grew | `PageIn`: the watcher itself was swapped out                                  |
/// | none of these                        | `Stopped`: SIGSTOP and SIGCONT, a debugger, a freezer, a suspended machine    |
///
/// The observations of other threads over such a time have the same cause. The watcher should
/// record this cause instead, and replace no worker.
pub fn classify_delay(
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
        // A wait that began before the first sample is counted in full when it ends.
        let waited_ns = growth(before.times.run_delay_ns, after.times.run_delay_ns).min(rest_ns);
        let ready_ns = if waits_now || was_never_switched { rest_ns } else { waited_ns };
        Self { ran_ns, ready_ns, blocked_ns: rest_ns - ready_ns }
    }
}

/// Returns why a runnable thread did not run.
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

/// Returns what blocked a thread.
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

/// Returns whether a page had to be fetched from the disk.
fn has_faulted(before: &ThreadSample, after: &ThreadSample) -> bool {
    growth(before.major_faults, after.major_faults) > 0
}

/// Returns 0 if one of them is unknown.
fn growth(before: Option<u64>, after: Option<u64>) -> u64 {
    before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before))
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
