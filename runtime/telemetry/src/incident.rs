//! Incidents: polls that exceeded the stall threshold, with their stack, and the delay that tasks
//! cause to others.
//!
//! The runtime's sentinel records an incident while the poll is still running, and completes it
//! when the poll ends. The console, the exporter and the doctor read incidents.
//!
//! Invariant: BOUNDED. A snapshot contains only a limited number of the latest incidents;
//! [`Incidents`] counts those that were left out.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::text::duration;

/// Maximum number of incidents, and of frames per stack, that a reader accepts; a program keeps far
/// fewer.
const MAX_LATEST: usize = 1024;
/// Maximum number of causes of one poll that a reader accepts. A newer program may report causes
/// that this version has no name for.
const MAX_CAUSES: usize = 32;
/// A cause that lasted for less than this part of a poll is not worth mentioning; the times are
/// measured by samples, which are hardly more precise.
const MINOR_PART: u64 = 10;

/// The cause of a long poll, determined while the poll is still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// It uses the CPU: a loop, a parser, a hash.
    Cpu,
    /// It sleeps: `std::thread::sleep` or similar.
    Sleep,
    /// It waits for a lock, or for another thread.
    Lock,
    /// It waits for a blocking read, write or connect.
    Io,
    /// It waits for memory that is read from disk.
    PageIn,
    /// It is runnable, but the kernel runs other threads: there are too many threads for the
    /// processors.
    NotScheduled,
    /// It is runnable, but the CPU quota of its control group is used up.
    Throttled,
    /// It is stopped, by a signal or a debugger.
    Stopped,
    /// The kernel does not report a cause.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Cause {
    /// All causes, in a fixed order.
    pub const ALL: [Cause; 9] = [
        Cause::Cpu,
        Cause::Sleep,
        Cause::Lock,
        Cause::Io,
        Cause::PageIn,
        Cause::NotScheduled,
        Cause::Throttled,
        Cause::Stopped,
        Cause::Unknown,
    ];

    /// Returns the name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Cpu => "cpu",
            Cause::Sleep => "sleep",
            Cause::Lock => "lock",
            Cause::Io => "io",
            Cause::PageIn => "page_in",
            Cause::NotScheduled => "not_scheduled",
            Cause::Throttled => "throttled",
            Cause::Stopped => "stopped",
            Cause::Unknown => "unknown",
        }
    }

    /// Returns whether the machine causes this, and not the program: the thread could run, but the
    /// machine does not let it.
    pub fn is_of_machine(self) -> bool {
        matches!(self, Cause::NotScheduled | Cause::Throttled | Cause::Stopped)
    }

    /// Returns an explanation for users, such as "sleeps in the kernel".
    pub fn explain(self) -> &'static str {
        match self {
            Cause::Cpu => "runs on the CPU without yielding",
            Cause::Sleep => "sleeps in the kernel",
            Cause::Lock => "waits for a lock or another thread",
            Cause::Io => "waits for blocking I/O",
            Cause::PageIn => "waits for memory that is read from disk",
            Cause::NotScheduled => "is runnable, but the kernel runs other threads",
            Cause::Throttled => "is runnable, but its control group has used up its CPU quota",
            Cause::Stopped => "is stopped by a signal or a debugger",
            Cause::Unknown => "is stuck for a reason that the kernel does not report",
        }
    }
}

/// One frame of a stack. Stacks are ordered innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The code address.
    pub address: u64,
    /// The function, demangled; for an `async` block, the function that contains it. `None` if it
    /// is not known.
    pub function: Option<String>,
    /// The source file, as passed to the compiler.
    pub file: Option<String>,
    /// The line in the file, from 1.
    pub line: Option<u32>,
    /// The program or library that contains the code, without its directory.
    pub module: Option<String>,
    /// Whether this is application code: not Rust's libraries, Volt or a C library.
    pub is_user_code: bool,
}

/// The reaction of the runtime to a stuck poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Remedy {
    /// A parked worker was woken and took the waiting tasks.
    Rescued,
    /// A spare worker replaced the stuck one.
    Replaced,
    /// A spare worker should have replaced the stuck one, but no spare worker was available.
    Capped,
    /// Nothing: no task was waiting, or nothing could be done.
    #[default]
    #[serde(other)]
    None,
}

impl Remedy {
    /// Returns the name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Remedy::None => "none",
            Remedy::Rescued => "rescued",
            Remedy::Replaced => "replaced",
            Remedy::Capped => "capped",
        }
    }
}

/// How long one cause of a long poll has lasted, measured by samples of the thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CauseTime {
    /// The cause.
    pub cause: Cause,
    /// How long it has lasted, summed over the poll, ns.
    pub for_ns: u64,
    /// The suspect line of the first stack with this cause: `file:line`. `None` if it is not known.
    pub at: Option<String>,
}

/// Formats as `lock 1.3 s at src/main.rs:19`.
impl fmt::Display for CauseTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cause.name(), duration(self.for_ns))?;
        self.at.as_ref().map_or(Ok(()), |at| write!(f, " at {at}"))
    }
}

/// One poll that exceeded the stall threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incident {
    /// Its number, from 1, in the order in which they were recorded.
    pub id: u64,
    /// When the poll began: ns on the program's monotonic clock, plus the time that the whole
    /// program was paused during the poll.
    pub began_at_ns: u64,
    /// How long it lasted, or has lasted so far, ns.
    pub for_ns: u64,
    /// Whether the poll has ended.
    pub is_over: bool,
    /// The worker that it blocks.
    pub worker: u32,
    /// The task's id.
    pub task_id: u64,
    /// The task's name, if it has one.
    pub task_name: Option<String>,
    /// The spawn location of the task: `file:line:column`.
    pub spawned_at: String,
    /// The HTTP route that the poll handled when it was detected, if any: `GET /users/{id}`.
    pub route: Option<String>,
    /// The cause of the long poll: of several, the one that has lasted longest. If that is one [of
    /// the machine](Cause::is_of_machine), the longest cause of the program takes precedence,
    /// provided that it has certainly lasted for as long as makes a poll an incident.
    pub cause: Cause,
    /// All causes of the poll so far: [`cause`](Self::cause), and then the others, the longest
    /// first. Together they last for `for_ns`, without pauses of the machine. Empty if the program
    /// does not report them.
    #[serde(deserialize_with = "causes")]
    pub causes: Vec<CauseTime>,
    /// The kernel function in which it waits, if reported: `hrtimer_nanosleep`.
    pub wait_channel: Option<String>,
    /// The first stack of the thread with this cause, innermost frame first, down to the runtime's
    /// poll; empty if it could not be captured.
    #[serde(deserialize_with = "stack")]
    pub stack: Vec<Frame>,
    /// Why the stack is missing or incomplete.
    pub stack_error: Option<String>,
    /// Tasks in the worker's own queues when the incident was detected.
    pub waiting: u64,
    /// How the runtime reacted.
    pub remedy: Remedy,
    /// Incidents of the same spawn location and cause that were not recorded since the previous
    /// recorded one.
    pub suppressed: u64,
}

impl Incident {
    /// Returns the name to show: the HTTP route, or else the task's name.
    pub fn name(&self) -> Option<&str> {
        self.route.as_deref().or(self.task_name.as_deref())
    }

    /// Returns [`cause`](Self::cause) and the other causes that lasted for a tenth of the poll or
    /// longer, the longest of these first. If there is no other one, returns an empty slice: nearly
    /// all of the time has the cause [`cause`](Self::cause).
    pub fn main_causes(&self) -> &[CauseTime] {
        let is_minor = |part: &CauseTime| part.for_ns.saturating_mul(MINOR_PART) < self.for_ns;
        match self.causes.iter().skip(1).position(is_minor).map_or(self.causes.len(), |others| others + 1) {
            0 | 1 => &[],
            several => &self.causes[..several],
        }
    }

    /// Returns how long [`cause`](Self::cause) has lasted, ns.
    pub fn cause_for_ns(&self) -> u64 {
        self.causes.iter().find(|part| part.cause == self.cause).map_or(self.for_ns, |part| part.for_ns)
    }

    /// Returns the frame of the suspect line: the innermost frame of application code.
    pub fn guilty(&self) -> Option<&Frame> {
        self.stack.iter().find(|frame| frame.is_user_code)
    }
}

/// Polls that exceeded the stall threshold, since the runtime started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incidents {
    /// Counts by cause, in the order of [`Cause::ALL`].
    pub by_cause: Vec<u64>,
    /// Number of these that were counted but not recorded when they began, because there were too
    /// many similar ones. One that lasts is recorded later, and still counts here.
    pub suppressed: u64,
    /// Incidents that were recorded and then displaced from `latest` by newer ones.
    pub evicted: u64,
    /// The latest incidents, oldest first.
    #[serde(deserialize_with = "latest")]
    pub latest: Vec<Incident>,
}

impl Incidents {
    /// Returns the causes and their counts, in a fixed order.
    pub fn counts(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.into_iter().enumerate().map(|(index, cause)| (cause, self.by_cause.get(index).copied().unwrap_or(0)))
    }

    /// Returns the total number.
    pub fn total(&self) -> u64 {
        self.by_cause.iter().copied().fold(0, u64::saturating_add)
    }
}

/// The delays that the tasks of one spawn location caused and suffered since the runtime started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blame {
    /// The spawn location: `file:line:column`. Locations that did not fit into the table are
    /// counted together as `other`. If such a location has many tasks, it also has its own row: of
    /// the counters, that row has only `alive` and `stranded`, and its `self_wakes` is `None`.
    pub spawned_at: String,
    /// Number of polls.
    pub polls: u64,
    /// Time in polls, ns.
    pub busy_ns: u64,
    /// The longest poll, ns.
    pub longest_poll_ns: u64,
    /// Polls that became incidents.
    pub stalls: u64,
    /// How long other tasks waited behind polls of these tasks that lasted 1 ms or longer, ns,
    /// summed over the waiting tasks.
    pub delay_caused_ns: u64,
    /// How long these tasks waited behind such polls of other tasks, ns.
    pub delay_suffered_ns: u64,
    /// Polls after which the task was immediately ready again because it woke itself; `None` if
    /// they are not counted.
    pub self_wakes: Option<u64>,
    /// Tasks that are alive now and have waited at least once, or have a name; `None` if they are
    /// not counted, or there are too many.
    pub alive: Option<u64>,
    /// Number of these that wait without a waker, so that only a cancellation can end them; `None`
    /// if they are not counted.
    pub stranded: Option<u64>,
    /// What at least half of the tasks alive await, and where. `None` if they await different
    /// things, or have several wakers, if what they await is not recorded, such as a socket or a
    /// timer, or if it is not counted. A task with a `FuturesUnordered` may have one waker for
    /// several futures. It counts with the one that it polled last.
    pub main_await: Option<MainAwait>,
}

/// An await at which many tasks of one spawn location wait. Only operations of `volt::sync` and
/// JoinHandles record themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MainAwait {
    /// What they await, as in [`Task::awaits`](crate::tasks::Task::awaits).
    pub awaits: String,
    /// The location of the await: `file:line:column`. Of a JoinHandle, that of the spawn.
    pub awaits_at: String,
    /// The number of tasks that wait there.
    pub tasks: u64,
}

fn stack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Frame>, D::Error> {
    bounded::list(deserializer, MAX_LATEST, |_| 1)
}

fn causes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<CauseTime>, D::Error> {
    bounded::list(deserializer, MAX_CAUSES, |_| 1)
}

fn latest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Incident>, D::Error> {
    // An incident without its stack takes a few hundred bytes, and a frame about as many. A cause
    // takes less.
    let weigh = |incident: &Incident| 16 + incident.stack.len() + incident.causes.len();
    bounded::list(deserializer, 16 * MAX_LATEST, weigh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_of_weight_are_named_only_if_there_are_several() {
        let part = |cause, for_ns| CauseTime { cause, for_ns, at: None };
        let of = |causes: Vec<CauseTime>| {
            let incident = Incident { for_ns: 1_000, cause: Cause::Lock, causes, ..Incident::default() };
            (incident.main_causes().iter().map(|part| part.cause).collect::<Vec<_>>(), incident.cause_for_ns())
        };
        assert_eq!(of(vec![]), (vec![], 1_000), "an older program");
        assert_eq!(of(vec![part(Cause::Lock, 1_000)]), (vec![], 1_000));
        assert_eq!(of(vec![part(Cause::Lock, 901), part(Cause::Cpu, 99)]), (vec![], 901));
        let three = vec![part(Cause::Lock, 600), part(Cause::Sleep, 301), part(Cause::Cpu, 99)];
        assert_eq!(of(three), (vec![Cause::Lock, Cause::Sleep], 600));
        let behind_the_machine = vec![part(Cause::Lock, 50), part(Cause::Stopped, 940), part(Cause::Cpu, 10)];
        assert_eq!(of(behind_the_machine), (vec![Cause::Lock, Cause::Stopped], 50), "its cause is always named");
    }

    #[test]
    fn a_cause_is_written_with_its_time_and_line() {
        let part = CauseTime { cause: Cause::Lock, for_ns: 1_300_000_000, at: Some("src/main.rs:19".into()) };
        assert_eq!(part.to_string(), "lock 1.3 s at src/main.rs:19");
        assert_eq!(CauseTime { at: None, ..part }.to_string(), "lock 1.3 s");
    }
}
