//! What is counted, and how.

pub(crate) mod blame;
pub(crate) mod cells;
pub(crate) mod counting;
pub(crate) mod locations;
