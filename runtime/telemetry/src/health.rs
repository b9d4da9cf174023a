//! Counters of the observer itself.
//!
//! The *observer* is the thread of a program that serves the control socket. It writes these
//! counters; the thread of the page of metrics adds the snapshots that panicked there. Clients show
//! them because they explain missing numbers.

use serde::{Deserialize, Serialize};

/// The state of a program's observer. Counters cover all control sockets since the program started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Health {
    /// Clients connected now.
    pub clients: u64,
    /// Connections that were accepted as clients.
    pub accepted: u64,
    /// Connections refused because the maximum number of clients was reached.
    pub refused_full: u64,
    /// Connections refused because the peer is another user, or one that the kernel could not
    /// identify.
    pub refused_foreign: u64,
    /// Times that accepting a pending connection failed, usually for lack of file descriptors.
    pub accept_failures: u64,
    /// Clients dropped because they sent a malformed request, or a frame above the size limit.
    pub dropped_malformed: u64,
    /// Clients dropped because they sent no request, or did not complete one.
    pub dropped_silent: u64,
    /// Clients dropped because they did not read their replies.
    pub dropped_slow: u64,
    /// Times that a client was delayed because its replies used more processor time than one client
    /// may use.
    pub throttles: u64,
    /// Snapshots sent.
    pub snapshots: u64,
    /// Snapshots of subscriptions that were skipped because the client read too slowly.
    pub snapshots_lost: u64,
    /// Snapshots that exceeded the frame size and were sent without some of their numbers, or not
    /// at all.
    pub snapshots_cut: u64,
    /// Snapshots that failed because collecting them panicked.
    pub snapshot_panics: u64,
}
