//! The scheduler: runs tasks on worker threads.
//!
//! Each *worker* is a thread with its own task queues (`core`, `worker`). It polls tasks from its
//! own queues, from the global queue, or steals them from other workers. `core::tuner` decides how
//! often it checks the global queue. A worker without a task parks (`idle`) until a new task wakes
//! it. The *sentinel* is a thread that watches the workers: while a worker is stuck in a poll, a
//! *spare* replaces it (`slots`, `spares`). `placement` chooses a worker for tasks from outside.
//! `workers` has the queues and everything else that the workers need to find and place tasks, and
//! `shared` the whole state of a runtime, with the sentinel's part in `watch` and that of observers
//! in `readers`. `spawn` submits tasks, `listing` lists them and `dump` polls them for observers.
//!
//! The modules below are in order: each one uses only those before it (`.ci/imports`).

pub(crate) mod ends;

pub(crate) mod idle;

pub(crate) mod slots;

pub(crate) mod shared_core;

#[cfg(not(loom))]
pub(crate) mod core;

#[cfg(not(loom))]
pub(crate) mod remote;

#[cfg(not(loom))]
mod placement;

#[cfg(not(loom))]
pub(crate) mod workers;

#[cfg(not(loom))]
pub(crate) mod spares;

#[cfg(not(loom))]
pub(crate) mod watch;
#[cfg(loom)]
mod watch {
    pub(crate) mod suspension;
}

#[cfg(not(loom))]
pub mod readers;

#[cfg(not(loom))]
pub(crate) mod shared;

#[cfg(not(loom))]
pub(crate) mod worker;

#[cfg(not(loom))]
pub mod logged;

#[cfg(not(loom))]
pub mod lease;

#[cfg(not(loom))]
mod spawn;

#[cfg(not(loom))]
pub(crate) mod listing;

#[cfg(not(loom))]
pub(crate) mod dump;

#[cfg(not(loom))]
pub(crate) mod sentinel;
