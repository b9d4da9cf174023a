//! Asynchronous tasks: spawning, joining, cancelling and grouping them.
//!
//! A task is a future that the runtime polls on one of its workers, independently of the code that
//! spawned it.
//!
//! # Spawning
//!
//! [`spawn()`] starts a task and returns a [`JoinHandle`], which returns the output of the task
//! when it is awaited. [`Builder`] also sets the name of a task. [`JoinSet`] and [`scope()`] group
//! tasks. [`spawn_local`] spawns futures that are not `Send`.
//!
//! # Cancellation
//!
//! [`JoinHandle::abort`] and the shutdown of the runtime cancel a task: its future is dropped at
//! the `.await` where it waits. The code between two `.await`s is not interrupted, and a [`Shield`]
//! defers the cancellation. Dropping a `JoinHandle` does not cancel its task.
//!
//! # Blocking
//!
//! A task that blocks its thread, or computes for long, delays the other tasks of its worker until
//! the runtime moves them to another one. Run blocking code with [`spawn_blocking`] or
//! [`block_in_place`]. Call [`yield_now`] during a long computation. The module [`coop`] describes
//! how operations on sockets and channels make a task yield.

mod local_set;
pub(crate) mod spawn;

pub mod coop;
pub mod join_set;
mod scope;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod select;
mod task_local;

pub use {
    join_set::JoinSet,
    local_set::{LocalEnterGuard, LocalSet, spawn_local},
    scope::{Child, Scope, ScopeError, scope},
    spawn::{Builder, spawn_blocking, try_spawn},
    task_local::{LocalAccessError, LocalKey},
    volt_core::context::block_in_place::block_in_place,
    volt_core::spawn,
    volt_core::task::{
        AbortHandle, Id, JoinError, JoinHandle, Shield, ShieldError, TrySpawnError, consume_budget, id,
        is_cancellation_effective, is_cancelled, shield, try_id, yield_now,
    },
};

/// Named future types.
pub mod futures {
    pub use super::task_local::TaskLocalFuture;
}
