//! Runtimes: building them, entering them, and reading their metrics.
//!
//! The items have the same names as in Tokio's module `runtime`. The items that most programs use
//! are also at the root of the crate, such as [`volt::Builder`](crate::Builder).

use std::io;

use volt_core::driver::readiness::ShutDownError;

pub use volt_core::{
    builder::{Builder, error::BuildError},
    config::{
        hooks::TaskMeta,
        identity::{Id, RuntimeFlavor},
    },
    context::{EnterGuard, TryCurrentError},
    handle::{Handle, metrics::RuntimeMetrics},
    local_runtime::{LocalOptions, LocalRuntime},
    runtime::Runtime,
    scheduler::current::worker_index,
};

/// Returns whether `error` means that the runtime of a socket, file or standard stream has been
/// shut down.
///
/// Operations that read, write or wait return such an error. The `try_` functions do not: they
/// return `WouldBlock` if there is no data.
///
/// ```
/// let (here, _there) = {
///     let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
///     let _entered = runtime.enter();
///     volt::net::UnixStream::pair()?
/// };
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// let error = runtime.block_on(here.readable()).unwrap_err();
/// assert!(volt::runtime::is_rt_shutdown_err(&error));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn is_rt_shutdown_err(error: &io::Error) -> bool {
    ShutDownError::is_in(error)
}
