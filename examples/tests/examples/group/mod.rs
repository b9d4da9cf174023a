//! A control group with a quota, for tests that are allowed to create one.

use std::fs;
use std::path::{Path, PathBuf};

/// Set where a group can certainly be created: then the test fails instead of being skipped.
pub const REQUIRED: &str = "VOLT_REQUIRE_CGROUP";

/// A group with a fifth of a processor, below this program's own group or next to it. Removed when
/// dropped.
pub struct Group(Vec<PathBuf>);

impl Group {
    /// Creates a group. Returns the reasons if none can be created.
    pub fn make() -> Result<Self, Vec<String>> {
        let name = format!("volt-doctor-{}", std::process::id());
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = |controllers: &str| {
            let of = |line: &str| {
                let (list, path) = line.split_once(':')?.1.split_once(':')?.to_owned();
                list.split(',').any(|name| name == controllers).then(|| path.trim_matches('/').to_owned())
            };
            groups.lines().find_map(of)
        };
        let mut tries = Vec::new();
        // Version 1 takes precedence where it has the controller, as in the kernel.
        if let Some(own) = own("cpu") {
            let mounts = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
            tries.extend(mounts.map(|mount| (Path::new(mount).join(&own), "cpu.cfs_quota_us", "20000")));
        } else if let Some(own) = own("") {
            let own = Path::new("/sys/fs/cgroup").join(own);
            let parents = own.ancestors().take(2).filter(|parent| parent.starts_with("/sys/fs/cgroup"));
            for parent in parents {
                // The write may fail: whether the controller is on shows when the group is created.
                let _is_on = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
                tries.push((parent.to_owned(), "cpu.max", "20000 100000"));
            }
        }
        let mut reasons = Vec::new();
        for (parent, file, quota) in tries {
            let group = Self(vec![parent.join(&name)]);
            match fs::create_dir(&group.0[0]).and_then(|()| fs::write(group.0[0].join(file), quota)) {
                Ok(()) => return Ok(group),
                Err(error) => reasons.push(format!("{}: {error}", group.0[0].display())),
            }
        }
        Err(reasons)
    }

    /// Returns the directories that a program must join.
    pub fn folders(&self) -> &[PathBuf] {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.0.iter().filter(|folder| folder.exists()) {
            if let Err(error) = fs::remove_dir(folder) {
                eprintln!("{} stays: {error}", folder.display());
            }
        }
    }
}
