//! The data that processes exchange: pids, payloads, events and exit reasons.

pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod payload;
pub(crate) mod pid;
