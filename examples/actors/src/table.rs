//! The table of the results: its columns, which are the libraries, and its rows, which the
//! workloads fill.

use crate::actix_peer::Actix;
use crate::function_form::Functions;
use crate::kameo_peer::Kameo;
use crate::machine_form::Machines;
use crate::peer::Peer;
use crate::ractor_peer::Ractor;
use crate::volt_peer::Volt;
use crate::workloads::{self, Meter};

pub(crate) const PEERS: usize = 5;
pub(crate) const NAMES: [&str; PEERS] =
    [Volt::<Machines>::NAME, Volt::<Functions>::NAME, Ractor::NAME, Kameo::NAME, <Actix as Peer>::NAME];

/// One line of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) about: &'static str,
}

/// Returns one value per row.
type Run = fn(&Meter) -> Vec<f64>;

pub(crate) struct Workload {
    pub(crate) rows: &'static [Row],
    /// In the order of [`NAMES`].
    pub(crate) runs: [Run; PEERS],
    /// The number of rounds after which the result is precise enough.
    pub(crate) max_rounds: usize,
}

macro_rules! workload {
    ($run:ident, $max_rounds:expr, $(($name:expr, $unit:expr, $about:expr)),+) => {
        Workload {
            rows: &[$(Row { name: $name, unit: $unit, about: $about }),+],
            runs: [
                workloads::$run::<Volt<Machines>>,
                workloads::$run::<Volt<Functions>>,
                workloads::$run::<Ractor>,
                workloads::$run::<Kameo>,
                workloads::$run::<Actix>,
            ],
            max_rounds: $max_rounds,
        }
    };
}

pub(crate) const WORKLOADS: &[Workload] = &[
    workload!(
        spawn,
        usize::MAX,
        ("spawn", "ns", "a task starts 10,000 processes, until all have begun"),
        ("end", "ns", "it stops them, until all have ended")
    ),
    workload!(ping_pong, usize::MAX, ("ping_pong", "ns", "two processes and one token: a message")),
    workload!(pairs, usize::MAX, ("ping_pong_100", "ns", "100 such pairs together")),
    workload!(ring, usize::MAX, ("ring", "ns", "10,000 processes in a ring and one token: a message")),
    workload!(fan_in, usize::MAX, ("fan_in", "ns", "1,000 processes send 50 messages each to one: a message")),
    workload!(idle, 3, ("idle", "bytes", "1,000,000 processes that have begun and wait: one of them")),
];
