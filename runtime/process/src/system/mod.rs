//! A system of processes: how they are started, found, sent to, watched and ended.

pub(crate) mod builder;
pub(crate) mod call;
pub(crate) mod core;
pub(crate) mod ends;
pub(crate) mod home;
pub(crate) mod send;
pub(crate) mod shutdown;
pub(crate) mod start;
