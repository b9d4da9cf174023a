//! A companion Tokio runtime for libraries that require Tokio (feature `tokio-compat`).
//!
//! Shape: one thread of Tokio drives Tokio's timers and sockets, and runs the tasks that libraries
//! pass to `tokio::spawn`. Each thread that may run code of a Volt runtime has *entered* the Tokio
//! runtime, too (`context` enters both). So a library that sleeps, connects or spawns in a Volt
//! task finds it. Conversely, Tokio's threads have entered the Volt runtime, so that callbacks of
//! the library may use Volt.
//!
//! Division of work: Volt polls a Volt task, whatever it awaits. A wake-up may come from Tokio's
//! thread, as from any thread that is not a worker. Tasks passed to `tokio::spawn` and
//! `tokio::task::spawn_blocking` run outside Volt: its budget, its sentinel and its statistics do
//! not cover them. The snapshot reports how many there are.
//!
//! Shutdown: the companion is shut down after the workers and the blocking threads, whose futures
//! may contain Tokio's sockets, within the rest of the time limit. Its copy in a forked child is
//! leaked, as that of the Volt runtime is: the workers, which do not exist there, own references.
//!
//! Rejected: Tokio's `current_thread` flavour, on which `tokio::task::block_in_place` panics.
//! Tokio's drivers without its scheduler, which Tokio does not offer.

#[cfg(feature = "tokio-compat")]
pub(crate) use beside::{Compat, Entered};
#[cfg(not(feature = "tokio-compat"))]
pub(crate) use missing::{Compat, Entered};

#[cfg(feature = "tokio-compat")]
mod beside {
    use std::fmt;
    use std::io;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Instant;

    use tokio::runtime::{EnterGuard, Handle, Runtime};
    use volt_telemetry::Tokio;

    use crate::clock::saturating_ns;
    use crate::config::Config;

    /// A guard that keeps a Tokio runtime current on a thread.
    pub(crate) type Entered<'a> = EnterGuard<'a>;

    /// The companion runtime. See the module documentation.
    pub(crate) struct Compat {
        handle: Handle,
        /// `None` after the shutdown.
        runtime: Mutex<Option<Runtime>>,
    }

    impl Compat {
        /// Starts the companion of a Volt runtime with these settings. Each thread of it first
        /// calls `enter`, which makes the Volt runtime current there.
        pub(crate) fn start(config: &Config, enter: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
            let name = format!("{}-tokio", config.thread_name);
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            if let Some(bytes) = config.thread_stack_size {
                builder.thread_stack_size(bytes);
            }
            builder.worker_threads(1).enable_all().thread_name(name).on_thread_start(enter);
            let runtime = builder.build()?;
            Ok(Self { handle: runtime.handle().clone(), runtime: Mutex::new(Some(runtime)) })
        }

        pub(crate) fn enter(&self) -> Entered<'_> {
            self.handle.enter()
        }

        /// Returns the load outside Volt. Takes no lock.
        pub(crate) fn telemetry(&self) -> Tokio {
            let metrics = self.handle.metrics();
            Tokio {
                tasks: metrics.num_alive_tasks() as u64,
                queue_len: metrics.global_queue_depth() as u64,
                busy_ns: saturating_ns(metrics.worker_total_busy_duration(0)),
            }
        }

        /// Shuts it down: drops its tasks, and waits for its blocking threads until `deadline`, or
        /// without limit if that is `None`.
        pub(crate) fn shut_down(&self, deadline: Option<Instant>) {
            let Some(runtime) = self.lock().take() else { return };
            match deadline {
                Some(deadline) => runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now())),
                None => drop(runtime),
            }
        }

        fn lock(&self) -> MutexGuard<'_, Option<Runtime>> {
            self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Drop for Compat {
        fn drop(&mut self) {
            // Only if the build of the runtime failed; otherwise it was shut down before. This must
            // not wait, since it may be dropped inside async code.
            self.shut_down(Some(Instant::now()));
        }
    }

    impl fmt::Debug for Compat {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Compat").finish_non_exhaustive()
        }
    }
}

/// The same names without the feature. No value of these types can exist.
#[cfg(not(feature = "tokio-compat"))]
mod missing {
    use std::io;
    use std::marker::PhantomData;
    use std::time::Instant;

    use volt_telemetry::Tokio;

    use crate::config::Config;

    /// A guard of a current Tokio runtime; never exists.
    #[derive(Debug)]
    pub(crate) struct Entered<'a>(Compat, PhantomData<&'a Compat>);

    /// A companion runtime; never exists.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Compat {}

    impl Compat {
        /// Always fails.
        ///
        /// # Errors
        /// Always: the feature is disabled.
        pub(crate) fn start(_config: &Config, _enter: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "volt was built without its feature tokio-compat"))
        }

        pub(crate) fn enter(&self) -> Entered<'_> {
            Entered(*self, PhantomData)
        }

        pub(crate) fn telemetry(&self) -> Tokio {
            match *self {}
        }

        pub(crate) fn shut_down(&self, _deadline: Option<Instant>) {
            match *self {}
        }
    }
}
