//! Tasks. See `volt::task`.

#[cfg(tokio_unstable)]
mod builder;
#[cfg(tokio_unstable)]
pub mod join_set;
#[cfg(tokio_unstable)]
mod local_set;

#[cfg(tokio_unstable)]
pub use builder::Builder;
#[cfg(tokio_unstable)]
pub use join_set::JoinSet;
#[cfg(tokio_unstable)]
pub use local_set::LocalSet;
#[doc(hidden)]
pub use volt::task::coop::{Unconstrained, unconstrained};
pub use volt::task::{
    AbortHandle, Id, JoinError, JoinHandle, LocalEnterGuard, LocalKey, block_in_place, consume_budget, coop, futures,
    id, spawn, spawn_blocking, spawn_local, try_id, yield_now,
};
#[cfg(not(tokio_unstable))]
pub use volt::task::{JoinSet, LocalSet};
