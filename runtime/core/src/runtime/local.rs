//! A runtime whose tasks stay on one thread, for futures that are not `Send`.
//!
//! A [`LocalRuntime`] is a current-thread runtime (`scheduler/shared_core`) that only the thread
//! which built it can drive. In a plain current-thread runtime, any thread may take the core and
//! poll the tasks, so their futures must be `Send`. Here they need not be.
//!
//! Invariant: SAME-THREAD: only the thread that built the runtime polls and drops the futures of
//! its tasks. Three things ensure this:
//!
//! * Only a thread with the core runs tasks. `block_on` and the shutdown take it, and both need the
//!   `LocalRuntime`, which is not `Send` and not `Sync`.
//! * `Handle::spawn_local_at` compares the number of the thread. If the runtime is shut down, it
//!   drops the new future there.
//! * The shutdown runs every task to its end, and no task leaves the queues and the registry before
//!   its end. If the `LocalRuntime` is leaked, so are its tasks: each has a lease on the runtime.
//!
//! Other threads may have handles and wakers. They submit tasks, and may free the memory of a task
//! that has completed. The output belongs to the `JoinHandle`, which is `Send` only if the output
//! is.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use crate::context::EnterGuard;
use crate::handle::Handle;
use crate::handle::metrics::RuntimeMetrics;
use crate::runtime::Runtime;
use crate::task::join::JoinHandle;

/// The settings that only a [`LocalRuntime`] has. There are none so far.
///
/// Passed to [`Builder::build_local`](crate::builder::Builder::build_local).
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct LocalOptions {
    /// Neither Send nor Sync, so that later options may contain values that are neither.
    _not_send: PhantomData<*mut u8>,
}

/// A [current-thread runtime](crate::builder::Builder::new_current_thread) that also runs futures
/// that are not `Send`.
///
/// `volt::task::spawn_local` spawns such a future, without a `LocalSet`. The tasks run on the
/// thread that built the runtime, while it is in [`block_on`](Self::block_on). They are tasks like
/// all others: counters, console and doctor include them.
///
/// The runtime cannot be moved to another thread. Its [`Handle`] can: there, it spawns futures that
/// are `Send`.
///
/// A `LocalSet` may run in this runtime. But `volt::task::spawn_local` spawns onto the runtime even
/// in a task of the set. To spawn onto the set, use `LocalSet::spawn_local`, or run the set in a
/// plain current-thread runtime.
///
/// Dropping the runtime shuts it down; see [`Runtime`], also for the panic
/// if it is dropped inside a task or a `block_on`.
///
/// ```
/// # use volt_core as volt;
/// use std::rc::Rc;
///
/// let runtime = volt::runtime::LocalRuntime::new()?;
/// let sum = runtime.block_on(async {
///     let shared = Rc::new(20);
///     let other = shared.clone();
///     let task = runtime.spawn_local(async move { *other + 1 });
///     *shared + task.await.unwrap()
/// });
/// assert_eq!(sum, 41);
/// # Ok::<(), volt::BuildError>(())
/// ```
pub struct LocalRuntime {
    runtime: Runtime,
    /// Neither Send nor Sync: SAME-THREAD.
    _not_send: PhantomData<*mut u8>,
}

impl LocalRuntime {
    /// Wraps a runtime that was built for the current thread.
    pub(crate) fn of(runtime: Runtime) -> Self {
        Self { runtime, _not_send: PhantomData }
    }

    /// Returns the handle of this runtime.
    ///
    /// On other threads, it spawns futures that are `Send`.
    /// [`Handle::block_on`](crate::handle::Handle::block_on) does not run the tasks of the runtime.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Spawns a task onto the runtime; its future need not be `Send`.
    ///
    /// The task starts at the next call of [`block_on`](Self::block_on), or during the current one.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::runtime::LocalRuntime::new()?;
    /// let text = std::rc::Rc::new("here");
    /// let task = runtime.spawn_local(async move { *text });
    /// assert_eq!(runtime.block_on(task).unwrap(), "here");
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.handle().spawn_local_at(future, None, Location::caller())
    }

    /// Runs a blocking closure on a thread where blocking is allowed; see
    /// `volt::task::spawn_blocking`.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.runtime.spawn_blocking(f)
    }

    /// Runs a future on this thread and returns its output; see
    /// [`Runtime::block_on`](crate::runtime::Runtime::block_on). Meanwhile, this thread runs the
    /// tasks, timers and sockets of the runtime.
    ///
    /// # Panics
    /// Same as [`Runtime::block_on`](crate::runtime::Runtime::block_on).
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Makes this runtime current on this thread while the guard lives; see
    /// [`Handle::enter`](crate::handle::Handle::enter). `volt::task::spawn_local` then spawns onto
    /// it.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Returns the metrics of the runtime; see
    /// [`Handle::metrics`](crate::handle::Handle::metrics).
    pub fn metrics(&self) -> RuntimeMetrics {
        self.runtime.metrics()
    }

    /// Shuts the runtime down: cancels all tasks, drops their futures on this thread, and waits for
    /// blocking jobs, but at most for `limit`; see
    /// [`Runtime::shutdown_timeout`](crate::runtime::Runtime::shutdown_timeout).
    ///
    /// # Panics
    /// Panics if called inside a task or a `block_on`, unless `limit` is zero. Use
    /// [`shutdown_background`](Self::shutdown_background) there.
    #[track_caller]
    pub fn shutdown_timeout(self, limit: Duration) {
        self.runtime.shutdown_timeout(limit);
    }

    /// Shuts the runtime down as [`shutdown_timeout`](Self::shutdown_timeout) does, but does not
    /// wait for blocking jobs. The futures of the tasks are dropped before this returns.
    pub fn shutdown_background(self) {
        self.runtime.shutdown_background();
    }
}

/// As for [`Handle`].
impl UnwindSafe for LocalRuntime {}

/// As for [`Handle`].
impl RefUnwindSafe for LocalRuntime {}

impl fmt::Debug for LocalRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalRuntime").field("runtime", &self.runtime).finish()
    }
}
