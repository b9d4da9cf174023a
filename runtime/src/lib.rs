//! An async runtime that can explain itself.
//!
//! Worker threads run tasks by work stealing; every decision they take is counted in cells that are always on. `volt-console attach`
//! shows them live, `volt-exporter` serves them to Prometheus, and [`Handle::snapshot`] gives them to the program itself.
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
//! Names and semantics are Tokio's where Tokio has them. Sockets speak the I/O traits of the `tokio` crate, which are free of its runtime
//! ([`io`]); features `hyper` and `axum` bridge to those.
#![cfg_attr(loom, allow(dead_code, unused_imports, unreachable_pub))]

mod shim;

#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod compat;
#[cfg(not(loom))]
mod config;
mod coop;
mod cycles;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod kernel;
mod recorder;
#[cfg(not(loom))]
mod rng;
#[cfg(any(loom, all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
mod stacks;
#[cfg(not(any(loom, all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))))]
#[path = "stacks/unsupported.rs"]
mod stacks;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod troubles;

mod driver;
mod queue;
mod scheduler;
pub mod task;

#[cfg(not(loom))]
mod blocking;
#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod context;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
pub mod observe;
#[cfg(not(loom))]
mod runtime;

#[cfg(not(loom))]
mod children;
#[cfg(not(loom))]
pub mod fs;
#[cfg(not(loom))]
pub mod io;
#[cfg(not(loom))]
pub mod net;
pub mod process;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(loom))]
pub mod sync;
#[cfg(not(loom))]
pub mod time;

#[cfg(not(loom))]
mod bridge;

#[cfg(all(feature = "axum", not(loom)))]
pub use bridge::axum;
#[cfg(all(feature = "futures-io", not(loom)))]
pub use bridge::futures_io;
#[cfg(all(feature = "hyper", not(loom)))]
pub use bridge::hyper;

#[cfg(not(loom))]
pub use {
    builder::Builder,
    config::{Backend, LocalOrder, ParkSpin, Placement},
    context::EnterGuard,
    error::BuildError,
    handle::Handle,
    runtime::Runtime,
    task::spawn,
};

// The examples stand here, where they can be compiled: `volt-macros` does not depend on Volt. A macro's tests are built for
// the host, so that dependency would build the whole runtime a second time.
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
#[cfg(all(feature = "macros", not(loom)))]
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
#[cfg(all(feature = "macros", not(loom)))]
pub use volt_macros::test;

/// Waiting for several futures in one task: Tokio's macros, which need nothing of its runtime.
#[cfg(all(feature = "macros", not(loom)))]
pub use tokio::{join, pin, select, try_join};

/// What the numbers mean: the types of [`Handle::snapshot`] and [`observe::process`].
pub use volt_telemetry as telemetry;
