//! Detects pauses: checks of the sentinel that come late because the machine did not run its
//! thread.
//!
//! If the machine delayed the sentinel, it has delayed the workers too, and their long polls are
//! not the tasks' fault. A check that is late by `PAUSE` is a *pause*, unless the sentinel's own
//! thread was busy for most of the time. Lateness is measured from one turn to the next
//! (`program`), so that a pause is noticed wherever it occurs: in the sleep, or in the checks,
//! which may wait for a copy of a stack. The cause of a pause comes from two samples of that thread
//! (`volt_stacks::kernel::cause::classify_delay`). The earlier sample is some checks old, since a
//! sample costs 5 µs, and one of the control groups 20 µs more per level.
//!
//! Only the sentinel's thread uses this module.

use std::time::Duration;

use volt_stacks::kernel::cause::classify_delay;
use volt_stacks::kernel::cgroup::{Cgroup, CgroupSample};
use volt_stacks::kernel::host;
use volt_stacks::kernel::thread::{ThreadProbe, ThreadSample, own_id};
use volt_telemetry::incident::Cause;

use crate::clock;
use crate::config::PAUSE;

/// For how many checks a sample of the sentinel's own thread is used.
const CHECKS_PER_THREAD_SAMPLE: u32 = 16;
/// The same for a sample of the control groups.
const CHECKS_PER_CGROUP_SAMPLE: u32 = 128;

/// The samples of the sentinel's own thread: see the module documentation.
pub(super) struct Lateness {
    own: Option<ThreadProbe>,
    thread: Option<ThreadSample>,
    cgroup: Option<CgroupSample>,
    checks: u32,
}

/// A pause: the machine delayed the sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) late_ns: u64,
    /// `Unknown` if the kernel reports no cause.
    pub(super) cause: Cause,
    /// When it was certainly over: a poll that began later is not excused.
    pub(super) until_ns: u64,
}

/// A turn of the sentinel's thread, up to the end of its sleep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) began_at_ns: u64,
    /// For how long its checks waited for stacks.
    pub(super) waited: Duration,
    /// When its sleep began, and how long that was to last.
    pub(super) slept_at_ns: u64,
    pub(super) sleep: Duration,
}

impl Lateness {
    /// Creates the detector for the current thread, which must also be the one that uses it.
    pub(super) fn new() -> Self {
        let own = own_id().map(ThreadProbe::new);
        let thread = own.as_ref().and_then(ThreadProbe::sample);
        Self { own, thread, cgroup: host::cgroup().map(Cgroup::sample), checks: 0 }
    }

    /// Returns the pause, if there was one, in a turn that is over at `now_ns`.
    pub(super) fn pause(&mut self, turn: Turn, now_ns: u64) -> Option<Pause> {
        let sleep_ns = clock::saturating_ns(turn.sleep);
        let expected_ns = clock::saturating_ns(turn.waited).saturating_add(sleep_ns);
        let elapsed_ns = now_ns.saturating_sub(turn.began_at_ns);
        let late_ns = elapsed_ns.saturating_sub(expected_ns);
        if late_ns < clock::saturating_ns(PAUSE) {
            self.refresh();
            return None;
        }
        let after = self.own.as_ref().and_then(ThreadProbe::sample);
        let cgroup = host::cgroup().map(Cgroup::sample);
        let cause = match (&self.thread, &after) {
            (Some(before), Some(after)) => {
                classify_delay(expected_ns, elapsed_ns, before, after, self.cgroup.as_ref(), cgroup.as_ref())
            }
            _ => Some(Cause::Unknown),
        };
        (self.thread, self.cgroup, self.checks) = (after, cgroup, 0);
        // If the sleep was about as long as it was to be, the pause was in the checks before it.
        let overslept_ns = now_ns.saturating_sub(turn.slept_at_ns).saturating_sub(sleep_ns);
        let until_ns = if overslept_ns < late_ns / 8 { turn.slept_at_ns } else { now_ns };
        cause.map(|cause| Pause { late_ns, cause, until_ns })
    }

    fn refresh(&mut self) {
        self.checks = self.checks.wrapping_add(1);
        if self.checks.is_multiple_of(CHECKS_PER_THREAD_SAMPLE) {
            self.thread = self.own.as_ref().and_then(ThreadProbe::sample);
        }
        if self.checks.is_multiple_of(CHECKS_PER_CGROUP_SAMPLE) {
            self.cgroup = host::cgroup().map(Cgroup::sample);
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests;
