//! A system of processes: finds, monitors and ends processes, and sends messages to them.
//!
//! `core` has the state of a system, and `home` the functions that the entries of its processes
//! call. The other modules have one group of methods each. The methods that start processes are in
//! `steps/start`, and those that build a system in `builder`.

pub(crate) mod core;

pub(crate) mod ends;
pub(crate) mod home;
pub(crate) mod send;

pub(crate) mod call;
pub(crate) mod shutdown;
