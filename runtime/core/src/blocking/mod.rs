//! Threads for work that blocks.

mod crew;
#[cfg(not(loom))]
pub(crate) mod pool;
