//! The runtimes, behind the smallest traits against which the workloads can be written.
//!
//! `peer` contains what all workloads need, `sockets` what those with connections need in addition,
//! and `sets` the runtimes' sets of tasks.
//! Each runtime is started with its own defaults and a number of workers, as described in its file.

pub(crate) mod peer;

pub(crate) mod smol;
pub(crate) mod tokio;
pub(crate) mod volt;

pub(crate) mod sets;
pub(crate) mod sockets;

use self::peer::Peer;
use self::smol::Smol;
use self::tokio::Tokio;
use self::volt::Volt;

/// In the order of the turns.
pub(crate) const NAMES: [&str; 3] = [Volt::NAME, <Tokio>::NAME, Smol::NAME];
