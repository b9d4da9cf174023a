//! Tasks. See `volt::task`.

#[cfg(tokio_unstable)]
mod builder;
#[cfg(tokio_unstable)]
pub mod join_set;

#[cfg(tokio_unstable)]
pub use builder::Builder;
#[cfg(tokio_unstable)]
pub use join_set::JoinSet;
#[cfg(not(tokio_unstable))]
pub use volt::task::JoinSet;
#[doc(hidden)]
pub use volt::task::coop::{Unconstrained, unconstrained};
pub use volt::task::{
    AbortHandle, Id, JoinError, JoinHandle, LocalEnterGuard, LocalKey, LocalSet, block_in_place, consume_budget, coop,
    futures, id, spawn, spawn_blocking, spawn_local, try_id, yield_now,
};
