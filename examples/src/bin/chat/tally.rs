//! The counters of the server, and its report.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use volt_process::System;

/// Counters, each incremented where the event happens.
#[derive(Default)]
pub(crate) struct Tally {
    /// Lines that users sent and a room accepted.
    pub(crate) said: AtomicU64,
    /// Lines that were dropped because their reader was too slow.
    pub(crate) dropped: AtomicU64,
    /// Steps that panicked because of `--chaos`.
    pub(crate) panics: AtomicU64,
    /// Accepted connections.
    pub(crate) accepted: AtomicU64,
}

/// Returns all counters at one moment, as one line of JSON.
pub(crate) fn as_json(system: &System, tally: &Tally, seconds: f64) -> String {
    let (mut rooms, mut connections, mut restarts) = (0_u64, 0_u64, 0_u64);
    for process in system.list() {
        restarts += process.restarts;
        let name = process.name.as_deref().unwrap_or_default();
        rooms += u64::from(name.starts_with("room."));
        connections += u64::from(name.starts_with("guest."));
    }
    // ORDERING: Relaxed; counters, only for the report.
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

/// Returns the number of open sockets. Other descriptors come and go, because the sentinel opens
/// files to observe the threads.
fn sockets() -> usize {
    let is_socket = |path: PathBuf| fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.flatten().filter(|file| is_socket(file.path())).count())
}

/// Returns the program's anonymous memory; `None` if the kernel does not report it.
fn rss_anon_kb() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.split_whitespace().next()?.parse().ok()
}
