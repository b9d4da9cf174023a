//! Why a task was polled last: the chain of wake-ups that led to the poll, as plain data.
//!
//! The chain begins with the queried task and the task that woke it. It continues with the waker of
//! that task, down to a timer, a socket, or a thread outside the runtime. Each task stores only its
//! own last wake-up. If a task of the chain has been woken again since, its link is marked
//! ([`Woken::is_later`]).
//!
//! The runtime builds the chain from the headers of its tasks; the console shows it.
//!
//! Invariants:
//! * BOUNDED: a chain has at most [`MAX_LINKS`] links.
//! * ABSENT IS NONE: a value that is not known is `None`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::dump::{self, Resource};
use crate::waits::{PermitHolder, permit_holder_list};

/// Maximum number of tasks in a chain.
pub const MAX_LINKS: usize = 16;

/// A chain of wake-ups; see the module header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Why {
    /// The name of the runtime.
    pub runtime: String,
    /// The queried task, then the task that woke it, and so on.
    #[serde(deserialize_with = "links")]
    pub links: Vec<Link>,
    /// How the chain ends.
    pub end: End,
}

/// One task of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// The task's id.
    pub task: u64,
    /// The task's name, if it has one.
    pub name: Option<String>,
    /// The spawn location: `file:line:column`.
    pub spawned_at: String,
    /// The task's current state.
    pub state: State,
    /// The last wake-up of the task; `None` if it is not known because the task is in its first
    /// poll.
    pub woken: Option<Woken>,
    /// What the task awaits and where, as in [`Task::awaits`](crate::tasks::Task::awaits).
    pub awaits: Option<String>,
    /// The location of that await: `file:line:column`.
    pub awaits_at: Option<String>,
    /// The task whose end it awaits by a JoinHandle, if that is known.
    pub awaited_task: Option<u64>,
    /// The primitives that it awaits, in numbers, if the client has requested a dump of the task:
    /// the program does not send them.
    #[serde(deserialize_with = "dump::resources", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// How long it has waited for a lock or for permits, ns; `None` if it awaits neither.
    pub waiting_ns: Option<u64>,
    /// The task that acquired the lock that this task awaits, if that is known.
    pub held_by: Option<u64>,
    /// Where that lock was acquired: `file:line:column`.
    pub held_at: Option<String>,
    /// Time since the lock was acquired, ns.
    pub held_ns: Option<u64>,
    /// The tasks that acquired the permits of the semaphore that this task awaits, as in
    /// [`Task::permit_holders`](crate::tasks::Task::permit_holders).
    #[serde(deserialize_with = "permit_holder_list")]
    pub permit_holders: Vec<PermitHolder>,
    /// Number of holders of permits that were left out because there are too many.
    pub permit_holders_left_out: u64,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Waiting to be woken.
    Waits,
    /// In a queue.
    Queued,
    /// Being polled.
    Polled,
    /// A state of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A wake-up, or a spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Woken {
    /// The kind of the waker, as in recordings: `task`, `worker`, `timer`, `io`, `outside`,
    /// `blocking`, `unknown`.
    pub by: String,
    /// The task or blocking job that woke the task. If the task woke itself, its own id.
    pub task: Option<u64>,
    /// The spawn location of that task or job.
    pub spawned_at: Option<String>,
    /// Whether this is the spawn: the task has not been woken since.
    pub is_spawn: bool,
    /// How long ago it happened, ns.
    pub ago_ns: u64,
    /// Whether this wake-up came after this task woke the previous task of the chain. The wake-up
    /// that led to that one is then no longer known.
    pub is_later: bool,
}

/// The end of a chain of wake-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// With a source that is not a task: a timer, a socket, a thread.
    Source,
    /// The task woke itself.
    Itself,
    /// The waking task is no longer found: usually, it has completed.
    Ended,
    /// The chain is a cycle: this task, which is already in the chain, woke the last one.
    Cycle {
        /// The task's id.
        task: u64,
    },
    /// The chain has [`MAX_LINKS`] links, and is not followed any further.
    TooLong,
    /// The end is not known.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A newer program may send more than [`MAX_LINKS`].
fn links<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Link>, D::Error> {
    bounded::list(deserializer, 64 * MAX_LINKS, |_| 1)
}
