//! The flight recorder: it keeps the latest events of every worker, so that a recording can be
//! taken at any time.
//!
//! [`ring`] contains the records of one thread. [`lanes`] contains all rings of a runtime, and the
//! functions that workers call. [`drain`] collects the records, and [`anchor`] relates the clocks
//! to each other. [`black_box`] keeps rings and cells in a file, for a program that is killed.
//! [`cuts`] removes parts of a snapshot that is too large for a record.

#[cfg(not(loom))]
mod anchor;

#[cfg(not(loom))]
pub(crate) mod black_box;

#[cfg(not(loom))]
pub(crate) mod cuts;

pub(crate) mod ring;

#[cfg(not(loom))]
pub(crate) mod lanes;

#[cfg(not(loom))]
pub(crate) mod drain;
