//! The settings of a runtime, and the steps that start one.
//!
//! [`Builder`] collects the settings, checks them, and starts the threads of a [`Runtime`].
//!
//! Every constant of [`crate::config`] that a program may change has a method here, except the
//! thresholds of the sentinel. This file has the settings that most programs use, `hooks` the
//! callbacks, `tuning` the settings that few programs need, and `testing` those for tests. `check`
//! has the bounds of all settings, and `error` the errors.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use volt_stacks::Sampler;

use self::error::BuildError;
use self::inside::{Owner, inside};
use crate::blocking::pool::{Pool, Settings};
use crate::clock;
use crate::config::hooks::Hooks;
use crate::config::{self, Config, ParkSpin, Placement};
use crate::context;
use crate::driver::compat::Compat;
use crate::driver::turn::Driver;
use crate::failures::Failures;
use crate::handle::Handle;
use crate::observe::{page, quit, registry};
use crate::recorder::black_box::wanted::create_if_wanted;
use crate::runtime::Runtime;
use crate::scheduler::sentinel::program;
use crate::scheduler::shared::{Shared, Threads};
use crate::scheduler::worker::Worker;

/// The default name of a runtime.
const DEFAULT_NAME: &str = "volt";

/// Builds a [`Runtime`] with custom settings.
///
/// Every setting has a default. [`build`](Self::build) checks the settings and starts the runtime.
/// The methods are in four groups:
///
/// * *Everyday settings*: the kind of runtime, its names, its threads and its shutdown.
/// * *Callbacks*: functions of the program that the runtime calls.
/// * *Tuning* of the scheduler, the I/O driver, the sentinel and the flight recorder.
/// * *Testing*: a clock that tests control, runtimes without I/O or timers, and simulation.
///
/// ```
/// # use volt_core as volt;
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
    /// Whether the program has set `max_lifo_polls_per_tick`.
    has_lifo_polls: bool,
    /// `None`: derived from the number of workers.
    spare_workers: Option<usize>,
    /// `None`: the runtime has no test clock. Otherwise, whether the test clock starts paused.
    test_clock: Option<bool>,
    pub(crate) config: Config,
}

/// # Everyday settings
///
/// Most programs need no others.
impl Builder {
    /// Returns a builder for a multi-threaded runtime, with the default settings.
    pub fn new_multi_thread() -> Self {
        let config = Config {
            is_current_thread: false,
            local_to: None,
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
            inherit_spans: false,
            tokio_compat: false,
            flight_recorder: false,
            flight_records: config::FLIGHT_RECORDS,
            black_box: None,
            is_io_disabled: false,
            is_time_disabled: false,
            hooks: Hooks::default(),
            seed: None,
            poll_limit: config::POLL_LIMIT,
            given_name: None,
        };
        Self { has_lifo_polls: false, spare_workers: None, test_clock: None, config }
    }

    /// Returns a builder for a current-thread runtime, with the default settings.
    ///
    /// Such a runtime starts no worker thread. A thread that calls
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on) is its worker: until the given
    /// future is ready, it polls that future and the tasks, and drives timers and sockets. Between
    /// two calls no task makes progress. If several threads call `block_on`, one of them runs the
    /// tasks, and each of the others polls only its own future; when the first one returns, another
    /// one continues. [`Handle::block_on`](crate::handle::Handle::block_on) never runs tasks,
    /// timers or sockets.
    ///
    /// Tasks are polled in the order in which they were woken, as long as no more than
    /// `local_queue_capacity` of them wait. A task that blocks delays all others, since no other
    /// thread can run them: the sentinel reports it, but has no spare worker to replace the thread.
    /// `worker_threads`, `max_spare_workers`, `enable_stealing` and `max_lifo_polls_per_tick` have
    /// no effect.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_current_thread().build()?;
    /// let here = std::thread::current().id();
    /// runtime.block_on(async {
    ///     let task = volt::spawn(async { std::thread::current().id() });
    ///     assert_eq!(task.await.unwrap(), here);
    /// });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn new_current_thread() -> Self {
        let mut builder = Self::new_multi_thread();
        builder.config.is_current_thread = true;
        builder
    }

    #[cfg(test)]
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Sets the number of worker threads, 1 to 1024. 0, the default, starts one worker for each
    /// processor that the affinity mask and the CPU quota of the program allow.
    ///
    /// `volt_runtime_workers` reports the number.
    pub fn worker_threads(mut self, workers: usize) -> Self {
        self.config.workers = workers;
        self
    }

    /// Sets the name of the runtime in the console, in metrics and in logs: 1 to 64 bytes, not
    /// blank, without control characters. Default `volt`.
    ///
    /// Names are unique within a program. While a live runtime uses the name, later runtimes are
    /// called `name-2`, `name-3`, and so on; the name is cut if the whole would exceed 64 bytes. A
    /// runtime releases its name when it shuts down.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.config.given_name = Some(name.into());
        self
    }

    /// Sets the prefix for the names of worker threads and blocking threads. Default `volt`, which
    /// gives `volt-worker-0`. It must not contain NUL. Linux shows only the first 15 bytes of a
    /// thread's name.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.config.thread_name = name.into();
        self.config.hooks.thread_name = None;
        self
    }

    /// Sets the stack size of worker threads and blocking threads, in bytes. Default: that of
    /// [`std::thread`], 2 MiB. [`build`](Self::build) fails if the operating system refuses the
    /// size.
    pub fn thread_stack_size(mut self, bytes: usize) -> Self {
        self.config.thread_stack_size = Some(bytes);
        self
    }

    /// Sets the maximum number of threads of the blocking pool, at least 1. Default 512.
    ///
    /// Blocking jobs (`spawn_blocking`, files, name lookups) wait in a queue while all of these
    /// threads are busy. `volt_blocking_threads` reports the threads, and
    /// `volt_blocking_queue_depth` the jobs that wait.
    pub fn max_blocking_threads(mut self, threads: usize) -> Self {
        self.config.max_blocking_threads = threads;
        self
    }

    /// Sets how long dropping the runtime waits for running tasks and blocking jobs to end.
    /// Default 10 s. [`Runtime::shutdown_timeout`] describes the shutdown, and takes its own limit.
    pub fn shutdown_timeout(mut self, time: Duration) -> Self {
        self.config.shutdown_timeout = time;
        self
    }

    /// Sets whether `volt-console` and `volt-exporter` can attach to this runtime through the
    /// program's control socket. Default true.
    ///
    /// If the socket cannot be opened, the program logs the error and continues to run.
    /// `volt_observer_clients` reports the attached clients.
    pub fn control_socket(mut self, enable: bool) -> Self {
        self.config.control_socket = enable;
        self
    }

    /// Enables I/O and time. They are enabled unless [`disable_io`](Self::disable_io) or
    /// [`disable_time`](Self::disable_time) was called before.
    pub fn enable_all(self) -> Self {
        self.enable_io().enable_time()
    }

    /// Enables I/O, which is the default.
    pub fn enable_io(mut self) -> Self {
        self.config.is_io_disabled = false;
        self
    }

    /// Enables time, which is the default.
    pub fn enable_time(mut self) -> Self {
        self.config.is_time_disabled = false;
        self
    }

    /// Starts a single-threaded Tokio runtime beside this one, for libraries that require Tokio
    /// (reqwest, sqlx, tonic, redis). Default false.
    ///
    /// Those libraries then work in tasks, in `block_on`, in blocking jobs and under the guard of
    /// [`enter`](crate::handle::Handle::enter). Volt polls the futures that a task awaits; only
    /// their wake-ups come from Tokio's thread, and each costs as much as a wake-up from outside
    /// the runtime.
    ///
    /// Tasks that a library passes to `tokio::spawn` or `tokio::task::spawn_blocking` run on Tokio.
    /// Volt's budgets, sentinel and incidents do not cover them.
    /// [`Handle::snapshot`](crate::handle::Handle::snapshot) reports them under `tokio`, and
    /// `volt_tokio_tasks_alive` counts them.
    ///
    /// Tokio's resources do not use the budget of a Volt task, so a resource that is always ready
    /// can keep its task from yielding. Drop guards of `enter` in the reverse order of their
    /// creation; otherwise Tokio panics.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::time::Duration;
    ///
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).tokio_compat(true).build()?;
    /// let answer = runtime.block_on(async {
    ///     volt::spawn(async {
    ///         tokio::time::sleep(Duration::from_millis(1)).await; // Tokio's timer in a Volt task
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

    /// Checks the settings and starts the runtime.
    ///
    /// If Volt is linked into a shared library, such as a Python extension, that library stays
    /// loaded from then on, even after `dlclose`, because Volt's signal handlers stay installed.
    ///
    /// # Errors
    ///
    /// Fails if a setting is out of bounds; the message names the setting and a remedy. Also fails
    /// if the operating system does not have the I/O backend or refuses to start a thread.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let name = self.checked_name()?;
        let config = self.checked_config()?;
        volt_stacks::loaded::stay();
        let registration = registry::register(name);
        let failures = Arc::new(Failures::new(registration.name(), config.sentinel_interval.is_some()));
        let driver = Driver::new(config.backend_type, config.max_io_completions, failures.clone());
        let mut driver = driver.map_err(|error| match config.backend_type {
            Some(backend) => BuildError::system(format_args!("backend_type {backend:?} cannot be used"), error),
            None => BuildError::system("the I/O driver cannot be opened", error),
        })?;
        let test_clock = if config.seed.is_some() { Some(true) } else { self.test_clock };
        if let Some(is_paused) = test_clock {
            driver.use_test_clock(is_paused);
        }
        let owner = Owner::default();
        let blocking = Pool::new(Settings {
            max_threads: config.max_blocking_threads,
            keep_alive: config.blocking_keep_alive,
            thread_name: config.thread_name.clone(),
            hooks: inside(&owner, &config.hooks),
            stack_size: config.thread_stack_size,
            spin: config.park_spin,
            failures,
        });

        // A runtime that cannot capture the stacks of stuck polls is still useful, so this is no
        // error.
        let sampler = config.incident_stacks.then(|| Sampler::new(config.stack_signal));
        let sampler = sampler.and_then(|sampler| {
            sampler
                .inspect_err(|error| tracing::warn!(target: "volt", %error, "stacks of stuck polls cannot be captured"))
                .ok()
        });
        let threads = Threads { blocking, start_spare, sentinel: program::alarm() };
        let (name, seed) = (registration.name().to_owned(), clock::wall_seed());
        let layout = config.black_box_layout();
        let black_box = create_if_wanted(config.black_box.as_deref(), &registry::program_name(), &name, layout);
        let (shared, cores) = Shared::new(name, config, driver, threads, sampler, black_box, seed);
        let shared = Arc::new(shared);
        let weak: std::sync::Weak<Shared> = Arc::downgrade(&shared);
        owner.get_or_init(|| weak.clone());
        shared.failures().set_watcher(weak.clone());
        if shared.config.tokio_compat {
            // A weak pointer: Tokio keeps this closure while any of its handles exists, and Volt
            // owns such a handle.
            let volt = weak.clone();
            let enter =
                move || volt.upgrade().into_iter().for_each(|shared| context::enter_for_good(Handle::new(shared)));
            let tokio = Compat::start(&shared.config, enter);
            shared.add_compat(
                tokio.map_err(|error| {
                    BuildError::system("the Tokio runtime for tokio_compat cannot be started", error)
                })?,
            );
        }
        registration.show(weak, shared.config.control_socket);
        page::serve_if_requested();
        quit::listen_if_requested();
        let mut runtime = Runtime::of(Handle::new(shared.clone()), registration);

        let failed = |name: &str, error| {
            let size = shared.config.thread_stack_size;
            let stack = size.map_or(String::new(), |bytes| format!(", with a thread_stack_size of {bytes} bytes"));
            let workers = shared.config.workers;
            BuildError::system(format!("thread {name} of {workers} workers cannot be started{stack}"), error)
        };
        if shared.workers.shared_core.is_some() {
            // Its worker is the thread in `block_on`; the shutdown runs it to its end.
            shared.worker_starts();
        }
        if let Some(interval) = shared.config.sentinel_interval {
            match program::enter(&shared, interval) {
                Ok(entered) => runtime.add_sentinel(entered),
                Err(error) => {
                    runtime.discard();
                    return Err(BuildError::system("thread volt-sentinel cannot be started", error));
                }
            }
        }
        for (index, core) in cores.into_iter().enumerate() {
            let worker = Worker::new(shared.clone(), index, core);
            shared.worker_starts();
            let name = format!("worker-{index}");
            match start_worker(&shared, &name, move || worker.run()) {
                Ok(thread) => runtime.add_thread(thread),
                Err(error) => {
                    shared.worker_ended();
                    // Ends the workers that were started.
                    runtime.discard();
                    return Err(failed(&name, error));
                }
            }
        }
        Ok(runtime)
    }
}

impl Runtime {
    /// Starts a runtime with the default settings: one worker per processor.
    ///
    /// # Errors
    /// Same as [`Builder::build`](crate::builder::Builder::build).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Runtime::new()?;
    /// assert_eq!(runtime.block_on(async { 1 + 1 }), 2);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn new() -> Result<Runtime, BuildError> {
        Builder::new_multi_thread().build()
    }
}

/// Starts a thread with the runtime's settings, inside the runtime's context.
fn start_thread(
    shared: &Arc<Shared>,
    name: String,
    f: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    let mut builder = thread::Builder::new().name(name);
    if let Some(bytes) = shared.config.thread_stack_size {
        builder = builder.stack_size(bytes);
    }
    let handle = Handle::new(shared.clone());
    builder.spawn(move || {
        let _entered = context::enter(&handle);
        f();
    })
}

/// Starts the thread of a worker, which also calls the program's hooks.
fn start_worker(
    shared: &Arc<Shared>,
    name: &str,
    f: impl FnOnce() + Send + 'static,
) -> io::Result<thread::JoinHandle<()>> {
    let name = shared.config.hooks.thread_name(|| format!("{}-{name}", shared.config.thread_name));
    let hooks = shared.config.hooks.clone();
    start_thread(shared, name, move || hooks.around_thread(f))
}

/// Starts the thread of a spare worker; see `scheduler::spares`.
fn start_spare(shared: &Arc<Shared>, slot: usize) -> io::Result<thread::JoinHandle<()>> {
    let spare = shared.clone();
    // The sentinel's thread, which calls this, is in no runtime. The user's function that names
    // threads may use the one that it is called for.
    let handle = Handle::new(shared.clone());
    let _entered = context::enter(&handle);
    let name = format!("spare-{}", slot - shared.config.workers);
    let thread = start_worker(shared, &name, move || spare.run_spare(slot));
    thread
        .map_err(|error| io::Error::new(error.kind(), format!("thread {}-{name}: {error}", shared.config.thread_name)))
}

// At the end of the file, because rustdoc shows the groups of methods in the order of the source:
// first those of this file.
pub mod error;

mod check;
mod inside;
mod local;

mod hooks;

mod tuning;

mod testing;

#[cfg(test)]
mod tests;
