//! The processes of a runtime (`volt_process`: state machines with mailboxes) as plain data: what
//! there is to say of all of them, in every snapshot ([`Processes`]); and one by one those that
//! rank highest by what somebody asks for ([`Query`], [`ProcessList`]).
//!
//! Invariants: *bounded*, [`MAX_DEEPEST`] mailboxes and [`MAX_ROWS`] rows; *counters only grow*,
//! and add up over the systems of a runtime; *absent is `None`*.
//!
//! Who writes: the systems of a runtime. Who reads: the catalog, the doctor, the console.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;

/// Rows that a list has at most, whatever is asked for.
pub const MAX_ROWS: usize = crate::tasks::MAX_ROWS;
/// Longest text that is searched for, bytes; what is longer is cut.
pub const MAX_FILTER_BYTES: usize = crate::tasks::MAX_FILTER_BYTES;
/// Mailboxes that are told one by one in every snapshot.
pub const MAX_DEEPEST: usize = 16;

/// All processes of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Processes {
    /// Systems that they are in.
    pub systems: u64,
    /// Processes that live now.
    pub alive: u64,
    /// Processes that were started, since start.
    pub started: u64,
    /// Processes that ended since they were done, or asked to end.
    pub ended_normally: u64,
    /// Processes that ended in any other way: failed, panicked, killed.
    pub ended_abnormally: u64,
    /// Of those that were started, those that a supervisor started in place of one that had ended.
    pub restarts: u64,
    /// Messages that mailboxes dropped or refused since they were full.
    pub messages_lost: u64,
    /// What they do; `None` = there are too many to read each.
    pub states: Option<States>,
    /// The mailboxes that held most messages when all were read, as they are now; the deepest
    /// first.
    #[serde(deserialize_with = "deepest")]
    pub deepest: Vec<Mailbox>,
    /// The last that failed or panicked.
    pub last_failure: Option<Failure>,
}

/// Which processes are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Query {
    /// What ranks them.
    pub rank: Rank,
    /// The smallest first.
    pub is_inverted: bool,
    /// Only processes whose pid, name, kind, spawn location or state has this in it, whatever the
    /// case of its letters; empty for all.
    pub filter: String,
    /// How many; [`MAX_ROWS`] at most.
    pub limit: u32,
}

/// What processes are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rank {
    /// Messages in its mailbox.
    #[default]
    Mailbox,
    /// The most messages that were in it at once.
    Peak,
    /// Messages that it dropped or refused.
    Lost,
    /// Its steps.
    Steps,
    /// The time that the polls of its task took.
    Busy,
    /// Its pid, by its place.
    Pid,
    /// One of a newer version, ranked as [`Rank::Pid`].
    #[serde(other)]
    Unknown,
}

impl Rank {
    /// All that this version knows.
    pub const ALL: [Rank; 6] = [Rank::Mailbox, Rank::Peak, Rank::Lost, Rank::Steps, Rank::Busy, Rank::Pid];

    /// Its name, as in options and JSON.
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

/// The processes that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessList {
    /// The runtime's name.
    pub runtime: String,
    /// When it was made, on the clock of the process, ns.
    pub at_ns: u64,
    /// What it answers. Another than was asked: there are so many processes that they are not read
    /// again at once; ask again.
    pub query: Query,
    /// The highest first.
    #[serde(deserialize_with = "rows")]
    pub rows: Vec<Process>,
    /// Processes that live.
    pub alive: u64,
    /// Of these, those that the filter lets through.
    pub matching: u64,
    /// Not all were read: there are too many.
    pub is_cut: bool,
    /// How long ago it was decided which processes have a row; their numbers are of now.
    pub chosen_ago_ns: u64,
    /// How long it took to read all of them.
    pub took_ns: u64,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Who it is: `node:index.generation`.
    pub pid: String,
    /// The same without the node, as a recording has it: `index << 32 | generation`.
    pub number: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: String,
    /// Where it was spawned: `file:line:column`.
    pub spawned_at: String,
    /// What it does.
    pub state: State,
    /// Messages in its mailbox.
    pub mailbox_len: u64,
    /// The most there were at once.
    pub mailbox_high_water: u64,
    /// How many there may be.
    pub mailbox_capacity: u64,
    /// Messages that it dropped or refused.
    pub messages_lost: u64,
    /// Steps so far.
    pub steps: u64,
    /// How long the polls of its task took, the present one included, ns, the sum to some
    /// microseconds.
    pub busy_ns: Option<u64>,
    /// How long the present poll has lasted, ns.
    pub in_poll_ns: Option<u64>,
    /// Which process started it, if one did.
    pub parent: Option<String>,
    /// Processes that it is linked with.
    pub links: u64,
    /// Who watches it.
    pub monitors: u64,
    /// The task in which it runs.
    pub task: Option<u64>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// It waits for its next step.
    Ready,
    /// It is in one.
    Running,
    /// It waits for its yields.
    Blocked,
    /// It waits for messages.
    Idle,
    /// It has ended.
    Complete,
    /// One of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    /// Its name, as the filter and JSON have it.
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
    /// What ranks it.
    pub fn weight(&self, rank: Rank) -> u64 {
        match rank {
            Rank::Mailbox => self.mailbox_len,
            Rank::Peak => self.mailbox_high_water,
            Rank::Lost => self.messages_lost,
            Rank::Steps => self.steps,
            Rank::Busy => self.busy_ns.unwrap_or(0),
            // By number they begin with the first, by all else with the greatest.
            Rank::Pid | Rank::Unknown => u64::MAX - self.number,
        }
    }
}

impl ProcessList {
    /// Takes in that of another system of the same runtime.
    pub fn add(&mut self, other: ProcessList) {
        if self.query != other.query {
            // Each answers something else: whoever asked asks again.
            self.query = Query::default();
        }
        self.rows.extend(other.rows);
        self.alive += other.alive;
        self.matching += other.matching;
        self.is_cut |= other.is_cut;
        self.chosen_ago_ns = self.chosen_ago_ns.max(other.chosen_ago_ns);
        self.took_ns += other.took_ns;
    }

    /// Puts the rows in order, and leaves out those that are too many.
    pub fn sort(&mut self) {
        let Query { rank, is_inverted, limit, .. } = self.query;
        self.rows.sort_by_key(|process| {
            let weight = process.weight(rank);
            (std::cmp::Reverse(if is_inverted { !weight } else { weight }), process.number)
        });
        self.rows.truncate((limit as usize).min(MAX_ROWS));
    }
}

/// How many processes do what, when they were last read one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct States {
    /// They wait for their next step.
    pub ready: u64,
    /// They are in one.
    pub running: u64,
    /// They wait for their yields.
    pub blocked: u64,
    /// They wait for messages.
    pub idle: u64,
    /// Messages that waited in their mailboxes.
    pub messages: u64,
}

/// One mailbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mailbox {
    /// Whose: `node:index.generation`.
    pub pid: String,
    /// The process's name, if it has one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: String,
    /// Where it was spawned: `file:line:column`.
    pub spawned_at: String,
    /// The task in which it runs.
    pub task: Option<u64>,
    /// Messages in it.
    pub len: u64,
    /// How many there may be.
    pub capacity: u64,
    /// Messages that it has dropped or refused.
    pub lost: u64,
    /// How many samples in a row showed it deeper than the sample before, or with messages lost;
    /// samples are [`SAMPLE_NS`] apart or more.
    pub rises: u32,
    /// For how long that has been so, ns.
    pub rising_for_ns: u64,
    /// By how many messages it has grown meanwhile, with those that it has lost.
    pub grown: u64,
}

/// The shortest time between two samples of a mailbox that are told apart, ns.
pub const SAMPLE_NS: u64 = 200_000_000;

/// An end that nobody wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failure {
    /// Whose.
    pub pid: String,
    /// The process's name, if it had one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: String,
    /// Where it was spawned: `file:line:column`.
    pub spawned_at: String,
    /// Why: `failed: …`, `panicked: …`.
    pub reason: String,
    /// How long ago, ns.
    pub ago_ns: u64,
}

impl Processes {
    /// Takes in those of another system of the same runtime.
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
        self.deepest.sort_by_key(|mailbox| std::cmp::Reverse(mailbox.len));
        self.deepest.truncate(MAX_DEEPEST);
        let failures = [self.last_failure.take(), other.last_failure];
        self.last_failure = failures.into_iter().flatten().min_by_key(|failure| failure.ago_ns);
    }
}

impl States {
    /// How many do what, by the names in metrics and lists.
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

/// A kind for people: the type without its path and parameters, `Room` of `chat::rooms::Room<u64>`;
/// of an async function the function.
///
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
    fn systems_add_up_and_the_deepest_mailboxes_and_the_latest_failure_stay() {
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
