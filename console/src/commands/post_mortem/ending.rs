//! How the program of a black box ended, as far as that can be found out.
//!
//! A runtime records its end itself if it is shut down, or if the program exits. Otherwise the
//! program runs, or was killed. The program locks the file while it runs, and the kernel releases
//! the lock with the program. The process id is compared, too, for a file that was copied.

use std::fs;
use std::path::Path;

use volt_recording::black_box::{BlackBox, Ending, lives};
use volt_telemetry::recording::black_box::memory_kills;

use crate::programs::again::has_exited;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// It still runs.
    Runs,
    /// The runtime was shut down; the program may have continued.
    ShutDown,
    /// The program exited without shutting the runtime down.
    Exited,
    /// It recorded no end: it was killed or has crashed.
    Killed,
}

impl How {
    pub(super) fn of(path: &Path, black_box: &BlackBox) -> How {
        match black_box.ending {
            Ending::ShutDown(_) => How::ShutDown,
            Ending::Exited(_) => How::Exited,
            _ if lives::is_locked(path) == Some(true) || is_alive(black_box) => How::Runs,
            _ => How::Killed,
        }
    }

    /// The name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            How::Runs => "runs",
            How::ShutDown => "shut_down",
            How::Exited => "exited",
            How::Killed => "killed",
        }
    }
}

/// Whether the machine is the same, and was not restarted since. `None` if that is unknown.
pub(super) fn is_same_boot(black_box: &BlackBox) -> Option<bool> {
    let now = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(black_box.identity.boot_id.as_ref()? == now.trim())
}

fn is_alive(black_box: &BlackBox) -> bool {
    let (pid, start_time) = (black_box.identity.pid, black_box.identity.start_time);
    is_same_boot(black_box) == Some(true) && !has_exited(pid, start_time)
}

/// How many processes of the program's control group the OOM killer has killed since the program
/// last counted them. `None` if the group does not exist any more, or is another one.
pub(super) fn memory_kills_since(black_box: &BlackBox) -> Option<u64> {
    if is_same_boot(black_box) != Some(true) {
        return None;
    }
    let identity = &black_box.identity;
    let now = memory_kills(Path::new(identity.memory_group.as_ref()?))?;
    let sampled = black_box.samples.last().and_then(|sample| sample.memory.group_kills);
    Some(now.saturating_sub(sampled.or(identity.memory_kills)?))
}
