//! What is reported about the processes of a system: one by one, as a list, and in sum.

pub(crate) mod info;
pub(crate) mod listing;
pub(crate) mod survey;
