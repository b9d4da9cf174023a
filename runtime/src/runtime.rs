//! Runtimes: building them, entering them, and reading their metrics.
//!
//! The items have the same names as in Tokio's module `runtime`. The items that most programs use
//! are also at the root of the crate, such as [`volt::Builder`](crate::Builder).
//!
//! # Beside a Tokio runtime
//!
//! A program may have runtimes of Volt and of Tokio at the same time, for example while it migrates
//! step by step. The runtimes share nothing. Tasks of both can use the same channels and locks of
//! `tokio::sync` and of [`volt::sync`](crate::sync), and can await each other's join handles. A
//! socket or a timer belongs to the runtime in which it was created.
//!
//! ```
//! let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
//! let volt = volt::Builder::new_multi_thread().worker_threads(1).build()?;
//! let (sender, mut receiver) = volt::sync::mpsc::channel(1);
//! let producer = tokio.spawn(async move {
//!     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
//!     sender.send("from a task of Tokio").await
//! });
//! let received = volt.block_on(async move {
//!     producer.await.unwrap().unwrap();
//!     receiver.recv().await
//! });
//! assert_eq!(received, Some("from a task of Tokio"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For libraries that call Tokio inside Volt's tasks, see
//! [`Builder::tokio_compat`](crate::Builder::tokio_compat).

use std::io;

use volt_core::driver::readiness::ShutDownError;

pub use volt_core::runtime::{
    Id, LocalOptions, LocalRuntime, RuntimeFlavor, RuntimeMetrics, TaskMeta, TryCurrentError, worker_index,
};
pub use volt_core::{BuildError, Builder, EnterGuard, Handle, Runtime};

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
