//! A task dump: what every task of a runtime waits for, as plain data.
//!
//! A [`Query`] selects tasks. In a [`Dump`], tasks that wait at the same place of the code form a
//! [`Group`]. Its chain leads from the function that was spawned, through the functions that it
//! awaits, to the operation that is pending. The runtime fills in the dump; the console and the
//! program's log show it ([`Dump::text`]).
//!
//! Invariants:
//! * BOUNDED: at most [`MAX_GROUPS`] groups with [`MAX_LINKS`] links, [`MAX_EXAMPLES`] tasks,
//!   [`MAX_LOCKS`] locks and [`MAX_RESOURCES`] resources, and [`MAX_BLOCK_ON`] futures of
//!   `block_on`.
//! * ABSENT IS NONE: a value that is not known is `None`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::text::{contains_ignoring_case, counted};
use crate::waits;

mod resource;
mod text;

pub use resource::Resource;
pub use text::rows;

/// Maximum number of groups in a dump.
pub const MAX_GROUPS: usize = 500;
/// Maximum number of links in a chain.
pub const MAX_LINKS: usize = 400;
/// Maximum number of tasks that a group names.
pub const MAX_EXAMPLES: usize = 10;
/// Maximum number of locks in a group.
pub const MAX_LOCKS: usize = 5;
/// Maximum number of resources in a group.
pub const MAX_RESOURCES: usize = 5;
/// Maximum number of futures of `block_on` in a dump.
pub const MAX_BLOCK_ON: usize = 64;
/// Maximum number of tasks that are polled for a dump.
pub const MAX_TASKS: u32 = 200_000;
/// The file in which the tasks of a dump are spawned.
const SPAWNED_IN: &str = "src/task/details/dump.rs:";
/// The text that is shown in place of that spawn location.
pub const DUMP_PLACE: &str = "a dump by Volt";
/// Maximum number of running tasks in a dump, one per worker.
const MAX_RUNNING: usize = 1024;
/// Maximum number of remarks.
const MAX_REMARKS: usize = 32;

/// Returns whether tasks with this spawn location are part of a dump: the runtime itself spawns
/// them, to poll the waiting tasks of the program. They are counted like all other tasks.
///
/// ```
/// use volt_telemetry::dump::is_of_dump;
/// assert!(is_of_dump("/build/volt/runtime/core/src/task/details/dump.rs:12:60"));
/// assert!(!is_of_dump("src/dump.rs:12:60"));
/// ```
pub fn is_of_dump(spawned_at: &str) -> bool {
    spawned_at.contains(SPAWNED_IN)
}

/// Selects the tasks of a dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Query {
    /// Only the task with this id (`#7` or `7`) or this name.
    pub task: Option<String>,
    /// Only tasks with this text in their name, `#id`, state or spawn location, in what they await
    /// (also in the kind of a [`Resource`]), or in a function or line of their chain, ignoring
    /// case. Empty selects all.
    pub filter: String,
    /// How many of the waiting tasks to poll, chosen at random; 0 means all, up to [`MAX_TASKS`].
    /// If there is a filter, tasks that match it without their chain are chosen first.
    pub sample: u32,
    /// Whether waiting tasks are polled once to find out where they wait. If not, only the data
    /// that `volt::sync` has recorded is in the dump.
    pub polls: bool,
    /// Whether chains contain all functions, also those of libraries.
    pub is_whole: bool,
}

impl Default for Query {
    fn default() -> Self {
        Self { task: None, filter: String::new(), sample: 0, polls: true, is_whole: false }
    }
}

/// A task dump: the tasks of a runtime, with the operations that they wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dump {
    /// The runtime's name.
    pub runtime: String,
    /// When the dump was made: ns on the program's monotonic clock.
    pub at_ns: u64,
    /// How long it took, ns.
    pub took_ns: u64,
    /// Number of tasks that were alive when the dump began, like `waiting` and `queued`.
    pub alive: u64,
    /// Number of tasks that waited and match the query.
    pub waiting: u64,
    /// Number of the tasks in `waiting` that were read. They are in `groups`, or in groups that
    /// were left out. The others were not chosen ([`Query::sample`]), or are counted in
    /// `progressed`.
    pub read: u64,
    /// Number of tasks that were woken or ended before the dump reached them, or during its poll.
    pub progressed: u64,
    /// Number of tasks in queues. They are counted after the waiting ones, so a task that was woken
    /// meanwhile may be in both numbers.
    pub queued: u64,
    /// Tasks that a worker polled when the dump ended, longest first. They may have waited when it
    /// began.
    #[serde(deserialize_with = "running")]
    pub running: Vec<Running>,
    /// Waiting tasks by where they wait. The group with the task that waits longest comes first.
    #[serde(deserialize_with = "groups")]
    pub groups: Vec<Group>,
    /// Number of groups that were left out because there are too many.
    pub groups_left_out: u64,
    /// The futures of `block_on`, such as that of `main`, in the order of the calls. A `block_on`
    /// that awaits a dump is left out. Empty if the query selects a task or does not poll, or if
    /// the runtime has a seed.
    #[serde(deserialize_with = "block_on")]
    pub block_on: Vec<BlockOn>,
    /// What is missing and why, with the remedy.
    #[serde(deserialize_with = "remarks")]
    pub remarks: Vec<String>,
}

/// The future of a call of `block_on`. It is not a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockOn {
    /// Where `block_on` was called: `file:line:column`.
    pub called_at: String,
    /// How long it has waited, ns, from its last poll to the dump. `None` if it was being polled.
    pub waiting_ns: Option<u64>,
    /// The chain of calls to the operation that is pending, as in a [`Group`].
    #[serde(deserialize_with = "links")]
    pub chain: Vec<Link>,
    /// Why the chain, or some of it, is missing.
    pub error: Option<String>,
}

/// A task that is being polled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Running {
    /// The task.
    pub task: TaskRef,
    /// Where it was spawned: `file:line:column`.
    pub spawned_at: String,
    /// The worker that polls it.
    pub worker: u32,
    /// How long the poll has lasted, ns.
    pub for_ns: u64,
    /// The calls of its stack, outermost first, if the poll has lasted 1 ms or more.
    #[serde(deserialize_with = "links")]
    pub chain: Vec<Link>,
}

/// Tasks that were spawned at the same place, and wait at the same place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Group {
    /// Where they were spawned: `file:line:column`.
    pub spawned_at: String,
    /// Number of tasks.
    pub tasks: u64,
    /// The longest wait of a task in the group, ns, from its last wake-up to the dump.
    pub oldest_ns: u64,
    /// The shortest wait of a task in the group, ns.
    pub newest_ns: u64,
    /// The tasks that wait longest.
    #[serde(deserialize_with = "examples")]
    pub examples: Vec<TaskRef>,
    /// The chain of calls to the operation that is pending. A task that waits for several
    /// operations has a tree.
    #[serde(deserialize_with = "links")]
    pub chain: Vec<Link>,
    /// What the tasks await, if that is a primitive of `volt::sync` or a JoinHandle that has
    /// recorded it: `lock`, `permits`, `notice`, `message`, `room`, `value`, `others`.
    pub awaits: Option<String>,
    /// The location of that await: `file:line:column`.
    pub awaits_at: Option<String>,
    /// The locks that these tasks await, with their holders; the lock that most of them await comes
    /// first. The holder of a `Mutex`, of a `Semaphore` with one permit, and of an `RwLock` with a
    /// writer or only one reader is recorded; other locks are missing.
    #[serde(deserialize_with = "locks")]
    pub locks: Vec<Lock>,
    /// Number of locks that were left out because there are too many.
    pub locks_left_out: u64,
    /// The primitives of `volt::sync` that these tasks await, and the ends of other tasks, in
    /// numbers; those that most of them await come first. Primitives with the same numbers are one
    /// entry. Empty if the tasks were not polled.
    #[serde(deserialize_with = "resources")]
    pub resources: Vec<Resource>,
    /// Number of resources that were left out because there are too many. Resources beyond 64 are
    /// not counted.
    pub resources_left_out: u64,
    /// Why the chain, or some of it, is missing.
    pub error: Option<String>,
}

/// A lock that tasks of a group await, and its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// Number of the group's tasks that await it.
    pub tasks: u64,
    /// The task that acquired it; `None` if no task did.
    pub held_by: Option<u64>,
    /// The name of that task, if it has one.
    pub held_by_name: Option<String>,
    /// Where it was acquired: `file:line:column`.
    pub held_at: String,
    /// Time since it was acquired, ns, measured from the wake-up of the poll that did so.
    pub held_ns: Option<u64>,
    /// The ids of the tasks that wait for it, also of those in other groups, in the order in which
    /// they began to wait: at most [`MAX_EXAMPLES`].
    #[serde(deserialize_with = "queue")]
    pub queue: Vec<u64>,
    /// Number of operations that wait for it; `None` in a program older than this field.
    pub waiters_len: Option<u64>,
}

/// A task in a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskRef {
    /// Its id, as in log lines.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// How long it has waited, ns.
    pub waiting_ns: u64,
}

/// A call in a chain. The list of links is a tree in preorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    /// The number of calls between this one and the task. The call above is the nearest previous
    /// link whose depth is smaller by one.
    pub depth: u32,
    /// The function, if its name is known.
    pub function: Option<String>,
    /// The source file, as passed to the compiler.
    pub file: Option<String>,
    /// The line in the file, from 1: where it awaits the next call.
    pub line: Option<u32>,
    /// Whether this is application code.
    pub is_user_code: bool,
    /// In a link with no links below it: the number of operations that are pending there.
    pub times: u32,
    /// The source line, if the client has the source: the program does not send it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Lock {
    /// Describes the holder, with where and since when it holds the lock. `duration` formats ns.
    ///
    /// ```
    /// use volt_telemetry::dump::Lock;
    /// use volt_telemetry::text::duration;
    ///
    /// let lock = Lock { held_by: Some(7), held_at: "src/a.rs:3:9".into(), ..Lock::default() };
    /// assert_eq!(lock.holder(duration), "task 7, acquired at src/a.rs:3:9");
    /// ```
    pub fn holder(&self, duration: impl Fn(u64) -> String) -> String {
        waits::holder(self.held_by, self.held_by_name.as_deref(), &self.held_at, self.held_ns.map(duration))
    }

    /// Returns the prefix of a line about the lock, if not all `tasks` tasks of the group wait for
    /// it: the only task in the queue, or the number of the group's tasks that wait. Otherwise
    /// returns an empty string.
    ///
    /// ```
    /// use volt_telemetry::dump::Lock;
    ///
    /// let lock = Lock { tasks: 1, queue: vec![7], ..Lock::default() };
    /// assert_eq!((lock.waiting(1), lock.waiting(2)), (String::new(), "#7: ".into()));
    /// ```
    pub fn waiting(&self, tasks: u64) -> String {
        match &self.queue[..] {
            _ if self.tasks >= tasks => String::new(),
            [only] => format!("#{only}: "),
            _ => format!("{}: ", counted(self.tasks, "task")),
        }
    }

    /// Describes the order in which tasks wait for the lock; `None` for a single one.
    ///
    /// ```
    /// use volt_telemetry::dump::Lock;
    ///
    /// let lock = Lock { queue: vec![9, 7], waiters_len: Some(3), ..Lock::default() };
    /// assert_eq!(lock.order().as_deref(), Some("#9, #7, …"));
    /// ```
    pub fn order(&self) -> Option<String> {
        (self.queue.len() > 1).then(|| ids(&self.queue, self.waiters_len))
    }
}

impl Link {
    /// Returns `file:line`, as far as known.
    ///
    /// ```
    /// use volt_telemetry::dump::Link;
    ///
    /// let link = Link { file: Some("src/shop.rs".into()), line: Some(9), ..Link::default() };
    /// assert_eq!(link.place().as_deref(), Some("src/shop.rs:9"));
    /// assert_eq!(Link::default().place(), None);
    /// ```
    pub fn place(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        Some(self.line.map_or_else(|| file.clone(), |line| format!("{file}:{line}")))
    }
}

/// Returns whether a function or a `file:line` of a chain contains `wanted`, ignoring case.
/// `wanted` is in lower case.
///
/// ```
/// use volt_telemetry::dump::{Link, chain_has};
///
/// let link = Link { file: Some("src/Shop.rs".into()), line: Some(9), ..Link::default() };
/// assert!(chain_has(&[link.clone()], "shop.rs:9") && !chain_has(&[link], "shop.rs:8"));
/// ```
pub fn chain_has(chain: &[Link], wanted: &str) -> bool {
    chain.iter().any(|link| {
        link.function.as_ref().is_some_and(|function| contains_ignoring_case(function, wanted))
            || link.place().is_some_and(|place| contains_ignoring_case(&place, wanted))
    })
}

/// Lists ids, which are the first of `len`.
fn ids(first: &[u64], len: Option<u64>) -> String {
    let more = if len == Some(first.len() as u64) { "" } else { ", …" };
    let ids: Vec<String> = first.iter().map(|id| format!("#{id}")).collect();
    format!("{}{more}", ids.join(", "))
}

fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Group>, D::Error> {
    bounded::list(deserializer, MAX_GROUPS, |_| 1)
}

fn running<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Running>, D::Error> {
    bounded::list(deserializer, MAX_RUNNING, |_| 1)
}

fn block_on<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<BlockOn>, D::Error> {
    bounded::list(deserializer, MAX_BLOCK_ON, |_| 1)
}

fn links<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Link>, D::Error> {
    bounded::list(deserializer, MAX_LINKS, |_| 1)
}

fn locks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Lock>, D::Error> {
    bounded::list(deserializer, MAX_LOCKS, |_| 1)
}

pub(crate) fn resources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Resource>, D::Error> {
    bounded::list(deserializer, MAX_RESOURCES, |_| 1)
}

fn queue<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    bounded::list(deserializer, MAX_EXAMPLES, |_| 1)
}

fn examples<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TaskRef>, D::Error> {
    bounded::list(deserializer, MAX_EXAMPLES, |_| 1)
}

fn remarks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    bounded::list(deserializer, MAX_REMARKS, |_| 1)
}
