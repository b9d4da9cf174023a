//! The scheduler: runs tasks on worker threads.
//!
//! Each *worker* is a thread with its own task queues (`core`, `worker`). It polls tasks from its
//! own queues, from the global queue, or steals them from other workers. `core::tuner` decides how
//! often it checks the global queue. A worker without a task parks (`idle`) until a new task wakes
//! it. The *sentinel* is a thread that watches the workers: while a worker is stuck in a poll, a
//! *spare* replaces it (`staff`, `spares`). `placement` chooses a worker for tasks from outside.
//! `shared` is the state that all workers of a runtime share, and `listing` lists the tasks for
//! observers.

pub(crate) mod ends;
pub(crate) mod idle;
pub(crate) mod leases;
pub(crate) mod seat;
pub(crate) mod staff;

#[cfg(not(loom))]
pub(crate) mod core;
#[cfg(not(loom))]
pub mod current;
#[cfg(not(loom))]
pub(crate) mod dump;
#[cfg(not(loom))]
pub mod listing;
#[cfg(not(loom))]
pub mod logged;
#[cfg(not(loom))]
mod placement;
#[cfg(not(loom))]
pub(crate) mod sentinel;
#[cfg(loom)]
mod sentinel {
    pub(crate) mod doze;
}
#[cfg(not(loom))]
pub(crate) mod remote;
#[cfg(not(loom))]
pub(crate) mod shared;
#[cfg(not(loom))]
pub(crate) mod spares;
#[cfg(not(loom))]
pub(crate) mod worker;
