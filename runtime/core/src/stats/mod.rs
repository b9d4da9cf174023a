//! Counters: what the runtime counts, and the cells that it counts in. Workers write them,
//! snapshots read them.
//!
//! `numbers` has the kinds of cells, and `cells` the cells of one worker. `blame` counts by spawn
//! location, and `routes` by HTTP route. `locations` numbers the spawn locations for the flight
//! recorder. `reasons` lists the reasons that are counted separately. `tally` has the counts that a
//! shutdown needs. `counting` decides whether the others are written. `placed` is the memory of
//! cells.

#[cfg(not(loom))]
pub(crate) mod counting;

#[cfg(not(loom))]
pub(crate) mod locations;

#[cfg(not(loom))]
pub(crate) mod numbers;

#[cfg(not(loom))]
pub(crate) mod blame;

pub(crate) mod placed;

#[cfg(not(loom))]
pub(crate) mod reasons;

#[cfg(not(loom))]
pub(crate) mod routes;

pub(crate) mod tally;

#[cfg(not(loom))]
pub(crate) mod cells;
