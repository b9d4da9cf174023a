//! Tests a thread whose control group has used up its quota. Requires a group that this user may
//! create: `.ci/causes` has one created by root.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use volt_telemetry::incident::Cause;

use super::{Again, Going, WINDOW, is_child, processors, spin, watch};

/// Set where a group can certainly be created: then the test fails instead of being skipped.
const REQUIRED: &str = "VOLT_REQUIRE_CGROUP";

/// A group with a fifth of a processor, in each of these folders. Dropping this value removes it.
struct Group(Vec<PathBuf>);

impl Group {
    /// Creates a group below the group of this process, or beside it. Returns the reasons if none
    /// can be created.
    fn make() -> Result<Self, Vec<String>> {
        let name = format!("volt-{}", std::process::id());
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = |controllers: &str| {
            groups.lines().find_map(|line| {
                let (list, path) = line.split_once(':')?.1.split_once(':')?;
                list.split(',').any(|name| name == controllers).then(|| path.trim_matches('/').to_owned())
            })
        };
        let mut reasons = Vec::new();
        let mut attempt = |folder: PathBuf, file: &str, quota: &str| {
            let made = fs::create_dir(&folder).and_then(|()| fs::write(folder.join(file), quota));
            made.map_err(|error| {
                let _is_removed = fs::remove_dir(&folder);
                reasons.push(format!("{}: {error}", folder.join(file).display()));
            })
            .map(|()| folder)
        };
        // Version 1 takes precedence if it has the controller, as in the kernel.
        if let Some(own) = path("cpu") {
            for mount in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"] {
                if let Ok(folder) = attempt(Path::new(mount).join(&own).join(&name), "cpu.cfs_quota_us", "20000") {
                    // For the time used, if that is a separate hierarchy.
                    let counted = Path::new("/sys/fs/cgroup/cpuacct").join(&own).join(&name);
                    let is_counted = !counted.exists() && fs::create_dir(&counted).is_ok();
                    return Ok(Self([folder].into_iter().chain(is_counted.then_some(counted)).collect()));
                }
            }
        } else if let Some(own) = path("") {
            let own = Path::new("/sys/fs/cgroup").join(own);
            for parent in own.ancestors().take(2).filter(|parent| parent.starts_with("/sys/fs/cgroup")) {
                // If it is on already, or may not be turned on, creating the group below shows
                // that.
                let _is_on = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
                if let Ok(folder) = attempt(parent.join(&name), "cpu.max", "20000 100000") {
                    return Ok(Self(vec![folder]));
                }
            }
        } else {
            reasons.push("there are no control groups".to_owned());
        }
        Err(reasons)
    }

    fn take(&self, pid: u32) -> Result<(), Vec<String>> {
        for folder in &self.0 {
            let path = folder.join("cgroup.procs");
            fs::write(&path, pid.to_string()).map_err(|error| vec![format!("{}: {error}", path.display())])?;
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.0 {
            if let Err(error) = fs::remove_dir(folder) {
                eprintln!("{} stays: {error}", folder.display());
            }
        }
    }
}

#[test]
fn a_thread_that_has_used_its_quota_is_throttled() {
    if is_child() {
        // The thread starts when its process is in the group.
        std::io::stdin().read_exact(&mut [0]).unwrap();
        let going = Going::new();
        let is_going = going.clone();
        let watched = watch(move || spin(&is_going));
        for window in [WINDOW, Duration::from_millis(10), Duration::from_millis(300)] {
            let mut others = watched.see(Cause::Throttled, 5, window);
            eprintln!("in windows of {window:?}: 5 times Throttled, besides {others:?}");
            // A machine that stops the thread between two samples leaves no cause in them. The next
            // window decides.
            let windows = 5 + others.values().sum::<u32>();
            let unknown = others.remove(&Cause::Unknown).unwrap_or(0);
            assert!(unknown * 10 <= windows, "{unknown} of {windows} windows have no cause");
            assert!(others.keys().all(|other| [Cause::Cpu, Cause::NotScheduled].contains(other)), "{others:?}");
        }
        eprintln!("seen");
        going.end();
        return watched.join();
    }
    let _alone = processors();
    // Dropped last, when no process is in the group any more.
    let group = match Group::make() {
        Ok(group) => group,
        Err(reasons) => return skip(&reasons),
    };
    let mut child = Again::start(concat!(module_path!(), "::a_thread_that_has_used_its_quota_is_throttled"));
    if let Err(reasons) = group.take(child.child.id()) {
        return skip(&reasons);
    }
    child.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    loop {
        let line = child.line();
        eprintln!("{line}");
        if line == "seen" {
            break;
        }
    }
}

fn skip(reasons: &[String]) {
    assert!(std::env::var_os(REQUIRED).is_none(), "no control group with a quota: {reasons:?}");
    eprintln!("SKIPPED: no control group with a quota can be made here; .ci/causes has one made by root: {reasons:?}");
}
