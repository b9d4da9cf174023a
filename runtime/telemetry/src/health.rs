//! What the observer counts of itself.
//!
//! Who writes: the runtime's observer. Who reads: whoever shows a process, since numbers that are
//! missing are explained here.

use serde::{Deserialize, Serialize};

/// How the observer of a process is doing; counts are since the process started, over every control
/// socket it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Health {
    /// Clients attached now.
    pub clients: u64,
    /// Connections that became clients.
    pub accepted: u64,
    /// Connections turned away because there were enough clients.
    pub refused_full: u64,
    /// Connections turned away because they came from another user, or from one that the kernel
    /// could not name.
    pub refused_foreign: u64,
    /// Times that the kernel gave no connection though one waited, as a rule for want of file
    /// descriptors.
    pub accept_failures: u64,
    /// Clients dropped because they sent what is no request: garbage, or a frame above the limit.
    pub dropped_malformed: u64,
    /// Clients dropped because they asked nothing, or did not end a request that they had begun.
    pub dropped_silent: u64,
    /// Clients dropped because they did not read.
    pub dropped_slow: u64,
    /// Times that a client was made to wait, since its answers took more of a processor than a
    /// client may have.
    pub throttles: u64,
    /// Snapshots sent.
    pub snapshots: u64,
    /// Snapshots of subscriptions that were skipped because the client read too slowly.
    pub snapshots_lost: u64,
    /// Snapshots that went out without some of their numbers, or not at all, because they were
    /// larger than a frame.
    pub snapshots_cut: u64,
    /// Snapshots that could not be taken because taking them panicked.
    pub snapshot_panics: u64,
}
