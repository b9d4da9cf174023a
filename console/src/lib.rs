//! A terminal's view into running Volt programs.
//!
//! The console attaches to a program's control socket and never links the runtime: it must work
//! when the runtime is what is broken. The binary `volt-console` is a thin front; a program may
//! also show itself with [`attach()`].
//!
//! A number's way from a socket to the screen, from the bottom of this list to its top:
//!
//! * [`text`]: figures and strings as they are printed; [`facts`]: what a snapshot means, in words;
//!   [`tables`]: columns of workers, tasks, processes and locations.
//! * [`model`]: the state of the screen. A [`Message`](model::Message) changes it; no terminal and
//!   no socket in there.
//! * [`view`]: draws the model.
//! * [`programs`]: finds programs and keeps connections to them, which send messages to the model;
//!   [`terminal`]: the terminal, and its keys and mouse as messages.
//! * [`commands`]: one file per command. [`attach`](commands::attach) and
//!   [`replay`](commands::replay) show the screen, the others print text or JSON.
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

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hostile;

pub use commands::attach::{Ended, Options, attach};
pub use error::Error;
