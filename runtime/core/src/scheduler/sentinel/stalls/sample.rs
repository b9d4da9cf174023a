//! A sample of the thread of a stuck worker.

use volt_stacks::kernel::cgroup::{Cgroup, CgroupSample};
use volt_stacks::kernel::host;
use volt_stacks::kernel::thread::ThreadSample;

/// See [`Groups`].
const GROUPS_GOOD_FOR_NS: u64 = 10_000_000;

/// A sample of a thread.
pub(super) struct Sample {
    pub(super) at_ns: u64,
    pub(super) thread: ThreadSample,
    /// Only for a thread that can run and does not. For other threads it would show nothing, and it
    /// takes 20 µs per level.
    pub(super) cgroup: Option<CgroupSample>,
}

impl Sample {
    pub(super) fn new(thread: ThreadSample, at_ns: u64, groups: &mut Groups) -> Self {
        let may_be_throttled = !thread.is_on_cpu && !thread.is_blocked();
        Self { at_ns, thread, cgroup: if may_be_throttled { groups.sample(at_ns) } else { None } }
    }

    /// Returns the kernel function in which the thread waits, if it does.
    pub(super) fn wait_channel(&self) -> Option<&str> {
        self.thread.wait_channel.as_ref().map(|channel| channel.as_str())
    }
}

/// The last sample of the control groups, and when it was taken. It is used for a while: the kernel
/// updates its counts with its ticks, usually 4 ms apart, and on a busy machine there is a waiting
/// thread in nearly every sample.
#[derive(Default)]
pub(super) struct Groups(Option<(u64, Option<CgroupSample>)>);

impl Groups {
    fn sample(&mut self, now_ns: u64) -> Option<CgroupSample> {
        match self.0 {
            Some((at_ns, sample)) if now_ns.saturating_sub(at_ns) < GROUPS_GOOD_FOR_NS => sample,
            _ => {
                let sample = host::cgroup().map(Cgroup::sample);
                self.0 = Some((now_ns, sample));
                sample
            }
        }
    }
}
