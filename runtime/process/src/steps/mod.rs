//! The execution of a process: its start, its state machine, and its yields.
//!
//! `start` starts the process that `spawn` describes. `runner` is its task, which steps the state
//! machine (`machine`) and dispatches the yields in the output of the step. For a command,
//! `handlers` finds a handler; `commands` has the system's own, and `yields` the methods that
//! request them. `dispatch` passes a command to its handler. `context` is the handle that a process
//! has, and `inbox` runs an async function as a process.

pub(crate) mod context;
pub(crate) mod dispatch;
pub(crate) mod machine;
pub(crate) mod spawn;

pub(crate) mod commands;
pub(crate) mod handlers;
pub(crate) mod inbox;
pub(crate) mod runner;
pub(crate) mod start;
pub(crate) mod yields;
