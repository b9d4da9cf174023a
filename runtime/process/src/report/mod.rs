//! Reports on the processes of a system: one process, a list, and totals.

pub(crate) mod info;
pub(crate) mod listing;
pub(crate) mod survey;
