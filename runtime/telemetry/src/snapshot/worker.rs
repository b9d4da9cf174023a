//! One worker of a runtime: its current state, and its counters since the runtime started. A
//! snapshot contains one for each worker and each spare.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The availability of a worker for tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Duty {
    /// It runs tasks, searches for them, or sleeps until there are some.
    #[default]
    Present,
    /// The sentinel has declared it stuck in a poll. A spare worker replaces it, if one is
    /// available.
    #[serde(alias = "away")]
    Stuck,
    /// It is in `block_in_place`.
    Blocking,
    /// It is a spare worker that is not needed now.
    Off,
    /// A value of a newer version.
    #[serde(other)]
    Unknown,
}

impl Duty {
    /// Returns the name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Duty::Present => "present",
            Duty::Stuck => "stuck",
            Duty::Blocking => "blocking",
            Duty::Off => "off",
            Duty::Unknown => "unknown",
        }
    }
}

/// The phase of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// Not running: not yet started, or shut down.
    #[default]
    Stopped,
    /// Polls tasks and takes them from its own queues.
    Busy,
    /// Searches for work in the global queue and, if it counts in
    /// [`Snapshot::searching`](super::Snapshot::searching), in other workers' queues.
    Searching,
    /// Sleeps on its futex.
    Parked,
    /// Sleeps in the I/O driver.
    Driver,
    /// Fires timers, polls I/O, and updates the tuner.
    Maintenance,
    /// A phase of a newer version.
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// The phases that a worker's time is accounted to. A black box contains the index of the
    /// present one.
    pub const TIMED: [Phase; 5] = [Phase::Busy, Phase::Searching, Phase::Parked, Phase::Driver, Phase::Maintenance];

    /// Returns the name in metrics and JSON.
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

/// A poll that is in progress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InFlight {
    /// The task's id.
    pub task_id: u64,
    /// The task's name, if it has one.
    pub task_name: Option<String>,
    /// Where the task was spawned: `file:line:column`.
    pub spawned_at: String,
    /// The HTTP route that it handles, if any: `GET /users/{id}`.
    pub route: Option<String>,
    /// How long this poll has lasted so far, ns.
    pub for_ns: u64,
}

impl InFlight {
    /// Returns the name to show: the HTTP route, or else the task's name.
    ///
    /// A server names the task of a connection by its peer, and the route is what the poll does.
    pub fn name(&self) -> Option<&str> {
        self.route.as_deref().or(self.task_name.as_deref())
    }
}

/// How often a worker woke up, by reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unparks {
    /// Another thread claimed it from the bitmap of parked workers.
    pub notified: u64,
    /// Its park timeout expired.
    pub timeout: u64,
    /// I/O became ready.
    pub io: u64,
    /// A timer came due, or an earlier one was set.
    pub timer: u64,
    /// No known reason.
    pub spurious: u64,
}

impl Unparks {
    /// Returns the reasons and their counts, in a fixed order.
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

/// Checks of the global queue since the runtime started, by trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlobalChecks {
    /// [`Worker::global_queue_interval`] local polls had passed.
    pub interval: u64,
    /// The target latency had passed since the last check, before the interval: polls took longer
    /// than average.
    pub elapsed: u64,
    /// The worker had nothing left to poll.
    pub empty: u64,
}

impl GlobalChecks {
    /// Returns the triggers and their counts, in a fixed order.
    pub fn by_trigger(&self) -> [(&'static str, u64); 3] {
        [("interval", self.interval), ("elapsed", self.elapsed), ("empty", self.empty)]
    }

    /// Returns the number of checks between local polls, that is, all checks except those of a
    /// worker that had nothing left to poll.
    pub fn between_polls(&self) -> u64 {
        self.interval.saturating_add(self.elapsed)
    }
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Worker {
    /// Its index, which is also its bit in the bitmap.
    pub index: u32,
    /// The kernel's id of its thread.
    pub thread_id: Option<u32>,
    /// Whether it is a spare worker, which is active while others are stuck.
    pub is_spare: bool,
    /// Whether it is available for tasks.
    pub duty: Duty,
    /// Time that its thread ran on a processor, ns, as reported by the kernel.
    pub cpu_ns: Option<u64>,
    /// Time that its thread was runnable while the kernel ran other threads, ns.
    pub run_delay_ns: Option<u64>,
    /// The current phase.
    pub phase: Phase,
    /// How long the current phase has lasted, ns.
    pub phase_for_ns: u64,
    /// The poll in progress, if any.
    pub in_flight: Option<InFlight>,

    /// Polls since the runtime started.
    pub polls: u64,
    /// Ticks since the runtime started.
    pub ticks: u64,
    /// Time in polls and between them, ns, since the runtime started, including the current phase.
    /// This and the next four `_ns` fields add up to the worker's lifetime.
    pub busy_ns: u64,
    /// Time spent searching for work.
    pub searching_ns: u64,
    /// Time parked on the futex.
    pub parked_ns: u64,
    /// Time parked in the I/O driver.
    pub driver_ns: u64,
    /// Time spent on timers, I/O polls and statistics.
    pub maintenance_ns: u64,

    /// Polls left in this tick.
    pub budget_left: u32,
    /// Ticks that ended because the budget was used up.
    pub budget_exhausted: u64,
    /// Polls in which a task was made to yield, because its cooperative budget was used up or the
    /// sentinel requested it.
    pub coop_yields: u64,

    /// Whether the LIFO slot contains a task.
    pub is_lifo_filled: bool,
    /// LIFO polls in this tick, and in the ticks directly before it in which the local queue had no
    /// turn.
    pub lifo_polls_this_tick: u32,
    /// Tasks run from the LIFO slot.
    pub lifo_hits: u64,
    /// Tasks that a newer task displaced from the LIFO slot into the local queue.
    pub lifo_evictions: u64,
    /// Times that the LIFO slot was flushed into the local queue because its limit per tick was
    /// reached.
    pub lifo_cap_flushes: u64,

    /// Tasks in the local queue (ring).
    pub ring_len: u32,
    /// Tasks in the batch buffer.
    pub batch_len: u32,
    /// Tasks in the inbox: placed here from outside and not yet moved to the local queue.
    pub inbox_len: u32,
    /// Times that the local queue was full and half of it moved to the global queue. While a thief
    /// takes tasks from it, only the new task moves.
    pub overflows: u64,
    /// Tasks that moved to the global queue in this way.
    pub tasks_overflowed: u64,

    /// Victims checked.
    pub steal_attempts: u64,
    /// Victims from which tasks were taken.
    pub steals: u64,
    /// Tasks taken from other workers.
    pub tasks_stolen: u64,
    /// Queues of victims from which nothing was taken because another thief or the owner was
    /// faster. An attempt may count several.
    pub steal_races_lost: u64,
    /// Tasks that other workers took from this one.
    pub tasks_given: u64,

    /// Checks of the global queue, by trigger; `None` in a program older than this field.
    pub global_checks: Option<GlobalChecks>,
    /// Local polls before the checks that came between local polls (`interval` and `elapsed`).
    /// Divided by the number of these checks it gives the average number of polls between two
    /// checks; compare it with `global_queue_interval`. `None` in a program older than this field.
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

    /// Times that it parked.
    pub parks: u64,
    /// Maximum length of its latest sleep, ns: the park timeout, which doubles while the worker
    /// finds no work. `None` if it sleeps until it is woken.
    pub park_timeout_ns: Option<u64>,
    /// Times that it woke up, by reason.
    pub unparks: Unparks,
    /// Workers that it woke.
    pub wakes_sent: u64,
    /// Times that it spun before parking and was woken during the spin.
    pub spins_helped: u64,
    /// Times that it spun before parking and parked afterwards.
    pub spins_in_vain: u64,
    /// Park timeouts after which the worker found work without a wake-up for it. Above 0 only if
    /// the wake-up protocol has a bug.
    pub lost_wakeup_rescues: u64,

    /// Poll times.
    pub poll_time: Histogram,
    /// Times from a task's wake-up to its poll.
    pub schedule_delay: Histogram,
    /// Polls after which the task was immediately ready again because it woke itself; `None` if
    /// they are not counted.
    pub self_wakes: Option<u64>,
}

impl Worker {
    /// Returns the number of tasks in its queues now: LIFO slot, batch buffer, local queue and
    /// inbox.
    pub fn queued(&self) -> u64 {
        let lens = [self.ring_len, self.batch_len, self.inbox_len, u32::from(self.is_lifo_filled)];
        lens.map(u64::from).iter().sum()
    }
}
