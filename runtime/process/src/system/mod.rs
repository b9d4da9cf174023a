//! A system of processes: starts, finds, monitors and ends processes, and sends messages to them.
//!
//! `core` has the state of a system, `builder` its settings, and `home` the functions that the
//! entries of its processes call. The other modules have one group of methods each.

pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod ends;
pub(crate) mod home;
pub(crate) mod send;
pub(crate) mod shutdown;
pub(crate) mod start;
