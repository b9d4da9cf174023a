//! Tasks: one allocation each, with an atomic word for its state, and the handles to it.
//!
//! A spawn creates a task in `cell`. Queues, wakers and join handles point to its `header`; `state`
//! is the protocol by which their threads share it, `handover` the part for the output, and `stage`
//! records what the cell contains. `current` is the task that a thread polls. `registry` lists the
//! tasks that wait. `control` has the functions that code in a task calls. `details`, `waits`,
//! `resources`, `wakes` and `trace` are for observers.

pub(crate) mod state;

pub(crate) mod stage;

#[cfg(not(loom))]
pub(crate) mod id;

#[cfg(not(loom))]
pub mod contain;

#[cfg(not(loom))]
pub mod details;

#[cfg(not(loom))]
pub mod header;

mod handover;

#[cfg(not(loom))]
pub mod resources;

#[cfg(not(loom))]
pub mod current;

#[cfg(not(loom))]
pub(crate) mod trace;

#[cfg(not(loom))]
pub(crate) mod registry;

pub mod waits;

#[cfg(not(loom))]
pub(crate) mod wakes;

#[cfg(not(loom))]
pub(crate) mod waker;

#[cfg(not(loom))]
pub(crate) mod join;

#[cfg(not(loom))]
pub(crate) mod refused;

#[cfg(not(loom))]
pub(crate) mod control;

#[cfg(not(loom))]
pub mod schedule;

#[cfg(not(loom))]
pub mod cell;

// The items of `volt::task`, except `block_in_place`, which needs a worker: it is in `context`.
#[cfg(not(loom))]
pub use {
    control::{
        shield::{Shield, ShieldError, is_cancellation_effective, is_cancelled, shield},
        yield_now::{consume_budget, yield_now},
    },
    current::{id, try_id},
    id::Id,
    join::{AbortHandle, JoinError, JoinHandle},
    refused::TrySpawnError,
};
