//! The owner of a runtime of one thread, whose futures need not be `Send`.

use std::future::Future;
use std::time::Duration;

use volt::runtime::{EnterGuard, Handle, RuntimeMetrics};
use volt::task::JoinHandle;

/// A runtime that stays on one thread. See `volt::runtime::LocalRuntime`.
#[derive(Debug)]
pub struct LocalRuntime(volt::runtime::LocalRuntime);

impl LocalRuntime {
    pub(super) fn of(runtime: volt::runtime::LocalRuntime) -> Self {
        Self(runtime)
    }

    /// Returns a handle to the runtime.
    pub fn handle(&self) -> &Handle {
        self.0.handle()
    }

    /// Spawns a task whose future need not be `Send`.
    #[track_caller]
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.0.spawn_local(future)
    }

    /// Runs a closure on a thread for blocking work.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, func: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.0.spawn_blocking(func)
    }

    /// Runs a future to its end on this thread, and meanwhile the tasks.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    /// Makes the runtime current on this thread.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.0.enter()
    }

    /// Returns the runtime's counters.
    pub fn metrics(&self) -> RuntimeMetrics {
        self.0.metrics()
    }

    /// Shuts the runtime down, and waits at most this long for what still runs.
    #[track_caller]
    pub fn shutdown_timeout(self, duration: Duration) {
        self.0.shutdown_timeout(duration);
    }

    /// Shuts the runtime down without waiting.
    pub fn shutdown_background(self) {
        self.0.shutdown_background();
    }
}
