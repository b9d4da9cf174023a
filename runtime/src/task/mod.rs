//! Tasks: one allocation each, a packed word that says what may be done with it, and handles to it.

pub(crate) mod state;

mod handover;

#[cfg(not(loom))]
pub(crate) mod id;

#[cfg(not(loom))]
pub(crate) mod origin;

#[cfg(not(loom))]
pub(crate) mod account;

#[cfg(not(loom))]
pub(crate) mod awaits;

#[cfg(not(loom))]
pub(crate) mod header;

#[cfg(not(loom))]
pub(crate) mod trace;

#[cfg(not(loom))]
pub(crate) mod waker;

#[cfg(not(loom))]
pub(crate) mod contain;

#[cfg(not(loom))]
pub(crate) mod current;

#[cfg(not(loom))]
pub(crate) mod cell;

#[cfg(not(loom))]
pub(crate) mod join;

#[cfg(not(loom))]
pub(crate) mod registry;

#[cfg(not(loom))]
pub(crate) mod spawn;

#[cfg(not(loom))]
mod block_in_place;

#[cfg(not(loom))]
pub(crate) mod blocks;

#[cfg(not(loom))]
mod yield_now;

#[cfg(not(loom))]
mod shield;

#[cfg(not(loom))]
mod join_set;

#[cfg(not(loom))]
mod scope;

#[cfg(not(loom))]
mod local_set;

#[cfg(not(loom))]
mod task_local;

#[cfg(not(loom))]
pub use {
    block_in_place::block_in_place,
    id::{Id, id, try_id},
    join::{AbortHandle, JoinError, JoinHandle},
    join_set::JoinSet,
    local_set::{LocalSet, spawn_local},
    scope::{Child, Scope, ScopeError, scope},
    shield::{Shield, ShieldError, is_cancellation_effective, is_cancelled, shield},
    spawn::{Builder, TrySpawnError, spawn, spawn_blocking, try_spawn},
    task_local::{LocalAccessError, LocalKey, Scoped},
    yield_now::{consume_budget, yield_now},
};
