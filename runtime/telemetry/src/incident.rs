//! What went wrong while it went wrong: polls that did not end in time, and who pays for them.
//!
//! Who writes: the runtime's sentinel, which lifts an incident while its poll is still running, and
//! once more when it has ended. Who reads: console, exporter, doctor.
//!
//! Invariant: *Bounded*: a snapshot holds the latest incidents only, by count; what was left out is
//! counted in [`Incidents`].

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;

/// Incidents, and calls of a stack, that a reader takes; a program keeps far fewer.
const MAX_LATEST: usize = 1024;

/// Why a poll does not end, told while it is still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// It burns processor time: a loop, a parser, a hash.
    Cpu,
    /// It sleeps: `std::thread::sleep` and its like.
    Sleep,
    /// It waits for a lock, or for something else that another thread has to do.
    Lock,
    /// It waits for a read, a write or a connection that blocks.
    Io,
    /// It waits for memory to come back from the disk.
    PageIn,
    /// It could run, and the kernel runs somebody else: too many threads for the processors.
    NotScheduled,
    /// It could run, and the quota of its control group is spent.
    Throttled,
    /// It was stopped, by a signal or by a debugger.
    Stopped,
    /// The kernel did not say.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Cause {
    /// All of them, in a fixed order.
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

    /// The name in metrics and JSON.
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

    /// What it is, for people: "sleeps in the kernel".
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

/// One call of a stack, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The address in the code.
    pub address: u64,
    /// The function, demangled; an `async` block reads as the function that holds it. `None` if
    /// nobody knows.
    pub function: Option<String>,
    /// The source file, as the compiler was given it.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The program or library that the code is in, without its folder.
    pub module: Option<String>,
    /// Whether it is code of the application's: neither Rust's libraries, nor Volt's, nor a C
    /// library's.
    pub is_user_code: bool,
}

/// What was done about a stuck poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Remedy {
    /// A parked worker was woken and took what waited.
    Rescued,
    /// A spare worker took its place.
    Replaced,
    /// It should have been replaced, and every spare that is allowed was in use.
    Capped,
    /// Nothing: nobody waited, or nothing could be done.
    #[default]
    #[serde(other)]
    None,
}

impl Remedy {
    /// The name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Remedy::None => "none",
            Remedy::Rescued => "rescued",
            Remedy::Replaced => "replaced",
            Remedy::Capped => "capped",
        }
    }
}

/// One poll that did not end in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incident {
    /// Its number, from 1, in the order in which they began to be seen.
    pub id: u64,
    /// When the poll began: ns on the process's monotonic clock; later by as much as the whole
    /// process stood still in it.
    pub began_at_ns: u64,
    /// How long it lasted, or has lasted so far, ns.
    pub for_ns: u64,
    /// Whether it has ended.
    pub is_over: bool,
    /// The worker that it holds.
    pub worker: u32,
    /// The task's id.
    pub task_id: u64,
    /// The task's name, if it has one.
    pub task_name: Option<String>,
    /// Where the task was spawned: `file:line:column`.
    pub spawned_at: String,
    /// Why it does not end.
    pub cause: Cause,
    /// Where the kernel says that it waits, if it does: `hrtimer_nanosleep`.
    pub wait_channel: Option<String>,
    /// The stack of its thread, innermost first, down to the runtime's poll; empty if it could not
    /// be taken.
    #[serde(deserialize_with = "stack")]
    pub stack: Vec<Frame>,
    /// Why there is no stack, or not all of it.
    pub stack_error: Option<String>,
    /// Tasks that waited in the worker's own queues when it was seen.
    pub waiting: u64,
    /// What was done about it.
    pub remedy: Remedy,
    /// Incidents of the same spawn location and cause that were not written down since the one
    /// before.
    pub suppressed: u64,
}

impl Incident {
    /// The line to look at: the innermost frame of the application's own code.
    pub fn guilty(&self) -> Option<&Frame> {
        self.stack.iter().find(|frame| frame.is_user_code)
    }
}

/// Polls that did not end in time, since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Incidents {
    /// How many, by cause, in the order of [`Cause::ALL`].
    pub by_cause: Vec<u64>,
    /// Of these, incidents that were counted and not written down when they began, since there were
    /// too many of their like. One that lasts is written down late, and stays counted here.
    pub suppressed: u64,
    /// Written down, and pushed out of `latest` by newer ones.
    pub evicted: u64,
    /// The latest, oldest first.
    #[serde(deserialize_with = "latest")]
    pub latest: Vec<Incident>,
}

impl Incidents {
    /// Causes and counts, in a fixed order.
    pub fn counts(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.into_iter().enumerate().map(|(index, cause)| (cause, self.by_cause.get(index).copied().unwrap_or(0)))
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        self.by_cause.iter().copied().fold(0, u64::saturating_add)
    }
}

/// What the tasks of one spawn location have done to others, and had done to them, since start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blame {
    /// Where the tasks were spawned: `file:line:column`; `other` for those that the table had no
    /// room for. A row with `alive` but without `self_wakes` is a location outside the table with
    /// many tasks; its other counters are included in `other`.
    pub spawned_at: String,
    /// Polls.
    pub polls: u64,
    /// Time in polls, ns.
    pub busy_ns: u64,
    /// The longest poll, ns.
    pub longest_poll_ns: u64,
    /// Polls that became incidents.
    pub stalls: u64,
    /// For how long other tasks waited behind polls of these, ns, summed over the tasks that
    /// waited.
    pub delay_caused_ns: u64,
    /// For how long these waited behind polls of others, ns.
    pub delay_suffered_ns: u64,
    /// Polls at whose end the task was ready again, woken by itself; `None` if nobody counts them.
    pub self_wakes: Option<u64>,
    /// Tasks that live now and have waited at least once, or have a name; `None` if nobody counts
    /// them, or there are too many.
    pub alive: Option<u64>,
    /// Of these, tasks that wait, and of which no waker is left, so that only a cancellation ends
    /// them; `None` if nothing counts them.
    pub stranded: Option<u64>,
}

fn stack<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Frame>, D::Error> {
    bounded::list(deserializer, MAX_LATEST, |_| 1)
}

fn latest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Incident>, D::Error> {
    // Each is a few hundred bytes, and so is a call.
    bounded::list(deserializer, 16 * MAX_LATEST, |incident: &Incident| 16 + incident.stack.len())
}
