//! Facts about the program, for the identity of its black boxes, and its memory.

use std::fs;
use std::path::{Path, PathBuf};

use volt_telemetry::recording::black_box::{Identity, Memory, memory_kills};
use volt_telemetry::socket;

use crate::recorder::anchor::anchor;

/// Returns the identity of this program, for a runtime of this name.
pub(super) fn identity(program: &str, runtime: &str) -> Identity {
    let group = memory_group();
    Identity {
        pid: std::process::id(),
        start_time: socket::own_start_time(),
        boot_id: line_of(Path::new("/proc/sys/kernel/random/boot_id")),
        program: program.to_owned(),
        executable: fs::read_link("/proc/self/exe").ok().map(|path| path.to_string_lossy().into_owned()),
        build_id: volt_stacks::build_id(),
        runtime: runtime.to_owned(),
        volt: env!("CARGO_PKG_VERSION").to_owned(),
        anchor: anchor(),
        memory_kills: group.as_deref().and_then(memory_kills),
        memory_group: group.map(|group| group.to_string_lossy().into_owned()),
    }
}

/// Returns the memory of this program, whose memory control group has this directory.
pub(crate) fn memory(group: Option<&Path>) -> Memory {
    // Without a limit, version 2 has the word `max`, and version 1 a very large number.
    let number = |names: [&str; 2]| -> Option<u64> {
        let line = names.iter().find_map(|name| line_of(&group?.join(name)))?;
        line.parse().ok().filter(|bytes| *bytes < 1 << 62)
    };
    Memory {
        resident_bytes: resident_bytes(),
        group_bytes: number(["memory.current", "memory.usage_in_bytes"]),
        group_max_bytes: number(["memory.max", "memory.limit_in_bytes"]),
        group_kills: group.and_then(memory_kills),
    }
}

/// Returns the directory of this program's control group, if that counts memory. The hierarchy of
/// version 1 takes precedence where it exists, as in the kernel.
fn memory_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let of = |controller: &str, mount: &str| {
        let path = groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then(|| path.trim_start_matches('/'))
        })?;
        let folder = Path::new(mount).join(path);
        memory_kills(&folder).map(|_| folder)
    };
    of("memory", "/sys/fs/cgroup/memory").or_else(|| of("", "/sys/fs/cgroup"))
}

fn resident_bytes() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

fn line_of(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
