//! Reads how often the program's control group was throttled, because its processor quota was used
//! up.
//!
//! A control group may have a quota: so much processor time per period. When the quota is used up,
//! the kernel stops all threads of the group until the next period begins. Snapshots and `cause`
//! use the counts of this module.
//!
//! # Shape
//!
//! A sample covers the group and its parents, up to the top of the hierarchy that this program can
//! see. Only levels with a quota count, since the quota of any level stops the thread. This module
//! supports version 2, and the `cpu` hierarchy of version 1, which takes precedence where it
//! exists.
//!
//! | of a level        | version 2        | version 1                                                     |
//! |-------------------|------------------|---------------------------------------------------------------|
//! | quota and period  | `cpu.max`        | `cpu.cfs_quota_us`, `cpu.cfs_period_us`                        |
//! | throttled: count, time | `cpu.stat`  | `cpu.stat`                                                    |
//! | time used         | `cpu.stat`       | `cpuacct.usage`, if the program is in the same group there    |
//!
//! Writer: the kernel. Readers: threads that determine why a runnable thread does not run. A sample
//! takes 20 µs per level. The files are opened for each sample, because samples are rare,
//! descriptors are expensive, and a quota may be set while the program runs. Samples are too slow
//! to be taken at every tick.
//!
//! # Delays in the kernel's counts
//!
//! The counts of throttling change when the throttling *ends*, that is, with the next period. The
//! time used is brought up to date at ticks of the kernel, hence `CgroupSample::tick_ns`. `cause`
//! describes the consequences.
//!
//! # Limits
//!
//! * At most `LEVELS_MAX` levels are sampled, the innermost ones.
//! * The group is that of the first lookup; later moves are not noticed.
//! * If the threads of the program are in several groups, the group of the program counts.
//!
//! Sources: `cgroups(7)`, `Documentation/admin-guide/cgroup-v2.rst`,
//! `Documentation/scheduler/sched-bwc.rst` of Linux 6.18.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of levels that are sampled, from the program's own group upwards. Kubernetes has
/// four levels, a user session of systemd five.
const LEVELS_MAX: usize = 8;

/// The control groups of this program.
#[derive(Debug)]
pub struct Cgroup {
    levels: Vec<Level>,
}

/// One level of the hierarchy: the group of the program, or one above it.
#[derive(Debug, PartialEq, Eq)]
struct Level {
    version: Version,
    folder: PathBuf,
    /// Version 1: the folder of the same group in the hierarchy that counts processor time.
    usage_folder: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The effect of the quotas, since the groups were created. The counts are sums over all levels
/// that have a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CgroupSample {
    /// The tightest quota, in processors. `None`: no level has one.
    pub(crate) quota: Option<f64>,
    /// Periods in which a group was throttled. A period is counted when it is over.
    pub(crate) throttles: u64,
    /// How long the groups were throttled, ns, summed over processors. Counted when the throttling
    /// is over.
    pub(crate) throttled_ns: u64,
    /// Processor time used by the group with the tightest quota, ns. Up to one tick behind.
    pub(crate) usage_ns: Option<u64>,
    /// Time between two ticks of the kernel, ns.
    pub(crate) tick_ns: u64,
}

impl Cgroup {
    /// Returns the groups of this program, or `None` if there are none that this program can see.
    pub(crate) fn of_this_program() -> Option<Self> {
        if cfg!(any(miri, not(target_os = "linux"))) {
            return None;
        }
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        // Any file system of the machine may be mounted at a path that is not UTF-8.
        let mounts = fs::read("/proc/self/mountinfo").ok()?;
        let levels = levels(&groups, &String::from_utf8_lossy(&mounts));
        let cgroup = Self { levels };
        // In version 2 the controller may be off, at this level and above. Then nothing can be
        // throttled.
        cgroup.levels.iter().any(|level| level.throttling().is_some()).then_some(cgroup)
    }

    /// Reads the current counts.
    pub fn sample(&self) -> CgroupSample {
        let mut sample = CgroupSample { tick_ns: tick_ns(), ..CgroupSample::default() };
        for level in &self.levels {
            let (Some(quota), Some(counts)) = (level.quota(), level.throttling()) else { continue };
            sample.throttles += counts.throttles;
            sample.throttled_ns += counts.throttled_ns;
            if sample.quota.is_none_or(|tightest| quota < tightest) {
                sample.quota = Some(quota);
                sample.usage_ns = counts.usage_ns.or_else(|| level.usage_ns());
            }
        }
        sample
    }
}

/// The contents of `cpu.stat`.
#[derive(Debug, PartialEq, Eq)]
struct Throttling {
    throttles: u64,
    throttled_ns: u64,
    usage_ns: Option<u64>,
}

impl Throttling {
    /// Returns `None` if the group cannot be throttled: without the controller, the file of a group
    /// only contains the time that it used.
    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
            value.trim_end().parse::<u64>().ok()
        };
        let of_us = |us: u64| us.saturating_mul(1_000);
        Some(Self {
            throttles: value("nr_throttled")?,
            throttled_ns: value("throttled_usec").map(of_us).or_else(|| value("throttled_time"))?,
            usage_ns: value("usage_usec").map(of_us),
        })
    }
}

impl Level {
    fn throttling(&self) -> Option<Throttling> {
        Throttling::parse(&fs::read_to_string(self.folder.join("cpu.stat")).ok()?)
    }

    /// Returns the quota, in processors.
    fn quota(&self) -> Option<f64> {
        let read = |file: &str| fs::read_to_string(self.folder.join(file)).ok();
        let text = match self.version {
            Version::One => format!("{} {}", read("cpu.cfs_quota_us")?.trim_end(), read("cpu.cfs_period_us")?),
            Version::Two => read("cpu.max")?,
        };
        quota(&text)
    }

    fn usage_ns(&self) -> Option<u64> {
        fs::read_to_string(self.usage_folder.as_ref()?.join("cpuacct.usage")).ok()?.trim_end().parse().ok()
    }
}

/// Parses `quota period`. Returns `None` for `max` and -1.
fn quota(text: &str) -> Option<f64> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
    let (quota_us, period_us) = (numbers.next()??, numbers.next()??);
    (period_us > 0).then(|| quota_us as f64 / period_us as f64)
}

/// The longest time between two ticks with which Linux is built: 100 per second.
#[cfg(target_os = "linux")]
const TICK_MAX_NS: u64 = 10_000_000;

/// Returns the time between two ticks of the kernel: the resolution of the coarse clock, which only
/// ticks advance.
fn tick_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        // Not through rustix, which panics if a sandbox refuses the call.
        let mut step = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `step` has room for the result.
        let failed = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut step) };
        if failed == 0 { u64::try_from(step.tv_nsec).unwrap_or(TICK_MAX_NS) } else { TICK_MAX_NS }
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// Returns the groups listed in `/proc/self/cgroup`, from the program's own upwards, as far as
/// `/proc/self/mountinfo` shows them to be mounted.
fn levels(groups: &str, mounts: &str) -> Vec<Level> {
    let one = place(groups, mounts, Some("cpu"));
    let (version, place, usage) = match one {
        Some(cpu) => (Version::One, cpu, place(groups, mounts, Some("cpuacct"))),
        None => match place(groups, mounts, None) {
            Some(unified) => (Version::Two, unified, None),
            None => return Vec::new(),
        },
    };
    // The group of the same name in the other hierarchy, if the program is in it.
    let usage = usage.filter(|usage| usage.below == place.below);
    let level = |below: &Path| Level {
        version,
        folder: place.mount.join(below),
        usage_folder: usage.as_ref().map(|usage| usage.mount.join(below)),
    };
    place.below.ancestors().map(level).take(LEVELS_MAX).collect()
}

/// Parses texts as the files of control groups, for the fuzz targets. Returns the number of levels.
#[cfg(fuzzing)]
pub(super) fn parse(one: &str, other: &str) -> usize {
    if let Some(quota) = quota(one) {
        assert!(quota.is_finite() && quota >= 0.0);
    }
    drop(Throttling::parse(one));
    let levels = levels(one, other);
    assert!(levels.len() <= LEVELS_MAX);
    levels.len()
}

/// Where the group of the program is mounted.
struct Place {
    mount: PathBuf,
    /// The group's path below the mount; empty if the mount is the group itself.
    below: PathBuf,
}

/// Finds the group that has this controller in version 1, or, for `None`, the group of version 2.
fn place(groups: &str, mounts: &str, controller: Option<&str>) -> Option<Place> {
    let has = |list: &str| list.split(',').any(|name| Some(name) == controller);
    let group = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        (if controller.is_some() { has(controllers) } else { id == "0" }).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        // id parent device ROOT MOUNT options … - KIND source OPTIONS
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, mount) = (fields.next()?, fields.next()?);
        let mut fields = kind.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let is_it = if controller.is_some() { kind == "cgroup" && has(options) } else { kind == "cgroup2" };
        // The mount may show a group above the program's. In a container that sees its outside
        // path, the mount shows the program's own group.
        let below = Path::new(group).strip_prefix(unescape(root)).map(Path::to_owned).unwrap_or_default();
        is_it.then(|| Place { mount: unescape(mount), below })
    })
}

/// Decodes a path of `mountinfo`, which writes blanks and some other characters as `\040`.
fn unescape(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(code) => path.extend([char::from(code)].into_iter().chain(part[3..].chars())),
            None => path.extend(['\\'].into_iter().chain(part.chars())),
        }
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(groups: &str, mounts: &str) -> Vec<String> {
        levels(groups, mounts).iter().map(|level| level.folder.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_group_of_version_2_counts_with_those_above_it() {
        let mounts = "31 23 0:28 / /proc rw - proc proc rw\n29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let wanted = ["/sys/fs/cgroup/user.slice/a.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup/"];
        assert_eq!(folders("0::/user.slice/a.scope\n", mounts), wanted);
        assert_eq!(levels("0::/user.slice/a.scope\n", mounts)[0].version, Version::Two);
    }

    #[test]
    fn cgroup_v1_takes_precedence_and_usage_needs_the_same_group() {
        let mounts = "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n33 31 0:30 / /cg/acct rw - cgroup cgroup rw,cpuacct\n\
                      41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n";
        let same = levels("2:cpuacct:/a\n1:cpu:/a\n0::/b\n", mounts);
        assert_eq!(same.len(), 2);
        assert_eq!(same[0].version, Version::One);
        assert_eq!(same[0].folder, Path::new("/cg/cpu/a"));
        assert_eq!(same[0].usage_folder.as_deref(), Some(Path::new("/cg/acct/a")));
        assert_eq!(levels("2:cpuacct:/\n1:cpu:/a\n0::/b\n", mounts)[0].usage_folder, None);
        let together = "32 31 0:29 / /cg/both rw - cgroup cgroup rw,cpu,cpuacct\n";
        assert_eq!(folders("4:cpu,cpuacct:/\n", together), ["/cg/both/"]);
    }

    #[test]
    fn cgroup_paths_from_outside_resolve_to_the_container_mount() {
        let inside = "32 31 0:29 /docker/ab /cg/a\\040b rw - cgroup cgroup rw,cpu\n";
        assert_eq!(folders("1:cpu:/docker/ab\n", inside), ["/cg/a b/"]);
        assert_eq!(folders("1:cpu:/docker/ab/c\n", inside), ["/cg/a b/c", "/cg/a b/"]);
        assert_eq!(folders("1:cpu:/../elsewhere\n", inside), ["/cg/a b/"]);
    }

    #[test]
    fn without_a_known_hierarchy_there_are_no_levels() {
        assert!(levels("", "").is_empty());
        assert!(levels("0::/\n", "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu\n").is_empty());
        assert!(levels("garbage\n:\n1:\n", "garbage - \n - - -\n").is_empty());
    }

    #[test]
    fn the_deepest_levels_are_kept() {
        let mounts = "29 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n";
        let levels = folders("0::/1/2/3/4/5/6/7/8/9\n", mounts);
        assert_eq!(levels.len(), LEVELS_MAX);
        assert_eq!(levels[0], "/cg/1/2/3/4/5/6/7/8/9");
    }

    #[test]
    fn cgroup_v1_and_v2_throttling_counts_and_quotas_are_parsed() {
        let two = "usage_usec 7\nuser_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 40\n";
        let one = "nr_periods 9\nnr_throttled 3\nthrottled_time 40000\n";
        let counts = Throttling { throttles: 3, throttled_ns: 40_000, usage_ns: Some(7_000) };
        assert_eq!(Throttling::parse(one), Some(Throttling { usage_ns: None, ..counts }));
        assert_eq!(Throttling::parse(two), Some(counts));
        assert_eq!(Throttling::parse("usage_usec 7\nuser_usec 5\n"), None);
        assert_eq!(quota("max 100000\n"), None);
        assert_eq!(quota("-1 100000\n"), None);
        assert_eq!(quota("50000 100000\n"), Some(0.5));
        assert_eq!(quota("50000 0\n"), None);
    }
}
