//! What the server counts, and how it tells.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use volt_process::System;

/// Counted where it happens.
#[derive(Default)]
pub(crate) struct Tally {
    /// Lines that somebody said and a room took.
    pub(crate) said: AtomicU64,
    /// Lines for readers that were too slow for them.
    pub(crate) dropped: AtomicU64,
    /// Steps that panicked because `--chaos` said so.
    pub(crate) panics: AtomicU64,
    /// Connections that were accepted.
    pub(crate) accepted: AtomicU64,
}

/// All of it at one moment, as JSON of one line.
pub(crate) fn as_json(system: &System, tally: &Tally, seconds: f64) -> String {
    let (mut rooms, mut connections, mut restarts) = (0_u64, 0_u64, 0_u64);
    for process in system.list() {
        restarts += process.restarts;
        let name = process.name.as_deref().unwrap_or_default();
        rooms += u64::from(name.starts_with("room."));
        connections += u64::from(name.starts_with("guest."));
    }
    // ORDERING: Relaxed; counts, for show.
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    serde_json::json!({
        "seconds": (seconds * 10.0).round() / 10.0,
        "processes": system.process_count(),
        "rooms": rooms,
        "connections": connections,
        "accepted": count(&tally.accepted),
        "said": count(&tally.said),
        "dropped": count(&tally.dropped),
        "panics": count(&tally.panics),
        "restarts": restarts,
        "rss_anon_kb": rss_anon_kb(),
        "sockets": sockets(),
    })
    .to_string()
}

/// Open sockets; of the other descriptors some come and go with what watches the threads.
fn sockets() -> usize {
    let is_socket = |path: PathBuf| fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.flatten().filter(|file| is_socket(file.path())).count())
}

/// Memory of the process that is not a file's; `None` where the kernel does not say.
fn rss_anon_kb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse().ok()
}
