//! The execution of a process: its state machine, the result of a step, and the yields of a step.

pub(crate) mod command;
pub(crate) mod commands;
pub(crate) mod context;
pub(crate) mod dispatch;
pub(crate) mod handlers;
pub(crate) mod inbox;
pub(crate) mod machine;
pub(crate) mod output;
pub(crate) mod runner;
pub(crate) mod spawn;
pub(crate) mod work;
pub(crate) mod yields;
