//! The runtimes, behind the smallest traits that the workloads can be written against.
//!
//! `peer` is what all workloads need, `sockets` what those with connections need besides. Each
//! runtime is started with its own defaults and a number of workers; how, its own file says.

pub(crate) mod peer;
pub(crate) mod smol;
pub(crate) mod sockets;
pub(crate) mod tokio;
pub(crate) mod volt;

use self::peer::Peer;
use self::smol::Smol;
use self::tokio::Tokio;
use self::volt::Volt;

/// In the order of the turns.
pub(crate) const NAMES: [&str; 3] = [Volt::NAME, <Tokio>::NAME, Smol::NAME];
