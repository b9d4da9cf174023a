//! The data that processes exchange: pids, payloads, events and exit reasons.

pub(crate) mod failure;
pub(crate) mod payload;
pub(crate) mod pid;

pub(crate) mod event;
