//! Describes what a task awaits.

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
