//! The tasks of a runtime, one by one, as plain data: those that rank highest by what somebody asks
//! for.
//!
//! Shape: a [`Query`] says which tasks are wanted, in what order and how many; a [`TaskList`] has
//! their rows, and how many there are that have none. *Bounded*: [`MAX_ROWS`] rows. *Absent is
//! `None`*.
//!
//! Who writes: the runtime, from the headers of its tasks. Who reads: the console.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;

/// Rows that a list has at most, whatever is asked for.
pub const MAX_ROWS: usize = 1000;
/// Polls that are shorter are not told apart by their length.
pub const LONGEST_FROM_NS: u64 = 4096;
/// Longest text that is searched for, bytes; what is longer is cut.
pub const MAX_FILTER_BYTES: usize = 200;

/// Which tasks are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Query {
    /// What ranks them.
    pub rank: Rank,
    /// The smallest first.
    pub is_inverted: bool,
    /// Only tasks whose name, `#id`, spawn location or state has this in it, whatever the case of
    /// its letters; empty for all.
    pub filter: String,
    /// How many; [`MAX_ROWS`] at most.
    pub limit: u32,
}

/// What tasks are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rank {
    /// The time that its polls took.
    #[default]
    Busy,
    /// Its longest poll.
    Longest,
    /// How often it was polled.
    Polls,
    /// How long it waited, woken, for its polls.
    Delay,
    /// How long ago it was woken last.
    Woken,
    /// Wakers that are alive.
    Wakers,
    /// How long ago it was spawned.
    Age,
    /// Its id.
    Id,
    /// One of a newer version, ranked as [`Rank::Id`].
    #[serde(other)]
    Unknown,
}

impl Rank {
    /// All that this version knows.
    pub const ALL: [Rank; 8] =
        [Rank::Busy, Rank::Longest, Rank::Polls, Rank::Delay, Rank::Woken, Rank::Wakers, Rank::Age, Rank::Id];

    /// Its name, as in options and JSON.
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

/// The tasks that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskList {
    /// The runtime's name.
    pub runtime: String,
    /// When it was made, on the clock of the process, ns.
    pub at_ns: u64,
    /// What it answers. Another than was asked: there are so many tasks that the runtime does not
    /// read them again at once; ask again.
    pub query: Query,
    /// The highest first.
    #[serde(deserialize_with = "rows")]
    pub rows: Vec<Task>,
    /// Tasks that are alive.
    pub alive: u64,
    /// Of these, those that were read: they have waited once, or have a name, or are being polled.
    pub seen: u64,
    /// Of these, those that the filter lets through.
    pub matching: u64,
    /// Not all were read: there are too many.
    pub is_cut: bool,
    /// How long ago it was decided which tasks have a row; their numbers are of now.
    pub chosen_ago_ns: u64,
    /// How long it took to read all of them.
    pub took_ns: u64,
}

impl TaskList {
    /// Tasks that are in queues for their first poll, or in it, and cannot be told one by one.
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
    /// Where it was spawned: `file:line:column`.
    pub spawned_at: String,
    /// What it does.
    pub state: State,
    /// The worker that polls it.
    pub worker: Option<u32>,
    /// How long its present poll has lasted, ns.
    pub in_poll_ns: Option<u64>,
    /// Polls that have begun; `None` of a task that is in its first poll and has no name, as
    /// everything below.
    pub polls: Option<u64>,
    /// How long its polls took, the present one included, ns, the sum to some microseconds.
    pub busy_ns: Option<u64>,
    /// The longest of them, ns, to a sixteenth; 0 if none took [`LONGEST_FROM_NS`].
    pub longest_ns: Option<u64>,
    /// How long it waited, woken, for its polls, ns, the sum to some 16 µs.
    pub delay_ns: Option<u64>,
    /// How long ago it was spawned, ns, to a second.
    pub age_ns: Option<u64>,
    /// How long ago it was woken last, ns.
    pub woken_ago_ns: Option<u64>,
    /// By what: `task`, `worker`, `timer`, `io`, `outside`, `blocking`, `unknown`; `spawn` if it
    /// was not woken since.
    pub woken_by: Option<String>,
    /// The task that did it.
    pub waker_task: Option<u64>,
    /// What it waits for, of one that waits for something of `volt::sync`: `lock`, `permits`,
    /// `notice`, `message`, `room`, `value`, `others`.
    pub awaits: Option<String>,
    /// Where in the code it does: `file:line:column`.
    pub awaits_at: Option<String>,
    /// Wakers that are alive, with what else refers to the task: abort handles, shields. 0 of a
    /// task that waits: nothing can wake it.
    pub wakers: Option<u64>,
}

impl Task {
    /// What ranks it. One that is in its first poll has no numbers but that poll.
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

/// What a task does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// It waits to be woken.
    Waits,
    /// It waits, and nobody is left who could wake it.
    Stranded,
    /// It is in a queue.
    Queued,
    /// It is being polled.
    Polled,
    /// One of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    /// Its name, as the filter and JSON have it.
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
    fn a_list_says_how_many_tasks_it_cannot_tell_one_by_one() {
        assert_eq!(TaskList { alive: 9, seen: 7, ..TaskList::default() }.unseen(), 2);
        assert_eq!(TaskList { alive: 7, seen: 9, ..TaskList::default() }.unseen(), 0, "some ended meanwhile");
    }
}
