//! Single numbers of a runtime, for programs that export a few under Tokio's names. Snapshots
//! report all numbers.
//!
//! Each method reads only the cells that it needs. Reading does not stop a worker.

mod histograms;
mod totals;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::scheduler::ends::Ends;
use crate::scheduler::remote::Remote;
use crate::scheduler::shared::Shared;
use crate::stats::cells::WorkerCells;

/// The metrics of a runtime. Returned by [`Handle::metrics`](crate::handle::Handle::metrics).
///
/// These are Tokio's metrics, under the same names, including those that Tokio has only with
/// `tokio_unstable`. They are always on, work in every build, and remain readable after the
/// shutdown of the runtime. [`Handle::snapshot`](crate::handle::Handle::snapshot) returns these
/// numbers and all others in one call, including those of spare workers.
///
/// Clones are cheap, and do not keep the runtime running.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(2).build()?;
/// let metrics = runtime.metrics();
/// assert_eq!(metrics.num_workers(), 2);
/// assert_eq!(metrics.num_alive_tasks(), 0);
/// let task = runtime.spawn(std::future::pending::<()>());
/// assert_eq!(metrics.num_alive_tasks(), 1);
/// drop(runtime);
/// assert_eq!(metrics.num_alive_tasks(), 0);
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone)]
pub struct RuntimeMetrics {
    shared: Arc<Shared>,
}

impl RuntimeMetrics {
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns the number of workers, without spare workers.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(3).build()?;
    /// assert_eq!(runtime.metrics().num_workers(), 3);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn num_workers(&self) -> usize {
        self.shared.config.workers
    }

    /// Returns the number of tasks that were spawned and have not ended. Blocking jobs do not
    /// count.
    ///
    /// The worker counts the end of a task after it has woken the task that awaits its
    /// [`JoinHandle`](crate::task::join::JoinHandle), so the number may still include that task for
    /// a moment.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let task = runtime.spawn(async { volt::Handle::current().metrics().num_alive_tasks() });
    /// assert_eq!(runtime.block_on(task).unwrap(), 1);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn num_alive_tasks(&self) -> usize {
        let (ended, spawned) = self.shared.count_tasks();
        let alive = spawned.iter().sum::<u64>().saturating_sub(ended.iter().sum());
        usize::try_from(alive).unwrap_or(usize::MAX)
    }

    /// Returns the number of tasks in the global queue: tasks that were spawned or woken by threads
    /// outside the workers, or moved there from a full local queue, and that no worker has taken
    /// yet.
    ///
    /// With a [`placement`](crate::builder::Builder::placement) other than `Global`, tasks from
    /// outside wait in the inboxes of workers, which this number does not include.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// println!("{} tasks in the global queue", runtime.metrics().global_queue_depth());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn global_queue_depth(&self) -> usize {
        self.shared.workers.injector.len()
    }

    /// Returns how long a worker has worked: the time that it has spent on its start and on polls
    /// of tasks, timers and I/O. The number grows during a poll, too, and never decreases. Time in
    /// which the worker searched for tasks or was parked does not count.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let metrics = runtime.metrics();
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert!(!metrics.worker_total_busy_duration(0).is_zero());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_total_busy_duration(&self, worker: usize) -> Duration {
        let cells = self.cells(worker);
        Duration::from_nanos(self.shared.with_time_floor(worker, |floor_ns| cells.working_ns(floor_ns)))
    }

    /// Returns how many times a worker has parked because it found no task. Parks that ended after
    /// a [`park_timeout`](crate::builder::Builder::park_timeout) count, too.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let metrics = runtime.metrics();
    /// while metrics.worker_park_count(0) == 0 {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_park_count(&self, worker: usize) -> u64 {
        self.cells(worker).parks()
    }

    /// Returns how many times a worker has parked and unparked, together. The number is odd while
    /// the worker is parked, and even while it is awake.
    ///
    /// Parks that ended after a [`park_timeout`](crate::builder::Builder::park_timeout) count, too,
    /// so the number of an idle worker grows slowly.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let metrics = runtime.metrics();
    /// while metrics.worker_park_unpark_count(0) % 2 == 0 {
    ///     std::thread::yield_now(); // The worker is awake.
    /// }
    /// drop(runtime);
    /// assert_eq!(metrics.worker_park_unpark_count(0) % 2, 0, "it has ended");
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_park_unpark_count(&self, worker: usize) -> u64 {
        // Read in this order, the number never decreases, and it is odd only if the worker has
        // parked after the unparks that were counted.
        let cells = self.cells(worker);
        let unparks = cells.unparks();
        2 * unparks + u64::from(cells.parks() > unparks)
    }

    #[track_caller]
    fn cells(&self, worker: usize) -> &WorkerCells {
        &self.remote(worker).cells
    }

    #[track_caller]
    fn remote(&self, worker: usize) -> &Remote {
        let workers = self.num_workers();
        assert!(worker < workers, "worker {worker} does not exist: the runtime has {workers} workers");
        &self.shared.workers.remotes[worker]
    }
}

impl fmt::Debug for RuntimeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeMetrics").field("runtime", &self.shared.identity.name).finish_non_exhaustive()
    }
}
