//! Deadlocks, locks that are held for long, and waits that are far longer than usual, as plain
//! data.
//!
//! The runtime searches for them when it takes a snapshot. The doctor's rules `deadlock`,
//! `lock-held` and `waiting-forever` report them. [`holder`] describes the holder of a lock as
//! text, and [`awaited`] what a task awaits. The permits of a semaphore have several holders
//! ([`PermitHolder`]).
//!
//! Invariants:
//! * BOUNDED: at most [`MAX_DEADLOCKS`] cycles of at most [`MAX_LINKS`] tasks each,
//!   [`MAX_HELD_LOCKS`] locks, [`MAX_LONG_WAITS`] lines, and [`MAX_PERMIT_HOLDERS`] holders of a
//!   semaphore's permits.
//! * ABSENT IS NONE: a value that is not known is `None`.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::text::counted;

/// Maximum number of cycles in a snapshot.
pub const MAX_DEADLOCKS: usize = 16;
/// Maximum number of tasks in a cycle. A longer cycle is not reported.
pub const MAX_LINKS: usize = 32;
/// Maximum number of locks that are held for long in a snapshot.
pub const MAX_HELD_LOCKS: usize = 16;
/// Maximum number of lines with a long wait in a snapshot.
pub const MAX_LONG_WAITS: usize = 16;
/// Maximum number of holders of a semaphore's permits that are named.
pub const MAX_PERMIT_HOLDERS: usize = 4;

/// Tasks that wait for each other in a cycle: each waits for a lock that the next one holds, for
/// room in a channel from which the next one receives, or for the end of the next one, and the last
/// one for the first. A single task waits for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deadlock {
    /// Whether nothing but an abort can wake these tasks, apart from a call of `add_permits` or
    /// `close` if they wait for the only permit of a semaphore. Otherwise something else may still
    /// wake one of them, such as a timeout, or another task may release a guard that was moved to
    /// it.
    pub is_certain: bool,
    /// For how long all of them have waited, ns.
    pub for_ns: u64,
    /// The tasks.
    #[serde(deserialize_with = "links")]
    pub links: Vec<DeadlockLink>,
}

/// A task of a [`Deadlock`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadlockLink {
    /// The task's id.
    pub task: u64,
    /// The task's name, if it has one.
    pub name: Option<String>,
    /// The spawn location: `file:line:column`.
    pub spawned_at: String,
    /// What the task awaits, as in [`Task::awaits`](crate::tasks::Task::awaits).
    pub awaits: String,
    /// The location of that await. If the task awaits the end of the next task, the spawn location
    /// of the next task.
    pub awaits_at: String,
    /// For how long it has waited, ns.
    pub waiting_ns: u64,
    /// Where the next task acquired the lock that this task waits for, or where it receives from
    /// the channel; `None` if this task waits for the end of the next task.
    pub held_at: Option<String>,
    /// For how long the next task has held that lock, or not received, ns; `None` as for `held_at`.
    pub held_ns: Option<u64>,
}

/// Describes the holder of a lock, with where it acquired it, and for how long it has held it.
/// `task` is its id, or `None` if no task acquired the lock.
///
/// ```
/// use volt_telemetry::waits::holder;
///
/// let held = holder(Some(7), Some("till"), "src/settle.rs:31:20", Some("14 min".into()));
/// assert_eq!(held, "task 7 \"till\" for 14 min, acquired at src/settle.rs:31:20");
/// ```
pub fn holder(task: Option<u64>, name: Option<&str>, at: &str, held_for: Option<String>) -> String {
    let name = name.map(|name| format!(" {name:?}")).unwrap_or_default();
    let since = held_for.map(|time| format!(" for {time}")).unwrap_or_default();
    format!("{}{name}{since}, acquired at {at}", who(task))
}

/// Permits of a semaphore that a task acquired at a line of code, and that are not returned yet.
/// The task may have moved them to another task since. Permits that were added to the semaphore or
/// forgotten are not included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct PermitHolder {
    /// The number of permits.
    pub permits: u64,
    /// The task that acquired them; `None` if no task did.
    pub task: Option<u64>,
    /// The name of that task, if it has one.
    pub name: Option<String>,
    /// Where they were acquired: `file:line:column`.
    pub acquired_at: String,
    /// Time since the first of them was acquired, ns, measured from the wake-up of the poll that
    /// did so. `None` if no task acquired them.
    pub acquired_ago_ns: Option<u64>,
}

impl PermitHolder {
    /// Describes who acquired the permits, when and where. `duration` formats ns.
    ///
    /// ```
    /// use volt_telemetry::text::duration;
    /// use volt_telemetry::waits::PermitHolder;
    ///
    /// let holder = PermitHolder { permits: 2, task: Some(7), acquired_at: "src/a.rs:3:9".into(), ..Default::default() };
    /// assert_eq!(holder.describe(duration), "2 permits acquired by task 7 at src/a.rs:3:9");
    /// ```
    pub fn describe(&self, duration: impl Fn(u64) -> String) -> String {
        let Self { permits, task, name, acquired_at, acquired_ago_ns } = self;
        let name = name.as_ref().map(|name| format!(" {name:?}")).unwrap_or_default();
        let ago = acquired_ago_ns.map(|ns| format!(" {} ago", duration(ns))).unwrap_or_default();
        format!("{} acquired by {}{name}{ago} at {acquired_at}", counted(*permits, "permit"), who(*task))
    }
}

/// Describes each of the holders of permits, and then the number of those that are left out.
/// `duration` formats ns.
///
/// ```
/// use volt_telemetry::text::duration;
/// use volt_telemetry::waits::{PermitHolder, permit_holders};
///
/// let holder = PermitHolder { permits: 1, acquired_at: "src/a.rs:3:9".into(), ..Default::default() };
/// let lines = permit_holders(&[holder], 2, duration);
/// assert_eq!(lines, ["1 permit acquired by code outside of tasks at src/a.rs:3:9", "and permits with 2 other holders"]);
/// assert!(permit_holders(&[], 0, duration).is_empty());
/// ```
pub fn permit_holders(holders: &[PermitHolder], left_out: u64, duration: impl Fn(u64) -> String) -> Vec<String> {
    let mut lines: Vec<_> = holders.iter().map(|holder| holder.describe(&duration)).collect();
    if left_out > 0 {
        lines.push(format!("and permits with {}", counted(left_out, "other holder")));
    }
    lines
}

/// A newer program may send more than [`MAX_PERMIT_HOLDERS`].
pub(crate) fn permit_holder_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PermitHolder>, D::Error> {
    bounded::list(deserializer, 4 * MAX_PERMIT_HOLDERS, |_| 1)
}

fn who(task: Option<u64>) -> String {
    task.map_or_else(|| "code outside of tasks".to_owned(), |id| format!("task {id}"))
}

/// A lock that a task has held for a second or more, while another task waited for it for as long.
/// Locks of a [`Deadlock`] are not included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldLock {
    /// The id of the task that acquired it.
    pub task: u64,
    /// That task's name, if it has one.
    pub name: Option<String>,
    /// Where that task was spawned: `file:line:column`. `None` if it is in its first poll, has
    /// ended, or belongs to another runtime.
    pub spawned_at: Option<String>,
    /// What that task awaits, as in [`Task::awaits`](crate::tasks::Task::awaits), if it waits and
    /// that is known.
    pub holder_awaits: Option<String>,
    /// The location of that await.
    pub holder_awaits_at: Option<String>,
    /// Where the lock was acquired.
    pub held_at: String,
    /// For how long it has been held, ns.
    pub held_ns: u64,
    /// The kind of lock: `lock` for a `Mutex` or an `RwLock`, `permits` for a `Semaphore` of one
    /// permit.
    pub awaits: String,
    /// Where the first of the tasks that wait called the operation.
    pub awaits_at: String,
    /// For how long that task has waited, ns.
    pub waiting_ns: u64,
    /// The number of tasks and threads that wait.
    pub waiting: u64,
}

/// A line of code at which a task has waited for 10 s or more, and 10 times as long as the longest
/// of the waits at this line that were seen to end.
///
/// Only waits for a lock, permits, or a value that is set once are included: a task that waits for
/// the next message or notification, or for room in a channel, may be idle. The task must wait for
/// this only, without a timeout or another branch of a `select!`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LongWait {
    /// What the tasks await, as in [`Task::awaits`](crate::tasks::Task::awaits): `lock`, `permits`
    /// or `value`.
    pub awaits: String,
    /// The line: `file:line:column`.
    pub awaits_at: String,
    /// The number of tasks that wait at this line.
    pub waiting: u64,
    /// For how long the task that has waited longest has waited, ns.
    pub waiting_ns: u64,
    /// The id of that task.
    pub task: u64,
    /// The name of that task, if it has one.
    pub name: Option<String>,
    /// Where that task was spawned.
    pub spawned_at: String,
    /// The number of waits at this line that were seen to end. The runtime sees a sample of them.
    pub ended: u64,
    /// The duration of the longest of these, ns. Precision: the time between two walks through the
    /// tasks.
    pub longest_ended_ns: u64,
}

pub(crate) fn long_waits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<LongWait>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct List(#[serde(deserialize_with = "list")] Vec<LongWait>);

    /// A newer program may send more.
    fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LongWait>, D::Error> {
        bounded::list(deserializer, 4 * MAX_LONG_WAITS, |_| 1)
    }

    Ok(Option::<List>::deserialize(deserializer)?.map(|List(list)| list))
}

pub(crate) fn held_locks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<HeldLock>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct List(#[serde(deserialize_with = "list")] Vec<HeldLock>);

    /// A newer program may send more.
    fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HeldLock>, D::Error> {
        bounded::list(deserializer, 4 * MAX_HELD_LOCKS, |_| 1)
    }

    Ok(Option::<List>::deserialize(deserializer)?.map(|List(list)| list))
}

pub(crate) fn deadlocks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Deadlock>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct List(#[serde(deserialize_with = "list")] Vec<Deadlock>);

    /// A newer program may send more.
    fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Deadlock>, D::Error> {
        bounded::list(deserializer, 4 * MAX_DEADLOCKS * MAX_LINKS, |deadlock: &Deadlock| 1 + deadlock.links.len())
    }

    Ok(Option::<List>::deserialize(deserializer)?.map(|List(list)| list))
}

/// A newer program may send more than [`MAX_LINKS`].
fn links<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DeadlockLink>, D::Error> {
    bounded::list(deserializer, 4 * MAX_LINKS, |_| 1)
}

/// Describes what a task awaits, by its name in JSON.
///
/// ```
/// assert_eq!(volt_telemetry::waits::awaited("notice"), "a notification");
/// ```
pub fn awaited(name: &str) -> &str {
    match name {
        "lock" => "a lock",
        "permits" => "semaphore permits",
        "notice" => "a notification",
        "message" => "a message",
        "room" => "room in a channel",
        "value" => "a value",
        "others" => "other tasks (at a barrier, or until one ends or sets a value)",
        newer => newer,
    }
}
