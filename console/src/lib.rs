//! A terminal console for running Volt programs.
//!
//! The console attaches to a program's control socket and does not link the runtime, so that it
//! works even when the runtime is the problem. The program `volt-console` is a thin wrapper around
//! this crate. A program can also show itself with [`attach()`].
//!
//! The modules, in the order of the data flow from the screen down to the socket:
//!
//! * [`text`]: formats figures and strings; [`facts`]: explains snapshots; [`tables`]: the columns
//!   of workers, tasks, processes and locations.
//! * [`model`]: the state of the screen. A [`Message`](model::Message) changes it. It uses no
//!   terminal and no socket.
//! * [`view`]: draws the model.
//! * [`programs`]: finds programs and keeps connections to them, which send messages to the model;
//!   [`terminal`]: the terminal, and its keys and mouse as messages.
//! * [`commands`]: a file or a directory for each command. [`attach`](commands::attach) and
//!   [`replay`](commands::replay) show the screen; the others print text or JSON. `arguments` is
//!   the command line that selects one.
#![forbid(unsafe_code)]

pub mod text;

pub mod error;
pub mod facts;

pub mod tables;

pub mod model;

pub mod view;

pub mod programs;
pub mod terminal;

pub mod commands;

// For the program `volt-console` only.
#[doc(hidden)]
pub mod arguments;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hostile;

pub use commands::attach::{Ended, Options, attach};
pub use error::Error;
