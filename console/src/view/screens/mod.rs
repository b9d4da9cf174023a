//! The screens, one file each.

pub mod blame;
pub mod doctor;
pub mod events;
pub mod incidents;
pub mod latency;
pub mod overview;
pub mod processes;
pub mod routes;
pub mod tasks;
pub mod waits;
pub mod worker;
