//! Tasks: one allocation each, a packed word that says what may be done with it, and handles to it.

pub(crate) mod state;

#[cfg(not(loom))]
pub(crate) mod header;

#[cfg(not(loom))]
pub(crate) mod cell;

#[cfg(not(loom))]
pub(crate) mod waker;

#[cfg(not(loom))]
pub(crate) mod id;

#[cfg(not(loom))]
pub(crate) mod join;

#[cfg(not(loom))]
pub(crate) mod registry;

#[cfg(not(loom))]
pub(crate) mod spawn;

#[cfg(not(loom))]
pub(crate) mod yield_now;

#[cfg(not(loom))]
pub use id::{Id, id, try_id};
#[cfg(not(loom))]
pub use join::{AbortHandle, JoinError, JoinHandle};
#[cfg(not(loom))]
pub use spawn::{Builder, spawn, spawn_blocking};
#[cfg(not(loom))]
pub use yield_now::{consume_budget, yield_now};
