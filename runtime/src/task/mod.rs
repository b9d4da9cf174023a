//! Asynchronous tasks: spawning, joining, cancelling and grouping them.
//!
//! A task is a future that the runtime polls on one of its workers, independently of the code that
//! spawned it.

pub mod coop;
pub mod join_set;
mod local_set;
mod scope;
pub(crate) mod spawn;
mod task_local;

pub use {
    join_set::JoinSet,
    local_set::{LocalEnterGuard, LocalSet, spawn_local},
    scope::{Child, Scope, ScopeError, scope},
    spawn::{Builder, spawn, spawn_blocking, try_spawn},
    task_local::{LocalAccessError, LocalKey},
    volt_core::task::{
        block_in_place::block_in_place,
        current::{id, try_id},
        id::Id,
        join::{AbortHandle, JoinError, JoinHandle},
        refused::TrySpawnError,
        shield::{Shield, ShieldError, is_cancellation_effective, is_cancelled, shield},
        yield_now::{consume_budget, yield_now},
    },
};

/// Futures of this module with a name.
pub mod futures {
    pub use super::task_local::TaskLocalFuture;
}
