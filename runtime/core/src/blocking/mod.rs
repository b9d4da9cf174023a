//! The blocking pool: threads for work that blocks, such as the closures of `spawn_blocking`.
//!
//! `crew` is the protocol that provides a thread for each job. `pool` has the threads and the jobs.

mod crew;
#[cfg(not(loom))]
pub(crate) mod pool;
