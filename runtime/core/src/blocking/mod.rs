//! The blocking pool: threads for work that blocks.

mod crew;
#[cfg(not(loom))]
pub(crate) mod pool;
