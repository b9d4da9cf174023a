//! The processes of a runtime as plain data.
//!
//! A *process* is an actor of `volt_process`: a state machine with a mailbox. Each snapshot
//! contains the totals of all processes ([`Processes`]). A client can also query a ranked list of
//! single processes ([`Query`], [`ProcessList`]).
//!
//! The process systems of a runtime write these data; the catalog, the doctor and the console read
//! them.
//!
//! Invariants:
//! * BOUNDED: at most [`MAX_DEEPEST`] mailboxes and [`MAX_ROWS`] rows.
//! * COUNTERS ONLY GROW, and are summed over the systems of a runtime.
//! * ABSENT IS NONE: a value that is not known is `None`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::listing::MAX_ROWS;
use crate::listing::order;

/// Maximum number of mailboxes that each snapshot lists.
pub const MAX_DEEPEST: usize = 16;

/// The totals of all processes of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Processes {
    /// Number of process systems.
    pub systems: u64,
    /// Processes that are alive now.
    pub alive: u64,
    /// Processes that were started since the runtime started.
    pub started: u64,
    /// Processes that ended normally: they completed, or stopped on request.
    pub ended_normally: u64,
    /// Processes that ended in any other way: failed, panicked, killed.
    pub ended_abnormally: u64,
    /// How many of the started processes a supervisor started as a replacement.
    pub restarts: u64,
    /// Messages that mailboxes dropped or rejected because they were full.
    pub messages_lost: u64,
    /// Number of processes by state; `None` if there are too many processes to read each.
    pub states: Option<States>,
    /// The mailboxes with the most messages at the last full reading, with their current
    /// numbers; the deepest first.
    #[serde(deserialize_with = "deepest")]
    pub deepest: Vec<Mailbox>,
    /// The last process that failed or panicked.
    pub last_failure: Option<Failure>,
}

/// Selects the processes of a list. The filter applies to a process's pid, name, kind, spawn
/// location and state.
pub type Query = crate::listing::Query<Rank>;

/// The number by which processes are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rank {
    /// Messages in the mailbox.
    #[default]
    Mailbox,
    /// The highest number of messages that was ever in the mailbox.
    Peak,
    /// Messages that the mailbox dropped or rejected.
    Lost,
    /// Steps that the process has run.
    Steps,
    /// The total time of its task's polls.
    Busy,
    /// The pid, by its place in the table.
    Pid,
    /// A rank of a newer version; ranked as [`Rank::Pid`].
    #[serde(other)]
    Unknown,
}

impl Rank {
    /// All ranks of this version.
    pub const ALL: [Rank; 6] = [Rank::Mailbox, Rank::Peak, Rank::Lost, Rank::Steps, Rank::Busy, Rank::Pid];

    /// Returns the name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Rank::Mailbox => "mailbox",
            Rank::Peak => "peak",
            Rank::Lost => "lost",
            Rank::Steps => "steps",
            Rank::Busy => "busy",
            Rank::Pid => "pid",
            Rank::Unknown => "unknown",
        }
    }
}

/// A ranked list of processes: the reply to a [`Query`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessList {
    /// The runtime's name.
    pub runtime: String,
    /// When the list was made: ns on the program's monotonic clock.
    pub at_ns: u64,
    /// The query that this list is for. With very many processes, a new query may get a list for
    /// the previous one. The client then repeats the query.
    pub query: Query,
    /// The processes, in the order of the query.
    #[serde(deserialize_with = "rows")]
    pub rows: Vec<Process>,
    /// Number of processes that are alive.
    pub alive: u64,
    /// Number of these that match the filter.
    pub matching: u64,
    /// Whether some processes were not read because there are too many.
    pub is_cut: bool,
    /// How long ago the processes of this list were selected, ns; their numbers are current.
    pub chosen_ago_ns: u64,
    /// How long it took to read all processes, ns.
    pub took_ns: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The pid: `node:index.generation`.
    pub pid: String,
    /// The pid without the node, as in recordings: `index << 32 | generation`.
    pub number: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: String,
    /// The spawn location: `file:line:column`.
    pub spawned_at: String,
    /// The current state.
    pub state: State,
    /// Messages in its mailbox.
    pub mailbox_len: u64,
    /// The highest number of messages that was ever in the mailbox.
    pub mailbox_high_water: u64,
    /// The capacity of the mailbox.
    pub mailbox_capacity: u64,
    /// Messages that the mailbox dropped or rejected.
    pub messages_lost: u64,
    /// Steps so far.
    pub steps: u64,
    /// Total time of its task's polls, including the current one, ns, accurate to a few
    /// microseconds.
    pub busy_ns: Option<u64>,
    /// How long the current poll has lasted, ns.
    pub in_poll_ns: Option<u64>,
    /// The process that started it, if any.
    pub parent: Option<String>,
    /// Number of processes that it is linked with.
    pub links: u64,
    /// Number of its monitors.
    pub monitors: u64,
    /// The task that runs it.
    pub task: Option<u64>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Waiting for its next step.
    Ready,
    /// In a step.
    Running,
    /// Waiting for its yields.
    Blocked,
    /// Waiting for messages.
    Idle,
    /// Ended.
    Complete,
    /// A state of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    /// Returns the name in filters and JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Running => "running",
            State::Blocked => "blocked",
            State::Idle => "idle",
            State::Complete => "complete",
            State::Unknown => "unknown",
        }
    }
}

impl Process {
    /// Returns the number by which `rank` orders this process; greater comes first.
    pub fn weight(&self, rank: Rank) -> u64 {
        match rank {
            Rank::Mailbox => self.mailbox_len,
            Rank::Peak => self.mailbox_high_water,
            Rank::Lost => self.messages_lost,
            Rank::Steps => self.steps,
            Rank::Busy => self.busy_ns.unwrap_or(0),
            // Ranked by pid, the smallest comes first; by anything else, the greatest.
            Rank::Pid | Rank::Unknown => u64::MAX - self.number,
        }
    }
}

impl ProcessList {
    /// Adds the list of another process system of the same runtime.
    pub fn add(&mut self, other: ProcessList) {
        if self.query != other.query {
            // The lists answer different queries. An empty query makes the client repeat its own.
            self.query = Query::default();
        }
        self.rows.extend(other.rows);
        self.alive += other.alive;
        self.matching += other.matching;
        self.is_cut |= other.is_cut;
        self.chosen_ago_ns = self.chosen_ago_ns.max(other.chosen_ago_ns);
        self.took_ns += other.took_ns;
    }

    /// Sorts the rows, and removes those beyond the limit.
    pub fn sort(&mut self) {
        let query = &self.query;
        order::sort_by_key(&mut self.rows, |process| (query.key(process.weight(query.rank)), process.number));
        self.rows.truncate((query.limit as usize).min(MAX_ROWS));
    }
}

/// Number of processes by state, at the last reading of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct States {
    /// Waiting for their next step.
    pub ready: u64,
    /// In a step.
    pub running: u64,
    /// Waiting for their yields.
    pub blocked: u64,
    /// Waiting for messages.
    pub idle: u64,
    /// Total number of messages in their mailboxes.
    pub messages: u64,
}

/// One mailbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mailbox {
    /// The pid of the process: `node:index.generation`.
    pub pid: String,
    /// The process's name, if it has one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: String,
    /// The spawn location: `file:line:column`.
    pub spawned_at: String,
    /// The task that runs the process.
    pub task: Option<u64>,
    /// Current number of messages.
    pub len: u64,
    /// Maximum number of messages.
    pub capacity: u64,
    /// Messages that were dropped or rejected.
    pub lost: u64,
    /// Number of successive samples in which the mailbox was deeper than in the previous one, or
    /// had lost messages. Samples are at least [`SAMPLE_NS`] apart.
    pub rises: u32,
    /// How long the mailbox has been rising, ns.
    pub rising_for_ns: u64,
    /// Number of messages by which the mailbox has grown in that time, including lost ones.
    pub grown: u64,
}

/// Minimum time between two distinct samples of a mailbox, ns.
pub const SAMPLE_NS: u64 = 200_000_000;

/// An abnormal end of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// The pid of the process.
    pub pid: String,
    /// The process's name, if it had one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: String,
    /// The spawn location: `file:line:column`.
    pub spawned_at: String,
    /// The reason: `failed: …`, `panicked: …`.
    pub reason: String,
    /// How long ago, ns.
    pub ago_ns: u64,
}

impl Processes {
    /// Adds the processes of another process system of the same runtime.
    pub fn add(&mut self, other: Processes) {
        self.systems += other.systems;
        self.alive += other.alive;
        self.started += other.started;
        self.ended_normally += other.ended_normally;
        self.ended_abnormally += other.ended_abnormally;
        self.restarts += other.restarts;
        self.messages_lost += other.messages_lost;
        self.states = self.states.zip(other.states).map(|(ours, theirs)| ours.and(theirs));
        self.deepest.extend(other.deepest);
        order::sort_by_key(&mut self.deepest, |mailbox| std::cmp::Reverse(mailbox.len));
        self.deepest.truncate(MAX_DEEPEST);
        let failures = [self.last_failure.take(), other.last_failure];
        self.last_failure = failures.into_iter().flatten().min_by_key(|failure| failure.ago_ns);
    }
}

impl States {
    /// Returns the states and their counts, by their names in metrics and lists.
    pub fn by_state(&self) -> [(&'static str, u64); 4] {
        [("ready", self.ready), ("running", self.running), ("blocked", self.blocked), ("idle", self.idle)]
    }

    fn and(self, other: States) -> States {
        States {
            ready: self.ready + other.ready,
            running: self.running + other.running,
            blocked: self.blocked + other.blocked,
            idle: self.idle + other.idle,
            messages: self.messages + other.messages,
        }
    }
}

/// Returns a short form of a process kind for display.
///
/// For a type, the name without path and parameters: `Room` for `chat::rooms::Room<u64>`. For an
/// async function, the name of the function.
/// ```
/// use volt_telemetry::processes::kind_name;
///
/// assert_eq!(kind_name("chat::rooms::Room<u64>"), "Room");
/// assert_eq!(kind_name("volt_process::steps::inbox::Function<chat::serve::{{closure}}, _>"), "serve");
/// ```
pub fn kind_name(kind: &str) -> &str {
    let of_function = kind.split_once("::inbox::Function<").map(|(_, function)| function);
    let path = of_function.unwrap_or(kind);
    let path = path.split(['<', ',', '>']).next().unwrap_or(path);
    path.split("::").filter(|part| !part.starts_with("{{")).last().unwrap_or(path)
}

fn deepest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Mailbox>, D::Error> {
    bounded::list(deserializer, MAX_DEEPEST, |_| 1)
}

fn rows<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Process>, D::Error> {
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
        for state in [State::Ready, State::Running, State::Blocked, State::Idle, State::Complete] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
        assert_eq!(serde_json::from_str::<Rank>("\"colour\"").unwrap(), Rank::Unknown);
    }

    #[test]
    fn a_list_of_several_systems_has_the_highest_of_all() {
        let query = Query { rank: Rank::Steps, limit: 3, ..Query::default() };
        let list = |steps: [u64; 3]| {
            let row = |steps: u64| Process { steps, number: steps, ..Process::default() };
            let rows = steps.map(row).to_vec();
            ProcessList { query: query.clone(), rows, alive: 9, matching: 3, ..ProcessList::default() }
        };
        let mut all = list([9, 5, 1]);
        all.add(list([8, 7, 2]));
        all.sort();
        assert_eq!(all.rows.iter().map(|row| row.steps).collect::<Vec<_>>(), [9, 8, 7]);
        assert_eq!((all.alive, all.matching, &all.query), (18, 6, &query));
        all.query.is_inverted = true;
        all.sort();
        assert_eq!(all.rows[0].steps, 7);
    }

    #[test]
    fn adding_systems_sums_totals_and_keeps_top_mailboxes() {
        let system = |len: u64, ago_ns: u64, states: Option<States>| Processes {
            systems: 1,
            alive: len,
            states,
            deepest: (0..MAX_DEEPEST as u64).map(|at| Mailbox { len: len - at, ..Mailbox::default() }).collect(),
            last_failure: Some(Failure { ago_ns, ..Failure::default() }),
            ..Processes::default()
        };
        let idle = Some(States { idle: 3, messages: 5, ..States::default() });
        let mut all = system(100, 7, idle);
        all.add(system(105, 9, idle));
        assert_eq!((all.systems, all.alive), (2, 205));
        assert_eq!(all.states, Some(States { idle: 6, messages: 10, ..States::default() }));
        assert_eq!((all.deepest.len(), all.deepest[0].len, all.deepest[15].len), (MAX_DEEPEST, 105, 95));
        assert_eq!(all.last_failure.as_ref().map(|failure| failure.ago_ns), Some(7));
        all.add(system(100, 1, None));
        assert_eq!(all.states, None, "of one nobody knows");
    }
}
