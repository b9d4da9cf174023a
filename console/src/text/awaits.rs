//! Describes what a task awaits, and the holder of it.

use super::figures::duration;

/// Describes what a task awaits, by its name in JSON.
pub fn awaited(name: &str) -> &str {
    match name {
        "lock" => "a lock",
        "permits" => "semaphore permits",
        "notice" => "a notification",
        "message" => "a message",
        "room" => "room in a channel",
        "value" => "a value",
        "others" => "other tasks, at a barrier or until a channel closes",
        newer => newer,
    }
}

/// Describes the holder of a lock.
pub fn holder(task: Option<u64>, at: &str, for_ns: Option<u64>) -> String {
    let who = task.map_or_else(|| "code outside of tasks".to_owned(), |id| format!("task {id}"));
    let since = for_ns.map(|ns| format!(" for {}", duration(ns))).unwrap_or_default();
    format!("{who}{since}, acquired at {at}")
}
