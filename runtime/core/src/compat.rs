//! A Tokio runtime beside a Volt runtime, for libraries that ask for one and take no other (feature
//! `tokio-compat`).
//!
//! Shape: one thread of Tokio's that serves its timers and sockets, and runs the tasks that
//! libraries give to `tokio::spawn`. Every thread that may run code of a Volt runtime is *inside*
//! that Tokio runtime as well (`context` enters both), so what such a library does in a Volt task
//! (sleep, connect, spawn) finds it. Tokio's threads are inside Volt in turn, so that a callback of
//! the library may use Volt.
//!
//! Who runs what: a Volt task stays Volt's, whatever it awaits; its wake-up comes from Tokio's
//! thread, as from any thread that is no worker. What is given to `tokio::spawn` and
//! `tokio::task::spawn_blocking` runs outside Volt: no budget, no sentinel, no blame; the snapshot
//! says how much there is.
//!
//! How it ends: after the workers and the blocking threads, whose futures may hold Tokio's sockets,
//! within what is left of the shutdown's limit. A forked child's copy is left alone, as its runtime
//! is: the workers that are not there hold it for ever.
//!
//! Rejected: Tokio's `current_thread` flavour, on which `tokio::task::block_in_place` panics;
//! Tokio's drivers without its scheduler, which it does not give away.

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

    /// Keeps a Tokio runtime current on a thread.
    pub(crate) type Entered<'a> = EnterGuard<'a>;

    /// See the header of this file.
    pub(crate) struct Compat {
        handle: Handle,
        /// Until it is shut down.
        runtime: Mutex<Option<Runtime>>,
    }

    impl Compat {
        /// Starts it beside the runtime with these settings. Each of its threads calls `enter`
        /// first, which makes that runtime current there.
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

        /// How much runs outside Volt. Takes no lock.
        pub(crate) fn telemetry(&self) -> Tokio {
            let metrics = self.handle.metrics();
            Tokio {
                tasks: metrics.num_alive_tasks() as u64,
                queue_len: metrics.global_queue_depth() as u64,
                busy_ns: saturating_ns(metrics.worker_total_busy_duration(0)),
            }
        }

        /// Ends it: its tasks are dropped, and its blocking threads waited for until `deadline`;
        /// `None` = for as long as they take.
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
            // Of a runtime whose build failed; any other was shut down. Not waited for: who drops
            // it may be inside async code.
            self.shut_down(Some(Instant::now()));
        }
    }

    impl fmt::Debug for Compat {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Compat").finish_non_exhaustive()
        }
    }
}

/// The same names, and no way to come by a value of theirs.
#[cfg(not(feature = "tokio-compat"))]
mod missing {
    use std::io;
    use std::marker::PhantomData;
    use std::time::Instant;

    use volt_telemetry::Tokio;

    use crate::config::Config;

    /// A Tokio runtime that is current: none.
    #[derive(Debug)]
    pub(crate) struct Entered<'a>(Compat, PhantomData<&'a Compat>);

    /// A Tokio runtime beside this one: none.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Compat {}

    impl Compat {
        /// # Errors
        /// Always.
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
