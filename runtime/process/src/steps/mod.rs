//! The execution of a process: its state machine, the result of a step, and the yields of a step.
//!
//! `runner` is the task of a process. It steps the state machine (`machine`) and dispatches the
//! *yields* in the `output` of the step: operations that run while the process waits. A yield is a
//! `command`, for which `handlers` finds a handler; `commands` has the system's own, and `yields`
//! the methods that request them. `dispatch` passes a command to its handler, and `work` has the
//! yields that have not completed. `spawn` describes a new process, `context` is the handle that a
//! process has, and `inbox` runs an async function as a process.

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
