//! Functions that spawn tasks onto the current runtime, in addition to `volt_core::spawn`.

use std::future::Future;
use std::panic::Location;

use volt_core::Handle;
use volt_core::context;
use volt_core::task::JoinHandle;
use volt_core::task::TrySpawnError;

use super::local_set::{LocalSet, spawn_local_at};

/// Spawns a task onto the current runtime if the runtime has room for it, and returns the future
/// otherwise.
///
/// Use this for work that arrives from outside faster than the program can process it, and that is
/// better rejected than queued.
///
/// The runtime is full when
/// [`Builder::global_queue_capacity`](crate::Builder::global_queue_capacity) tasks (65,536 by
/// default) wait for a worker to take them: in the global queue, or where
/// [`Builder::placement`](crate::Builder::placement) puts them. Tasks that run, that await
/// something, or that are in a worker's local queue do not count. Concurrent calls of `try_spawn`
/// never exceed the limit together. Plain spawns, wake-ups and overflowing local queues can exceed
/// it.
///
/// # Errors
/// Returns an error if the runtime is full or shut down. [`TrySpawnError::into_inner`] returns the
/// future.
///
/// # Panics
/// Panics if called outside a runtime.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).global_queue_capacity(1000).build().unwrap();
/// runtime.block_on(async {
///     match volt::task::try_spawn(async { "served" }) {
///         Ok(task) => assert_eq!(task.await.unwrap(), "served"),
///         Err(error) if error.is_full() => println!("busy: {error}"),
///         Err(error) => drop(error.into_inner()),
///     }
/// });
/// ```
#[track_caller]
pub fn try_spawn<F>(future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    context::handle().try_spawn_at(future, None, Location::caller())
}

/// Runs a blocking closure on a thread where blocking is allowed.
///
/// The runtime keeps a separate pool of threads for such closures, so they do not block a worker.
/// It starts threads when they are needed, up to
/// [`Builder::max_blocking_threads`](crate::Builder::max_blocking_threads) (512 by default).
/// Further closures wait in a queue. If the closures compute for long, limit how many run at a
/// time, for example with a [`Semaphore`](crate::sync::Semaphore). For a loop that runs as long as
/// the program, use [`std::thread::spawn`].
///
/// A closure that has started cannot be aborted. Aborting its handle, or shutting the runtime down,
/// cancels a closure that has not started. The shutdown waits for the others, up to its time limit.
///
/// If the pool has no thread and none can be started, awaiting the handle returns a
/// [`JoinError`](super::JoinError) for which `is_cancelled` is true.
///
/// # Panics
/// Panics if called outside a runtime.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let root = runtime.block_on(async { volt::task::spawn_blocking(|| std::fs::metadata("/")).await.unwrap() });
/// assert!(root.unwrap().is_dir());
/// ```
#[track_caller]
pub fn spawn_blocking<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    context::handle().spawn_blocking_at(f, None, Location::caller())
}

/// Configures a task before spawning it: its name and its spawn location.
///
/// `volt-console`, log messages and incident reports show the name.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// runtime.block_on(async {
///     volt::task::Builder::new().name("price feed").spawn(async { /* … */ }).await.unwrap();
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a builder does nothing until spawn() is called"]
pub struct Builder<'a> {
    name: Option<&'a str>,
    location: Option<&'static Location<'static>>,
}

impl<'a> Builder<'a> {
    /// Creates a builder for a task without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the task. Names longer than 64 bytes are truncated.
    pub fn name(self, name: &'a str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Sets the location that reports show as the task's origin.
    ///
    /// The default is the line that calls `spawn`. A library that spawns tasks on behalf of its
    /// callers can set the caller's line instead.
    pub fn location(self, location: &'static Location<'static>) -> Self {
        Self { location: Some(location), ..self }
    }

    /// Spawns the task onto the current runtime; see [`spawn`](super::spawn()).
    ///
    /// # Panics
    /// Panics if called outside a runtime.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(future, &context::handle())
    }

    /// Spawns the task onto the runtime of `handle`; see [`spawn`](super::spawn()).
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        handle.spawn_at(future, self.name, self.location.unwrap_or(Location::caller()))
    }

    /// Spawns the task onto the current [`LocalRuntime`](crate::runtime::LocalRuntime) or
    /// [`LocalSet`]; see [`spawn_local`](super::spawn_local).
    ///
    /// # Panics
    /// Same as [`spawn_local`](super::spawn_local).
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        spawn_local_at(future, self.name, self.location.unwrap_or(Location::caller()))
    }

    /// Spawns the task onto `local_set`; see [`LocalSet::spawn_local`].
    #[track_caller]
    pub fn spawn_local_on<F>(self, future: F, local_set: &LocalSet) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        local_set.spawn_local_at(future, self.name, self.location.unwrap_or(Location::caller()))
    }

    /// Runs a blocking closure on the blocking pool of the current runtime; see [`spawn_blocking`].
    ///
    /// # Panics
    /// Panics if called outside a runtime.
    #[track_caller]
    pub fn spawn_blocking<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_blocking_on(f, &context::handle())
    }

    /// Runs a blocking closure on the blocking pool of `handle`'s runtime; see [`spawn_blocking`].
    #[track_caller]
    pub fn spawn_blocking_on<F, R>(self, f: F, handle: &Handle) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        handle.spawn_blocking_at(f, self.name, self.location.unwrap_or(Location::caller()))
    }

    /// Spawns the task onto the current runtime if it has room; see [`try_spawn`].
    ///
    /// # Errors
    /// Same as [`try_spawn`].
    ///
    /// # Panics
    /// Panics if called outside a runtime.
    #[track_caller]
    pub fn try_spawn<F>(self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_on(future, &context::handle())
    }

    /// Spawns the task onto the runtime of `handle` if it has room; see [`try_spawn`].
    ///
    /// # Errors
    /// Same as [`try_spawn`].
    #[track_caller]
    pub fn try_spawn_on<F>(self, future: F, handle: &Handle) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        handle.try_spawn_at(future, self.name, self.location.unwrap_or(Location::caller()))
    }
}
