//! The data in a task's header for observers: the spawn location and the name (`origin`), the await
//! (`awaits`), and the number and duration of its polls (`account`).
//!
//! None of it influences how the task runs. `dump` is the spawn location that marks the tasks of
//! the runtime itself.

pub mod awaits;

pub(crate) mod account;
pub(crate) mod dump;
pub(crate) mod origin;
