//! Whether the sentinel came late to a check since the machine held it up: then what it sees of
//! others is the machine's doing as well.
//!
//! A check that is late by `PAUSE` is a pause, unless the sentinel's own thread was busy for most
//! of the time; what held it up is told by two samples of that thread (`kernel::cause::held_up`),
//! the earlier of which is some checks old, since one takes 5 µs, and of the control groups 20 µs a
//! level more.
//!
//! Who writes: the sentinel's thread.

use std::time::Duration;

use volt_stacks::kernel::cause::held_up;
use volt_stacks::kernel::cgroup::{Cgroup, CgroupSample};
use volt_stacks::kernel::host;
use volt_stacks::kernel::thread::{ThreadProbe, ThreadSample, own_id};
use volt_telemetry::incident::Cause;

use crate::clock;
use crate::config::PAUSE;

/// Checks for which a sample of the own thread is good.
const CHECKS_PER_THREAD_SAMPLE: u32 = 16;
/// The same for the control groups.
const CHECKS_PER_CGROUP_SAMPLE: u32 = 128;

/// See the header of this file.
pub(super) struct Lateness {
    own: Option<ThreadProbe>,
    thread: Option<ThreadSample>,
    cgroup: Option<CgroupSample>,
    checks: u32,
}

/// The machine held the sentinel up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) late_ns: u64,
    /// `Unknown` where the kernel does not say.
    pub(super) cause: Cause,
}

impl Lateness {
    /// Of the thread that calls it, and will ask.
    pub(super) fn new() -> Self {
        let own = own_id().map(ThreadProbe::new);
        let thread = own.as_ref().and_then(ThreadProbe::sample);
        Self { own, thread, cgroup: host::cgroup().map(Cgroup::sample), checks: 0 }
    }

    /// What there is to be said of a sleep that was to last for `slept`, and after which
    /// `elapsed_ns` have passed since the check before it.
    pub(super) fn pause(&mut self, slept: Duration, elapsed_ns: u64) -> Option<Pause> {
        let slept_ns = clock::saturating_ns(slept);
        let late_ns = elapsed_ns.saturating_sub(slept_ns);
        if late_ns < clock::saturating_ns(PAUSE) {
            self.refresh();
            return None;
        }
        let after = self.own.as_ref().and_then(ThreadProbe::sample);
        let cgroup = host::cgroup().map(Cgroup::sample);
        let cause = match (&self.thread, &after) {
            (Some(before), Some(after)) => {
                held_up(slept_ns, elapsed_ns, before, after, self.cgroup.as_ref(), cgroup.as_ref())
            }
            _ => Some(Cause::Unknown),
        };
        (self.thread, self.cgroup, self.checks) = (after, cgroup, 0);
        cause.map(|cause| Pause { late_ns, cause })
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
