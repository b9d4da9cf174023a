//! The methods of a handle that describe its runtime.

use super::Handle;
use crate::config::identity::{Id, RuntimeFlavor};
use crate::handle::metrics::RuntimeMetrics;

impl Handle {
    /// Returns the id of the runtime. No other runtime of the program has the same id.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let inside = runtime.block_on(async { volt::Handle::current().id() });
    /// assert_eq!(inside, runtime.handle().id());
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn id(&self) -> Id {
        self.shared.identity.id
    }

    /// Returns the name that the program has set with
    /// [`Builder::name`](crate::builder::Builder::name), or `None` if it has set none.
    ///
    /// The name under which consoles and metrics show the runtime is
    /// [`Snapshot::runtime`](volt_telemetry::Snapshot::runtime). It differs if another runtime had
    /// the name already.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("api").build()?;
    /// assert_eq!(runtime.handle().name(), Some("api"));
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.shared.config.given_name.as_deref()
    }

    /// For the crate `volt`: whether tasks inherit the span in which they are spawned.
    #[doc(hidden)]
    pub fn inherits_spans(&self) -> bool {
        self.shared.config.inherit_spans
    }

    /// Returns a hash of the order of polls so far, in a runtime with a
    /// [seed](crate::builder::Builder::seed); `None` in any other.
    ///
    /// For each poll, the hash includes the tasks that were ready, in the order in which they were
    /// woken and with the main future last; the task that was polled; and the time on the simulated
    /// clock. If two runs of a program have the same fingerprint, they polled their tasks in the
    /// same order. If two runs with the same seed have different fingerprints, the program depends
    /// on something that the seed does not control.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let fingerprint = |seed| {
    ///     let runtime = volt::Builder::new_current_thread().seed(seed).build().unwrap();
    ///     runtime.block_on(async {
    ///         let tasks = [volt::spawn(async {}), volt::spawn(async {})];
    ///         for task in tasks {
    ///             task.await.unwrap();
    ///         }
    ///     });
    ///     runtime.handle().schedule_fingerprint().unwrap()
    /// };
    /// assert_eq!(fingerprint(1), fingerprint(1));
    /// assert_ne!(fingerprint(1), fingerprint(2));
    /// ```
    #[cfg(feature = "sim")]
    pub fn schedule_fingerprint(&self) -> Option<u64> {
        self.shared.seeded.as_ref().map(|seeded| seeded.fingerprint())
    }

    /// Returns which threads poll the tasks of the runtime.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::runtime::RuntimeFlavor;
    ///
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// assert_eq!(runtime.handle().runtime_flavor(), RuntimeFlavor::MultiThread);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn runtime_flavor(&self) -> RuntimeFlavor {
        if self.shared.config.is_current_thread { RuntimeFlavor::CurrentThread } else { RuntimeFlavor::MultiThread }
    }

    /// Returns the metrics of the runtime. [`snapshot`](Self::snapshot) returns more of them.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(2).build()?;
    /// assert_eq!(runtime.handle().metrics().num_workers(), 2);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn metrics(&self) -> RuntimeMetrics {
        RuntimeMetrics::of(self.shared.clone())
    }
}
