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
#[cfg(not(loom))]
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

#[cfg(all(feature = "macros", not(loom)))]
pub use volt_macros::{main, test};

/// Waiting for several futures in one task: Tokio's macros, which need nothing of its runtime.
#[cfg(all(feature = "macros", not(loom)))]
pub use tokio::{join, pin, select, try_join};

/// What the numbers mean: the types of [`Handle::snapshot`] and [`observe::process`].
pub use volt_telemetry as telemetry;
