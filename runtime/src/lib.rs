//! An async runtime that can explain itself.
//!
//! Worker threads run tasks by work stealing; every decision they take is counted in cells that are
//! always on. `volt-console attach` shows them live, `volt-exporter` serves them to Prometheus, and
//! [`Handle::snapshot`] gives them to the program itself.
//!
//! ```
//! use std::time::Duration;
//!
//! #[volt::main]
//! async fn main() {
//!     let task = volt::spawn(async {
//!         volt::time::sleep(Duration::from_millis(5)).await;
//!         "done"
//!     });
//!     assert_eq!(task.await.unwrap(), "done");
//! }
//! ```
//!
//! Names and semantics are Tokio's where Tokio has them. Sockets speak the I/O traits of the
//! `tokio` crate, which are free of its runtime ([`io`]); features `hyper` and `axum` bridge to
//! those.

pub mod task;

pub mod fs;
pub mod io;
pub mod net;
pub mod process;
pub mod signal;
pub mod sync;
pub mod time;

pub mod telemetry;

mod bridge;

#[cfg(feature = "axum")]
pub use bridge::axum;
#[cfg(feature = "futures-io")]
pub use bridge::futures_io;
#[cfg(feature = "hyper")]
pub use bridge::hyper;

/// What shows this program to the outside: the list of its runtimes, and the control socket.
pub mod observe {
    pub use volt_core::observe::registry::{health, process, socket_path};
    pub use volt_core::scheduler::listing::processes::ProcessSource;
    pub use volt_telemetry::health::Health;
}

pub use {
    task::spawn::spawn,
    volt_core::{
        builder::Builder,
        config::{Backend, ParkSpin, Placement},
        context::EnterGuard,
        error::BuildError,
        handle::Handle,
        runtime::Runtime,
    },
};

// The examples stand here, where they can be compiled: `volt-macros` does not depend on Volt. A
// macro's tests are built for the host, so that dependency would build the whole runtime a second
// time.
/// # Examples
///
/// ```
/// #[volt::main(worker_threads = 2, name = "greeter")]
/// async fn main() -> Result<(), volt::task::JoinError> {
///     let answer = volt::spawn(async { 6 * 7 }).await?;
///     assert_eq!(answer, 42);
///     Ok(())
/// }
/// ```
///
/// It stands for:
///
/// ```
/// fn main() -> Result<(), volt::task::JoinError> {
///     async fn main() -> Result<(), volt::task::JoinError> {
///         let answer = volt::spawn(async { 6 * 7 }).await?;
///         assert_eq!(answer, 42);
///         Ok(())
///     }
///     match volt::Builder::new_multi_thread().worker_threads(2).name("greeter").build() {
///         Ok(runtime) => runtime.block_on(main()),
///         Err(error) => panic!("the Volt runtime of `main` could not be built: {error}"),
///     }
/// }
/// ```
#[cfg(feature = "macros")]
pub use volt_macros::main;
/// # Examples
///
/// ```
/// #[volt::test]
/// async fn a_task_gives_its_result() {
///     assert_eq!(volt::spawn(async { 42 }).await.unwrap(), 42);
/// }
///
/// #[volt::test(start_paused = true)]
/// async fn an_hour_passes_at_once_where_nothing_else_is_to_be_done() {
///     volt::time::sleep(std::time::Duration::from_secs(3600)).await;
/// }
///
/// #[volt::test(worker_threads = 1)]
/// async fn one_worker_is_enough() -> Result<(), volt::task::JoinError> {
///     volt::spawn(async {}).await
/// }
/// # fn main() {}
/// ```
#[cfg(feature = "macros")]
pub use volt_macros::test;

/// Waiting for several futures in one task: Tokio's macros, which need nothing of its runtime.
#[cfg(feature = "macros")]
pub use tokio::{join, pin, select, try_join};
