//! A primitive that tasks await, in numbers.

use serde::{Deserialize, Deserializer, Serialize};

use super::{MAX_EXAMPLES, counted, ids};
use crate::bounded;
use crate::waits::{PermitHolder, permit_holder_list};

/// A primitive of `volt::sync`, or the end of a task, that tasks of a group await, in numbers, at
/// the poll for the dump. Primitives with the same numbers are one entry.
///
/// Which tasks own the senders of a channel is not known: they may be moved to any task. Of the
/// receivers, only that of a bounded `mpsc` channel is known ([`received_by`](Self::received_by)).
/// Of permits, the tasks that acquired them are known ([`permit_holders`](Self::permit_holders)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// What it is: `mpsc`, `oneshot`, `broadcast`, `watch`, `notify`, `set_once`, `semaphore`,
    /// `rwlock_read`, `rwlock_write`, `barrier`, `join_handle` or `join_set`.
    pub kind: String,
    /// Number of the group's tasks that await one with these numbers. If there are more than
    /// 10,000, a task that awaits several of them may count more than once.
    pub tasks: u64,
    /// Number of primitives with these numbers that the group's tasks await; `None` if there are
    /// too many to count.
    pub primitives: Option<u64>,
    /// Number of senders of the channel that exist, not counting weak ones; `None` if the task
    /// waits until the receivers are dropped.
    pub senders: Option<u64>,
    /// Number of receivers of the channel that exist.
    pub receivers: Option<u64>,
    /// Number of messages in the channel, and of those that have a reserved place. For a
    /// `broadcast` channel, the number of those that its slowest receiver has not received.
    pub messages: Option<u64>,
    /// Number of messages that a bounded channel has room for or a `broadcast` channel keeps, or of
    /// permits that a semaphore has in total. `None` for a semaphore if permits were added or
    /// forgotten.
    pub capacity: Option<u64>,
    /// The task that received from the bounded `mpsc` channel, as recorded last, if the task waits
    /// for room. The receiver may have been moved since.
    pub received_by: Option<u64>,
    /// Number of permits of the semaphore that are available.
    pub permits: Option<u64>,
    /// Number of permits that the operation wants, of tasks that the barrier is for, or of tasks in
    /// the `JoinSet`.
    pub wanted: Option<u64>,
    /// The tasks that acquired the permits of the semaphore, the oldest first: at most
    /// [`MAX_PERMIT_HOLDERS`](crate::waits::MAX_PERMIT_HOLDERS). Empty if the entry has several
    /// semaphores, or one that is used as a lock and is in [`Group::locks`](super::Group::locks).
    #[serde(deserialize_with = "permit_holder_list")]
    pub permit_holders: Vec<PermitHolder>,
    /// Number of holders that were left out because there are too many.
    pub permit_holders_left_out: u64,
    /// Number of tasks, also of those in other groups, that await this primitive. `None` if the
    /// entry has several primitives, or if not all waiting tasks were polled.
    pub waiters_len: Option<u64>,
    /// The ids of these tasks in the order of their last wake-ups: at most [`MAX_EXAMPLES`]. This
    /// is the order in which they began to wait, unless something else has woken one meanwhile.
    #[serde(deserialize_with = "list_of_ids")]
    pub queue: Vec<u64>,
    /// The ids of the tasks whose end is awaited, by a `JoinHandle` or in a `JoinSet`: the lowest
    /// ones, at most [`MAX_EXAMPLES`].
    #[serde(deserialize_with = "list_of_ids")]
    pub awaited_tasks: Vec<u64>,
    /// The name of the task whose end is awaited, if there is only one and it has a name.
    pub awaited_name: Option<String>,
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
        let times = match self.primitives {
            Some(primitives) if primitives > 1 && self.kind != "join_handle" => format!("{primitives} × "),
            _ => String::new(),
        };
        let wanted = |thing| counted(self.wanted.unwrap_or(1), thing);
        let one = match self.kind.as_str() {
            kind @ ("mpsc" | "oneshot" | "broadcast" | "watch") => self.channel(kind),
            "semaphore" => {
                let permits = self.permits.unwrap_or(0);
                let total = self.capacity.map(|total| format!(" of {}", counted(total, "permit"))).unwrap_or_default();
                let holders = if self.permit_holders.is_empty() { " (holders: unknown)" } else { "" };
                format!("semaphore with {permits}{total} available, {} wanted{holders}", wanted("permit"))
            }
            "notify" => "Notify (notifiers: unknown)".to_owned(),
            "set_once" => "SetOnce (setter: unknown)".to_owned(),
            "rwlock_read" => {
                "RwLock for read access (holders: not recorded, because there were several readers)".to_owned()
            }
            "rwlock_write" => {
                "RwLock for write access (holders: not recorded, because there were several readers)".to_owned()
            }
            "barrier" => format!("barrier for {}", wanted("task")),
            "join_handle" => match (&self.awaited_tasks[..], &self.awaited_name) {
                ([only], Some(name)) => format!("end of task #{only} {name:?}"),
                ([only], None) => format!("end of task #{only}"),
                _ => {
                    let tasks = counted(self.primitives.unwrap_or(self.tasks), "task");
                    format!("ends of {tasks}: {}", ids(&self.awaited_tasks, self.primitives))
                }
            },
            "join_set" => {
                let all = self.wanted.filter(|_| self.primitives == Some(1));
                format!("JoinSet with {}: {}", wanted("task"), ids(&self.awaited_tasks, all))
            }
            newer => format!("{newer}{}", self.handles()),
        };
        format!("{times}{one}")
    }

    fn channel(&self, kind: &str) -> String {
        let messages = match (self.messages, self.capacity) {
            (Some(0), _) if kind == "broadcast" => String::new(),
            (Some(messages), capacity) if kind == "broadcast" => {
                // A receiver that is further behind loses messages.
                let more = if Some(messages) >= capacity { " or more" } else { "" };
                format!(", the slowest receiver is {}{more} behind", counted(messages, "message"))
            }
            (Some(messages), Some(capacity)) => format!(", {messages} of {}", counted(capacity, "message")),
            (Some(messages), None) => format!(", {}", counted(messages, "message")),
            _ => String::new(),
        };
        // The operation of a receiver that is pending has seen the value.
        let seen = if kind == "watch" && self.senders.is_some() { ", value seen" } else { "" };
        let is_full = self.capacity.is_some_and(|capacity| self.messages >= Some(capacity));
        if let Some(task) = self.received_by {
            return format!("{kind} channel{}{messages} (task #{task} received from it last)", self.handles());
        }
        let owners = match (self.senders, self.receivers) {
            (None, Some(receivers)) if receivers > 1 => "owners of the receivers",
            (None, _) => "owner of the receiver",
            (Some(_), None) if is_full => "owner of the receiver",
            (Some(_), _) if kind == "oneshot" => "owner of the sender",
            (Some(_), _) => "owners of the senders",
        };
        format!("{kind} channel{}{messages}{seen} ({owners}: unknown)", self.handles())
    }

    /// Returns the numbers of senders and receivers.
    fn handles(&self) -> String {
        let [senders, receivers] =
            [(self.senders, "sender"), (self.receivers, "receiver")].map(|(number, what)| Some(counted(number?, what)));
        let all: Vec<_> = [senders, receivers].into_iter().flatten().collect();
        if all.is_empty() { String::new() } else { format!(" with {}", all.join(" and ")) }
    }

    /// Lists the tasks that await the primitive; `None` for a single one.
    ///
    /// ```
    /// use volt_telemetry::dump::Resource;
    ///
    /// let pool = Resource { waiters_len: Some(3), queue: vec![9, 7], ..Resource::default() };
    /// assert_eq!(pool.waiters().as_deref(), Some("3 tasks: #9, #7, …"));
    /// ```
    pub fn waiters(&self) -> Option<String> {
        let waiters = self.waiters_len.filter(|waiters| *waiters > 1)?;
        Some(format!("{}: {}", counted(waiters, "task"), ids(&self.queue, Some(waiters))))
    }
}

fn list_of_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    bounded::list(deserializer, MAX_EXAMPLES, |_| 1)
}
