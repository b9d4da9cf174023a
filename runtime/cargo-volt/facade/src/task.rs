//! Tasks. See `volt::task`.

#[doc(hidden)]
pub use volt::task::coop::{Unconstrained, unconstrained};
pub use volt::task::{
    AbortHandle, Id, JoinError, JoinHandle, JoinSet, LocalEnterGuard, LocalKey, LocalSet, block_in_place,
    consume_budget, coop, futures, id, spawn, spawn_blocking, spawn_local, try_id, yield_now,
};
#[cfg(tokio_unstable)]
pub use volt::task::{Builder, join_set};
