//! Supervisors: processes that start other processes, and restart them when they fail.

mod child_spec;
mod control;
mod machine;
mod restart;
mod roster;
mod running;
mod tree;

pub use {
    child_spec::{ChildSpec, Restart},
    control::{ChildInfo, SupervisorError, SupervisorRef},
    restart::Backoff,
    tree::{Strategy, Supervisor},
};
