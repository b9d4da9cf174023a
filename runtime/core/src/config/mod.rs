//! The constants of the scheduler, each with its unit and its reason, and the types of the
//! settings.
//!
//! The constants are the defaults and the bounds of the [`Builder`](crate::builder::Builder), which
//! changes a copy of [`Config`].

use std::path::PathBuf;
use std::time::Duration;

use volt_telemetry::recording::black_box::Layout;

use self::hooks::Hooks;
use self::identity::ThreadNumber;

pub mod hooks;
pub mod identity;

/// The polls that a worker runs in one tick, before it checks timers and I/O and updates its
/// statistics. A larger number interrupts the polls less often; a smaller one makes timers more
/// precise.
pub const BUDGET_PER_TICK: u32 = 128;
/// The most polls of one tick.
pub(crate) const MAX_BUDGET_PER_TICK: u32 = 65_536;
/// The operations on sockets, timers, locks, channels and join handles that a task may complete in
/// one poll before it must yield.
pub const COOP_BUDGET: u32 = 128;
/// The polls from the LIFO slot in one tick: enough for a request and its reply, too few for two
/// tasks that wake each other to delay a third one for long.
pub(crate) const MAX_LIFO_POLLS_PER_TICK: u32 = 3;
/// The slots of a worker's ring, a power of two.
pub(crate) const LOCAL_QUEUE_CAPACITY: usize = 256;
/// The slots of a worker's batch buffer, a power of two. A fetch from the global queue returns one
/// task and stores the rest in the buffer. With 64 slots a fetch can reach its upper bound,
/// [`MAX_GLOBAL_QUEUE_BATCH`].
pub(crate) const GLOBAL_QUEUE_BATCH_SIZE: usize = 64;
/// The smallest fetch from the global queue. A fetch takes the worker's fair share, the length of
/// the queue divided by the number of workers, but at least this many tasks.
pub(crate) const MIN_GLOBAL_QUEUE_BATCH: usize = 4;
/// The largest fetch from the global queue; see [`MIN_GLOBAL_QUEUE_BATCH`].
pub(crate) const MAX_GLOBAL_QUEUE_BATCH: usize = 64;
/// The time between two checks of the global queue by a busy worker. A check of an empty queue is
/// one load and takes a hundredth of this time. A task from outside the workers waits for little
/// more than this time and one poll.
pub(crate) const TARGET_GLOBAL_QUEUE_LATENCY: Duration = Duration::from_micros(3);
/// The weight of a full tick in the moving average of poll time, in thousandths.
pub(crate) const EWMA_ALPHA_PER_MILLE: u32 = 100;
/// The average poll time before the first measurement. It makes the first interval 1.
pub(crate) const DEFAULT_AVG_TASK: Duration = Duration::from_micros(50);
/// The fewest local polls between two checks of the global queue. With 8, polls of 100 µs would
/// delay the queue by 800 µs.
pub(crate) const MIN_GLOBAL_QUEUE_INTERVAL: u32 = 1;
/// The most local polls between two checks of the global queue, even if polls are very short.
pub(crate) const MAX_GLOBAL_QUEUE_INTERVAL: u32 = 255;
/// How long the current poll of a worker must last before a thief may take its LIFO slot.
pub(crate) const LIFO_STEAL_AFTER: Duration = Duration::from_millis(1);
/// A worker polls the driver (timers and I/O) between ticks if no worker has done so for this long.
pub(crate) const DRIVER_INTERVAL: Duration = Duration::from_micros(50);
/// Within a tick, a worker polls the driver after this many times [`DRIVER_INTERVAL`], which is 1
/// ms. 128 slow polls must not stop timers, and a system call after each poll of 50 µs would cost
/// too much.
pub(crate) const DRIVER_INTERVALS_IN_TICK: u64 = 20;
/// The first time-out of a parked worker. It is a safety net below the wake-up protocol, and
/// doubles as long as the worker finds no work.
pub(crate) const PARK_TIMEOUT: Duration = Duration::from_millis(10);
/// The limit up to which the time-out of a parked worker doubles. From there on only the worker in
/// the I/O driver has a time-out.
pub(crate) const MAX_PARK_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest spin of a waiting thread before it sleeps, if its recent waits were short. A thread
/// whose processor is in a sleep state takes about this long to respond. So two threads that wake
/// each other soon stop sleeping in between.
pub(crate) const PARK_SPIN: Duration = Duration::from_micros(40);
/// The upper bound of [`PARK_SPIN`]. A sleep costs both sides together some 10 µs of processor
/// time, so a longer spin never pays, and a spin in vain occupies a processor for all of it.
pub(crate) const MAX_PARK_SPIN: Duration = Duration::from_millis(1);
/// How often the sentinel checks the workers while at least one is awake: often enough that people
/// do not notice a stranded task, and rarely enough that the cost is negligible.
pub(crate) const SENTINEL_INTERVAL: Duration = Duration::from_millis(10);
/// How often the sentinel checks while a worker is stuck, or may be. A stranded task waits for two
/// checks.
pub(crate) const SUSPICIOUS_INTERVAL: Duration = Duration::from_millis(1);
/// A poll is stuck if it has lasted for this long and two checks find the same poll.
pub(crate) const STUCK_AFTER: Duration = Duration::from_millis(1);
/// How long the sentinel leaves a poll alone that uses processor time, before another thread shares
/// the processors with it.
pub(crate) const BURN_AFTER: Duration = Duration::from_millis(5);
/// How long the sentinel leaves a poll alone whose thread waits for a processor. Such a poll
/// usually ends soon after the thread gets one.
pub(crate) const WAIT_AFTER: Duration = Duration::from_millis(20);
/// If a check of the sentinel is late by this much, the whole program or machine was paused.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);
/// How long a spare worker continues to run tasks after the last stall, since a task that has
/// blocked once usually blocks again.
pub(crate) const SPARE_LINGER: Duration = Duration::from_secs(1);
/// How long the thread of an inactive spare worker sleeps before it exits.
pub(crate) const SPARE_KEEP_ALIVE: Duration = Duration::from_secs(10);
/// A poll that has lasted for this long is an incident. People notice such a delay, and no poll of
/// a program that behaves well takes so long.
pub(crate) const INCIDENT_AFTER: Duration = Duration::from_millis(10);
/// How often the doctor checks a runtime that is awake. A check with 64 workers, 128 spawn
/// locations and 64 incidents takes about a thousandth of this (`cargo bench -p volt-diagnosis
/// --bench judge`; the table is in `runtime/benches/RESULTS.md`).
pub(crate) const DOCTOR_INTERVAL: Duration = Duration::from_secs(1);
/// The default limit of spare workers is the number of workers, but at least this: with few
/// workers, a single kind of task can block all of them.
pub(crate) const MIN_SPARE_WORKERS: usize = 4;
/// The upper bound of the default limit of spare workers, since each of them has its own queues and
/// counters.
pub(crate) const MAX_SPARE_WORKERS: usize = 64;
/// The number of waiting tasks at which `try_spawn` fails.
pub(crate) const GLOBAL_QUEUE_CAPACITY: usize = 65_536;
/// The maximum number of I/O events that a worker handles in one turn of the driver.
pub(crate) const MAX_IO_COMPLETIONS: usize = 256;
/// The upper bound of [`MAX_IO_COMPLETIONS`].
pub(crate) const MAX_IO_COMPLETIONS_BOUND: usize = 65_536;
/// The default limit of threads for blocking work.
pub(crate) const MAX_BLOCKING_THREADS: usize = 512;
/// How long an idle thread for blocking work waits for another job before it exits.
pub(crate) const BLOCKING_KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long dropping a runtime waits for tasks and jobs that still run.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// The most workers of a runtime: 16 words of the bitmap of parked workers.
pub(crate) const MAX_WORKERS: usize = 1024;
/// The records that a lane of the flight recorder keeps, 192 KiB. At three records per poll that is
/// 2.7 ms of a worker that polls a million tasks per second, or a quarter of a second of one that
/// polls ten thousand. A larger lane covers a longer time, and displaces more of the application
/// from the second-level cache.
pub(crate) const FLIGHT_RECORDS: usize = 8192;
/// The most records of a lane: 24 MiB per thread.
pub(crate) const MAX_FLIGHT_RECORDS: usize = 1 << 20;

/// The most polls of a runtime with a seed, which take some seconds. A test that needs more is
/// probably in a loop.
pub(crate) const POLL_LIMIT: u64 = 10_000_000;
/// The slots of the ring of a runtime with a seed. Tasks beyond these wait in the global queue, and
/// are not among those from which the next one is chosen.
pub(crate) const SEEDED_QUEUE_CAPACITY: usize = 1024;

const _: () = assert!(LOCAL_QUEUE_CAPACITY.is_power_of_two() && GLOBAL_QUEUE_BATCH_SIZE.is_power_of_two());
const _: () =
    assert!(MIN_GLOBAL_QUEUE_BATCH <= GLOBAL_QUEUE_BATCH_SIZE && MIN_GLOBAL_QUEUE_BATCH <= MAX_GLOBAL_QUEUE_BATCH);
const _: () = assert!(1 <= MIN_GLOBAL_QUEUE_INTERVAL && MIN_GLOBAL_QUEUE_INTERVAL <= MAX_GLOBAL_QUEUE_INTERVAL);
// A fetch returns one task to the caller and stores the others in the buffer.
const _: () = assert!(MAX_GLOBAL_QUEUE_BATCH <= GLOBAL_QUEUE_BATCH_SIZE + 1);
const _: () = assert!(MAX_LIFO_POLLS_PER_TICK < BUDGET_PER_TICK);
const _: () = assert!(FLIGHT_RECORDS.is_power_of_two() && FLIGHT_RECORDS <= MAX_FLIGHT_RECORDS);
const _: () = assert!(!PARK_SPIN.is_zero() && PARK_SPIN.as_nanos() <= MAX_PARK_SPIN.as_nanos());
const _: () = assert!(PARK_TIMEOUT.as_nanos() <= MAX_PARK_TIMEOUT.as_nanos());

/// The system call that waits for I/O.
///
/// Each operating system has one backend; `io_uring` and `poll(2)` are not supported. See
/// [`Builder::backend_type`](crate::builder::Builder::backend_type).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// `epoll(7)`, on Linux.
    Epoll,
    /// `kqueue(2)`, on macOS and the BSDs.
    Kqueue,
}

/// The queue for tasks that a thread outside the runtime's workers spawns or wakes.
///
/// Tasks that are spawned, woken or yielded on a worker stay with that worker. Set the placement
/// with [`Builder::placement`](crate::builder::Builder::placement).
///
/// `TwoChoices` and `LeastLoaded` put the task into a worker's inbox and wake that worker. Other
/// workers may steal it from there. Both skip workers that cannot run it soon: those in
/// [`block_in_place`](crate::context::block_in_place::block_in_place), those that the
/// sentinel declared stuck, and those in a poll that has lasted for 1 ms. If no worker is left, the
/// task goes to the global queue. Spare workers are never chosen; they steal.
///
/// # Which one?
///
/// * Keep `Global` unless a measurement favours another. It makes no choice, so it costs nothing,
///   and the first free worker takes the task.
/// * With `Global`, all threads that submit and all workers that fetch share one lock. If many
///   outside threads spawn many short tasks onto many workers (8 and more), `TwoChoices` spreads
///   them over as many locks as there are workers.
/// * The cost of `TwoChoices` does not depend on the number of workers. Its busiest worker has a
///   load close to the average.
/// * `LeastLoaded` reads the load of each worker until it finds an idle one. It distributes tasks
///   most evenly, and costs most when all workers are busy. Use it for few, long tasks (above about
///   10 µs) on at most about 16 workers, where a single bad choice matters.
/// * With [`enable_stealing(false)`](crate::builder::Builder::enable_stealing) no worker corrects a
///   bad choice: use `LeastLoaded` or `Global`.
///
/// In the repository, `runtime/benches/RESULTS.md` lists the time of a decision by the number of
/// workers. `cargo bench -p volt-runtime --bench placement` measures the cost of a task, its delay
/// and the workers' shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Puts the task into the global queue, for the first worker that checks it.
    #[default]
    Global,
    /// Chooses the less loaded of two random workers.
    TwoChoices,
    /// Chooses the least loaded of all workers.
    LeastLoaded,
}

/// The spinning of a waiting thread before it sleeps.
///
/// See [`Builder::park_spin`](crate::builder::Builder::park_spin).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParkSpin {
    /// The thread sleeps immediately.
    Off,
    /// The thread spins if its last waits were about as short as `at_most`.
    Adaptive {
        /// The longest spin: above 0, at most 1 ms.
        at_most: Duration,
    },
}

impl Default for ParkSpin {
    fn default() -> Self {
        Self::Adaptive { at_most: PARK_SPIN }
    }
}

/// The settings of one runtime, checked by the Builder.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether the tasks run on the thread that calls `block_on`.
    pub(crate) is_current_thread: bool,
    /// The only thread that may drive the runtime, if it is a `LocalRuntime`.
    pub(crate) local_to: Option<ThreadNumber>,
    pub(crate) workers: usize,
    /// See [`Builder::budget_per_tick`](crate::builder::Builder::budget_per_tick).
    pub budget_per_tick: u32,
    /// See [`Builder::coop_budget`](crate::builder::Builder::coop_budget).
    pub coop_budget: u32,
    pub(crate) max_lifo_polls_per_tick: u32,
    pub(crate) local_queue_capacity: usize,
    pub(crate) global_queue_batch_size: usize,
    pub(crate) global_queue_capacity: usize,
    pub(crate) min_global_queue_batch: usize,
    pub(crate) max_global_queue_batch: usize,
    pub(crate) target_global_queue_latency_ns: u64,
    pub(crate) ewma_alpha_per_mille: u32,
    pub(crate) default_avg_task_ns: u64,
    pub(crate) min_global_queue_interval: u32,
    pub(crate) max_global_queue_interval: u32,
    pub(crate) lifo_steal_after_ns: u64,
    pub(crate) driver_interval_ns: u64,
    pub(crate) park_timeout: Option<Duration>,
    pub(crate) max_park_timeout: Duration,
    pub(crate) park_spin: ParkSpin,
    pub(crate) sentinel_interval: Option<Duration>,
    pub(crate) max_spare_workers: usize,
    pub(crate) incident_after_ns: Option<u64>,
    pub(crate) incident_stacks: bool,
    pub(crate) stack_signal: Option<i32>,
    pub(crate) doctor_events: bool,
    pub(crate) enable_stealing: bool,
    pub(crate) placement: Placement,
    pub(crate) backend_type: Option<Backend>,
    pub(crate) eager_driver_handoff: bool,
    pub(crate) max_io_completions: usize,
    pub(crate) max_blocking_threads: usize,
    pub(crate) blocking_keep_alive: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) thread_name: String,
    pub(crate) thread_stack_size: Option<usize>,
    pub(crate) control_socket: bool,
    pub(crate) inherit_spans: bool,
    pub(crate) tokio_compat: bool,
    pub(crate) flight_recorder: bool,
    pub(crate) flight_records: usize,
    /// The directory that the program has set for its black boxes.
    pub(crate) black_box: Option<PathBuf>,
    /// Whether sockets, signals and child processes panic.
    pub(crate) is_io_disabled: bool,
    /// Whether timers panic.
    pub(crate) is_time_disabled: bool,
    pub(crate) hooks: Hooks,
    /// The seed from which the order of polls is chosen. Only in a current-thread runtime.
    pub(crate) seed: Option<u64>,
    /// The most polls of a runtime with a seed.
    pub(crate) poll_limit: u64,
    /// The name that the program has set.
    pub(crate) given_name: Option<String>,
}

impl Config {
    /// Returns the layout of the runtime's black box.
    pub(crate) fn black_box_layout(&self) -> Layout {
        Layout { workers: self.workers, spares: self.max_spare_workers, ring_records: self.flight_records }
    }

    /// Returns the settings that readers of the metrics need.
    pub(crate) fn telemetry(&self, io_backend: &str) -> volt_telemetry::Config {
        volt_telemetry::Config {
            budget_per_tick: self.budget_per_tick,
            coop_budget: self.coop_budget,
            max_lifo_polls_per_tick: self.max_lifo_polls_per_tick,
            local_queue_capacity: self.local_queue_capacity as u32,
            global_queue_batch_size: self.global_queue_batch_size as u32,
            global_queue_capacity: self.global_queue_capacity as u64,
            min_global_queue_interval: self.min_global_queue_interval,
            max_global_queue_interval: self.max_global_queue_interval,
            target_global_queue_latency_ns: self.target_global_queue_latency_ns,
            ewma_alpha: f64::from(self.ewma_alpha_per_mille) / 1000.0,
            min_global_queue_batch: self.min_global_queue_batch as u32,
            max_global_queue_batch: self.max_global_queue_batch as u32,
            driver_interval_ns: self.driver_interval_ns,
            lifo_steal_after_ns: self.lifo_steal_after_ns,
            placement: match self.placement {
                Placement::Global => "global",
                Placement::TwoChoices => "two-choices",
                Placement::LeastLoaded => "least-loaded",
            }
            .to_owned(),
            park_spin: match self.park_spin {
                ParkSpin::Off => "off",
                ParkSpin::Adaptive { .. } => "adaptive",
            }
            .to_owned(),
            enable_stealing: self.enable_stealing,
            park_timeout_ns: self.park_timeout.map(crate::clock::saturating_ns),
            flavor: if self.is_current_thread { "current_thread" } else { "multi_thread" }.to_owned(),
            io_backend: io_backend.to_owned(),
        }
    }
}
