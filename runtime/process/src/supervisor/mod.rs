//! Supervisors: processes that start other processes, and restart them when they fail.
//!
//! `tree` is the plan of a supervisor, and `child_spec` that of a child. `machine` and `running`
//! execute the plan: `restart` computes pauses and limits, and `roster` finds the children.
//! `control` adds, ends and lists children while the supervisor runs.

mod child_spec;
mod restart;
mod tree;

mod control;
mod roster;
mod running;

mod machine;

pub use {
    child_spec::{ChildSpec, Restart},
    control::{ChildInfo, SupervisorError, SupervisorRef},
    restart::Backoff,
    tree::{Strategy, Supervisor},
};
