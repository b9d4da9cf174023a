//! The core of Volt: the task, the queues, the scheduler, the I/O driver and the runtime.
//!
//! Programs use the crate `volt` (package `volt-runtime`) instead. It adds the public interface:
//! task sets and scopes, sockets, files, signals, child processes, channels and locks. This crate
//! has no stable interface. The items that `volt` re-exports are documented for its users.
//!
//! To read the code, begin with `task/state` (the state of a task), `queue/ring` (a worker's queue
//! of tasks), `scheduler/idle` (which worker is woken for a task) and `scheduler/worker` (the loop
//! that polls tasks).
//!
//! With `--cfg loom` only the protocols are compiled, for their loom models.
#![cfg_attr(loom, allow(dead_code, unused_imports, unreachable_pub))]

#[cfg(not(loom))]
mod clock;
#[cfg(loom)]
mod clock {
    pub(crate) mod cycles;
}
#[cfg(not(loom))]
pub mod config;
pub mod coop;
#[cfg(not(loom))]
mod failures;
mod recorder;
mod stats;

pub mod driver;
mod queue;
pub mod scheduler;
pub mod task;

mod blocking;
#[cfg(not(loom))]
pub mod builder;
#[cfg(not(loom))]
pub mod context;
#[cfg(not(loom))]
pub mod handle;
#[cfg(not(loom))]
pub mod instant;
#[cfg(not(loom))]
pub mod local_runtime;
#[cfg(not(loom))]
pub mod observe;
#[cfg(not(loom))]
pub mod runtime;
#[cfg(not(loom))]
pub mod sleep;
