//! Numbers of one worker. Spare workers have no number here: `worker` is below
//! [`num_workers`](RuntimeMetrics::num_workers), and every method panics otherwise.

use std::thread::ThreadId;
use std::time::Duration;

use super::RuntimeMetrics;

impl RuntimeMetrics {
    /// Returns the thread that runs a worker, or that ran it last. In a current-thread runtime,
    /// this is a thread that called `block_on`. Returns `None` if the worker has not started.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_current_thread().build()?;
    /// runtime.block_on(async {});
    /// assert_eq!(runtime.metrics().worker_thread_id(0), Some(std::thread::current().id()));
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_thread_id(&self, worker: usize) -> Option<ThreadId> {
        self.remote(worker).last_thread()
    }

    /// Returns how many polls a worker has begun. In a current-thread runtime, the polls of the
    /// future in `block_on` count, too.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert_eq!(runtime.metrics().worker_poll_count(0), 1);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_poll_count(&self, worker: usize) -> u64 {
        self.cells(worker).polls()
    }

    /// Returns the mean duration of a worker's polls, in which recent polls weigh more.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// println!("a poll takes {:?}", runtime.metrics().worker_mean_poll_time(0));
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_mean_poll_time(&self, worker: usize) -> Duration {
        Duration::from_nanos(self.cells(worker).avg_poll_ns.get())
    }

    /// Returns how many times a worker has parked without having polled anything since it parked
    /// before. Such a worker was woken in vain.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let metrics = runtime.metrics();
    /// assert!(metrics.worker_noop_count(0) <= metrics.worker_park_count(0));
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_noop_count(&self, worker: usize) -> u64 {
        self.cells(worker).idle_parks()
    }

    /// Returns how many tasks a worker has stolen from other workers.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().worker_steal_count(0), 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_steal_count(&self, worker: usize) -> u64 {
        self.cells(worker).tasks_stolen.get()
    }

    /// Returns how many times a worker has stolen from another worker, one or several tasks at a
    /// time.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().worker_steal_operations(0), 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_steal_operations(&self, worker: usize) -> u64 {
        self.cells(worker).steals.get()
    }

    /// Returns how many times a task that was spawned or woken on a worker, or that yielded there,
    /// went to this worker's own queues.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.block_on(runtime.spawn(async { volt::spawn(async {}) })).unwrap();
    /// assert_eq!(runtime.metrics().worker_local_schedule_count(0), 1);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_local_schedule_count(&self, worker: usize) -> u64 {
        self.cells(worker).local_schedules.get()
    }

    /// Returns how many times a worker's local queue was full, so that half of it moved to the
    /// global queue.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().worker_overflow_count(0), 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_overflow_count(&self, worker: usize) -> u64 {
        self.cells(worker).overflows.get()
    }

    /// Returns the number of tasks that wait in a worker's own queues, including its LIFO slot.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers).
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_current_thread().build()?;
    /// let metrics = runtime.metrics();
    /// runtime.block_on(async {
    ///     (0..3).for_each(|_| drop(volt::spawn(async {})));
    ///     assert_eq!(metrics.worker_local_queue_depth(0), 3);
    /// });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn worker_local_queue_depth(&self, worker: usize) -> usize {
        self.remote(worker).queued()
    }
}
