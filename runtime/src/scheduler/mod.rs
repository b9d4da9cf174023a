//! Who runs what, when.

pub(crate) mod doze;
pub(crate) mod idle;
pub(crate) mod leases;
pub(crate) mod staff;

#[cfg(not(loom))]
mod census;
#[cfg(not(loom))]
pub(crate) mod core;
#[cfg(not(loom))]
pub(crate) mod current;
#[cfg(not(loom))]
mod doctor;
#[cfg(not(loom))]
pub(crate) mod incidents;
#[cfg(not(loom))]
mod lateness;
#[cfg(not(loom))]
mod listing;
#[cfg(not(loom))]
mod placement;
#[cfg(not(loom))]
pub(crate) mod processes;
#[cfg(not(loom))]
pub(crate) mod sentinel;
#[cfg(not(loom))]
pub(crate) mod shared;
#[cfg(not(loom))]
pub(crate) mod spares;
#[cfg(not(loom))]
pub(crate) mod tuner;
#[cfg(not(loom))]
mod why;
#[cfg(not(loom))]
mod witness;
#[cfg(not(loom))]
pub(crate) mod worker;
