//! What is counted, and how.

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
