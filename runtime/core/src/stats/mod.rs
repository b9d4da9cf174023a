//! Counters: what the runtime counts, and the cells that it counts in.

#[cfg(not(loom))]
pub(crate) mod blame;
#[cfg(not(loom))]
pub(crate) mod cells;
#[cfg(not(loom))]
pub(crate) mod counting;
#[cfg(not(loom))]
pub(crate) mod locations;
#[cfg(not(loom))]
pub(crate) mod numbers;
#[cfg(not(loom))]
pub(crate) mod reasons;
pub(crate) mod tally;
