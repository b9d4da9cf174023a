//! Reads what the machine provides for this program: its processors, and what its quota has taken
//! from it.
//!
//! Snapshots use this module, and so does the code that determines why a thread does not run. One
//! sample costs a sample of the control groups (see `cgroup`) and one system call.

use volt_telemetry::Host;

use crate::fork::Computed;
use crate::kernel::cgroup::{Cgroup, CgroupSample};

/// Returns the control groups of this program, as they were at the first call.
pub fn cgroup() -> Option<&'static Cgroup> {
    static CGROUP: Computed<Option<Cgroup>> = Computed::new();
    CGROUP.get_or_compute(Cgroup::of_this_program).as_ref()
}

/// Reads the current values of the machine.
pub fn host() -> Host {
    let group = cgroup().map(Cgroup::sample);
    let quota = group.and_then(|group| group.quota);
    let of_quota = |count: fn(CgroupSample) -> u64| group.filter(|group| group.quota.is_some()).map(count);
    Host {
        processors: processors(allowed(), quota),
        throttles: of_quota(|group| group.throttles),
        throttled_ns: of_quota(|group| group.throttled_ns),
    }
}

/// Returns how many of the `allowed` processors remain under a quota.
fn processors(allowed: u32, quota: Option<f64>) -> u32 {
    // An infinite or missing quota leaves all of them.
    let of_quota = quota.map_or(u32::MAX, |quota| quota.ceil() as u32);
    allowed.min(of_quota).max(1)
}

/// Returns how many processors this thread may run on. As a rule, all threads of a process may run
/// on the same ones.
fn allowed() -> u32 {
    #[cfg(all(target_os = "linux", not(miri)))]
    if let Ok(allowed) = rustix::thread::sched_getaffinity(None) {
        return allowed.count();
    }
    std::thread::available_parallelism().map_or(1, |processors| u32::try_from(processors.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_rounded_up_to_at_least_one_processor() {
        assert_eq!(processors(8, None), 8);
        assert_eq!(processors(8, Some(2.5)), 3);
        assert_eq!(processors(2, Some(64.0)), 2);
        assert_eq!(processors(8, Some(0.0)), 1);
    }

    #[test]
    fn the_processors_agree_with_those_of_the_standard_library() {
        let (host, all) = (host(), std::thread::available_parallelism().unwrap().get() as u32);
        // The standard library rounds the quota down.
        assert!((all..=all + 1).contains(&host.processors), "{host:?} of {all}");
        assert_eq!(host.throttles.is_some(), host.throttled_ns.is_some());
    }
}
