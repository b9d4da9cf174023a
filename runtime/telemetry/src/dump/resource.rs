//! A primitive that tasks await, in numbers.

use serde::{Deserialize, Serialize};

use super::counted;

/// A primitive of `volt::sync` that tasks of a group await, in numbers, at the poll for the dump.
///
/// Which tasks own the senders or the receiver of a channel, or have the permits of a semaphore, is
/// not known: they may be moved to any task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// What it is: `mpsc`, `oneshot`, `semaphore` or `barrier`.
    pub kind: String,
    /// Number of the group's tasks that await one with these numbers.
    pub tasks: u64,
    /// Number of senders of the channel that exist, not counting weak ones.
    pub senders: Option<u64>,
    /// Number of messages in the channel, and of those that have a reserved place.
    pub messages: Option<u64>,
    /// Number of messages that a bounded channel has room for.
    pub capacity: Option<u64>,
    /// Number of permits of the semaphore that are available.
    pub permits: Option<u64>,
    /// Number of permits that the operation wants, or of tasks that the barrier is for.
    pub wanted: Option<u64>,
}

impl Resource {
    /// Describes the resource, and which part of it could end the wait.
    ///
    /// ```
    /// use volt_telemetry::dump::Resource;
    ///
    /// let channel = Resource {
    ///     kind: "mpsc".into(),
    ///     senders: Some(3),
    ///     messages: Some(0),
    ///     capacity: Some(8),
    ///     ..Resource::default()
    /// };
    /// assert_eq!(channel.describe(), "mpsc channel with 3 senders, 0 of 8 messages (owners of the senders: unknown)");
    /// ```
    pub fn describe(&self) -> String {
        let senders = self.senders.map(|senders| format!(" with {}", counted(senders, "sender"))).unwrap_or_default();
        let messages = match (self.messages, self.capacity) {
            (Some(messages), Some(capacity)) => format!(", {messages} of {}", counted(capacity, "message")),
            (Some(messages), None) => format!(", {}", counted(messages, "message")),
            _ => String::new(),
        };
        match self.kind.as_str() {
            "mpsc" if self.capacity.is_some_and(|capacity| self.messages >= Some(capacity)) => {
                format!("mpsc channel{senders}{messages} (owner of the receiver: unknown)")
            }
            "mpsc" => format!("mpsc channel{senders}{messages} (owners of the senders: unknown)"),
            "oneshot" => format!("oneshot channel{senders} (owner of the sender: unknown)"),
            "semaphore" => {
                let wanted = counted(self.wanted.unwrap_or(1), "permit");
                let permits = self.permits.unwrap_or(0);
                format!("semaphore with {permits} available, {wanted} wanted (owners of the others: unknown)")
            }
            "barrier" => format!("barrier for {}", counted(self.wanted.unwrap_or(0), "task")),
            newer => format!("{newer}{senders}{messages}"),
        }
    }
}
