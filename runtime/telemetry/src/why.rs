//! Why a task was polled last: the chain of wake-ups that led there, as plain data.
//!
//! Shape: the task that was asked for, and who woke it; that one, and who woke it; and so on, down
//! to a timer, a socket, or a thread outside. Each task knows its own last wake-up only, so a link
//! whose task has been woken again since says so.
//!
//! Who writes: the runtime, from the headers of its tasks. Who reads: the console. Invariants:
//! *Bounded*: [`MAX_LINKS`]; *Absent is `None`*.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;

/// Tasks in a chain at most.
pub const MAX_LINKS: usize = 16;

/// See the header of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Why {
    /// The runtime's name.
    pub runtime: String,
    /// The task that was asked for first, then who woke it, and so on.
    #[serde(deserialize_with = "links")]
    pub links: Vec<Link>,
    /// How the chain ends.
    pub end: End,
}

/// One task of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// Its id.
    pub task: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Where it was spawned: `file:line:column`.
    pub spawned_at: String,
    /// What it does now.
    pub state: State,
    /// Who submitted it last; `None` if that cannot be told: it is in its first poll.
    pub woken: Option<Woken>,
}

/// What a task does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// It waits to be woken.
    Waits,
    /// It is in a queue.
    Queued,
    /// It is being polled.
    Polled,
    /// One of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A wake-up, or a spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Woken {
    /// By whom, as in recordings: `task`, `worker`, `timer`, `io`, `outside`, `blocking`,
    /// `unknown`.
    pub by: String,
    /// The task that did it, or the blocking job; the task itself if it has woken itself.
    pub task: Option<u64>,
    /// Where that one was spawned.
    pub spawned_at: Option<String>,
    /// It was the spawn: the task was not woken since.
    pub is_spawn: bool,
    /// How long ago.
    pub ago_ns: u64,
    /// It came after the wake-up that this task gave to the one before it in the chain: what led to
    /// that is not known any more.
    pub is_later: bool,
}

/// How a chain ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// With what is no task: a timer, a socket, a thread.
    Source,
    /// The task has woken itself.
    Itself,
    /// The task that did it is not alive any more.
    Ended,
    /// It goes round: the last was woken by this one, which stands in the chain.
    Cycle {
        /// Its id.
        task: u64,
    },
    /// There are more than [`MAX_LINKS`].
    TooLong,
    /// One that is not known.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A later program may give more than [`MAX_LINKS`].
fn links<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Link>, D::Error> {
    bounded::list(deserializer, 64 * MAX_LINKS, |_| 1)
}
