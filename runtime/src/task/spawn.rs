//! Starting tasks in the current runtime.

use std::future::Future;
use std::panic::Location;

use volt_core::context;
use volt_core::handle::Handle;
use volt_core::task::join::JoinHandle;
use volt_core::task::refused::TrySpawnError;

/// Starts a task in the current runtime. It runs whether or not the handle is awaited.
///
/// # Panics
/// Outside a runtime. With a runtime that is shutting down the task is cancelled at once, and the
/// handle says so.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// runtime.block_on(async {
///     let tasks: Vec<_> = (0..3).map(|n| volt::spawn(async move { n * n })).collect();
///     let mut sum = 0;
///     for task in tasks {
///         sum += task.await.unwrap();
///     }
///     assert_eq!(sum, 5);
/// });
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    context::handle().spawn_at(future, None, Location::caller())
}

/// Starts a task in the current runtime if it takes one more, and hands the future back if not: for
/// what comes from outside faster than it can be served, and had better be refused than piled up.
///
/// Full is a runtime when as many tasks as
/// [`Builder::global_queue_capacity`](crate::Builder::global_queue_capacity) allows wait to be
/// taken in by a worker; what runs, waits for something, or is in a worker's own ring does not
/// count. However many call this at the same moment, they do not go beyond that together; plain
/// spawns, wake-ups and the overflow of a ring may.
///
/// # Errors
/// The runtime is full, or shut down; [`TrySpawnError::into_inner`] gives the future back.
///
/// # Panics
/// Outside a runtime.
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

/// Runs a closure that blocks on a thread that may. A job that has begun cannot be aborted.
///
/// # Panics
/// Outside a runtime.
///
/// ```
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let hosts = runtime.block_on(async { volt::task::spawn_blocking(|| std::fs::metadata("/")).await.unwrap() });
/// assert!(hosts.unwrap().is_dir());
/// ```
#[track_caller]
pub fn spawn_blocking<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    context::handle().spawn_blocking_at(f, Location::caller())
}

/// Starts tasks with a name, which console, logs and incident reports show.
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
    /// A task without a name, so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the task; cut after 64 bytes.
    pub fn name(self, name: &'a str) -> Self {
        Self { name: Some(name), ..self }
    }

    /// Says where the task comes from, instead of where `spawn` is called: for libraries that start
    /// tasks for their callers, so that reports name the caller's line.
    pub fn location(self, location: &'static Location<'static>) -> Self {
        Self { location: Some(location), ..self }
    }

    /// As [`spawn`].
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_on(future, &context::handle())
    }

    /// As [`spawn`], in the runtime of `handle`.
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        handle.spawn_at(future, self.name, self.location.unwrap_or(Location::caller()))
    }

    /// As [`try_spawn`].
    ///
    /// # Errors
    /// As [`try_spawn`].
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn try_spawn<F>(self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_on(future, &context::handle())
    }

    /// As [`try_spawn`], in the runtime of `handle`.
    ///
    /// # Errors
    /// As [`try_spawn`].
    #[track_caller]
    pub fn try_spawn_on<F>(self, future: F, handle: &Handle) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        handle.try_spawn_at(future, self.name, self.location.unwrap_or(Location::caller()))
    }
}
