//! One worker of a runtime: what it does now, and what it has done since the runtime started.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Whether a worker is there for tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Duty {
    /// It runs tasks, searches for them, or sleeps until there are some.
    #[default]
    Present,
    /// It is stuck in a poll, and another works in its place.
    Away,
    /// It is in `block_in_place`.
    Blocking,
    /// It is a spare that is not needed now.
    Off,
    /// A duty that this reader does not know.
    #[serde(other)]
    Unknown,
}

impl Duty {
    /// The name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Duty::Present => "present",
            Duty::Away => "away",
            Duty::Blocking => "blocking",
            Duty::Off => "off",
            Duty::Unknown => "unknown",
        }
    }
}

/// What a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Not running: not yet started, or shut down.
    #[default]
    Stopped,
    /// Polls tasks and takes them from its own queues.
    Busy,
    /// Searches for work in the global queue and, if it is one of
    /// [`Snapshot::searching`](super::Snapshot::searching), in other workers' queues.
    Searching,
    /// Sleeps on its futex.
    Parked,
    /// Sleeps in the I/O driver.
    Driver,
    /// Fires timers, polls I/O, feeds the tuner.
    Maintenance,
    /// A phase that this reader does not know.
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// The name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Stopped => "stopped",
            Phase::Busy => "busy",
            Phase::Searching => "searching",
            Phase::Parked => "parked",
            Phase::Driver => "driver",
            Phase::Maintenance => "maintenance",
            Phase::Unknown => "unknown",
        }
    }
}

/// A poll that has begun and not yet ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InFlight {
    /// The task's id.
    pub task_id: u64,
    /// The task's name, if it has one.
    pub task_name: Option<String>,
    /// Where the task was spawned: `file:line:column`.
    pub spawned_at: String,
    /// How long this poll has lasted so far, ns.
    pub for_ns: u64,
}

/// Why a worker woke up, counted each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unparks {
    /// Somebody claimed it from the parked bitmap.
    pub notified: u64,
    /// Its park time-out ran out.
    pub timeout: u64,
    /// I/O became ready.
    pub io: u64,
    /// A timer came due, or an earlier one was set.
    pub timer: u64,
    /// No reason that it knows of.
    pub spurious: u64,
}

impl Unparks {
    /// Reasons and counts, in a fixed order.
    pub fn by_reason(&self) -> [(&'static str, u64); 5] {
        [
            ("notified", self.notified),
            ("timeout", self.timeout),
            ("io", self.io),
            ("timer", self.timer),
            ("spurious", self.spurious),
        ]
    }
}

/// Checks of the global queue, since the runtime started, by what triggered them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlobalChecks {
    /// As many local polls as [`Worker::global_queue_interval`] had passed.
    pub interval: u64,
    /// The target latency had passed since the last check, earlier than the interval: polls took
    /// longer than the average.
    pub elapsed: u64,
    /// The worker had nothing left to poll.
    pub empty: u64,
}

impl GlobalChecks {
    /// Triggers and counts, in a fixed order.
    pub fn by_trigger(&self) -> [(&'static str, u64); 3] {
        [("interval", self.interval), ("elapsed", self.elapsed), ("empty", self.empty)]
    }

    /// Checks that came between local polls: all but those of a worker that had nothing left to
    /// poll.
    pub fn between_polls(&self) -> u64 {
        self.interval.saturating_add(self.elapsed)
    }
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Its index: its bit in the bitmap.
    pub index: u32,
    /// The kernel's id of its thread.
    pub thread_id: Option<u32>,
    /// Whether it is a spare: one that goes on duty while others are stuck.
    pub is_spare: bool,
    /// Whether it is there for tasks.
    pub duty: Duty,
    /// Time that its thread was on a processor, ns, as the kernel says.
    pub cpu_ns: Option<u64>,
    /// Time that its thread could have run and the kernel ran others, ns.
    pub run_delay_ns: Option<u64>,
    /// What it does.
    pub phase: Phase,
    /// How long it has been doing that, ns.
    pub phase_for_ns: u64,
    /// The poll that is going on, if one is.
    pub in_flight: Option<InFlight>,

    /// Polls, since start.
    pub polls: u64,
    /// Ticks, since start.
    pub ticks: u64,
    /// Time in polls and between them, ns, since start, the present phase included; the five `_ns`
    /// add up to its life.
    pub busy_ns: u64,
    /// Time spent searching for work.
    pub searching_ns: u64,
    /// Time asleep on the futex.
    pub parked_ns: u64,
    /// Time asleep in the I/O driver.
    pub driver_ns: u64,
    /// Time spent on timers, I/O polls and statistics.
    pub maintenance_ns: u64,

    /// Polls left in this tick.
    pub budget_left: u32,
    /// Ticks that ended because the budget was spent.
    pub budget_exhausted: u64,
    /// Times that a task was made to yield because its cooperative budget was spent.
    pub coop_yields: u64,

    /// Whether a task waits in the LIFO slot.
    pub is_lifo_filled: bool,
    /// LIFO polls in this tick.
    pub lifo_polls_this_tick: u32,
    /// Tasks run from the LIFO slot.
    pub lifo_hits: u64,
    /// Tasks pushed out of the slot into the ring by a newer one.
    pub lifo_evictions: u64,
    /// Times that the slot was flushed into the ring because the cap was reached.
    pub lifo_cap_flushes: u64,

    /// Tasks in the ring, and on the stack where the newest runs first.
    pub ring_len: u32,
    /// Tasks in the batch buffer.
    pub batch_len: u32,
    /// Tasks in the inbox: placed here from outside and not yet moved to the ring.
    pub inbox_len: u32,
    /// Times that the ring was full and half of it went to the global queue.
    pub overflows: u64,
    /// Tasks that went that way.
    pub tasks_overflowed: u64,

    /// Victims checked.
    pub steal_attempts: u64,
    /// Victims that gave something.
    pub steals: u64,
    /// Tasks taken from other workers.
    pub tasks_stolen: u64,
    /// Attempts lost to another thief or to the owner.
    pub steal_races_lost: u64,
    /// Tasks that other workers took from this one.
    pub tasks_given: u64,

    /// Checks of the global queue, by what triggered them; `None` in a program older than this
    /// field.
    pub global_checks: Option<GlobalChecks>,
    /// Local polls before the checks that came between local polls (`interval` and `elapsed`).
    /// Divided by the number of these checks it is the average number of polls between two
    /// checks, to be read beside `global_queue_interval`; `None` in a program older than this
    /// field.
    pub global_check_polls: Option<u64>,
    /// Checks that took tasks.
    pub global_batches: u64,
    /// Tasks taken from the global queue.
    pub global_tasks: u64,
    /// Moving average (EWMA) of poll time, ns.
    pub avg_poll_ns: u64,
    /// Local polls between two checks of the global queue: the target latency divided by the
    /// average poll time, within its bounds. A check comes earlier when the target latency has
    /// passed.
    pub global_queue_interval: u32,

    /// Times it went to sleep.
    pub parks: u64,
    /// How long its latest sleep lasts at most, ns: the park time-out, which doubles while it finds
    /// nothing; `None` = until it is woken.
    pub park_timeout_ns: Option<u64>,
    /// Times it woke up, by reason.
    pub unparks: Unparks,
    /// Workers that it woke.
    pub wakes_sent: u64,
    /// Times that it stayed awake for a moment before a sleep, and was woken meanwhile.
    pub spins_helped: u64,
    /// The same, and it went to sleep after all.
    pub spins_in_vain: u64,
    /// Park time-outs that found work nobody had woken it for: a fault in the protocol if ever
    /// above 0.
    pub lost_wakeup_rescues: u64,

    /// How long polls took.
    pub poll_time: Histogram,
    /// How long tasks waited from their wake-up to their poll.
    pub schedule_delay: Histogram,
    /// Polls at whose end the task was ready again, woken by itself; `None` if nobody counts them.
    pub self_wakes: Option<u64>,
}

impl Worker {
    /// Tasks in its queues now: LIFO slot, batch buffer, ring and inbox.
    pub fn queued(&self) -> u64 {
        let lens = [self.ring_len, self.batch_len, self.inbox_len, u32::from(self.is_lifo_filled)];
        lens.map(u64::from).iter().sum()
    }
}
