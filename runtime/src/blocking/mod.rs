//! Threads for work that blocks.

pub(crate) mod pool;
