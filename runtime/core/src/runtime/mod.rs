//! A runtime: the owner of the worker threads, and the shutdown.
//!
//! A shutdown proceeds in this order, within one time limit:
//!
//! 1. The runtime is closed: every later spawn is cancelled immediately.
//! 2. Every task is cancelled. A worker drops its future, and its JoinHandle returns an error.
//! 3. The workers stop when no task is left (`scheduler/shared/end` describes that protocol).
//! 4. Blocking jobs that wait for a thread are cancelled. The shutdown waits for running jobs, and
//!    for the threads of the workers, which may still run destructors. Meanwhile the thread that
//!    shuts the runtime down turns the driver, so that the timers and sockets of those jobs and
//!    destructors work.
//! 5. Waits for sockets that outlive the runtime return errors. Awaiting a timer that outlives it
//!    panics.
//!
//! If the limit passes, shields protect no task any more, so that the workers drop the futures of
//! tasks that wait behind them. The rest is reported by a `tracing` event and continues without the
//! runtime. A companion Tokio runtime (`compat`) is shut down last.
//!
//! Usually the threads end immediately, and the thread that shuts the runtime down joins them. A
//! separate thread joins those that do not (`joiner`).

use std::fmt;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::JoinHandle as JoinThread;
use std::time::{Duration, Instant};

use volt_telemetry::text;

use self::joiner::{Joiner, join_soon};
use crate::context;
use crate::driver::turn::Driver;
use crate::handle::Handle;
use crate::observe::registry::{Observed, Registration};
use crate::recorder::drain::Names;
use crate::recorder::lanes::Recorder;
use crate::scheduler::readers::limit::Limit;
use crate::scheduler::sentinel::program::Watched;
use crate::scheduler::shared::Shared;
use crate::scheduler::shared_core::SharedCore;
use crate::scheduler::worker::Worker;
use crate::stats::locations::of_number;
use crate::task::join::JoinHandle;
use crate::task::refused::TrySpawnError;

mod joiner;
mod local;

// The items of `volt::runtime` that are not at the root of this crate.
pub use {
    crate::config::hooks::TaskMeta,
    crate::config::identity::{Id, RuntimeFlavor},
    crate::context::TryCurrentError,
    crate::handle::metrics::RuntimeMetrics,
    crate::scheduler::worker::current::worker_index,
    local::{LocalOptions, LocalRuntime},
};

/// The most tasks that the report of an incomplete shutdown names.
const REMAINING_NAMED: usize = 8;

/// The Volt runtime: worker threads, timers, the I/O driver and a blocking pool.
///
/// Create one with [`Runtime::new`], with a [`Builder`](crate::builder::Builder), or with
/// `#[volt::main]`. Any thread may use it through a shared reference or a [`Handle`].
///
/// Dropping the runtime shuts it down, as [`shutdown_timeout`](Self::shutdown_timeout) does, with
/// the limit of [`Builder::shutdown_timeout`](crate::builder::Builder::shutdown_timeout): 10 s by
/// default.
///
/// A child process that is forked from the program has a copy of it without threads; see
/// [`Handle`]. Dropping that copy returns immediately and does not affect the parent's runtime.
///
/// # Panics
/// Dropping the runtime inside a task or a `block_on` panics, unless the limit is zero or the
/// thread is already panicking. The runtime is shut down nevertheless. Use
/// [`shutdown_background`](Self::shutdown_background) there.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Runtime::new()?;
/// let answer = runtime.block_on(async {
///     volt::time::sleep(std::time::Duration::from_millis(1)).await;
///     42
/// });
/// assert_eq!(answer, 42);
/// # Ok::<(), volt::BuildError>(())
/// ```
pub struct Runtime {
    handle: Handle,
    /// Makes the runtime visible to consoles. Dropped at the end of the shutdown.
    registration: Option<Registration>,
    /// The threads of the workers, joined at the end.
    threads: Vec<JoinThread<()>>,
    /// `None` without a sentinel.
    sentinel: Option<Arc<Watched>>,
}

impl Runtime {
    pub(crate) fn of(handle: Handle, registration: Registration) -> Self {
        Self { handle, registration: Some(registration), threads: Vec::new(), sentinel: None }
    }

    pub(crate) fn add_sentinel(&mut self, watched: Arc<Watched>) {
        self.sentinel = Some(watched);
    }

    pub(crate) fn add_thread(&mut self, thread: JoinThread<()>) {
        self.threads.push(thread);
    }

    /// Returns the handle of this runtime.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Spawns a task onto the runtime; see [`volt::spawn`](crate::spawn()). May be called on any
    /// thread.
    ///
    /// The tasks of a current-thread runtime make progress only during
    /// [`block_on`](Self::block_on).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let task = runtime.spawn(async { 6 * 7 });
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Spawns a task unless too many tasks are waiting; see `volt::task::try_spawn`.
    ///
    /// # Errors
    /// Same as [`Handle::try_spawn`].
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.try_spawn(future)
    }

    /// Runs a blocking closure on a thread where blocking is allowed; see
    /// `volt::task::spawn_blocking`.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let job = runtime.spawn_blocking(|| std::fs::metadata("/"));
    /// assert!(runtime.block_on(job).unwrap().unwrap().is_dir());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.handle.spawn_blocking(f)
    }

    /// Runs a future on this thread and returns its output.
    ///
    /// The tasks of a multi-thread runtime run on its workers, as with [`Handle::block_on`]. In a
    /// [current-thread runtime](crate::builder::Builder::new_current_thread) this thread also runs
    /// the tasks, timers and sockets until the future is ready.
    ///
    /// The future need not be `Send` or `'static`. It is not a task. In a multi-thread runtime it
    /// does not run on a worker, and each of its wake-ups wakes this thread. So spawn a future that
    /// does most of a program's work, and await it here.
    ///
    /// # Panics
    /// Panics if called inside a task or another `block_on`; in a child process that was forked
    /// from the runtime's program; and if the future panics.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let name = String::from("ada");
    /// let length = runtime.block_on(async { name.len() });
    /// assert_eq!(length, 3);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on_and_run(future)
    }

    /// Returns the metrics of the runtime; see [`Handle::metrics`].
    pub fn metrics(&self) -> RuntimeMetrics {
        self.handle.metrics()
    }

    /// Makes this runtime current on this thread while the guard lives; see [`Handle::enter`].
    pub fn enter(&self) -> context::EnterGuard<'_> {
        self.handle.enter()
    }

    /// Shuts the runtime down: cancels all tasks, drops their futures, and waits until everything
    /// has ended, but at most for `limit`.
    ///
    /// A [`Shield`](crate::task::control::shield::Shield) protects a task up to that limit. If
    /// something is still running then (a task that does not return from its poll, a blocking job,
    /// a destructor on a worker's thread), it is named in a `tracing` event, and its threads
    /// continue without the runtime. If a blocking job of this runtime calls this method, the
    /// shutdown does not wait for that job.
    ///
    /// Timers and sockets work until the last blocking job has ended or `limit` has passed. After
    /// that, operations on sockets return errors, and timers panic when they are polled. On a
    /// paused test clock this begins earlier, since no timer would ever fire.
    ///
    /// Dropping the runtime does the same with the limit of
    /// [`Builder::shutdown_timeout`](crate::builder::Builder::shutdown_timeout).
    ///
    /// # Panics
    /// Panics if called inside a task or a `block_on`, where waiting would block a worker, unless
    /// `limit` is zero. Use [`shutdown_background`](Self::shutdown_background) there.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use std::time::Duration;
    ///
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// runtime.shutdown_timeout(Duration::from_secs(1));
    /// assert!(task.is_finished());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn shutdown_timeout(mut self, limit: Duration) {
        self.shutdown(limit);
    }

    /// Shuts the runtime down as [`shutdown_timeout`](Self::shutdown_timeout) does, but without
    /// waiting. Running polls, jobs and destructors continue until they end. Shields protect no
    /// task. May be called inside a task or a `block_on`.
    ///
    /// In a current-thread runtime, this thread drops the futures of the tasks before the call
    /// returns.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let inner = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.block_on(async move { inner.shutdown_background() });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn shutdown_background(mut self) {
        if self.handle.shared().identity.home.is_here() {
            self.end(Some(Instant::now()));
        }
    }

    /// Shuts a runtime down that could not be built completely. Unlike a drop, this may be called
    /// inside async code, where it does not wait.
    pub(crate) fn discard(mut self) {
        let limit = self.handle.shared().config.shutdown_timeout;
        self.shutdown(if context::is_async() { Duration::ZERO } else { limit });
    }

    /// Gives the runtime up in a forked child. Its threads belong to the parent, so they must not
    /// even be detached here, and there is no console to notify.
    fn forget(&mut self) {
        self.registration = None;
        // The threads of the spares stay in the shared state, whose memory is therefore kept: a
        // thread of the parent may have had their lock when the program forked.
        let spares = (!self.threads.is_empty()).then(|| self.handle.shared().clone());
        std::mem::forget((std::mem::take(&mut self.threads), self.sentinel.take(), spares));
    }

    #[track_caller]
    fn shutdown(&mut self, limit: Duration) {
        if self.registration.is_none() {
            return;
        }
        if !self.handle.shared().identity.home.is_here() {
            self.forget();
            return;
        }
        if context::is_async() && !limit.is_zero() {
            // Do not wait here, but do not leave the workers running either.
            self.end(Some(Instant::now()));
            if std::thread::panicking() {
                return;
            }
            // Programs search for the beginning, which is Tokio's message.
            panic!(
                "Cannot drop a runtime in a context where blocking is not allowed: it was dropped inside async code, where \
                 waiting for its workers would block. Call shutdown_background(), or drop it outside"
            );
        }
        // A limit beyond the clock's range means no limit.
        self.end(Instant::now().checked_add(limit));
    }

    fn end(&mut self, deadline: Option<Instant>) {
        let Some(registration) = self.registration.take() else { return };
        let shared = self.handle.shared();
        shared.close();
        // Nothing else has the core: `block_on` borrows the runtime.
        if let Some(core) = shared.workers.shared_core.as_ref().and_then(SharedCore::try_take) {
            // The last polls and the destructors may use the runtime, as on a worker's thread.
            let _entered = context::try_enter(&self.handle);
            Worker::new(shared.clone(), 0, core).run_to_end(deadline);
        }
        let has_passed = || deadline.is_some_and(|deadline| deadline <= Instant::now());
        let workers = shared.wait_for_workers(deadline);
        // For the report, which names the tasks that the limit ends, too.
        let remaining = (workers > 0).then(|| shared.remaining_tasks(REMAINING_NAMED));
        if workers > 0 {
            shared.end_shields();
        }
        let is_watched = self.sentinel.is_some();
        let (mut joiner, mut reader) = (None, None);
        if workers == 0 {
            shared.close_queues();
            // All workers are past their last task. The sentinel leaves first, since it starts
            // threads.
            reader = self.sentinel.take().and_then(|sentinel| sentinel.leave());
            let mut threads = std::mem::take(&mut self.threads);
            threads.extend(shared.spares.take_threads());
            joiner = (!has_passed()).then(|| Joiner::start(shared, join_soon(threads, deadline)));
        }
        shared.blocking.shut_down(Waker::from(Arc::new(DriverWaker(shared.workers.driver.clone()))));
        let (blocking, ending) = loop {
            let left = (shared.blocking.others(), joiner.as_ref().map_or(0, Joiner::left));
            // If a worker is left, the deadline has passed with that worker stuck. Then the
            // shutdown waits for nothing else.
            if left == (0, 0) || workers > 0 || has_passed() {
                break left;
            }
            if shared.workers.driver.is_paused() {
                shared.workers.driver.shut_down();
            }
            let at_most = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            shared.workers.driver.turn_without_workers(at_most);
        };
        if let Some(joiner) = joiner {
            joiner.end();
        }
        if let Some(reader) = reader {
            reader.end(deadline);
        }
        shared.workers.driver.shut_down();
        if let Some(tokio) = shared.compat() {
            tokio.shut_down(deadline);
        }
        drop(registration);
        if let Some(black_box) = shared.recorder.black_box() {
            black_box.shut_down();
        }
        if !is_watched {
            // With a sentinel, another thread logs these, one that may block.
            shared.failures().leave();
            shared.failures().log_rest();
        }
        if workers + blocking + ending > 0 {
            let (tasks, named) = remaining.unwrap_or_default();
            let named = named.join(", ");
            tracing::warn!(
                target: "volt", runtime = %shared.identity.name, workers, tasks, blocking_threads = blocking,
                ending_threads = ending, %named,
                "tasks or threads still run after the shutdown of the runtime"
            );
        }
    }
}

/// Wakes the thread that turns the driver when a thread or a job has ended.
struct DriverWaker(Arc<Driver>);

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let limit = self.handle.shared().config.shutdown_timeout;
        self.shutdown(limit);
    }
}

/// As for [`Handle`].
impl UnwindSafe for Runtime {}

/// As for [`Handle`].
impl RefUnwindSafe for Runtime {}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("name", &self.handle.shared().identity.name).finish_non_exhaustive()
    }
}

impl Observed for Shared {
    fn snapshot(&self) -> volt_telemetry::Snapshot {
        Shared::snapshot(self)
    }

    fn recorder(&self) -> Option<&Arc<Recorder>> {
        Some(&self.recorder)
    }

    fn why(&self, task: &str) -> Option<volt_telemetry::why::Why> {
        Shared::why(self, task)
    }

    fn tasks(&self, query: &volt_telemetry::tasks::Query) -> volt_telemetry::tasks::TaskList {
        Shared::list_tasks(self, query)
    }

    fn dump(self: Arc<Self>, query: &volt_telemetry::dump::Query, limit: &Limit) -> volt_telemetry::dump::Dump {
        Shared::dump(&self, query, limit)
    }

    fn processes(&self, query: &volt_telemetry::processes::Query) -> volt_telemetry::processes::ProcessList {
        Shared::list_processes(self, query)
    }

    fn names(&self) -> Option<&dyn Names> {
        Some(self)
    }
}

impl Names for Shared {
    fn location(&self, number: u16) -> Option<String> {
        of_number(number).map(text::location)
    }

    fn task(&self, id: u64) -> Option<String> {
        self.workers.registry.name_by_id(id)
    }

    fn process(&self, number: u64) -> Option<String> {
        self.readers.processes.describe(number)
    }

    fn incident(&self, number: u64) -> Option<String> {
        self.sentinel.incidents.get(number).map(|incident| {
            let name = incident.task_name.unwrap_or_else(|| format!("task {}", incident.task_id));
            format!("{}: {name}, spawned at {}", incident.cause.name(), incident.spawned_at)
        })
    }
}
