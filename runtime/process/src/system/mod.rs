//! A system of processes: starts, finds, monitors and ends processes, and sends messages to them.

pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod ends;
pub(crate) mod home;
pub(crate) mod send;
pub(crate) mod shutdown;
pub(crate) mod start;
