//! The core of Volt: the task, the queues, the scheduler, the I/O driver and the runtime.
//!
//! Programs use the crate `volt` (package `volt-runtime`) instead. It adds the public interface:
//! task sets and scopes, sockets, files, signals, child processes, channels and locks. This crate
//! has no stable interface. The items that `volt` re-exports have the same paths here, except
//! `task::block_in_place`, and are documented for its users.
//!
//! To read the code, begin with `task/state` (the state of a task), `queue/ring` (a worker's queue
//! of tasks), `scheduler/idle` (which worker is woken for a task) and `scheduler/worker` (the loop
//! that polls tasks). The modules below are in order: each one uses and re-exports only items of
//! those before it (`.ci/imports`).
//!
//! # Locks
//!
//! No lock is held across a poll, a wake or a system call, with these exceptions:
//!
//! * The driver turn is held during the wait in the kernel.
//! * The lock on the times that snapshots have reported (`time_floors`) is held during system calls
//!   that query threads.
//! * The locks with which a program shares its sentinel and its observer are held while these check
//!   a runtime, start or end.
//! * The lock of a lane (`recorder/lanes`) is held while the kernel allocates the pages of its ring
//!   in a black box, once per lane.
//! * In the crate `volt-process`, the lock of a conversation between nodes is held while its relay
//!   accepts a frame.
//!
//! Locks are taken in this order: those of readers (listing, census, joins, long waits, the
//! doctor's history) < registry shard < global queue < driver turn < socket registrations < a
//! socket's waiters; driver turn < timers. In `volt-process`: a conversation < relations (of two,
//! by pid) < mailbox. The locks of the blocking queue, of the processes' registry, of the table of
//! waits (`task/waits`), of the turn of dumps (`scheduler/readers/turn`) and of the black boxes
//! (`recorder/black_box`) are never held together with another lock. A thread that makes a dump
//! holds none: it has the turn.
//!
//! With `--cfg loom` only the protocols are compiled, for their loom models.
#![cfg_attr(loom, allow(dead_code, unused_imports, unreachable_pub))]

#[cfg(not(loom))]
mod clock;
#[cfg(loom)]
mod clock {
    pub(crate) mod cycles;
}

mod queue;

#[cfg(not(loom))]
mod failures;

mod stats;

pub mod coop;

pub mod task;

#[cfg(not(loom))]
pub mod config;

pub mod driver;

mod recorder;

mod blocking;

pub mod scheduler;

#[cfg(not(loom))]
mod handle;

#[cfg(not(loom))]
pub mod context;

#[cfg(not(loom))]
mod instant;

#[cfg(not(loom))]
pub mod sleep;

#[cfg(not(loom))]
mod spawn;

#[cfg(not(loom))]
pub mod observe;

#[cfg(not(loom))]
pub mod runtime;

#[cfg(not(loom))]
mod builder;

// The items of `volt` that this crate defines, under the same paths. `observe`, `runtime` and
// `task` have the rest. The examples are written for the users of `volt`. A hidden line gives this
// crate that name, since a crate uses none above it, not even in its tests.

#[cfg(not(loom))]
pub use {
    builder::{Builder, error::BuildError},
    config::{Backend, ParkSpin, Placement},
    context::EnterGuard,
    handle::Handle,
    runtime::Runtime,
    spawn::spawn,
};

#[cfg(not(loom))]
#[doc(no_inline)]
pub use volt_telemetry as telemetry;

/// The items of `volt::time` that this crate defines.
#[cfg(not(loom))]
pub mod time {
    pub use crate::instant::Instant;
    pub use crate::sleep::{Sleep, sleep, sleep_until};

    #[doc(no_inline)]
    pub use std::time::Duration;
}

// The example in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
