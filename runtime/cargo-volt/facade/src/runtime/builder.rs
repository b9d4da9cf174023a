//! The settings of a runtime, set by reference as Tokio's are.

use std::env::{self, VarError};
use std::io;
use std::time::Duration;

use volt::runtime::LocalOptions;

use super::{LocalRuntime, Runtime};

/// The longest that dropping a runtime waits for its blocking jobs. Tokio waits without a limit,
/// and programs rely on it, for example to write files.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The variable that sets the number of workers of a program that does not set it.
const WORKER_THREADS: &str = "TOKIO_WORKER_THREADS";

/// Builds a runtime with custom settings. See `volt::runtime::Builder`.
#[derive(Debug)]
pub struct Builder {
    volt: volt::runtime::Builder,
    /// Whether `build` reads [`WORKER_THREADS`].
    reads_environment: bool,
}

impl Builder {
    /// Returns a builder for a runtime of several threads.
    pub fn new_multi_thread() -> Self {
        Self::of(volt::runtime::Builder::new_multi_thread(), true)
    }

    /// Returns a builder for a runtime on the thread that calls `block_on`.
    pub fn new_current_thread() -> Self {
        let builder = volt::runtime::Builder::new_current_thread();
        // As on Tokio, `time::pause` works on this flavour only, and with this feature.
        Self::of(if cfg!(feature = "test-util") { builder.test_clock(true) } else { builder }, false)
    }

    /// Sets what differs between Tokio's defaults and Volt's.
    fn of(builder: volt::runtime::Builder, reads_environment: bool) -> Self {
        Self { volt: builder.shutdown_timeout(SHUTDOWN_TIMEOUT).disable_io().disable_time(), reads_environment }
    }

    /// Changes a setting of Volt's builder, which is passed by value.
    fn set(&mut self, change: impl FnOnce(volt::runtime::Builder) -> volt::runtime::Builder) -> &mut Self {
        self.volt = change(self.volt.clone());
        self
    }

    /// Enables I/O and time.
    pub fn enable_all(&mut self) -> &mut Self {
        self.set(volt::runtime::Builder::enable_all)
    }

    /// Enables I/O. Without it, creating a socket panics.
    pub fn enable_io(&mut self) -> &mut Self {
        self.set(volt::runtime::Builder::enable_io)
    }

    /// Enables time. Without it, creating a timer panics.
    pub fn enable_time(&mut self) -> &mut Self {
        self.set(volt::runtime::Builder::enable_time)
    }

    /// Sets the number of worker threads, which overrides the value of the environment variable
    /// `TOKIO_WORKER_THREADS`. The default is one per processor.
    ///
    /// # Panics
    /// Panics if `val` is 0.
    #[track_caller]
    pub fn worker_threads(&mut self, val: usize) -> &mut Self {
        assert!(val > 0, "Worker threads cannot be set to 0");
        self.reads_environment = false;
        self.set(|builder| builder.worker_threads(val))
    }

    /// Sets the most threads for blocking work.
    ///
    /// # Panics
    /// Panics if `val` is 0.
    #[track_caller]
    pub fn max_blocking_threads(&mut self, val: usize) -> &mut Self {
        assert!(val > 0, "Max blocking threads cannot be set to 0");
        // Volt counts them in 32 bits.
        self.set(|builder| builder.max_blocking_threads(val.min(u32::MAX as usize)))
    }

    /// Sets the name of the worker threads and of the threads for blocking work.
    pub fn thread_name(&mut self, val: impl Into<String>) -> &mut Self {
        let name = val.into();
        self.thread_name_fn(move || name.clone())
    }

    /// Sets the function that names the worker threads and the threads for blocking work.
    pub fn thread_name_fn<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() -> String + Send + Sync + 'static,
    {
        self.set(|builder| builder.thread_name_fn(f))
    }

    /// Sets the name of the runtime, which the console and the metrics show.
    ///
    /// # Panics
    /// Panics if the name is blank.
    #[track_caller]
    pub fn name(&mut self, val: impl Into<String>) -> &mut Self {
        let name = val.into();
        assert!(!name.trim().is_empty(), "runtime name shouldn't be empty");
        self.set(|builder| builder.name(name))
    }

    /// Sets the size of the threads' stacks in bytes.
    pub fn thread_stack_size(&mut self, val: usize) -> &mut Self {
        self.set(|builder| builder.thread_stack_size(val))
    }

    /// Sets the function that each worker thread and each thread for blocking work calls when it
    /// starts.
    pub fn on_thread_start<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_thread_start(f))
    }

    /// Sets the function that each worker thread and each thread for blocking work calls before it
    /// ends.
    pub fn on_thread_stop<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_thread_stop(f))
    }

    /// Sets the function that a worker calls before it sleeps.
    pub fn on_thread_park<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_thread_park(f))
    }

    /// Sets the function that a worker calls after it has slept.
    pub fn on_thread_unpark<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn() + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_thread_unpark(f))
    }

    /// Sets how long an idle thread for blocking work lives.
    pub fn thread_keep_alive(&mut self, duration: Duration) -> &mut Self {
        // Volt refuses 0, which Tokio accepts.
        self.set(|builder| builder.thread_keep_alive(duration.max(Duration::from_nanos(1))))
    }

    /// Sets how many tasks a worker polls between two checks of the global queue.
    ///
    /// # Panics
    /// Panics if `val` is 0.
    #[track_caller]
    pub fn global_queue_interval(&mut self, val: u32) -> &mut Self {
        assert!(val > 0, "global_queue_interval must be greater than 0");
        self.set(|builder| builder.global_queue_interval(val))
    }

    /// Sets how many tasks a worker polls between two checks for events.
    ///
    /// # Panics
    /// Panics if `val` is 0.
    #[track_caller]
    pub fn event_interval(&mut self, val: u32) -> &mut Self {
        assert!(val > 0, "event_interval must be greater than 0");
        self.set(|builder| builder.event_interval(val))
    }

    /// Sets the most I/O events of one check.
    ///
    /// # Panics
    /// Panics if `capacity` is 0.
    #[track_caller]
    pub fn max_io_events_per_tick(&mut self, capacity: usize) -> &mut Self {
        assert!(capacity > 0, "max_io_events_per_tick must be non-zero");
        self.set(|builder| builder.max_io_events_per_tick(capacity))
    }

    /// Has no effect: a busy worker handles as many events in a check as an idle one.
    ///
    /// # Panics
    /// Panics if `capacity` is 0.
    #[track_caller]
    pub fn max_io_events_per_busy_tick(&mut self, capacity: usize) -> &mut Self {
        assert!(capacity > 0, "max_io_events_per_busy_tick must be non-zero");
        self
    }

    /// Sets the function that is called for each spawned task.
    #[cfg(tokio_unstable)]
    pub fn on_task_spawn<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn(&super::TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_task_spawn(f))
    }

    /// Sets the function that a worker calls before each poll of a task.
    #[cfg(tokio_unstable)]
    pub fn on_before_task_poll<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn(&super::TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_before_task_poll(f))
    }

    /// Sets the function that a worker calls after each poll of a task.
    #[cfg(tokio_unstable)]
    pub fn on_after_task_poll<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn(&super::TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_after_task_poll(f))
    }

    /// Sets the function that is called for each task that has completed, panicked or been
    /// cancelled.
    #[cfg(tokio_unstable)]
    pub fn on_task_terminate<F>(&mut self, f: F) -> &mut Self
    where
        F: Fn(&super::TaskMeta<'_>) + Send + Sync + 'static,
    {
        self.set(|builder| builder.on_task_terminate(f))
    }

    /// Lets a worker run a task that it wakes after the tasks that are queued already.
    #[cfg(tokio_unstable)]
    pub fn disable_lifo_slot(&mut self) -> &mut Self {
        self.set(|builder| builder.max_lifo_polls_per_tick(0))
    }

    /// Enables time. Volt has one implementation of timers.
    #[cfg(tokio_unstable)]
    pub fn enable_alt_timer(&mut self) -> &mut Self {
        self.enable_time()
    }

    /// Enables I/O. Volt reads and writes files on threads for blocking work.
    #[cfg(tokio_unstable)]
    pub fn enable_io_uring(&mut self) -> &mut Self {
        self.enable_io()
    }

    /// Lets a worker hand the driver to another worker before it polls tasks that the driver woke.
    #[cfg(tokio_unstable)]
    pub fn enable_eager_driver_handoff(&mut self) -> &mut Self {
        self.set(|builder| builder.eager_driver_handoff(true))
    }

    /// Has no effect: Volt has one implementation of the queue of blocking jobs.
    #[cfg(tokio_unstable)]
    pub fn enable_sharded_blocking_queue(&mut self) -> &mut Self {
        self
    }

    /// Has no effect: Volt always has the histogram of poll durations.
    #[cfg(tokio_unstable)]
    pub fn enable_metrics_poll_time_histogram(&mut self) -> &mut Self {
        self
    }

    /// Has no effect: Volt always has the histogram of schedule delays.
    #[cfg(tokio_unstable)]
    pub fn enable_metrics_schedule_latency_histogram(&mut self) -> &mut Self {
        self
    }

    /// Sets whether the clock is paused when the runtime starts.
    pub fn start_paused(&mut self, start_paused: bool) -> &mut Self {
        self.set(|builder| builder.start_paused(start_paused))
    }

    /// Builds the runtime.
    ///
    /// # Errors
    /// Returns an error if a setting is invalid, or if a thread or the I/O driver cannot be made.
    ///
    /// # Panics
    /// Panics if `TOKIO_WORKER_THREADS` is read and is not a number from 1 on.
    pub fn build(&mut self) -> io::Result<Runtime> {
        let mut builder = self.volt.clone();
        if self.reads_environment
            && let Some(workers) = workers_in_environment()
        {
            builder = builder.worker_threads(workers);
        }
        builder.build().map(Runtime::of).map_err(io::Error::from)
    }

    /// Builds a runtime that also runs futures that are not `Send`, on this thread only.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    ///
    /// # Panics
    /// Panics if this is the builder of a runtime of several threads.
    #[track_caller]
    pub fn build_local(&mut self, options: LocalOptions) -> io::Result<LocalRuntime> {
        self.volt.clone().build_local(options).map(LocalRuntime::of).map_err(io::Error::from)
    }
}

/// Returns the value of [`WORKER_THREADS`], if it is set. Panics with Tokio's messages.
fn workers_in_environment() -> Option<usize> {
    let value = match env::var(WORKER_THREADS) {
        Ok(value) => value,
        Err(VarError::NotPresent) => return None,
        Err(VarError::NotUnicode(value)) => panic!("\"{WORKER_THREADS}\" must be valid unicode, error: {value:?}"),
    };
    let workers = value
        .parse::<usize>()
        .unwrap_or_else(|error| panic!("\"{WORKER_THREADS}\" must be usize, error: {error}, value: {value}"));
    assert!(workers > 0, "\"{WORKER_THREADS}\" cannot be set to 0");
    Some(workers)
}

impl Runtime {
    /// Builds a runtime of several threads with the default settings.
    ///
    /// # Errors
    /// Returns an error if its threads or its I/O driver cannot be created.
    pub fn new() -> io::Result<Self> {
        Builder::new_multi_thread().enable_all().build()
    }
}

impl LocalRuntime {
    /// Builds a runtime on this thread with the default settings.
    ///
    /// # Errors
    /// Returns an error if its I/O driver cannot be created.
    pub fn new() -> io::Result<Self> {
        Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
    }
}
