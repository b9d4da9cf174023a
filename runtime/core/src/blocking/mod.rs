//! The blocking pool: threads for work that blocks, such as the closures of `spawn_blocking`.
//!
//! `threads` is the protocol that provides a thread for each job. `pool` starts the threads and
//! runs the jobs.

mod threads;

#[cfg(not(loom))]
pub(crate) mod pool;
