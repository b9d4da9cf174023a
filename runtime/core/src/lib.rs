//! The engine of Volt: everything that schedules, from the word of a task to the runtime that owns
//! the workers.
//!
//! Use the crate `volt` (package `volt-runtime`), which adds what a program calls: tasks' sets and
//! scopes, sockets, files, signals, child processes, channels and locks. This crate promises no
//! stable interface of its own; what `volt` passes on is documented for its users.
//!
//! To read it, begin with `task/state` (what may be done with a task), `queue/ring` (who may take
//! one), `scheduler/idle` (who is woken for one) and `scheduler/worker` (the loop that polls it).
//!
//! With `--cfg loom` only the protocols are compiled, for their models.
#![cfg_attr(loom, allow(dead_code, unused_imports, unreachable_pub))]

#[cfg(not(loom))]
mod clock;
#[cfg(loom)]
mod clock {
    pub(crate) mod cycles;
}
#[cfg(not(loom))]
mod compat;
#[cfg(not(loom))]
pub mod config;
pub mod coop;
#[cfg(not(loom))]
pub mod error;
mod recorder;
mod stats;
#[cfg(not(loom))]
mod troubles;

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
pub mod observe;
#[cfg(not(loom))]
pub mod runtime;
#[cfg(not(loom))]
pub mod sleep;
