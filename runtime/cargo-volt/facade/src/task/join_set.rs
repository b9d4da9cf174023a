//! A set of tasks, whose builder returns what Tokio's does.

use std::fmt;
use std::future::Future;
use std::io;
use std::task::{Context, Poll};

use volt::runtime::Handle;
use volt::task::{AbortHandle, Id, JoinError, LocalSet};

/// A set of tasks. See `volt::task::JoinSet`.
pub struct JoinSet<T>(volt::task::JoinSet<T>);

impl<T> JoinSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self(volt::task::JoinSet::new())
    }

    /// Returns the number of tasks in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set contains no tasks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: 'static> JoinSet<T> {
    /// Returns a builder for a task of this set.
    pub fn build_task(&mut self) -> Builder<'_, T> {
        Builder(self.0.build_task())
    }

    /// Spawns a task onto the current runtime and adds it to the set.
    #[track_caller]
    pub fn spawn<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.0.spawn(task)
    }

    /// Spawns a task onto the runtime of `handle` and adds it to the set.
    #[track_caller]
    pub fn spawn_on<F>(&mut self, task: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.0.spawn_on(task, handle)
    }

    /// Spawns a task onto the current `LocalSet` or `LocalRuntime` and adds it to the set.
    #[track_caller]
    pub fn spawn_local<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.0.spawn_local(task)
    }

    /// Spawns a task onto `local_set` and adds it to the set.
    #[track_caller]
    pub fn spawn_local_on<F>(&mut self, task: F, local_set: &LocalSet) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.0.spawn_local_on(task, local_set)
    }

    /// Runs a closure on a thread for blocking work and adds it to the set.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.0.spawn_blocking(f)
    }

    /// Runs a closure on a thread for blocking work of the runtime of `handle`, and adds it to the
    /// set.
    #[track_caller]
    pub fn spawn_blocking_on<F>(&mut self, f: F, handle: &Handle) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.0.spawn_blocking_on(f, handle)
    }

    /// Waits for a task to end, and removes it from the set.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.0.join_next().await
    }

    /// As [`join_next`](Self::join_next), and also returns the id of the task.
    pub async fn join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        self.0.join_next_with_id().await
    }

    /// Removes a task that has completed, if there is one. May miss a task that has just completed
    /// on another thread; a later call returns it.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.0.try_join_next()
    }

    /// As [`try_join_next`](Self::try_join_next), and also returns the id of the task.
    pub fn try_join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        self.0.try_join_next_with_id()
    }

    /// Polls for a task that has completed.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        self.0.poll_join_next(cx)
    }

    /// As [`poll_join_next`](Self::poll_join_next), and also returns the id of the task.
    pub fn poll_join_next_with_id(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(Id, T), JoinError>>> {
        self.0.poll_join_next_with_id(cx)
    }

    /// Aborts all tasks and waits until they have ended.
    pub async fn shutdown(&mut self) {
        self.0.shutdown().await;
    }

    /// Aborts all tasks. They stay in the set until they are joined.
    pub fn abort_all(&mut self) {
        self.0.abort_all();
    }

    /// Removes all tasks from the set without aborting them.
    pub fn detach_all(&mut self) {
        self.0.detach_all();
    }

    /// Waits for all tasks and returns their outputs.
    ///
    /// # Panics
    /// Panics if a task panicked or was cancelled.
    pub async fn join_all(self) -> Vec<T> {
        self.0.join_all().await
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = F>>(iter: I) -> Self {
        Self(volt::task::JoinSet::from_iter(iter))
    }
}

impl<T, F> Extend<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    #[track_caller]
    fn extend<I: IntoIterator<Item = F>>(&mut self, iter: I) {
        self.0.extend(iter);
    }
}

/// Configures a task before spawning it into a set. See `volt::task::join_set::Builder`.
///
/// No method fails. If no thread can be started for a blocking closure, the set returns the error.
#[must_use = "a builder does nothing until spawn() is called"]
pub struct Builder<'a, T>(volt::task::join_set::Builder<'a, T>);

impl<'a, T: 'static> Builder<'a, T> {
    /// Sets the name of the task.
    pub fn name(self, name: &'a str) -> Self {
        Self(self.0.name(name))
    }

    /// Spawns the task onto the current runtime.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        Ok(self.0.spawn(future))
    }

    /// Spawns the task onto the runtime of `handle`.
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        Ok(self.0.spawn_on(future, handle))
    }

    /// Runs a closure on a thread for blocking work of the current runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(self, f: F) -> io::Result<AbortHandle>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        Ok(self.0.spawn_blocking(f))
    }

    /// Runs a closure on a thread for blocking work of the runtime of `handle`.
    #[track_caller]
    pub fn spawn_blocking_on<F>(self, f: F, handle: &Handle) -> io::Result<AbortHandle>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        Ok(self.0.spawn_blocking_on(f, handle))
    }

    /// Spawns the task onto the current `LocalSet` or `LocalRuntime`.
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + 'static,
    {
        Ok(self.0.spawn_local(future))
    }

    /// Spawns the task onto `local_set`.
    #[track_caller]
    pub fn spawn_local_on<F>(self, future: F, local_set: &LocalSet) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + 'static,
    {
        Ok(self.0.spawn_local_on(future, local_set))
    }
}

impl<T> fmt::Debug for Builder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
