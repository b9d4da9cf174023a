//! An async runtime for Rust with built-in observability.
//!
//! Volt runs tasks on worker threads that steal work from each other. It provides timers, sockets,
//! files, child processes, signals and synchronization primitives. The runtime counts every
//! scheduling decision, and the counters are always on. There are four ways to read them:
//!
//! - `volt-console attach` shows them live in a terminal.
//! - `volt-exporter` exposes them to Prometheus.
//! - The program itself exposes them to Prometheus if the environment variable `VOLT_METRICS`
//!   contains an address, such as `127.0.0.1:9464`; see [`observe::metrics_addr`].
//! - [`Handle::snapshot`] returns them to the program.
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
//! Where Tokio has an item of the same purpose, Volt uses Tokio's name and semantics. Volt's
//! sockets implement the I/O traits of the `tokio` crate, which do not depend on Tokio's runtime;
//! see [`io`].
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `macros` | yes | `#[volt::main]`, `#[volt::test]`, `join!`, `pin!`, `select!`, `try_join!` |
//! | `hyper` | no | `volt::hyper`: the executor, timer and I/O adapter that hyper requires |
//! | `axum` | no | `volt::axum::serve`, which serves an axum router; includes `hyper` |
//! | `http2` | no | HTTP/2 without TLS (h2c) in `volt::axum::serve`; includes `axum` |
//! | `futures-io` | no | `volt::futures_io`: adapters to the I/O traits of the `futures` crate |
//! | `tokio-compat` | no | `Builder::tokio_compat`: a Tokio runtime beside Volt's, for libraries that require it |
//! | `tracing-subscriber` | no | `volt::tracing`: the current task in each line of a `tracing-subscriber` log |
//! | `sim` | no | `volt::sim` and `Builder::seed`: tests in which a seed determines the order of polls; includes `macros` |
//! | `compressed-debug-info` | no | source lines in stacks of programs with compressed debug information |

pub mod task;
pub mod time;

pub mod io;
pub mod net;
pub mod signal;
pub mod sync;

pub mod fs;
pub mod process;

pub mod runtime;
#[cfg(feature = "sim")]
pub mod sim;

pub mod telemetry;
#[cfg(feature = "tracing-subscriber")]
pub mod tracing;

/// Access to the data that the program exposes to consoles and exporters.
///
/// [`program`](crate::observe::program) returns a snapshot of all runtimes of the program.
/// [`dump`](crate::observe::dump) returns what the tasks of a runtime wait for, and
/// [`dump_async`](crate::observe::dump_async) does the same in async code.
/// [`tasks`](crate::observe::tasks) returns the numbers of single tasks. The other functions return
/// the path of the program's control socket, the address of its page of metrics, and the counters
/// of the *observer*, the thread that serves the control socket.
///
/// A [`Request`](crate::observe::Request) counts a request under its HTTP route, for servers other
/// than axum. A [`ProcessSource`](crate::observe::ProcessSource) adds the processes of an actor
/// framework to snapshots.
pub mod observe {
    pub use volt_core::observe::{
        ProcessSource, Renamer, Request, dump, dump_async, health, metrics_addr, program, socket_path, tasks,
    };
    pub use volt_telemetry::health::Health;

    /// Records what a task awaits; for the processes of `volt-process`.
    #[doc(hidden)]
    pub use volt_core::task::details::awaits::{Awaits, Pending};
}

mod bridge;

#[cfg(feature = "axum")]
pub use bridge::axum;
#[cfg(feature = "futures-io")]
pub use bridge::futures_io;
#[cfg(feature = "hyper")]
pub use bridge::hyper;

pub use volt_core::{Backend, BuildError, Builder, EnterGuard, Handle, ParkSpin, Placement, Runtime, spawn};

// The examples are here because here they compile: `volt-macros` does not depend on Volt. The tests
// of a proc-macro crate are built for the host, so such a dependency would build the whole runtime
// a second time.
/// Runs the `async fn main` of a program on a new Volt runtime.
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
/// This is equivalent to:
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
/// Runs an `async fn` as a test, on a new Volt runtime.
///
/// ```
/// #[volt::test]
/// async fn a_task_returns_its_output() {
///     assert_eq!(volt::spawn(async { 42 }).await.unwrap(), 42);
/// }
///
/// #[volt::test(start_paused = true)]
/// async fn an_hour_of_sleep_takes_no_time() {
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

// No documentation here: rustdoc would put it in front of that of each macro.
// These are Tokio's macros, which do not use Tokio's runtime. `select!` is in `task/select`.
#[cfg(feature = "macros")]
pub use tokio::{join, pin, try_join};

// The example in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
