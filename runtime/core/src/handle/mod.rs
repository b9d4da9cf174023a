//! A runtime's handle: spawns tasks into it and takes snapshots of it, from any thread.
//!
//! What a handle does with the current thread (enter, `block_on`) stands in `here`, above
//! `context`.

mod here;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::{Arc, Weak};

use volt_telemetry::Snapshot;
use volt_telemetry::recording::event::Event;

use crate::scheduler::listing::processes::ProcessSource;
use crate::scheduler::shared::Shared;
use crate::task::join::JoinHandle;
use crate::task::refused::TrySpawnError;

/// A handle to a runtime; clones are cheap. It does not keep the runtime running.
///
/// In a child forked from the runtime's process it is of no use, since `fork` copies no threads:
/// spawns and `block_on` panic there, and say so. Build a new runtime after the fork.
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

    /// For the crate `volt`: what the workers of its runtime share.
    #[doc(hidden)]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Starts a task; see `volt::spawn`.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_at(future, None, Location::caller())
    }

    /// Starts a task if the runtime takes one more; see `volt::task::try_spawn`.
    ///
    /// # Errors
    /// As many tasks as
    /// [`Builder::global_queue_capacity`](crate::builder::Builder::global_queue_capacity) allows
    /// wait already, or the runtime is shut down; the error holds the future.
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.try_spawn_at(future, None, Location::caller())
    }

    /// For the crate `volt`: as [`try_spawn`](Self::try_spawn), with a name and a spawn location.
    ///
    /// # Errors
    /// As [`try_spawn`](Self::try_spawn).
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
        self.shared.home.expect_here();
        self.shared.try_spawn(future, name, location)
    }

    /// For the crate `volt`: as [`spawn`](Self::spawn), with a name and a spawn location.
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
        self.shared.home.expect_here();
        self.shared.spawn(future, name, location)
    }

    /// Includes the processes of `source` in snapshots and lists of this runtime, until `source` is
    /// dropped. A system of the crate `volt-process` does so by itself.
    pub fn show_processes(&self, source: Weak<dyn ProcessSource>) {
        self.shared.processes.add(source);
    }

    /// Records `event`, at the present time, if the flight recorder is on; else costs one load, and
    /// does not call the closure.
    ///
    /// For frameworks that show processes with [`show_processes`](Self::show_processes): their
    /// starts, ends, restarts and lost messages. An event of a kind that the runtime records
    /// itself appears twice.
    ///
    /// ```
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
