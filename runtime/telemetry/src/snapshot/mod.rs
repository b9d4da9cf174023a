//! What a Volt program looks like at one moment, as plain data.
//!
//! Who writes: the runtime, by lifting its cells, queue indices and bitmap. Who reads: exporter,
//! console, tests.
//!
//! Invariants. *Counters only grow.* *Each number is exact, the numbers are not mutually atomic*: a
//! task may be counted as completed in one cell and not yet in another. *Absent is `None`, never
//! 0.* *Unknown fields are ignored and missing ones take their default*, so that an older console
//! reads a newer program and the other way round.

mod worker;

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::finding::{Finding, message};
use crate::health::Health;
use crate::histogram::Histogram;
use crate::incident::{Blame, Cause, Incidents};
use crate::processes::Processes;

pub use worker::{Duty, GlobalChecks, InFlight, Phase, Unparks, Worker};

/// Workers, spares included, that a reader takes from one program; twice as many as a runtime may
/// have, and more than fit a message.
pub const MAX_WORKERS: usize = 2048;
/// Runtimes that a reader takes from one program; more than fit a message.
pub const MAX_RUNTIMES: usize = 2048;
/// Spawn locations that a reader takes from one runtime; more than it counts.
const MAX_BLAME: usize = 16 * 1024;

/// One program: every runtime in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The program's name (`argv[0]` without its folder).
    pub program: String,
    /// When this was taken: ns on the process's monotonic clock.
    pub at_ns: u64,
    /// How the observer is doing; `None` if nobody says: a recording, or a program that is older
    /// than this.
    pub observer: Option<Health>,
    /// One for each runtime that is alive, in the order in which they were built.
    #[serde(deserialize_with = "runtimes")]
    pub runtimes: Vec<Snapshot>,
}

/// One runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The runtime's name, from `Builder::name`; unique in the process.
    pub runtime: String,
    /// When this was taken: ns on the process's monotonic clock.
    pub at_ns: u64,
    /// When the runtime was built, on the same clock.
    pub started_at_ns: u64,
    /// What could not be read this time, by field name; empty when the snapshot is whole.
    pub incomplete: Vec<String>,
    /// The settings that the numbers below are to be read against.
    pub config: Config,
    /// Bit `w % 64` of word `w / 64` is set while worker `w` is parked and not yet claimed.
    pub parked_bitmap: Vec<u64>,
    /// Workers that search for work now: those that steal, and those that were woken and are on
    /// their way.
    ///
    /// A worker starts to steal by itself only while fewer than half of the workers search. Workers
    /// that were woken are counted without a limit, so the count may be above half. A worker
    /// that was refused, or that does not steal, still checks the global queue: its phase is
    /// [`Phase::Searching`], and it is not counted here.
    pub searching: u32,
    /// The queue that everybody feeds from.
    pub global_queue: GlobalQueue,
    /// Tasks since start.
    pub tasks: Tasks,
    /// Processes, state machines with mailboxes; `None` = the runtime has no system of them.
    pub processes: Option<Processes>,
    /// Threads for blocking work.
    pub blocking: Blocking,
    /// What runs in the Tokio runtime beside it, and so outside Volt; `None` = there is none.
    pub tokio: Option<Tokio>,
    /// Timers.
    pub timers: Timers,
    /// The I/O driver.
    pub driver: Driver,
    /// The thread that watches the workers.
    pub sentinel: Sentinel,
    /// Whether the flight recorder notes things down.
    pub is_recorded: bool,
    /// Polls that did not end in time.
    pub incidents: Incidents,
    /// What the tasks of each spawn location have done to others, those that did most first.
    #[serde(deserialize_with = "blame")]
    pub blame: Vec<Blame>,
    /// One for each worker, by index; after the workers the spares that were ever on duty.
    #[serde(deserialize_with = "workers")]
    pub workers: Vec<Worker>,
    /// What the machine gives the process, and takes from it; `None` if nothing samples it.
    pub host: Option<Host>,
    /// The process's clock; `None` in a program older than this field.
    pub clock: Option<Clock>,
    /// When the tasks in `blame.alive` and `blame.stranded` were counted, which takes time where
    /// there are many; `None` if they were not, or nobody says when.
    pub alive_counted_at_ns: Option<u64>,
    /// What the runtime's own doctor finds, with history, the worst first; `None` if nobody says: a
    /// program that is older than this.
    #[serde(deserialize_with = "message::of_message")]
    pub findings: Option<Vec<Finding>>,
    /// Findings of the last check that there was no room for in its history; `None` as before.
    pub findings_left_out: Option<u64>,
}

/// The process's clock, which all its runtimes share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Whether it is read from the processor's cycle counter, and not from the system at three
    /// times the cost.
    pub is_fast: bool,
    /// Times that the cycle counter failed or lost the kernel's trust, since the process started.
    pub faults: u64,
}

/// What the machine gives the process, and takes from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Processors that the process may use, by its affinity and its quota, rounded up; at least 1.
    pub processors: u32,
    /// Periods in which the control group was held up since its quota was spent, since it was made;
    /// `None` = it has no quota.
    pub throttles: Option<u64>,
    /// For how long, ns, summed over processors; counted when it is over. `None` = it has no quota.
    pub throttled_ns: Option<u64>,
}

/// Settings of a runtime that a reader needs in order to judge its numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Polls a tick.
    pub budget_per_tick: u32,
    /// Operations a poll before leaves yield.
    pub coop_budget: u32,
    /// LIFO polls a tick; 0 = slot off.
    pub max_lifo_polls_per_tick: u32,
    /// Slots of a worker's ring.
    pub local_queue_capacity: u32,
    /// Slots of a worker's batch buffer.
    pub global_queue_batch_size: u32,
    /// Tasks that the global queue takes from `try_spawn`.
    pub global_queue_capacity: u64,
    /// Bounds of `global_queue_interval`, in polls.
    pub min_global_queue_interval: u32,
    /// See `min_global_queue_interval`.
    pub max_global_queue_interval: u32,
    /// Time between two checks of the global queue by a busy worker, ns.
    pub target_global_queue_latency_ns: u64,
    /// Weight of a full tick in the moving average of poll time.
    pub ewma_alpha: f64,
    /// Bounds of one fetch from the global queue, in tasks.
    pub min_global_queue_batch: u32,
    /// See `min_global_queue_batch`.
    pub max_global_queue_batch: u32,
    /// Time between two polls of the driver by busy workers, between ticks, ns; within a tick 20
    /// times as long.
    pub driver_interval_ns: u64,
    /// A thief may take the LIFO slot of a worker whose poll has lasted this long, ns.
    pub lifo_steal_after_ns: u64,
    /// Where tasks from outside go: `global`, `two-choices`, `least-loaded`.
    pub placement: String,
    /// Whether threads stay awake for a moment before they sleep: `off`, `adaptive`.
    pub park_spin: String,
    /// Whether workers steal from each other.
    pub enable_stealing: bool,
    /// First park time-out, ns; `None` = parked workers sleep until woken.
    pub park_timeout_ns: Option<u64>,
    /// What waits for I/O: `epoll`, `kqueue`.
    pub io_backend: String,
}

/// The global queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlobalQueue {
    /// Tasks in it now.
    pub len: u64,
    /// How long its oldest task has waited, ns; `None` when it is empty.
    pub oldest_age_ns: Option<u64>,
    /// Tasks that came from outside the workers, since start.
    pub injected: u64,
    /// Tasks that came from rings that were full, since start.
    pub overflowed: u64,
}

/// Tasks, since start. At rest `spawned = completed + cancelled + panicked + alive`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tasks {
    /// Tasks that were spawned.
    pub spawned: u64,
    /// Tasks that ran to their end.
    pub completed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Tasks that panicked.
    pub panicked: u64,
    /// Tasks that live now.
    pub alive: u64,
}

/// What runs in the Tokio runtime that stands beside a Volt runtime, outside Volt: see
/// `Builder::tokio_compat`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokio {
    /// Tasks that live there now.
    pub tasks: u64,
    /// Tasks that wait in its global queue.
    pub queue_len: u64,
    /// For how long its one worker has run tasks, ns, since start; a poll counts when it is over.
    pub busy_ns: u64,
}

/// The threads for blocking work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blocking {
    /// Threads now.
    pub threads: u64,
    /// Of these, threads that wait for work.
    pub idle_threads: u64,
    /// Threads there may be.
    pub max_threads: u64,
    /// Jobs that wait for a thread.
    pub queue_len: u64,
    /// Jobs handed in, since start.
    pub submitted: u64,
    /// Jobs done, since start.
    pub completed: u64,
}

/// Timers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timers {
    /// Timers that are armed now.
    pub armed: u64,
    /// Timers that fired, since start.
    pub fired: u64,
    /// How late the timers of the last turn fired at worst, ns.
    pub last_lag_ns: u64,
    /// How long the next deadline is away, ns; 0 when it has passed; `None` when no timer is armed.
    pub next_in_ns: Option<u64>,
}

/// The I/O driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Driver {
    /// The worker that waits in it or polls it right now.
    pub owner: Option<u32>,
    /// Polls of the kernel's ready list, since start.
    pub turns: u64,
    /// Readiness events delivered, since start.
    pub events: u64,
    /// Sockets registered now.
    pub registrations: u64,
    /// Times that an accept waited because the process was out of file descriptors or memory, since
    /// start.
    pub accept_backoffs: u64,
    /// How long ago the driver was last polled, ns; 0 while somebody waits in it.
    pub idle_ns: u64,
}

/// The thread that watches the workers while any of them is awake, and what it did about those that
/// were stuck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sentinel {
    /// Checks of the workers, since start.
    pub checks: u64,
    /// Checks that woke a worker: for tasks of one that is stuck in a poll, or for timers and I/O
    /// that nobody polled.
    pub rescues: u64,
    /// Tasks taken out of the queues of workers that were declared stuck.
    pub tasks_rescued: u64,
    /// Polls that were asked to yield at their next operation.
    pub preempts: u64,
    /// Workers that were declared stuck, and replaced if there was a spare.
    pub replacements: u64,
    /// Checks that wanted a spare and found none.
    pub capped: u64,
    /// Checks that came so late that the whole process must have stood still.
    pub pauses: u64,
    /// What held it up, the last time; `None` if that never happened, and [`Cause::Unknown`] if the
    /// kernel does not say.
    pub last_pause: Option<Cause>,
    /// Calls of `block_in_place`.
    pub blocks: u64,
    /// Times that a spare worker went on duty.
    pub spare_calls: u64,
    /// Times that no thread could be started for one.
    pub spare_failures: u64,
    /// Spare workers that are on duty now.
    pub spares_on_duty: u64,
    /// Spare workers there may be.
    pub max_spares: u64,
}

impl Snapshot {
    /// Whether `field` is named in [`incomplete`](Self::incomplete): its 0 says nothing.
    pub fn lacks(&self, field: &str) -> bool {
        self.incomplete.iter().any(|what| what == field)
    }

    /// Whether worker `index` is parked, from the bitmap.
    pub fn is_parked(&self, index: usize) -> bool {
        self.parked_bitmap.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// How many workers are there for tasks or stuck, spares that are off duty left out: what a
    /// count of the parked ones is to be read against.
    pub fn on_duty_count(&self) -> u32 {
        self.workers.iter().filter(|worker| worker.duty != Duty::Off).count() as u32
    }

    /// How many workers are parked, from the bitmap.
    pub fn parked_count(&self) -> u32 {
        self.parked_bitmap.iter().map(|word| word.count_ones()).sum()
    }

    /// Poll times of all workers together.
    pub fn poll_time(&self) -> Histogram {
        merged(self.workers.iter().map(|worker| &worker.poll_time))
    }

    /// Schedule delays of all workers together.
    pub fn schedule_delay(&self) -> Histogram {
        merged(self.workers.iter().map(|worker| &worker.schedule_delay))
    }

    /// The poll that has been going on longest.
    pub fn longest_in_flight(&self) -> Option<(&Worker, &InFlight)> {
        let polls = self.workers.iter().filter_map(|worker| Some((worker, worker.in_flight.as_ref()?)));
        polls.max_by_key(|(_, poll)| poll.for_ns)
    }
}

fn runtimes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Snapshot>, D::Error> {
    bounded::list(deserializer, MAX_RUNTIMES + MAX_WORKERS, |runtime: &Snapshot| 1 + runtime.workers.len())
}

fn workers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Worker>, D::Error> {
    bounded::list(deserializer, MAX_WORKERS, |_| 1)
}

fn blame<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Blame>, D::Error> {
    bounded::list(deserializer, MAX_BLAME, |_| 1)
}

fn merged<'a>(parts: impl Iterator<Item = &'a Histogram>) -> Histogram {
    let mut whole = Histogram::default();
    parts.for_each(|part| whole.merge(part));
    whole
}
