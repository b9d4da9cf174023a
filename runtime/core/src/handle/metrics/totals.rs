//! Numbers of a whole runtime.

use super::RuntimeMetrics;
use crate::scheduler::ends::Ends;

impl RuntimeMetrics {
    /// Returns the number of tasks that were spawned since the runtime started. Blocking jobs and
    /// the tasks of a `LocalSet` do not count.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert_eq!(runtime.metrics().spawned_tasks_count(), 1);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn spawned_tasks_count(&self) -> u64 {
        let (_, spawned) = self.shared.count_tasks();
        spawned.iter().sum()
    }

    /// Returns how many times a task was scheduled from outside the workers of the runtime: by a
    /// spawn or by a wake-up.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert_eq!(runtime.metrics().remote_schedule_count(), 1);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn remote_schedule_count(&self) -> u64 {
        let (_, [_inside, outside]) = self.shared.count_tasks();
        self.shared.injected(outside)
    }

    /// Returns in how many polls a task had to yield, because its cooperative budget was used up or
    /// because the sentinel requested it, to let others run.
    ///
    /// This is the sum of all workers, including spare workers. Polls outside the workers do not
    /// count, such as those of the future in `block_on` of a multi-thread runtime.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().budget_forced_yield_count(), 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn budget_forced_yield_count(&self) -> u64 {
        self.shared.workers.remotes_in_use().iter().map(|remote| remote.cells.coop_yields.get()).sum()
    }

    /// Returns the number of threads of the blocking pool. Workers and spare workers do not count.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().num_blocking_threads(), 0);
    /// runtime.block_on(runtime.spawn_blocking(|| {})).unwrap();
    /// assert_eq!(runtime.metrics().num_blocking_threads(), 1);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn num_blocking_threads(&self) -> usize {
        saturating(self.shared.blocking.telemetry().threads)
    }

    /// Returns the number of idle threads of the blocking pool.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().num_idle_blocking_threads(), 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn num_idle_blocking_threads(&self) -> usize {
        saturating(self.shared.blocking.telemetry().idle_threads)
    }

    /// Returns the number of blocking jobs that wait for a thread.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().blocking_queue_depth(), 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn blocking_queue_depth(&self) -> usize {
        saturating(self.shared.blocking.telemetry().queue_len)
    }

    /// Returns how many sockets, pipes and other descriptors were registered with the I/O driver
    /// since the runtime started.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let metrics = runtime.metrics();
    /// let open = metrics.io_driver_fd_registered_count() - metrics.io_driver_fd_deregistered_count();
    /// assert_eq!(open, 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn io_driver_fd_registered_count(&self) -> u64 {
        self.shared.workers.driver.registered_and_left().0
    }

    /// Returns how many descriptors were removed from the I/O driver since the runtime started.
    pub fn io_driver_fd_deregistered_count(&self) -> u64 {
        self.shared.workers.driver.registered_and_left().1
    }

    /// Returns how many readiness events the I/O driver has processed since the runtime started.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.metrics().io_driver_ready_count(), 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn io_driver_ready_count(&self) -> u64 {
        self.shared.workers.driver.events()
    }
}

fn saturating(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
