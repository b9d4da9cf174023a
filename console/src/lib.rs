//! A terminal's view into running Volt programs.
//!
//! The console attaches to a program's control socket and never links the runtime: it must work when the runtime is what is
//! broken. The binary `volt-console` is a thin front; a program may also show itself with [`attach()`].
//!
//! Shape: [`connection`] (a thread that reads snapshots), [`asker`] (one that asks for tasks and processes) and [`input`] (keys, mouse) send [`model::Message`]s; [`model`] takes them in;
//! [`view`] draws the model. [`record`] writes down what a program's workers do; [`replay`] shows that on the same screens, [`export`] makes a
//! trace of it. [`list`], [`top`] and [`stacks`] print the same as text and JSON, [`doctor`] what is wrong with it; [`check`] holds it to limits.
#![forbid(unsafe_code)]

pub mod error;
pub mod figures;

pub mod clean;
pub mod facts;

pub mod blame;
pub mod columns;
pub mod incidents;
pub mod model;
pub mod processes;
pub mod table;
pub mod tasks;

pub mod hits;
pub mod input;
pub mod view;

pub mod asker;
pub mod connection;
pub mod progress;
pub mod target;
pub mod terminal;

pub mod attach;
pub mod check;
pub mod doctor;
pub mod export;
pub mod list;
pub mod picker;
pub mod record;
pub mod replay;
pub mod stacks;
pub mod top;
pub mod why;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod hostile;

pub use attach::{Ended, Options, attach};
pub use error::Error;
