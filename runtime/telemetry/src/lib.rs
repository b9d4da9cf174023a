//! The vocabulary that Volt's runtime, exporter and console share.
//!
//! A running program is seen as a [`Process`] of [`Snapshot`]s, plain data lifted once from the runtime's cells. Everything
//! else here is about those: what a number is called ([`catalog`]), what follows from two of them ([`rates`]), and how they
//! travel ([`wire`], [`socket`]). This crate imports nothing of Volt's and holds no unsafe code.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod client;
pub mod doctor;
pub mod health;
pub mod histogram;
pub mod incident;
pub mod processes;
pub mod rates;
pub mod recording;
pub mod snapshot;
pub mod socket;
pub mod tasks;
pub mod text;
pub mod why;
pub mod wire;

mod bounded;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod scratch;

pub use health::Health;
pub use histogram::Histogram;
pub use incident::{Blame, Cause, Frame, Incident, Incidents, Remedy};
pub use snapshot::{
    Blocking, Clock, Config, Driver, Duty, GlobalChecks, GlobalQueue, Host, InFlight, Phase, Process, Sentinel,
    Snapshot, Tasks, Timers, Tokio, Unparks, Worker,
};
