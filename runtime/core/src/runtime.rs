//! A runtime: what owns the workers, and how it ends.
//!
//! Shutdown, in this order: (1) nothing new is taken in, every later spawn is cancelled at once;
//! (2) every task is cancelled, so that a worker drops its future and its joiner is told; (3)
//! workers end when no task is left (the protocol stands in `scheduler/shared`); (4) blocking jobs
//! that have not begun are cancelled, running ones waited for, and so are the workers' threads,
//! whose destructors may still run; meanwhile whoever ends the runtime turns the driver, so that
//! timers and sockets of jobs and destructors go on; (5) sockets and timers that outlive the
//! runtime get errors. All within one time limit; what is left then is reported by a `tracing`
//! event and goes on without an owner. A Tokio runtime beside it (`compat`) ends after all of them.
//!
//! Threads are joined by a thread of its own (`Joiner`), since the standard library's join has no
//! limit. Rejected: `pthread_timedjoin_np`, which not every system has; to ask `is_finished`, which
//! says yes before a thread's destructors have run.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::JoinHandle as JoinThread;
use std::time::{Duration, Instant};

use crate::context;
use crate::driver::turn::Driver;
use crate::handle::Handle;
use crate::observe::registry::{Observed, Registration};
use crate::recorder::drain::Names;
use crate::recorder::lanes::Recorder;
use crate::scheduler::shared::Shared;
use crate::stats::locations::of_number;
use crate::task::join::JoinHandle;
use crate::task::refused::TrySpawnError;

/// Tasks named in the report of what a shutdown left behind.
const LEFT_OVERS_NAMED: usize = 8;

/// A runtime. Dropping it ends it: see [`shutdown_timeout`](Self::shutdown_timeout).
///
/// A child that the process forks has a copy of it without threads: see [`Handle`]. Dropping the
/// copy ends nothing, waits for nobody and leaves the parent's alone.
///
/// ```
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
    /// Shown to consoles while it lives; given up at the end of the shutdown.
    registration: Option<Registration>,
    /// The workers' threads, joined at the end.
    threads: Vec<JoinThread<()>>,
    sentinel: Option<JoinThread<()>>,
}

impl Runtime {
    pub(crate) fn of(handle: Handle, registration: Registration) -> Self {
        Self { handle, registration: Some(registration), threads: Vec::new(), sentinel: None }
    }

    pub(crate) fn add_sentinel(&mut self, thread: JoinThread<()>) {
        self.sentinel = Some(thread);
    }

    pub(crate) fn add_thread(&mut self, thread: JoinThread<()>) {
        self.threads.push(thread);
    }

    /// Its handle.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Starts a task; see `volt::spawn`.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Starts a task if the runtime takes one more; see `volt::task::try_spawn`.
    ///
    /// # Errors
    /// As [`Handle::try_spawn`].
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.try_spawn(future)
    }

    /// Runs a closure that blocks on a thread that may; see `volt::task::spawn_blocking`.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.handle.spawn_blocking(f)
    }

    /// Runs a future on this thread, and waits for it; see [`Handle::block_on`].
    ///
    /// # Panics
    /// Inside a task or another `block_on`; and if the future panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Makes this runtime current on this thread while the guard lives; see [`Handle::enter`].
    pub fn enter(&self) -> context::EnterGuard<'_> {
        self.handle.enter()
    }

    /// Ends the runtime: cancels all tasks, drops their futures, waits for what runs, `limit` at
    /// most. What is left then (a task that never returns from its poll, a blocking job that
    /// goes on, a destructor of a worker's thread) is named in a `tracing` event, and the
    /// threads it runs on are left to it. A blocking job of the runtime's own that calls this is
    /// not waited for.
    ///
    /// Timers and sockets work until the last blocking job has ended or `limit` has passed, and
    /// fail from then on. On a test clock that is paused they fail before, since no timer would
    /// ever end the wait.
    ///
    /// Dropping the runtime does the same with the limit of
    /// [`Builder::shutdown_timeout`](crate::builder::Builder::shutdown_timeout).
    ///
    /// # Panics
    /// Inside a task or a `block_on`, where waiting would block a worker: use
    /// [`shutdown_background`](Self::shutdown_background).
    #[track_caller]
    pub fn shutdown_timeout(mut self, limit: Duration) {
        self.shutdown(limit);
    }

    /// As [`shutdown_timeout`](Self::shutdown_timeout) without waiting: what runs ends by itself,
    /// without an owner.
    pub fn shutdown_background(mut self) {
        if self.handle.shared().home.is_here() {
            self.end(Some(Instant::now()));
        }
    }

    /// In a forked child: the threads are the parent's, and not even to be detached here; nor is
    /// there anybody to be told.
    fn forget(&mut self) {
        self.registration = None;
        let spares = self.handle.shared().spares.take_threads();
        std::mem::forget((std::mem::take(&mut self.threads), self.sentinel.take(), spares));
    }

    #[track_caller]
    fn shutdown(&mut self, limit: Duration) {
        if self.registration.is_none() {
            return;
        }
        if !self.handle.shared().home.is_here() {
            self.forget();
            return;
        }
        if context::is_async() {
            // Not to wait here, and not to leave the workers behind either.
            self.end(Some(Instant::now()));
            if std::thread::panicking() {
                return;
            }
            panic!(
                "a runtime was dropped inside async code, where waiting for its workers would block: call \
                 shutdown_background(), or drop it outside"
            );
        }
        // A limit beyond the clock's range is none.
        self.end(Instant::now().checked_add(limit));
    }

    fn end(&mut self, deadline: Option<Instant>) {
        let Some(registration) = self.registration.take() else { return };
        let shared = self.handle.shared();
        shared.close();
        let has_passed = || deadline.is_some_and(|deadline| deadline <= Instant::now());
        let workers = shared.wait_for_workers(deadline);
        let mut joiner = None;
        if workers == 0 {
            shared.close_queues();
            // All are past their last task. The sentinel first, since it starts threads.
            let threads = self.sentinel.take().into_iter().chain(self.threads.drain(..));
            joiner = (!has_passed()).then(|| Joiner::start(shared, threads.collect()));
        }
        shared.blocking.shut_down(Waker::from(Arc::new(DriverWaker(shared.driver.clone()))));
        let (blocking, ending) = loop {
            let left = (shared.blocking.others(), joiner.as_ref().map_or(0, Joiner::left));
            // Only a worker that is stuck is left by the deadline, and then nobody else is waited
            // for.
            if left == (0, 0) || workers > 0 || has_passed() {
                break left;
            }
            if shared.driver.is_paused() {
                shared.driver.shut_down();
            }
            let at_most = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            shared.driver.turn_without_workers(at_most);
        };
        if let Some(joiner) = joiner {
            joiner.end();
        }
        shared.driver.shut_down();
        if let Some(tokio) = shared.compat() {
            tokio.shut_down(deadline);
        }
        drop(registration);
        if shared.config.sentinel_interval.is_none() {
            // With a sentinel it is told by a thread that may wait for the log.
            shared.troubles.tell_rest();
        }
        if workers + blocking + ending > 0 {
            let (tasks, named) = shared.left_overs(LEFT_OVERS_NAMED);
            let named = named.join(", ");
            tracing::warn!(
                target: "volt", runtime = %shared.name, workers, tasks, blocking_threads = blocking,
                ending_threads = ending, %named,
                "the runtime was shut down and left something running"
            );
        }
    }
}

/// Wakes whoever turns the driver: a thread or a job has ended.
struct DriverWaker(Arc<Driver>);

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Joins the threads of a runtime that ends, each of which may still be in a destructor of the
/// user's.
struct Joiner {
    /// Threads that have not ended.
    left: Arc<AtomicUsize>,
    /// `None` = it could not be started, and nobody waits for them.
    thread: Option<JoinThread<()>>,
}

impl Joiner {
    /// Joins `threads`, and then the spares.
    fn start(shared: &Arc<Shared>, threads: Vec<JoinThread<()>>) -> Self {
        let left = Arc::new(AtomicUsize::new(threads.len()));
        let joins = {
            let (left, shared) = (left.clone(), shared.clone());
            move || {
                let mut spares = Vec::new();
                for (index, thread) in threads.into_iter().enumerate() {
                    // None panics: what is the user's is contained where it is called.
                    let _ended = thread.join();
                    if index == 0 {
                        // The sentinel, which starts them, has ended. Counted before it is not any
                        // more.
                        spares = shared.spares.take_threads();
                        // ORDERING: Relaxed, here and below; a count, whose last value is read
                        // after an unpark or a turn's end.
                        left.fetch_add(spares.len(), Ordering::Relaxed);
                    }
                    one_fewer(&left, &shared);
                }
                for spare in spares {
                    let _ended = spare.join();
                    one_fewer(&left, &shared);
                }
            }
        };
        let name = format!("{}-joiner", shared.config.thread_name);
        let spawned = std::thread::Builder::new().name(name).spawn(joins);
        if let Err(error) = &spawned {
            // ORDERING: Relaxed; nobody else has it.
            left.store(0, Ordering::Relaxed);
            // This is the thread that shuts the runtime down, and no worker's: it may wait for a
            // log.
            tracing::warn!(
                target: "volt", runtime = %shared.name, %error,
                "no thread could be started to join the runtime's threads: the shutdown does not wait for their end"
            );
        }
        Self { left, thread: spawned.ok() }
    }

    fn left(&self) -> usize {
        // ORDERING: Acquire; pairs with the Release in `one_fewer`: what the threads did is done.
        self.left.load(Ordering::Acquire)
    }

    /// Ends with the last thread; is left alone while there are others.
    fn end(self) {
        if self.left() == 0 {
            self.thread.into_iter().for_each(|thread| _ = thread.join());
        }
    }
}

fn one_fewer(left: &AtomicUsize, shared: &Shared) {
    // ORDERING: Release; pairs with the Acquire in `Joiner::left`.
    left.fetch_sub(1, Ordering::Release);
    shared.driver.unpark();
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let limit = self.handle.shared().config.shutdown_timeout;
        self.shutdown(limit);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("name", &self.handle.shared().name).finish_non_exhaustive()
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

    fn processes(&self, query: &volt_telemetry::processes::Query) -> volt_telemetry::processes::ProcessList {
        Shared::list_processes(self, query)
    }

    fn names(&self) -> Option<&dyn Names> {
        Some(self)
    }
}

impl Names for Shared {
    fn location(&self, number: u16) -> Option<String> {
        of_number(number).map(ToString::to_string)
    }

    fn task(&self, id: u64) -> Option<String> {
        self.registry.name_by_id(id)
    }

    fn process(&self, number: u64) -> Option<String> {
        self.processes.describe(number)
    }

    fn incident(&self, number: u64) -> Option<String> {
        self.incidents.get(number).map(|incident| {
            let name = incident.task_name.unwrap_or_else(|| format!("task {}", incident.task_id));
            format!("{}: {name}, spawned at {}", incident.cause.name(), incident.spawned_at)
        })
    }
}
