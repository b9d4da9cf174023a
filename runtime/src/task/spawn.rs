//! Starting tasks in the current runtime.

use std::future::Future;
use std::panic::Location;

use super::join::JoinHandle;
use crate::context;
use crate::handle::Handle;

/// Starts a task in the current runtime. It runs whether or not the handle is awaited.
///
/// # Panics
/// Outside a runtime. With a runtime that is shutting down the task is cancelled at once, and the handle says so.
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

    /// Says where the task comes from, instead of where `spawn` is called: for libraries that start tasks for their callers, so that
    /// reports name the caller's line.
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
}
