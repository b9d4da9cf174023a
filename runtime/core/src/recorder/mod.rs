//! The flight recorder: what every worker did last, always at hand.
//!
//! [`ring`] holds one thread's records; [`lanes`] are all rings of a runtime, and what a worker
//! calls; [`drain`] collects them, [`anchor`] says how the clocks stand.

#[cfg(not(loom))]
mod anchor;
#[cfg(not(loom))]
pub(crate) mod drain;
#[cfg(not(loom))]
pub(crate) mod lanes;
pub(crate) mod ring;
