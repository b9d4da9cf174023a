//! Tasks: one allocation each, with an atomic word for its state, and the handles to it.
//!
//! A spawn creates a task in `cell`. Queues, wakers and join handles point to its `header`; `state`
//! is the protocol by which their threads share it, `handover` the part for the output, and `stage`
//! records what the cell contains. `current` is the task that a thread polls. `registry` lists the
//! tasks that wait. `control` has the functions that code in a task calls. `details`, `waits`,
//! `resources`, `wakes` and `trace` are for observers.

pub(crate) mod state;

pub(crate) mod stage;

mod handover;

#[cfg(not(loom))]
pub mod id;

#[cfg(not(loom))]
pub mod details;

#[cfg(not(loom))]
pub mod resources;

pub mod waits;

#[cfg(not(loom))]
pub mod header;

#[cfg(not(loom))]
pub(crate) mod trace;

#[cfg(not(loom))]
pub(crate) mod waker;

#[cfg(not(loom))]
pub mod contain;

#[cfg(not(loom))]
pub mod current;

#[cfg(not(loom))]
pub(crate) mod wakes;

#[cfg(not(loom))]
pub mod schedule;

#[cfg(not(loom))]
pub mod cell;

#[cfg(not(loom))]
pub mod join;

#[cfg(not(loom))]
pub mod refused;

#[cfg(not(loom))]
pub(crate) mod registry;

#[cfg(not(loom))]
pub mod control;
