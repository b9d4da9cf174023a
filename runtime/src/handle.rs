//! A runtime's handle: spawn into it and look at it, from any thread.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, Weak};

use volt_telemetry::Snapshot;
use volt_telemetry::recording::event::Event;

use crate::blocking::pool::{BlockingSchedule, Job};
use crate::context::{self, EnterGuard};
use crate::scheduler::processes::ProcessSource;
use crate::scheduler::shared::Shared;
use crate::task::cell::new_task;
use crate::task::id::Id;
use crate::task::join::JoinHandle;
use crate::task::spawn::TrySpawnError;
use crate::task::trace::{Kind, extra};

/// A handle to a runtime; clones are cheap. It does not keep the runtime running.
///
/// In a child forked from the runtime's process it is of no use, since `fork` copies no threads: spawns and `block_on` panic there, and say
/// so. Build a new runtime after the fork.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let handle = runtime.handle().clone();
/// let answer = std::thread::spawn(move || handle.block_on(handle.spawn(async { 42 })).unwrap());
/// assert_eq!(answer.join().unwrap(), 42);
/// ```
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The current runtime's handle.
    ///
    /// # Panics
    /// Outside a runtime; see [`try_current`](Self::try_current).
    #[track_caller]
    pub fn current() -> Handle {
        Handle::clone(&context::handle())
    }

    /// The current runtime's handle, or `None` outside a runtime.
    pub fn try_current() -> Option<Handle> {
        context::try_handle().as_deref().cloned()
    }

    /// Makes this runtime current on this thread while the guard lives, so that `volt::spawn`, timers and sockets use it.
    pub fn enter(&self) -> EnterGuard<'_> {
        context::enter(self)
    }

    /// Starts a task; see [`volt::spawn`](crate::spawn).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_at(future, None, Location::caller())
    }

    /// Starts a task if the runtime takes one more; see [`volt::task::try_spawn`](crate::task::try_spawn).
    ///
    /// # Errors
    /// As many tasks as [`Builder::global_queue_capacity`](crate::Builder::global_queue_capacity) allows wait already, or the runtime is
    /// shut down; the error holds the future.
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_at(future, None, Location::caller())
    }

    #[track_caller]
    pub(crate) fn try_spawn_at<F>(
        &self,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.shared.home.expect_here();
        self.shared.try_spawn(future, name, location)
    }

    #[track_caller]
    pub(crate) fn spawn_at<F>(
        &self,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.shared.home.expect_here();
        self.shared.spawn(future, name, location)
    }

    /// Runs a closure that blocks on a thread that may; see [`volt::task::spawn_blocking`](crate::task::spawn_blocking).
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_blocking_at(f, Location::caller())
    }

    #[track_caller]
    pub(crate) fn spawn_blocking_at<F, R>(&self, f: F, location: &'static Location<'static>) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.submit_blocking(f, location, false)
    }

    /// As [`spawn_blocking`](Self::spawn_blocking), of what is begun even if the runtime is shut down before.
    #[track_caller]
    pub(crate) fn spawn_mandatory_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.submit_blocking(f, Location::caller(), true)
    }

    #[track_caller]
    fn submit_blocking<F, R>(&self, f: F, location: &'static Location<'static>, is_mandatory: bool) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.shared.home.expect_here();
        let handle = self.clone();
        let job = Job::new(move || {
            let _entered = handle.enter();
            f()
        });
        let id = Id::next();
        let extra = extra(id, None, location, Kind::Blocking);
        let (notified, join) = new_task(job, BlockingSchedule, id, location, extra);
        self.shared.blocking.submit(notified, is_mandatory);
        join
    }

    /// Runs a future on this thread, and waits for it. Tasks that it spawns run on the workers, and its timers and sockets are served by them.
    ///
    /// # Panics
    /// Inside a task or another `block_on`, where it would block a worker; in a child forked from the runtime's process; and if the future
    /// panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        crate::runtime::block_on(self, future)
    }

    /// Has `source` asked for its processes whenever somebody looks at the runtime, until it is dropped. A
    /// [`System`](crate::process::System) does so by itself.
    pub fn show_processes(&self, source: Weak<dyn ProcessSource>) {
        self.shared.processes.add(source);
    }

    /// Notes down for the flight recorder what happens now on this thread; costs one load while nothing is recorded.
    #[inline]
    pub(crate) fn note(&self, event: impl FnOnce() -> Event) {
        self.shared.note_now(event);
    }

    /// What the runtime looks like now. From any thread, at any time, whatever its workers do.
    ///
    /// # Panics
    /// In a child forked from the runtime's process.
    #[track_caller]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.home.expect_here();
        self.shared.snapshot()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("runtime", &self.shared.name).finish_non_exhaustive()
    }
}
