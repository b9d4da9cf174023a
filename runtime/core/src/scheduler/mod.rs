//! Who runs what, when.

pub(crate) mod ends;
pub(crate) mod idle;
pub(crate) mod leases;
pub(crate) mod parking;
pub(crate) mod staff;

#[cfg(not(loom))]
pub(crate) mod core;
#[cfg(not(loom))]
pub(crate) mod current;
#[cfg(not(loom))]
mod doctor;
#[cfg(not(loom))]
pub mod listing;
#[cfg(not(loom))]
mod placement;
#[cfg(not(loom))]
pub(crate) mod rng;
#[cfg(not(loom))]
pub(crate) mod sentinel;
#[cfg(loom)]
mod sentinel {
    pub(crate) mod doze;
}
#[cfg(not(loom))]
pub(crate) mod remote;
#[cfg(not(loom))]
pub(crate) mod shared;
#[cfg(not(loom))]
pub(crate) mod spares;
#[cfg(not(loom))]
pub(crate) mod tuner;
#[cfg(not(loom))]
pub(crate) mod worker;
