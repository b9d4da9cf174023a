//! The data that Volt's runtime, exporter and console share.
//!
//! The state of a running program is a [`Program`], which contains one [`Snapshot`] per runtime:
//! plain data that the runtime reads from its counters. This crate defines that data and how it is
//! sent between programs. It derives no other data: `volt-diagnosis` computes rates, findings and
//! metrics, and `volt-recording` writes recordings to files. This crate depends on no other crate
//! of Volt and contains no unsafe code.
//!
//! Reading order:
//! 1. [`snapshot`] with its parts [`histogram`], [`incident`], [`finding`] (with the rule names in
//!    [`rule`]) and [`health`]
//! 2. the lists of single tasks and processes: [`tasks`], [`processes`] and [`why`]; what every
//!    task awaits: [`dump`]; and tasks that wait for each other: [`waits`]
//! 3. the flight recorder's events: [`recording`]
//! 4. the control socket: its messages in [`wire`], its paths in [`socket`], and a connection in
//!    `client` (feature `client`)
#![forbid(unsafe_code)]

mod bounded;
pub mod rule;
pub mod text;

pub mod incident;
pub mod waits;

pub mod finding;
pub mod health;
pub mod histogram;
pub mod listing;
pub mod processes;
pub mod snapshot;

pub mod dump;
pub mod recording;
pub mod socket;
pub mod tasks;
pub mod why;
pub mod wire;

#[cfg(feature = "client")]
pub mod client;

#[cfg(test)]
mod scratch;

pub use health::Health;
pub use histogram::Histogram;
pub use incident::{Blame, Cause, CauseTime, Frame, Incident, Incidents, MainAwait, Remedy};
pub use snapshot::routes;
pub use snapshot::{
    Blocking, Clock, Config, Driver, Duty, GlobalChecks, GlobalQueue, Host, InFlight, Phase, Program, Sentinel,
    Snapshot, Tasks, Timers, Tokio, Unparks, Worker,
};

// The example in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
