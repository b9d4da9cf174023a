//! What a task's header stores about the task for observers: where it was spawned and its name
//! (`origin`), what it waits for (`awaits`), and how often and how long it was polled (`account`).
//!
//! None of it influences how the task runs. `dump` is the spawn location that marks the tasks of
//! the runtime itself.

pub mod awaits;

pub(crate) mod account;
pub(crate) mod dump;
pub(crate) mod origin;
