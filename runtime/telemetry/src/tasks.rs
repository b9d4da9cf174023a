//! Lists of a runtime's tasks, ranked by a query, as plain data.
//!
//! A [`Query`] selects tasks, their order and their number. A [`TaskList`] contains the rows, and
//! counts the tasks that have no row. The runtime reads the numbers from the headers of its tasks;
//! the console shows them.
//!
//! Invariants:
//! * BOUNDED: at most [`MAX_ROWS`] rows.
//! * ABSENT IS NONE: a value that is not known is `None`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::listing::MAX_ROWS;
use crate::waits::{PermitHolder, permit_holder_list};

/// Polls shorter than this do not count for [`Task::longest_ns`].
pub const LONGEST_FROM_NS: u64 = 4096;
/// Selects the tasks of a list. The filter applies to a task's name, `#id`, state and spawn
/// location, to what it awaits ([`Task::awaits`]), and to the line of that await.
pub type Query = crate::listing::Query<Rank>;

/// The number by which tasks are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rank {
    /// The total time of its polls.
    #[default]
    Busy,
    /// Its longest poll.
    Longest,
    /// The number of its polls.
    Polls,
    /// The total time from its wake-ups to its polls.
    Delay,
    /// The time since its last wake-up.
    Woken,
    /// The number of its wakers that are alive.
    Wakers,
    /// The time since it was spawned.
    Age,
    /// Its id.
    Id,
    /// A rank of a newer version; ranked as [`Rank::Id`].
    #[serde(other)]
    Unknown,
}

impl Rank {
    /// All ranks of this version.
    pub const ALL: [Rank; 8] =
        [Rank::Busy, Rank::Longest, Rank::Polls, Rank::Delay, Rank::Woken, Rank::Wakers, Rank::Age, Rank::Id];

    /// Returns the name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Rank::Busy => "busy",
            Rank::Longest => "longest",
            Rank::Polls => "polls",
            Rank::Delay => "delay",
            Rank::Woken => "woken",
            Rank::Wakers => "wakers",
            Rank::Age => "age",
            Rank::Id => "id",
            Rank::Unknown => "unknown",
        }
    }
}

/// A ranked list of tasks: the reply to a [`Query`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskList {
    /// The runtime's name.
    pub runtime: String,
    /// When the list was made: ns on the program's monotonic clock.
    pub at_ns: u64,
    /// The query that this list is for. With very many tasks, a new query may get a list for the
    /// previous one. The client then repeats the query.
    pub query: Query,
    /// The tasks, in the order of the query.
    #[serde(deserialize_with = "rows")]
    pub rows: Vec<Task>,
    /// Number of tasks that are alive.
    pub alive: u64,
    /// Number of these that were read: they have waited at least once, have a name, or are being
    /// polled.
    pub seen: u64,
    /// Number of those that match the filter.
    pub matching: u64,
    /// Whether some tasks were not read because there are too many.
    pub is_cut: bool,
    /// How long ago the tasks of this list were selected, ns; their numbers are current.
    pub chosen_ago_ns: u64,
    /// How long it took to read all tasks, ns.
    pub took_ns: u64,
}

impl TaskList {
    /// Returns the number of tasks that cannot be listed: they are queued for their first poll,
    /// have begun it since the tasks of this list were selected, or were not read
    /// ([`is_cut`](Self::is_cut)).
    pub fn unseen(&self) -> u64 {
        self.alive.saturating_sub(self.seen)
    }
}

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// Its id, as in log lines.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The spawn location: `file:line:column`.
    pub spawned_at: String,
    /// The current state.
    pub state: State,
    /// The worker that polls it now, if any.
    pub worker: Option<u32>,
    /// How long the current poll has lasted, ns.
    pub in_poll_ns: Option<u64>,
    /// Number of polls that have begun. This and all following fields are `None` for a task without
    /// a name that is in its first poll.
    pub polls: Option<u64>,
    /// Total time of its polls, including the current one, ns, accurate to a few microseconds.
    pub busy_ns: Option<u64>,
    /// Its longest poll, ns, accurate to 1/16; 0 if none lasted [`LONGEST_FROM_NS`].
    pub longest_ns: Option<u64>,
    /// Total time from its wake-ups to its polls, ns, accurate to about 16 µs.
    pub delay_ns: Option<u64>,
    /// Time since it was spawned, ns, accurate to one second.
    pub age_ns: Option<u64>,
    /// Time since its last wake-up, ns.
    pub woken_ago_ns: Option<u64>,
    /// The kind of its last waker: `task`, `worker`, `timer`, `io`, `outside`, `blocking`,
    /// `unknown`; `spawn` if it has not been woken since it was spawned.
    pub woken_by: Option<String>,
    /// The task that woke it, if a task did.
    pub waker_task: Option<u64>,
    /// What it awaits, if that is a primitive of `volt::sync` or a JoinHandle: `lock`, `permits`,
    /// `room`, `value`, `message`, `others`, `notice`. If it awaits several, the one that was
    /// polled last, but a lock or permits if these are among them.
    pub awaits: Option<String>,
    /// The location of that await: `file:line:column`. For a oneshot, the location that created the
    /// channel. For a JoinHandle, the spawn location of the task that it awaits.
    pub awaits_at: Option<String>,
    /// The task whose end it awaits by a JoinHandle, if that is known.
    pub awaited_task: Option<u64>,
    /// How long it has waited for a lock or for permits, ns; `None` if it awaits neither.
    pub waiting_ns: Option<u64>,
    /// The task that acquired the lock that this task awaits; `None` if it awaits no lock, or no
    /// task acquired it, or that is not known.
    pub held_by: Option<u64>,
    /// Where that lock was acquired: `file:line:column`.
    pub held_at: Option<String>,
    /// Time since the lock was acquired, ns, measured from the wake-up of the poll that did so.
    pub held_ns: Option<u64>,
    /// The tasks that acquired the permits of the semaphore that this task awaits, the oldest
    /// first: at most [`MAX_PERMIT_HOLDERS`](crate::waits::MAX_PERMIT_HOLDERS). Empty if the
    /// semaphore is used as a lock, and has a holder.
    #[serde(deserialize_with = "permit_holder_list")]
    pub permit_holders: Vec<PermitHolder>,
    /// Number of holders of permits that were left out because there are too many.
    pub permit_holders_left_out: u64,
    /// The position of this task among the operations that wait for that lock or semaphore, in the
    /// order in which they began to wait; 0 is the first.
    pub waiter_index: Option<u64>,
    /// Number of operations that wait for it; at most 1,000 are counted for a semaphore with
    /// several permits.
    pub waiters_len: Option<u64>,
    /// Number of its wakers that are alive, plus other references to the task: abort handles,
    /// shields. If a waiting task has 0, nothing can wake it.
    pub wakers: Option<u64>,
}

impl Task {
    /// Returns the number by which `rank` orders this task. A task in its first poll has only the
    /// length of that poll.
    pub fn weight(&self, rank: Rank) -> u64 {
        let number = match rank {
            Rank::Busy => self.busy_ns.or(self.in_poll_ns),
            Rank::Longest => self.longest_ns.or(self.in_poll_ns),
            Rank::Polls => self.polls,
            Rank::Delay => self.delay_ns,
            Rank::Woken => self.woken_ago_ns,
            Rank::Wakers => self.wakers,
            Rank::Age => self.age_ns,
            Rank::Id | Rank::Unknown => Some(self.id),
        };
        number.unwrap_or(0)
    }
}

/// The state of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Waiting to be woken.
    Waits,
    /// Waiting, with no waker left that could wake it.
    Stranded,
    /// In a queue.
    Queued,
    /// Being polled.
    Polled,
    /// A state of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    /// Returns the name in filters and JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Waits => "waits",
            State::Stranded => "stranded",
            State::Queued => "queued",
            State::Polled => "polled",
            State::Unknown => "unknown",
        }
    }
}

fn rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Task>, D::Error> {
    bounded::list(deserializer, MAX_ROWS, |_| 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_states_are_called_the_same_in_json_and_by_name() {
        for rank in Rank::ALL {
            assert_eq!(serde_json::to_value(rank).unwrap(), rank.name());
        }
        for state in [State::Waits, State::Stranded, State::Queued, State::Polled] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        assert_eq!(serde_json::from_str::<Rank>("\"colour\"").unwrap(), Rank::Unknown);
    }

    #[test]
    fn a_list_of_more_rows_than_any_may_have_is_an_error() {
        let list =
            |rows| serde_json::to_value(TaskList { rows: vec![Task::default(); rows], ..TaskList::default() }).unwrap();
        assert!(serde_json::from_value::<TaskList>(list(MAX_ROWS)).is_ok());
        assert!(serde_json::from_value::<TaskList>(list(MAX_ROWS + 1)).is_err());
    }

    #[test]
    fn a_list_counts_the_tasks_that_it_does_not_list() {
        assert_eq!(TaskList { alive: 9, seen: 7, ..TaskList::default() }.unseen(), 2);
        assert_eq!(TaskList { alive: 7, seen: 9, ..TaskList::default() }.unseen(), 0, "some ended meanwhile");
    }
}
