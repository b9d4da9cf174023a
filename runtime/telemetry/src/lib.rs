//! The data that Volt's runtime, exporter and console share.
//!
//! A running program is a [`Process`] of [`Snapshot`]s, plain data that the runtime reads from its
//! cells. This crate defines that data and how it travels between programs. It computes nothing
//! from it: `volt-diagnosis` derives rates, findings and metrics, and `volt-recording` writes
//! recordings to files. This crate uses no other crate of Volt and contains no unsafe code.
//!
//! Reading order: [`snapshot`] with its parts [`histogram`], [`incident`], [`finding`] (with the
//! names in [`rule`]) and [`health`]; then the answers to questions about single tasks and
//! processes, [`tasks`], [`processes`] and [`why`]; then the flight recorder's events in
//! [`recording`]; last the control socket: [`wire`] defines its messages, [`socket`] its paths,
//! `client` (with the feature of that name) a connection.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
pub mod finding;
pub mod health;
pub mod histogram;
pub mod incident;
pub mod processes;
pub mod recording;
pub mod rule;
pub mod snapshot;
pub mod socket;
pub mod tasks;
pub mod text;
pub mod why;
pub mod wire;

mod bounded;

#[cfg(all(test, feature = "client"))]
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
