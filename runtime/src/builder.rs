//! Settings of a runtime: every constant of the design has its option here, but for the sentinel's times beside its interval, and `build` says
//! what is wrong with them.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::blocking::pool::{Pool, Settings};
use crate::clock;
use crate::compat::Compat;
use crate::config::{self, Backend, Config, LocalOrder, ParkSpin, Placement};
use crate::context;
use crate::driver::Driver;
use crate::error::BuildError;
use crate::handle::Handle;
use crate::observe;
use crate::runtime::Runtime;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::Worker;
use crate::stacks::Sampler;
use crate::troubles::Troubles;

/// What a runtime is called that was given no name.
const DEFAULT_NAME: &str = "volt";

/// Builds a [`Runtime`]. Every option has a default; see each for its unit and bounds.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread()
///     .name("api")
///     .worker_threads(2)
///     .max_blocking_threads(64)
///     .build()?;
/// assert_eq!(runtime.block_on(async { 1 + 1 }), 2);
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build() is called"]
pub struct Builder {
    name: Option<String>,
    /// `None` = by the number of workers.
    spare_workers: Option<usize>,
    /// Whether it has a test clock, and whether that is paused.
    test_clock: Option<bool>,
    config: Config,
}

impl Builder {
    /// A runtime with several workers and the defaults of the design.
    pub fn new_multi_thread() -> Self {
        let config = Config {
            workers: 0,
            budget_per_tick: config::BUDGET_PER_TICK,
            coop_budget: config::COOP_BUDGET,
            max_lifo_polls_per_tick: config::MAX_LIFO_POLLS_PER_TICK,
            local_queue_capacity: config::LOCAL_QUEUE_CAPACITY,
            global_queue_batch_size: config::GLOBAL_QUEUE_BATCH_SIZE,
            global_queue_capacity: config::GLOBAL_QUEUE_CAPACITY,
            min_global_queue_batch: config::MIN_GLOBAL_QUEUE_BATCH,
            max_global_queue_batch: config::MAX_GLOBAL_QUEUE_BATCH,
            target_global_queue_latency_ns: clock::saturating_ns(config::TARGET_GLOBAL_QUEUE_LATENCY),
            ewma_alpha_per_mille: config::EWMA_ALPHA_PER_MILLE,
            default_avg_task_ns: clock::saturating_ns(config::DEFAULT_AVG_TASK),
            min_global_queue_interval: config::MIN_GLOBAL_QUEUE_INTERVAL,
            max_global_queue_interval: config::MAX_GLOBAL_QUEUE_INTERVAL,
            lifo_steal_after_ns: clock::saturating_ns(config::LIFO_STEAL_AFTER),
            driver_interval_ns: clock::saturating_ns(config::DRIVER_INTERVAL),
            park_timeout: Some(config::PARK_TIMEOUT),
            max_park_timeout: config::MAX_PARK_TIMEOUT,
            park_spin: ParkSpin::default(),
            sentinel_interval: Some(config::SENTINEL_INTERVAL),
            max_spare_workers: 0,
            incident_after_ns: Some(clock::saturating_ns(config::INCIDENT_AFTER)),
            incident_stacks: true,
            stack_signal: None,
            doctor_events: true,
            enable_stealing: true,
            local_order: LocalOrder::default(),
            placement: Placement::default(),
            backend_type: None,
            eager_driver_handoff: false,
            max_io_completions: config::MAX_IO_COMPLETIONS,
            max_blocking_threads: config::MAX_BLOCKING_THREADS,
            blocking_keep_alive: config::BLOCKING_KEEP_ALIVE,
            shutdown_timeout: config::SHUTDOWN_TIMEOUT,
            thread_name: "volt".to_owned(),
            thread_stack_size: None,
            control_socket: true,
            tokio_compat: false,
            flight_recorder: false,
            flight_records: config::FLIGHT_RECORDS,
        };
        Self { name: None, spare_workers: None, test_clock: None, config }
    }

    #[cfg(test)]
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The runtime's name in the console, in metrics and in logs; at most 64 bytes. Default `volt`.
    ///
    /// No two runtimes of a process have the same: while the name is taken by one that is alive, further ones get `name-2`, `name-3`, … (the
    /// name cut, if need be, so that the whole stays within 64 bytes). A runtime that has been shut down gives its name free.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Worker threads, 1 to 1024; 0 = one for each processor that the process may use. Default 0.
    pub fn worker_threads(mut self, workers: usize) -> Self {
        self.config.workers = workers;
        self
    }

    /// Begin of the names of worker and blocking threads; the kernel shows 15 bytes. Default `volt`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.config.thread_name = name.into();
        self
    }

    /// Stack of worker and blocking threads, bytes. Default: the standard library's, 2 MiB.
    pub fn thread_stack_size(mut self, bytes: usize) -> Self {
        self.config.thread_stack_size = Some(bytes);
        self
    }

    /// Polls between two looks at timers, I/O and statistics; 1 to 65,536. Default 128.
    pub fn budget_per_tick(mut self, polls: u32) -> Self {
        self.config.budget_per_tick = polls;
        self
    }

    /// Operations on sockets, timers, locks, channels and handles that a task may do in one poll before it is made to yield; at least 1. Default 128.
    pub fn coop_budget(mut self, operations: u32) -> Self {
        self.config.coop_budget = operations;
        self
    }

    /// Polls from the LIFO slot a tick; 0 switches the slot off. Default 3. With [`LocalOrder::Lifo`] only whether it is 0 counts.
    pub fn max_lifo_polls_per_tick(mut self, polls: u32) -> Self {
        self.config.max_lifo_polls_per_tick = polls;
        self
    }

    /// Slots of a worker's ring, and of its stack if it has one; a power of two, 2 to 32,768. Default 256.
    pub fn local_queue_capacity(mut self, slots: usize) -> Self {
        self.config.local_queue_capacity = slots;
        self
    }

    /// Slots of a worker's batch buffer, which holds tasks fetched from the global queue and not yet polled; a power of two,
    /// 2 to 32,768. Default 64.
    ///
    /// A fetch returns one task for the next poll and puts the rest into the buffer, so it takes at most this many and one:
    /// with 16 slots, up to 17 tasks.
    pub fn global_queue_batch_size(mut self, slots: usize) -> Self {
        self.config.global_queue_batch_size = slots;
        self
    }

    /// Bounds of the fair share, length / workers, that one fetch from the global queue takes; 1 ≤ `min` ≤ `max`. Default 4
    /// and 64. A fetch also never takes more than [`global_queue_batch_size`](Self::global_queue_batch_size) has room for.
    pub fn global_queue_batch_bounds(mut self, min: usize, max: usize) -> Self {
        self.config.min_global_queue_batch = min;
        self.config.max_global_queue_batch = max;
        self
    }

    /// Tasks that wait to be taken in by a worker (in the global queue, or where [`placement`](Self::placement) puts them) before that counts
    /// as full; at least 1. Default 65,536. [`Handle::try_spawn`] is refused then. Plain spawns and wake-ups are not: a wake-up that is
    /// refused is a task that is lost.
    pub fn global_queue_capacity(mut self, tasks: usize) -> Self {
        self.config.global_queue_capacity = tasks;
        self
    }

    /// Time between two checks of the global queue while a worker is busy with tasks of its own; more than 0. Default 3 µs.
    ///
    /// Each worker keeps a moving average of its poll time. This target divided by that average, within
    /// [`global_queue_interval_bounds`](Self::global_queue_interval_bounds), is the *interval*: the worker checks the global
    /// queue after so many local polls. When polls suddenly take longer than the average says, it checks as soon as the
    /// target has passed since the last check, but not before one local poll, so that neither queue starves.
    ///
    /// `volt_worker_global_checks_total` counts both (`trigger="interval"` and `"elapsed"`), and
    /// `volt_worker_global_check_polls_total` the polls between them. A check of an empty queue costs one load; a longer target
    /// saves little and lets tasks from outside wait longer. A target of 1 ms with bounds 8 and 255 gives the intervals 255, 100,
    /// 20, 10 and 8 for polls of 1 µs, 10 µs, 50 µs, 100 µs and 1 ms.
    pub fn target_global_queue_latency(mut self, latency: Duration) -> Self {
        self.config.target_global_queue_latency_ns = clock::saturating_ns(latency);
        self
    }

    /// Weight of a full tick of polls ([`budget_per_tick`](Self::budget_per_tick)) in the moving average of poll time; a tick
    /// with fewer polls weighs proportionally less. More than 0, at most 1, to a thousandth. Default 0.1.
    pub fn ewma_alpha(mut self, alpha: f64) -> Self {
        // Out of bounds becomes 0, which `build` refuses.
        let is_valid = (0.0005..=1.0).contains(&alpha);
        self.config.ewma_alpha_per_mille = if is_valid { (alpha * 1000.0).round() as u32 } else { 0 };
        self
    }

    /// The average poll time before anything was measured; more than 0. Default 50 µs.
    pub fn default_avg_task(mut self, time: Duration) -> Self {
        self.config.default_avg_task_ns = clock::saturating_ns(time);
        self
    }

    /// Bounds of the interval, the local polls between two checks of the global queue; 1 ≤ `min` ≤ `max`. Default 1 and 255.
    ///
    /// Equal bounds fix the interval. A check may still come earlier, when
    /// [`target_global_queue_latency`](Self::target_global_queue_latency) has passed since the last one.
    pub fn global_queue_interval_bounds(mut self, min: u32, max: u32) -> Self {
        self.config.min_global_queue_interval = min;
        self.config.max_global_queue_interval = max;
        self
    }

    /// A thief may take the LIFO slot of a worker whose present poll has lasted this long. Default 1 ms. Neither the sentinel nor
    /// [`placement`](Self::placement) depends on it.
    pub fn lifo_steal_after(mut self, time: Duration) -> Self {
        self.config.lifo_steal_after_ns = clock::saturating_ns(time);
        self
    }

    /// A worker polls the driver (timers and I/O) between ticks if no worker did for this long, and between two polls of a
    /// tick if none did for 20 times as long. Default 50 µs, so 1 ms within a tick.
    pub fn driver_interval(mut self, time: Duration) -> Self {
        self.config.driver_interval_ns = clock::saturating_ns(time);
        self
    }

    /// First time-out of a parked worker, doubled while it finds nothing; `None` = none. Default 10 ms. It is a net under the wake-up
    /// protocol: `volt_worker_lost_wakeup_rescues_total` counts what it ever catches, and stays 0.
    pub fn park_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.config.park_timeout = timeout;
        self
    }

    /// Where the doubling of the park time-out ends, and from where on only one worker keeps one. Default 1 s.
    pub fn max_park_timeout(mut self, timeout: Duration) -> Self {
        self.config.max_park_timeout = timeout;
        self
    }

    /// Whether a thread that waits (a parked worker, one in `block_on`, an idle blocking thread) stays awake for a moment before it sleeps. Default
    /// [`ParkSpin::Adaptive`], 40 µs at most: only a thread whose last waits were about that short does, never on a machine with one processor, and
    /// not for long if it does not help.
    ///
    /// [`ParkSpin::Stepped`] is the spinning of other schedulers, a fixed number of looks before every sleep. It is for machines that are the program's own,
    /// where threads hand work to each other all the time: answers that come soon took 0.4 to 0.9 of the time. Where others want the processors too, a thread that leaves
    /// its own to them waits behind them, and a wake-up took milliseconds instead of microseconds (`benches/options/RESULTS.md`).
    /// `volt_worker_spins_total` counts either kind.
    ///
    /// ```
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).park_spin(volt::ParkSpin::Stepped).build()?;
    /// assert_eq!(runtime.block_on(runtime.spawn(async { 1 + 1 })).unwrap(), 2);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn park_spin(mut self, spin: ParkSpin) -> Self {
        self.config.park_spin = spin;
        self
    }

    /// How often the sentinel looks after the workers while any of them is awake; `None` = there is no sentinel. Default 10 ms; 1 ms
    /// while a worker is stuck. When a worker is stuck in a poll, it wakes a parked one, or puts a spare one on duty, so that other tasks, timers
    /// and I/O go on. While all workers are parked it sleeps.
    pub fn sentinel_interval(mut self, interval: Option<Duration>) -> Self {
        self.config.sentinel_interval = interval;
        self
    }

    /// How long a poll lasts before it is an incident: counted, written down with its cause and its stack, shown in the console, judged by the doctor,
    /// and written to the log as a `tracing` event of the target `volt::incident`. `None` = there are none. Default 10 ms. What is usual in this
    /// runtime, up to four times the 99th percentile of its polls, is an incident too; the log then has one a minute of each kind instead of one a
    /// second.
    pub fn incident_after(mut self, time: Option<Duration>) -> Self {
        self.config.incident_after_ns = time.map(clock::saturating_ns);
        self
    }

    /// Whether the stack of a stuck poll is taken, on Linux on x86-64 and aarch64. Default true.
    ///
    /// Its worker's thread gets a signal for that, whose handler copies the stack and nothing else. A system call that it waits in is interrupted: the
    /// kernel restarts most of them, and Rust's `sleep` goes on by itself, but `epoll_wait`, `poll`, `select`, `nanosleep` called from C, and socket
    /// calls with a time-out return EINTR, as they may for any signal.
    pub fn incident_stacks(mut self, enable: bool) -> Self {
        self.config.incident_stacks = enable;
        self
    }

    /// The signal for [`incident_stacks`](Self::incident_stacks), for a program that uses the default itself. `None` = the default.
    pub fn stack_signal(mut self, signal: Option<i32>) -> Self {
        self.config.stack_signal = signal;
        self
    }

    /// Whether the findings of `volt-console doctor` are written to the log too, while the runtime is not idle: a `tracing` event of the target
    /// `volt::doctor` when a finding begins (WARN, with its rule, severity, location, evidence and advice) and one when it is over (INFO), 30 s after it
    /// was last seen or later. Each is written at most once a minute. Default true.
    pub fn doctor_events(mut self, enable: bool) -> Self {
        self.config.doctor_events = enable;
        self
    }

    /// Threads that may go on duty beside workers that are stuck or in [`block_in_place`](crate::task::block_in_place), 0 to 1024; 0 = none.
    /// Default: as many as there are workers, but at least 4 and at most 64. They are started when needed, leave a second after the last stall,
    /// and end after 10 s off duty.
    pub fn max_spare_workers(mut self, spares: usize) -> Self {
        self.spare_workers = Some(spares);
        self
    }

    /// Whether workers take from each other. Default true. Without it, only the sentinel takes tasks from a worker that is stuck.
    pub fn enable_stealing(mut self, enable: bool) -> Self {
        self.config.enable_stealing = enable;
        self
    }

    /// In which order a worker polls what its own tasks wake or spawn. Default [`LocalOrder::Fifo`].
    ///
    /// With [`LocalOrder::Lifo`] the newest is polled first, while its data is warm, and each worker has a stack for what is to wait meanwhile, as long
    /// as its ring. Nothing starves: when eight in a row were the newest, something older has its turn, the oldest in the stack and what waits in the ring
    /// by turns; so what has n others before it, in the one or the other,
    /// waits for 18 (n + 1) local polls at most. What yields, and what timers, sockets and other threads wake, waits in the
    /// ring as ever, first come, first polled. Thieves, and the spares of a worker that is stuck, take from stack and ring alike, the oldest first.
    ///
    /// For tasks that split work on large data depth first, so that each finds in the cache what its parent has just written, and few are alive at a time.
    /// Elsewhere it only costs: 4 to 20 % a spawn or wake-up where they come in crowds, nothing where one task starts one (`benches/options/RESULTS.md`).
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).local_order(volt::LocalOrder::Lifo).build()?;
    /// let order = Arc::new(Mutex::new(Vec::new()));
    /// let parent = runtime.spawn({
    ///     let order = order.clone();
    ///     async move {
    ///         let children = [0, 1, 2].map(|child| {
    ///             let order = order.clone();
    ///             volt::spawn(async move { order.lock().unwrap().push(child) })
    ///         });
    ///         for child in children {
    ///             child.await.unwrap();
    ///         }
    ///     }
    /// });
    /// runtime.block_on(parent).unwrap();
    /// assert_eq!(*order.lock().unwrap(), [2, 1, 0]);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn local_order(mut self, order: LocalOrder) -> Self {
        self.config.local_order = order;
        self
    }

    /// Where a task goes that is spawned or woken by a thread that is no worker. Default [`Placement::Global`].
    pub fn placement(mut self, placement: Placement) -> Self {
        self.config.placement = placement;
        self
    }

    /// What waits for I/O; `None` = what the system has. Default `None`. [`build`](Self::build) fails with another system's backend.
    pub fn backend_type(mut self, backend: Option<Backend>) -> Self {
        self.config.backend_type = backend;
        self
    }

    /// Whether a worker that goes on to poll wakes another one that sleeps, if nobody waits in the I/O driver, so that somebody does meanwhile.
    /// Default false: events that come meanwhile are seen when its poll has ended, or by the sentinel after 10 ms. With it a poll that lasts holds up
    /// no others' I/O, and each event costs the wake-up of a second thread.
    pub fn eager_driver_handoff(mut self, enable: bool) -> Self {
        self.config.eager_driver_handoff = enable;
        self
    }

    /// I/O events taken in one turn of the driver; 1 to 65,536. Default 256.
    pub fn max_io_completions(mut self, events: usize) -> Self {
        self.config.max_io_completions = events;
        self
    }

    /// Threads for blocking work; at least 1. Default 512.
    pub fn max_blocking_threads(mut self, threads: usize) -> Self {
        self.config.max_blocking_threads = threads;
        self
    }

    /// How long a thread for blocking work waits for more before it ends; more than 0. Default 10 s.
    pub fn thread_keep_alive(mut self, time: Duration) -> Self {
        self.config.blocking_keep_alive = time;
        self
    }

    /// How long dropping the runtime waits for tasks and blocking work that go on; see [`Runtime::shutdown_timeout`]. Default 10 s.
    pub fn shutdown_timeout(mut self, time: Duration) -> Self {
        self.config.shutdown_timeout = time;
        self
    }

    /// Whether `volt-console` can attach. Default true; a socket that cannot be opened is logged and stops nothing.
    pub fn control_socket(mut self, enable: bool) -> Self {
        self.config.control_socket = enable;
        self
    }

    /// Whether a Tokio runtime stands beside this one, with one thread, so that libraries that are bound to Tokio (reqwest, sqlx, tonic, redis) work in
    /// tasks, in `block_on`, in blocking work and under the guard of [`enter`](crate::Handle::enter). Default false.
    ///
    /// What such a library awaits in a Volt task stays Volt's, and its wake-ups come from Tokio's thread: each costs what a wake-up from outside costs.
    /// What it gives to `tokio::spawn` or `tokio::task::spawn_blocking` runs outside Volt, where no budget, no sentinel and no blame reaches it;
    /// [`Handle::snapshot`](crate::Handle::snapshot) says under `tokio` how much that is. Tokio's own resources spend no budget in a Volt task: one that is
    /// always ready can keep its task from yielding. Guards of `enter` must be dropped in the reverse order in which they were made, or Tokio panics.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).tokio_compat(true).build()?;
    /// let answer = runtime.block_on(async {
    ///     volt::spawn(async {
    ///         tokio::time::sleep(Duration::from_millis(1)).await; // Tokio's timer, in a task of Volt's
    ///         42
    ///     })
    ///     .await
    /// });
    /// assert_eq!(answer.unwrap(), 42);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[cfg(feature = "tokio-compat")]
    pub fn tokio_compat(mut self, enable: bool) -> Self {
        self.config.tokio_compat = enable;
        self
    }

    /// Whether the flight recorder is on from the start: what each worker did last is then always at hand, so that a recording can look back.
    /// Default false: a poll costs some 10 ns more while it is on. `volt-console record` switches it on for as long as it records, and `record
    /// --on` for good.
    pub fn flight_recorder(mut self, is_on: bool) -> Self {
        self.config.flight_recorder = is_on;
        self
    }

    /// Records of 24 bytes that the flight recorder keeps of each worker, a power of two, 1024 to 1,048,576; a poll takes two to four. They take memory
    /// once the recorder is on. Default 8192.
    pub fn flight_records(mut self, records: usize) -> Self {
        self.config.flight_records = records;
        self
    }

    /// Whether the runtime's timers have a clock of their own, which tests stop and move on: [`time::pause`](crate::time::pause),
    /// [`advance`](crate::time::advance). Default false. With it each look at the clock takes a lock.
    pub fn test_clock(mut self, enable: bool) -> Self {
        self.test_clock = enable.then_some(self.test_clock.unwrap_or(false));
        self
    }

    /// Whether it has such a clock, and that stands still from the start. Default false.
    pub fn start_paused(mut self, start_paused: bool) -> Self {
        self.test_clock = start_paused.then_some(true);
        self
    }

    /// Checks the settings and starts the runtime.
    ///
    /// # Errors
    /// A setting out of its bounds, by name; an I/O backend that this machine lacks; a thread that could not be started.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let name = self.checked_name()?;
        let config = self.checked_config()?;
        let registration = observe::register(name);
        let troubles = Arc::new(Troubles::new(registration.name(), config.sentinel_interval.is_some()));
        let driver = Driver::new(config.backend_type, config.max_io_completions, troubles.clone());
        let mut driver = driver.map_err(|error| match config.backend_type {
            Some(backend) => BuildError::system(format_args!("backend_type {backend:?} cannot be used"), error),
            None => BuildError::system("the I/O driver cannot be opened", error),
        })?;
        if let Some(is_paused) = self.test_clock {
            driver.use_test_clock(is_paused);
        }
        let blocking = Pool::new(Settings {
            max_threads: config.max_blocking_threads,
            keep_alive: config.blocking_keep_alive,
            thread_name: config.thread_name.clone(),
            stack_size: config.thread_stack_size,
            spin: config.park_spin,
            troubles,
        });

        // Without stacks too a runtime is worth having.
        let sampler = config.incident_stacks.then(|| Sampler::new(config.stack_signal));
        let sampler = sampler.and_then(|sampler| {
            sampler.inspect_err(|error| tracing::warn!(%error, "stacks of stuck polls cannot be taken")).ok()
        });
        let (name, seed) = (registration.name().to_owned(), clock::wall_seed());
        let (shared, cores) = Shared::new(name, config, driver, blocking, sampler, seed, start_spare);
        let shared = Arc::new(shared);
        let weak: std::sync::Weak<Shared> = Arc::downgrade(&shared);
        if shared.config.tokio_compat {
            let tokio = Compat::start(&Handle::new(shared.clone()));
            shared.add_compat(
                tokio.map_err(|error| BuildError::system("the Tokio runtime beside it cannot be started", error))?,
            );
        }
        registration.show(weak, shared.config.control_socket);
        let mut runtime = Runtime::of(Handle::new(shared.clone()), registration);

        let failed = |name: &str, error| {
            let size = shared.config.thread_stack_size;
            let stack = size.map_or(String::new(), |bytes| format!(", with a thread_stack_size of {bytes} bytes"));
            let workers = shared.config.workers;
            BuildError::system(format!("thread {name} of {workers} workers cannot be started{stack}"), error)
        };
        // Where one cannot be started, dropping the runtime ends those that could.
        for (index, core) in cores.into_iter().enumerate() {
            let worker = Worker::new(shared.clone(), index, core);
            shared.worker_starts();
            let name = format!("worker-{index}");
            match start_thread(&shared, &name, move || worker.run()) {
                Ok(thread) => runtime.add_thread(thread),
                Err(error) => {
                    shared.worker_ended();
                    return Err(failed(&name, error));
                }
            }
        }
        if let Some(interval) = shared.config.sentinel_interval {
            let watched = shared.clone();
            let thread = start_thread(&shared, "sentinel", move || watched.sentinel.run(&watched, interval));
            runtime.add_sentinel(thread.map_err(|error| failed("sentinel", error))?);
        }
        Ok(runtime)
    }

    fn checked_name(&self) -> Result<&str, BuildError> {
        let Some(name) = &self.name else { return Ok(DEFAULT_NAME) };
        if name.is_empty() || name.len() > config::MAX_NAME_BYTES {
            let remedy = format_args!("give 1 to {} bytes", config::MAX_NAME_BYTES);
            return Err(BuildError::invalid("name", format_args!("{} bytes long", name.len()), remedy));
        }
        if name.chars().any(char::is_control) {
            return Err(BuildError::invalid("name", format_args!("{name:?}"), "leave control characters out"));
        }
        Ok(name)
    }

    fn checked_config(&self) -> Result<Config, BuildError> {
        let config = &self.config;
        let in_range = |setting: &str, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(BuildError::invalid(setting, value, format_args!("give {min} to {max}")))
        };
        let not_zero = |setting: &str, is_zero: bool| {
            if is_zero { Err(BuildError::invalid(setting, 0, "give a duration longer than 0")) } else { Ok(()) }
        };
        let power_of_two = |setting: &str, value: usize| {
            if value.is_power_of_two() && (2..=32_768).contains(&value) {
                return Ok(());
            }
            Err(BuildError::invalid(setting, value, "give a power of two from 2 to 32768"))
        };
        let ordered = |setting: &str, min: u64, max: u64| {
            if 1 <= min && min <= max {
                return Ok(());
            }
            Err(BuildError::invalid(setting, format_args!("{min} to {max}"), "give 1 <= min <= max"))
        };
        if config.workers > config::MAX_WORKERS {
            let remedy = format_args!("give 1 to {}, or 0 for one a processor", config::MAX_WORKERS);
            return Err(BuildError::invalid("worker_threads", config.workers, remedy));
        }
        in_range("budget_per_tick", config.budget_per_tick.into(), 1, 65_536)?;
        in_range("coop_budget", config.coop_budget.into(), 1, u32::MAX.into())?;
        if config.max_lifo_polls_per_tick >= config.budget_per_tick {
            let remedy = format_args!("give less than budget_per_tick, {}", config.budget_per_tick);
            return Err(BuildError::invalid("max_lifo_polls_per_tick", config.max_lifo_polls_per_tick, remedy));
        }
        power_of_two("local_queue_capacity", config.local_queue_capacity)?;
        power_of_two("global_queue_batch_size", config.global_queue_batch_size)?;
        let (min, max) = (config.min_global_queue_batch as u64, config.max_global_queue_batch as u64);
        ordered("global_queue_batch_bounds", min, max)?;
        in_range("global_queue_capacity", config.global_queue_capacity as u64, 1, u64::MAX)?;
        not_zero("target_global_queue_latency", config.target_global_queue_latency_ns == 0)?;
        if config.ewma_alpha_per_mille == 0 {
            return Err(BuildError::invalid("ewma_alpha", "out of bounds", "give more than 0 and at most 1"));
        }
        not_zero("default_avg_task", config.default_avg_task_ns == 0)?;
        let (min, max) = (config.min_global_queue_interval.into(), config.max_global_queue_interval.into());
        ordered("global_queue_interval_bounds", min, max)?;
        not_zero("park_timeout", config.park_timeout == Some(Duration::ZERO))?;
        if config.park_timeout.is_some_and(|timeout| timeout > config.max_park_timeout) {
            let remedy = format_args!("give at least park_timeout, {:?}", config.park_timeout.unwrap_or_default());
            return Err(BuildError::invalid("max_park_timeout", format_args!("{:?}", config.max_park_timeout), remedy));
        }
        if let ParkSpin::Adaptive { at_most } = config.park_spin
            && (at_most.is_zero() || at_most > config::MAX_PARK_SPIN)
        {
            let remedy = format_args!("give more than 0 and at most {:?}, or ParkSpin::Off", config::MAX_PARK_SPIN);
            return Err(BuildError::invalid("park_spin", format_args!("{at_most:?}"), remedy));
        }
        not_zero("incident_after", config.incident_after_ns == Some(0))?;
        not_zero("sentinel_interval", config.sentinel_interval == Some(Duration::ZERO))?;
        in_range("max_io_completions", config.max_io_completions as u64, 1, 65_536)?;
        in_range("max_blocking_threads", config.max_blocking_threads as u64, 1, u32::MAX.into())?;
        not_zero("thread_keep_alive", config.blocking_keep_alive.is_zero())?;
        let records = config.flight_records;
        if !records.is_power_of_two() || !(1024..=config::MAX_FLIGHT_RECORDS).contains(&records) {
            let remedy = format_args!("give a power of two from 1024 to {}", config::MAX_FLIGHT_RECORDS);
            return Err(BuildError::invalid("flight_records", records, remedy));
        }
        if config.thread_name.contains('\0') {
            return Err(BuildError::invalid("thread_name", format_args!("{:?}", config.thread_name), "leave out NUL"));
        }
        let mut config = config.clone();
        if config.workers == 0 {
            config.workers = thread::available_parallelism().map_or(1, usize::from).min(config::MAX_WORKERS);
        }
        let spares = config.workers.clamp(config::MIN_SPARE_WORKERS, config::MAX_SPARE_WORKERS);
        config.max_spare_workers = self.spare_workers.unwrap_or(spares);
        in_range("max_spare_workers", config.max_spare_workers as u64, 0, config::MAX_WORKERS as u64)?;
        Ok(config)
    }
}

/// A thread of the runtime's, with its settings. Spawns in it are the runtime's.
fn start_thread(
    shared: &Arc<Shared>,
    name: &str,
    f: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    let mut builder = thread::Builder::new().name(format!("{}-{name}", shared.config.thread_name));
    if let Some(bytes) = shared.config.thread_stack_size {
        builder = builder.stack_size(bytes);
    }
    let handle = Handle::new(shared.clone());
    builder.spawn(move || {
        let _entered = context::enter(&handle);
        f();
    })
}

/// See `scheduler::spares`.
fn start_spare(shared: &Arc<Shared>, slot: usize) -> io::Result<thread::JoinHandle<()>> {
    let spare = shared.clone();
    let name = format!("spare-{}", slot - shared.config.workers);
    let thread = start_thread(shared, &name, move || spare.run_spare(slot));
    thread
        .map_err(|error| io::Error::new(error.kind(), format!("thread {}-{name}: {error}", shared.config.thread_name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_settings_are_errors_that_name_the_setting_and_the_remedy() {
        let base = Builder::new_multi_thread;
        let zero = Duration::ZERO;
        let cases = [
            (base().worker_threads(1025), "worker_threads is 1025: give 1 to 1024, or 0 for one a processor"),
            (base().budget_per_tick(0), "budget_per_tick is 0: give 1 to 65536"),
            (base().coop_budget(0), "coop_budget is 0: give 1 to 4294967295"),
            (
                base().max_lifo_polls_per_tick(128),
                "max_lifo_polls_per_tick is 128: give less than budget_per_tick, 128",
            ),
            (base().local_queue_capacity(100), "local_queue_capacity is 100: give a power of two from 2 to 32768"),
            (base().global_queue_batch_size(1), "global_queue_batch_size is 1: give a power of two from 2 to 32768"),
            (base().global_queue_batch_bounds(0, 4), "global_queue_batch_bounds is 0 to 4: give 1 <= min <= max"),
            (base().global_queue_capacity(0), "global_queue_capacity is 0: give 1 to 18446744073709551615"),
            (
                base().target_global_queue_latency(zero),
                "target_global_queue_latency is 0: give a duration longer than 0",
            ),
            (base().ewma_alpha(0.0), "ewma_alpha is out of bounds: give more than 0 and at most 1"),
            (base().ewma_alpha(f64::NAN), "ewma_alpha is out of bounds: give more than 0 and at most 1"),
            (base().default_avg_task(zero), "default_avg_task is 0: give a duration longer than 0"),
            (base().global_queue_interval_bounds(9, 8), "global_queue_interval_bounds is 9 to 8: give 1 <= min <= max"),
            (base().park_timeout(Some(zero)), "park_timeout is 0: give a duration longer than 0"),
            (
                base().max_park_timeout(Duration::from_millis(1)),
                "max_park_timeout is 1ms: give at least park_timeout, 10ms",
            ),
            (
                base().park_spin(ParkSpin::Adaptive { at_most: Duration::from_millis(2) }),
                "park_spin is 2ms: give more than 0 and at most 1ms, or ParkSpin::Off",
            ),
            (
                base().park_spin(ParkSpin::Adaptive { at_most: zero }),
                "park_spin is 0ns: give more than 0 and at most 1ms, or ParkSpin::Off",
            ),
            (base().sentinel_interval(Some(zero)), "sentinel_interval is 0: give a duration longer than 0"),
            (base().max_io_completions(0), "max_io_completions is 0: give 1 to 65536"),
            (base().max_blocking_threads(0), "max_blocking_threads is 0: give 1 to 4294967295"),
            (base().thread_keep_alive(zero), "thread_keep_alive is 0: give a duration longer than 0"),
            (base().flight_records(1000), "flight_records is 1000: give a power of two from 1024 to 1048576"),
            (base().flight_records(1 << 21), "flight_records is 2097152: give a power of two from 1024 to 1048576"),
            (base().name(""), "name is 0 bytes long: give 1 to 64 bytes"),
            (base().name("a\u{1b}[2J"), "name is \"a\\u{1b}[2J\": leave control characters out"),
            (base().thread_name("a\0b"), "thread_name is \"a\\0b\": leave out NUL"),
        ];
        for (builder, message) in cases {
            let error = builder.build().expect_err(message);
            assert!(error.is_invalid_setting());
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn a_backend_that_this_machine_lacks_is_an_error_and_not_silently_another() {
        let foreign = if cfg!(target_os = "linux") { Backend::Kqueue } else { Backend::Epoll };
        let error = Builder::new_multi_thread().backend_type(Some(foreign)).build().unwrap_err();
        assert!(error.is_system());
        assert!(error.to_string().starts_with(&format!("backend_type {foreign:?} cannot be used")), "{error}");
    }

    #[test]
    fn no_two_runtimes_have_the_same_name_and_one_that_is_gone_has_none() {
        let named =
            |name| Builder::new_multi_thread().worker_threads(1).control_socket(false).name(name).build().unwrap();
        let name_of = |runtime: &Runtime| runtime.handle().snapshot().runtime;
        let (first, second) = (named("twin"), named("twin"));
        assert_eq!((name_of(&first), name_of(&second)), ("twin".to_owned(), "twin-2".to_owned()));
        let gone = first.handle().clone();
        drop(first);
        assert_eq!(name_of(&named("twin")), "twin", "though a handle of its former owner is left");
        drop(gone);

        let nameless = [(); 2].map(|()| Builder::new_multi_thread().worker_threads(1).build().unwrap());
        let [one, other] = nameless.each_ref().map(name_of);
        assert!(one != other && [&one, &other].into_iter().all(|name| name.starts_with(DEFAULT_NAME)), "{one} {other}");
    }
}
