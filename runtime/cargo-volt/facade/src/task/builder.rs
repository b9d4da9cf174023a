//! Spawns tasks with a name. The methods return what Tokio's do, so that a spawn can be followed by
//! a question mark.

use std::future::Future;
use std::io;

use volt::runtime::Handle;
use volt::task::{JoinHandle, LocalSet};

/// Configures a task before spawning it. See `volt::task::Builder`.
///
/// No method fails. If no thread can be started for a blocking closure, its handle returns the
/// error.
#[derive(Debug, Default)]
pub struct Builder<'a>(volt::task::Builder<'a>);

impl<'a> Builder<'a> {
    /// Creates a builder for a task without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the task.
    pub fn name(&self, name: &'a str) -> Self {
        Self(self.0.name(name))
    }

    /// Spawns the task onto the current runtime.
    #[track_caller]
    pub fn spawn<Fut>(self, future: Fut) -> io::Result<JoinHandle<Fut::Output>>
    where
        Fut: Future + Send + 'static,
        Fut::Output: Send + 'static,
    {
        Ok(self.0.spawn(future))
    }

    /// Spawns the task onto the runtime of `handle`.
    #[track_caller]
    pub fn spawn_on<Fut>(self, future: Fut, handle: &Handle) -> io::Result<JoinHandle<Fut::Output>>
    where
        Fut: Future + Send + 'static,
        Fut::Output: Send + 'static,
    {
        Ok(self.0.spawn_on(future, handle))
    }

    /// Spawns the task onto the current `LocalSet` or `LocalRuntime`.
    #[track_caller]
    pub fn spawn_local<Fut>(self, future: Fut) -> io::Result<JoinHandle<Fut::Output>>
    where
        Fut: Future + 'static,
        Fut::Output: 'static,
    {
        Ok(self.0.spawn_local(future))
    }

    /// Spawns the task onto `local_set`.
    #[track_caller]
    pub fn spawn_local_on<Fut>(self, future: Fut, local_set: &LocalSet) -> io::Result<JoinHandle<Fut::Output>>
    where
        Fut: Future + 'static,
        Fut::Output: 'static,
    {
        Ok(self.0.spawn_local_on(future, local_set))
    }

    /// Runs a closure on a thread for blocking work of the current runtime.
    #[track_caller]
    pub fn spawn_blocking<Function, Output>(self, function: Function) -> io::Result<JoinHandle<Output>>
    where
        Function: FnOnce() -> Output + Send + 'static,
        Output: Send + 'static,
    {
        Ok(self.0.spawn_blocking(function))
    }

    /// Runs a closure on a thread for blocking work of the runtime of `handle`.
    #[track_caller]
    pub fn spawn_blocking_on<Function, Output>(
        self,
        function: Function,
        handle: &Handle,
    ) -> io::Result<JoinHandle<Output>>
    where
        Function: FnOnce() -> Output + Send + 'static,
        Output: Send + 'static,
    {
        Ok(self.0.spawn_blocking_on(function, handle))
    }
}
