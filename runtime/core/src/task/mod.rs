//! Tasks: one allocation each, with an atomic word for its state (`state`), and the handles to it.

pub(crate) mod state;

mod handover;

#[cfg(not(loom))]
pub mod id;

#[cfg(not(loom))]
pub(crate) mod origin;

#[cfg(not(loom))]
pub(crate) mod account;

#[cfg(not(loom))]
pub mod awaits;

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
pub mod cell;

#[cfg(not(loom))]
pub mod join;

#[cfg(not(loom))]
pub mod refused;

#[cfg(not(loom))]
pub(crate) mod registry;

#[cfg(not(loom))]
pub mod block_in_place;

#[cfg(not(loom))]
pub mod yield_now;

#[cfg(not(loom))]
pub mod shield;
