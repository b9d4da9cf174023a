//! A control group with a quota, for a test that may make one.

use std::fs;
use std::path::{Path, PathBuf};

/// Set by who is sure that a group can be made: then the test fails where it would be skipped.
pub const REQUIRED: &str = "VOLT_REQUIRE_CGROUP";

/// A group with a fifth of a processor, below the one that this process is in or beside it; removed
/// with this value.
pub struct Group(Vec<PathBuf>);

impl Group {
    /// The reasons, if none can be made.
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
        // Version 1 goes first where it has the controller, as in the kernel.
        if let Some(own) = own("cpu") {
            let mounts = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
            tries.extend(mounts.map(|mount| (Path::new(mount).join(&own), "cpu.cfs_quota_us", "20000")));
        } else if let Some(own) = own("") {
            let own = Path::new("/sys/fs/cgroup").join(own);
            let parents = own.ancestors().take(2).filter(|parent| parent.starts_with("/sys/fs/cgroup"));
            for parent in parents {
                // Where it is on already, or may not be turned on, the attempt tells.
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

    /// What a process goes into.
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
