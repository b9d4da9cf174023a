//! What processes exchange: pids, payloads, events, and the reasons for which they end.

pub(crate) mod event;
pub(crate) mod failure;
pub(crate) mod payload;
pub(crate) mod pid;
