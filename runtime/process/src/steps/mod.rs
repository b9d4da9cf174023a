//! How a process runs: its state machine, what a step returns, and how the yields of a step are
//! carried out.

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
