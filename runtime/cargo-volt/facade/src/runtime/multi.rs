//! The owner of a runtime.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use volt::runtime::{EnterGuard, Handle, RuntimeMetrics};
use volt::task::JoinHandle;

/// A runtime. See `volt::runtime::Runtime`.
#[derive(Debug)]
pub struct Runtime(volt::runtime::Runtime);

impl Runtime {
    pub(super) fn of(runtime: volt::runtime::Runtime) -> Self {
        Self(runtime)
    }

    /// Returns a handle to the runtime.
    pub fn handle(&self) -> &Handle {
        self.0.handle()
    }

    /// Spawns a task.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.0.spawn(future)
    }

    /// Runs a closure on a thread for blocking work.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.0.spawn_blocking(f)
    }

    /// Runs a future to its end on this thread.
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
    pub fn shutdown_timeout(self, duration: Duration) {
        self.0.shutdown_timeout(duration);
    }

    /// Shuts the runtime down without waiting.
    pub fn shutdown_background(self) {
        self.0.shutdown_background();
    }
}

/// For the methods of Volt's types that take a runtime.
impl Deref for Runtime {
    type Target = volt::runtime::Runtime;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
