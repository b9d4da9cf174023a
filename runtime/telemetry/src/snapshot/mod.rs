//! The state of a Volt program at one moment, as plain data.
//!
//! The runtime builds a snapshot from its counters, queue indices and the bitmap of parked workers.
//! The exporter, the console and tests read it.
//!
//! Invariants:
//! * COUNTERS ONLY GROW.
//! * EXACT, NOT ATOMIC: each number is exact, but the numbers are not read at the same instant. For
//!   example, one counter may already include a completed task while another does not.
//! * ABSENT IS NONE: a number that is not known is `None`, never 0.
//! * COMPATIBLE: unknown fields are ignored and missing fields take their default. An older console
//!   can thus read a newer program, and the reverse.

pub mod routes;
mod worker;

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::finding::{Finding, message};
use crate::health::Health;
use crate::histogram::Histogram;
use crate::incident::{Blame, Cause, Incidents};
use crate::processes::Processes;
use crate::waits::{self, Deadlock, HeldLock, LongWait};

use self::routes::Route;

pub use worker::{Duty, GlobalChecks, InFlight, Phase, Unparks, Worker};

/// Maximum number of workers, including spares, that a reader accepts from one runtime: as many as
/// a runtime may have, and more than fit into a message.
pub const MAX_WORKERS: usize = 2048;
/// Together with [`MAX_WORKERS`], the maximum number of runtimes and workers that a reader accepts
/// from one program. This many runtimes without workers do not fit into a message.
pub const MAX_RUNTIMES: usize = 2048;
/// Number of HTTP routes that count as one worker in that maximum, since a route also has a
/// histogram. Even if a message only contained routes, they would stay below the maximum.
const ROUTES_PER_WORKER: usize = 4;
/// Maximum number of spawn locations that a reader accepts from one runtime; more than a runtime
/// counts.
const MAX_BLAME: usize = 16 * 1024;

/// One program with all its runtimes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// The process id of the program.
    pub pid: u32,
    /// The program's name (`argv[0]` without its directory). Its key in JSON is `program`.
    #[serde(rename = "program")]
    pub name: String,
    /// When the snapshot was taken: ns on the program's monotonic clock.
    pub at_ns: u64,
    /// The state of the observer; `None` in a recording, or from a program older than this field.
    pub observer: Option<Health>,
    /// The runtimes that are alive, in the order in which they were built.
    #[serde(deserialize_with = "runtimes")]
    pub runtimes: Vec<Snapshot>,
}

/// One runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The runtime's name, from `Builder::name`; unique in the program.
    pub runtime: String,
    /// When the snapshot was taken: ns on the program's monotonic clock.
    pub at_ns: u64,
    /// When the runtime was built, on the same clock.
    pub started_at_ns: u64,
    /// The names of fields that could not be read or did not fit into the message; empty if the
    /// snapshot is complete.
    pub incomplete: Vec<String>,
    /// The settings that are needed to interpret the numbers.
    pub config: Config,
    /// Bit `w % 64` of word `w / 64` is set while worker `w` is parked and no thread has claimed it
    /// to wake it up.
    pub parked_bitmap: Vec<u64>,
    /// Number of workers that search for work: those that steal, and those that were woken to
    /// search.
    ///
    /// A worker starts to steal on its own initiative only while fewer than half of the workers
    /// search. Woken workers are counted without a limit, so the count may exceed half. A worker
    /// that may not steal still checks the global queue: its phase is [`Phase::Searching`], but it
    /// is not counted here.
    pub searching: u32,
    /// The queue that all workers share.
    pub global_queue: GlobalQueue,
    /// Counts of tasks since the runtime started.
    pub tasks: Tasks,
    /// Processes, state machines with mailboxes; `None` if the runtime has no process system.
    pub processes: Option<Processes>,
    /// The blocking pool.
    pub blocking: Blocking,
    /// The tasks on the Tokio runtime beside this one, outside Volt; `None` if there is none.
    pub tokio: Option<Tokio>,
    /// Timers.
    pub timers: Timers,
    /// The I/O driver.
    pub driver: Driver,
    /// The thread that watches the workers.
    pub sentinel: Sentinel,
    /// Whether the flight recorder is on.
    pub is_recorded: bool,
    /// Polls that exceeded the threshold for a stall.
    pub incidents: Incidents,
    /// Statistics per spawn location, sorted by the delay that its tasks caused to others.
    #[serde(deserialize_with = "blame")]
    pub blame: Vec<Blame>,
    /// One entry per worker, by index, followed by the spare workers that were ever active.
    #[serde(deserialize_with = "workers")]
    pub workers: Vec<Worker>,
    /// The resources that the machine grants the program; `None` if they are not sampled.
    pub host: Option<Host>,
    /// The program's clock; `None` in a program older than this field.
    pub clock: Option<Clock>,
    /// When the tasks in `blame.alive` and `blame.stranded` were counted, which takes time when
    /// there are many. `None` if they were not counted, or the time is not known.
    pub alive_counted_at_ns: Option<u64>,
    /// Tasks that wait for each other, and have been seen to do so twice. `None` in a program older
    /// than this field.
    #[serde(deserialize_with = "waits::deadlocks")]
    pub deadlocks: Option<Vec<Deadlock>>,
    /// Locks that a task has held for long while others waited, those with the longest waits first.
    /// `None` in a program older than this field.
    #[serde(deserialize_with = "waits::held_locks")]
    pub held_locks: Option<Vec<HeldLock>>,
    /// Lines at which a task has waited far longer than usual, those with the longest waits first.
    /// `None` in a program older than this field.
    #[serde(deserialize_with = "waits::long_waits")]
    pub long_waits: Option<Vec<LongWait>>,
    /// The HTTP routes that have had requests, in any order.
    #[serde(deserialize_with = "routes::routes")]
    pub routes: Vec<Route>,
    /// The findings of the runtime's own doctor, which uses history, most severe first. `None` in a
    /// program older than this field.
    #[serde(deserialize_with = "message::of_message")]
    pub findings: Option<Vec<Finding>>,
    /// Number of findings of the last check that did not fit into the doctor's history. `None` in a
    /// program older than this field.
    pub findings_left_out: Option<u64>,
}

/// The program's clock, which all its runtimes share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// Whether the clock reads the processor's cycle counter, instead of calling the system at
    /// three times the cost.
    pub is_fast: bool,
    /// Times that the cycle counter failed, or that the kernel declared it unreliable, since the
    /// program started.
    pub faults: u64,
}

/// The resources that the machine grants the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Processors that the program may use, by its affinity and its quota, rounded up; at least 1.
    pub processors: u32,
    /// Number of periods in which the control group was throttled because its quota was used up,
    /// since the group was created. `None` if it has no quota.
    pub throttles: Option<u64>,
    /// How long it was throttled, ns, summed over processors. Counted when the throttling ends.
    /// `None` if it has no quota.
    pub throttled_ns: Option<u64>,
}

/// Settings of a runtime that are needed to interpret its numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Polls per tick.
    pub budget_per_tick: u32,
    /// Operations per poll before the task is made to yield.
    pub coop_budget: u32,
    /// LIFO polls per tick; 0 if the LIFO slot is off.
    pub max_lifo_polls_per_tick: u32,
    /// Capacity of a worker's local queue (ring).
    pub local_queue_capacity: u32,
    /// Capacity of a worker's batch buffer.
    pub global_queue_batch_size: u32,
    /// Maximum number of tasks in the global queue for `try_spawn`.
    pub global_queue_capacity: u64,
    /// Lower bound of `global_queue_interval`, in polls.
    pub min_global_queue_interval: u32,
    /// Upper bound of `global_queue_interval`, in polls.
    pub max_global_queue_interval: u32,
    /// Target time between two checks of the global queue by a busy worker, ns.
    pub target_global_queue_latency_ns: u64,
    /// Weight of a full tick in the moving average of poll time.
    pub ewma_alpha: f64,
    /// Minimum number of tasks per fetch from the global queue.
    pub min_global_queue_batch: u32,
    /// Maximum number of tasks per fetch from the global queue.
    pub max_global_queue_batch: u32,
    /// Time between two polls of the driver by busy workers, between ticks, ns. Within a tick, 20
    /// times as long.
    pub driver_interval_ns: u64,
    /// A thief may take the LIFO slot of a worker whose poll has lasted this long, ns.
    pub lifo_steal_after_ns: u64,
    /// Placement of tasks that come from outside the workers: `global`, `two-choices`,
    /// `least-loaded`.
    pub placement: String,
    /// Whether threads spin briefly before they park: `off`, `adaptive`.
    pub park_spin: String,
    /// Whether workers steal from each other.
    pub enable_stealing: bool,
    /// First park timeout, ns; `None` if parked workers sleep until they are woken.
    pub park_timeout_ns: Option<u64>,
    /// Where tasks run: `multi_thread` on worker threads, `current_thread` on a thread in
    /// `block_on`. Empty if the program is too old to report it.
    pub flavor: String,
    /// The I/O backend: `epoll`, `kqueue`.
    pub io_backend: String,
}

/// The global queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlobalQueue {
    /// Current number of tasks in it.
    pub len: u64,
    /// How long its oldest task has waited, ns; `None` if it is empty.
    pub oldest_age_ns: Option<u64>,
    /// Tasks that came from outside the workers, since the runtime started.
    pub injected: u64,
    /// Tasks that came from full local queues, since the runtime started.
    pub overflowed: u64,
}

/// Counts of tasks since the runtime started. At rest, `spawned = completed + cancelled + panicked
/// + alive`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tasks {
    /// Tasks that were spawned, including those that the runtime itself spawned for dumps: one for
    /// every 128 waiting tasks. A shutdown waits for the ends of all tasks, so they are counted
    /// like the others, here and in all other counts.
    pub spawned: u64,
    /// Tasks that completed.
    pub completed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Tasks that panicked.
    pub panicked: u64,
    /// Tasks that are alive now.
    pub alive: u64,
}

/// The tasks on the Tokio runtime beside a Volt runtime, outside Volt; see `Builder::tokio_compat`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tokio {
    /// Tasks that are alive on it now.
    pub tasks: u64,
    /// Tasks in its global queue.
    pub queue_len: u64,
    /// How long its only worker has run tasks, ns, since the runtime started. A poll is counted
    /// when it ends.
    pub busy_ns: u64,
}

/// The blocking pool: the threads for `spawn_blocking`, files and name lookups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blocking {
    /// Current number of threads.
    pub threads: u64,
    /// Number of these threads that are idle.
    pub idle_threads: u64,
    /// Maximum number of threads.
    pub max_threads: u64,
    /// Jobs that wait for a thread.
    pub queue_len: u64,
    /// Jobs submitted since the runtime started.
    pub submitted: u64,
    /// Jobs completed since the runtime started.
    pub completed: u64,
}

/// Timers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timers {
    /// Timers that are armed now.
    pub armed: u64,
    /// Timers that fired since the runtime started.
    pub fired: u64,
    /// The greatest lateness of the timers that fired last, in one poll of the driver, ns.
    pub last_lag_ns: u64,
    /// Time until the next deadline, ns; 0 if it has passed; `None` if no timer is armed.
    pub next_in_ns: Option<u64>,
}

/// The I/O driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Driver {
    /// The worker that is parked in the driver or polls it now.
    pub owner: Option<u32>,
    /// Polls of the driver since the runtime started. Programs of older versions call it `turns`.
    #[serde(alias = "turns")]
    pub polls: u64,
    /// Readiness events delivered since the runtime started.
    pub events: u64,
    /// Sockets registered now.
    pub registrations: u64,
    /// Times that an accept waited because the program was out of file descriptors or memory, since
    /// the runtime started.
    pub accept_backoffs: u64,
    /// How long ago the driver was last polled, ns; 0 while a worker is parked in it.
    pub idle_ns: u64,
}

/// The sentinel: the thread that watches the workers while any of them is awake, and helps those
/// that are stuck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sentinel {
    /// Checks of the workers since the runtime started.
    pub checks: u64,
    /// Checks that woke a worker, for the tasks of a worker that is stuck in a poll, or for timers
    /// and I/O that no worker polled.
    pub rescues: u64,
    /// Tasks taken out of the queues of workers that were declared stuck.
    pub tasks_rescued: u64,
    /// Polls that were requested to yield at their next operation.
    pub preempts: u64,
    /// Workers that were declared stuck, and replaced if a spare worker was available.
    pub replacements: u64,
    /// Checks that needed a spare worker when none was available.
    pub capped: u64,
    /// Checks that ran so late that the whole program must have been paused.
    pub pauses: u64,
    /// The cause of the last pause. `None` if there was none, and [`Cause::Unknown`] if the kernel
    /// does not report it.
    pub last_pause: Option<Cause>,
    /// Calls of `block_in_place`.
    pub blocks: u64,
    /// Times that a spare worker became active.
    pub spare_calls: u64,
    /// Times that starting a thread for a spare worker failed.
    pub spare_failures: u64,
    /// Spare workers that are active now. Programs of older versions call it `spares_on_duty`.
    #[serde(alias = "spares_on_duty")]
    pub spares_in_use: u64,
    /// Maximum number of spare workers.
    pub max_spares: u64,
}

impl Snapshot {
    /// Returns `true` if `field` is named in [`incomplete`](Self::incomplete), so that its 0 has no
    /// meaning.
    pub fn lacks(&self, field: &str) -> bool {
        self.incomplete.iter().any(|what| what == field)
    }

    /// Returns `true` if worker `index` is parked, according to the bitmap.
    pub fn is_parked(&self, index: usize) -> bool {
        self.parked_bitmap.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Returns the number of active workers, including stuck ones, without inactive spare workers.
    ///
    /// Compare the number of parked workers with this number.
    pub fn active_count(&self) -> u32 {
        self.workers.iter().filter(|worker| worker.duty != Duty::Off).count() as u32
    }

    /// Returns `true` if this is a current-thread runtime and no thread is in its `block_on`. Its
    /// tasks, timers and sockets then do not run, which is intended and no problem.
    pub fn is_undriven(&self) -> bool {
        let is_stopped = |worker: &Worker| worker.phase == Phase::Stopped;
        self.config.flavor == "current_thread" && self.workers.first().is_some_and(is_stopped)
    }

    /// Returns the number of parked workers, according to the bitmap.
    pub fn parked_count(&self) -> u32 {
        self.parked_bitmap.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns the merged poll times of all workers.
    pub fn poll_time(&self) -> Histogram {
        merged(self.workers.iter().map(|worker| &worker.poll_time))
    }

    /// Returns the merged schedule delays of all workers.
    pub fn schedule_delay(&self) -> Histogram {
        merged(self.workers.iter().map(|worker| &worker.schedule_delay))
    }

    /// Returns the poll that has been running longest.
    pub fn longest_in_flight(&self) -> Option<(&Worker, &InFlight)> {
        let polls = self.workers.iter().filter_map(|worker| Some((worker, worker.in_flight.as_ref()?)));
        polls.max_by_key(|(_, poll)| poll.for_ns)
    }
}

fn runtimes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Snapshot>, D::Error> {
    let weigh = |runtime: &Snapshot| 1 + runtime.workers.len() + runtime.routes.len().div_ceil(ROUTES_PER_WORKER);
    bounded::list(deserializer, MAX_RUNTIMES + MAX_WORKERS, weigh)
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
