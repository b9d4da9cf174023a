//! The handle of a runtime: spawns tasks and takes snapshots, from any thread.
//!
//! The methods that describe the runtime are in `about`, dumps of its tasks in `dump`, and its
//! metrics under Tokio's names in `metrics`. Those that affect the calling thread (`enter`,
//! `block_on`) are in `context/here`.

pub mod metrics;

mod about;
pub(crate) mod dump;

use std::fmt;
use std::future::Future;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};

use volt_telemetry::Snapshot;
use volt_telemetry::recording::event::Event;

use crate::config::identity::ThreadNumber;
use crate::scheduler::readers::processes::ProcessSource;
use crate::scheduler::shared::Shared;
use crate::task::join::JoinHandle;
use crate::task::refused::TrySpawnError;

/// A handle to a runtime, which spawns tasks and takes snapshots from any thread.
///
/// [`Runtime::handle`](crate::runtime::Runtime::handle) and [`Handle::current`] return it. Clones
/// are cheap. A handle does not keep the runtime running: once the runtime is shut down, a task
/// that is spawned through the handle is cancelled.
///
/// `fork` copies no threads, so a handle cannot be used in a child process that was forked from the
/// runtime's program: `spawn` and `block_on` panic there with a message that explains it. Build a
/// new runtime after the fork.
///
/// ```
/// # use volt_core as volt;
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

    /// For the crate `volt`: the data that the workers of this runtime share.
    #[doc(hidden)]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Spawns a task onto the runtime; see [`volt::spawn`](crate::spawn()). May be called on any
    /// thread.
    ///
    /// # Panics
    /// Panics in a child process that was forked from the runtime's program.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let handle = runtime.handle().clone();
    /// let thread = std::thread::spawn(move || handle.spawn(async { 6 * 7 }));
    /// let task = thread.join().unwrap();
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_at(future, None, Location::caller())
    }

    /// Spawns a task unless too many tasks are waiting; see `volt::task::try_spawn`.
    ///
    /// # Errors
    /// Returns the future in the error if
    /// [`Builder::global_queue_capacity`](crate::builder::Builder::global_queue_capacity) tasks are
    /// waiting already, or if the runtime is shut down.
    ///
    /// # Panics
    /// Panics in a child process that was forked from the runtime's program.
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_at(future, None, Location::caller())
    }

    /// For the crate `volt`: [`try_spawn`](Self::try_spawn) with a name and a spawn location.
    ///
    /// # Errors
    /// Same as [`try_spawn`](Self::try_spawn).
    #[doc(hidden)]
    #[track_caller]
    pub fn try_spawn_at<F>(
        &self,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.shared.identity.home.expect_here();
        self.shared.try_spawn(future, name, location)
    }

    /// For the crate `volt`: [`spawn`](Self::spawn) with a name and a spawn location.
    #[doc(hidden)]
    #[track_caller]
    pub fn spawn_at<F>(
        &self,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.shared.identity.home.expect_here();
        self.shared.spawn(future, name, location)
    }

    /// For `LocalRuntime` and the crate `volt`: spawns a task whose future need not be `Send`.
    ///
    /// # Panics
    /// Panics if this is not the handle of a `LocalRuntime` that was built on this thread.
    #[doc(hidden)]
    #[track_caller]
    pub fn spawn_local_at<F>(
        &self,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.shared.identity.home.expect_here();
        // Code outside Volt may search the message for its beginning, which is the same in Tokio.
        assert!(
            self.shared.config.local_to == Some(ThreadNumber::here()),
            "Local tasks can only be spawned on a LocalRuntime from the thread the runtime was created on: send that \
             thread a message instead"
        );
        // SAFETY: as just checked, this is a `LocalRuntime` of this thread.
        unsafe { self.shared.spawn_of_thread(future, name, location) }
    }

    /// Includes the processes of `source` in snapshots and lists of this runtime, until `source` is
    /// dropped. A process system of the crate `volt-process` calls this itself.
    pub fn show_processes(&self, source: Weak<dyn ProcessSource>) {
        self.shared.readers.processes.add(source);
    }

    /// Records `event` with the current time if the flight recorder is on. Otherwise it costs one
    /// load, and the closure is not called.
    ///
    /// For frameworks that report processes with [`show_processes`](Self::show_processes): their
    /// starts, exits, restarts and lost messages. The runtime records other kinds of events itself;
    /// such an event would be recorded twice.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::telemetry::recording::event::Event;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.handle().record(|| Event::ProcessStart { process: 1 << 32, parent: 0 });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[inline]
    pub fn record(&self, event: impl FnOnce() -> Event) {
        self.shared.note_now(event);
    }

    /// Returns a snapshot of the runtime: its counters, queues, workers and findings. May be called
    /// from any thread at any time, even if the workers are stuck.
    ///
    /// # Panics
    /// Panics in a child process that was forked from the runtime's program.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(2).build()?;
    /// let snapshot = runtime.handle().snapshot();
    /// assert_eq!(snapshot.workers.iter().filter(|worker| !worker.is_spare).count(), 2);
    /// assert_eq!(snapshot.tasks.alive, 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn snapshot(&self) -> Snapshot {
        self.shared.identity.home.expect_here();
        self.shared.snapshot()
    }
}

/// A panic in user code leaves no part of the shared state half written: user code runs outside its
/// locks, and its panics are caught.
impl UnwindSafe for Handle {}

/// As for `UnwindSafe`.
impl RefUnwindSafe for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("runtime", &self.shared.identity.name).finish_non_exhaustive()
    }
}
