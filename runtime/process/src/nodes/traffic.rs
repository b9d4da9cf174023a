//! Counters of the frames between this node and others, for [`RelayCounts`].

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that several threads increment.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        // ORDERING: Relaxed; a counter, which publishes nothing.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        // ORDERING: Relaxed; the value is only displayed.
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a system with a relay. [`RelayCounts`] documents them.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub sent: Count,
    pub received: Count,
    pub refused: Count,
    pub lost: Count,
    pub duplicates: Count,
    pub stale: Count,
    pub malformed: Count,
    pub unknown: Count,
    pub strangers: Count,
    pub undelivered: Count,
    pub nodes_lost: Count,
}

/// Counts of the frames between a system and other nodes since the system was created.
/// [`System::relay_counts`](crate::System::relay_counts) returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Frames that the relay accepted.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
    /// Frames that the relay rejected because its queue was full or the node was lost. The sender
    /// got an error, or the frame was kept and offered again.
    pub refused: u64,
    /// Frames of other nodes that did not arrive, according to the gaps in their numbers. After
    /// each gap, all calls, monitors and links between the two nodes end.
    pub lost: u64,
    /// Frames that arrived again, or too late. They were ignored.
    pub duplicates: u64,
    /// Frames of a conversation that has been broken off. They were ignored.
    pub stale: u64,
    /// Frames that could not be decoded.
    pub malformed: u64,
    /// Frames of an unknown kind or version. They were ignored.
    pub unknown: u64,
    /// Frames from node incarnations that were not connected. They were ignored.
    pub strangers: u64,
    /// Messages that arrived and were dropped because the process had exited or its mailbox was
    /// full.
    pub undelivered: u64,
    /// How often a node was lost.
    pub nodes_lost: u64,
}

impl Traffic {
    pub(crate) fn counts(&self) -> RelayCounts {
        RelayCounts {
            sent: self.sent.get(),
            received: self.received.get(),
            refused: self.refused.get(),
            lost: self.lost.get(),
            duplicates: self.duplicates.get(),
            stale: self.stale.get(),
            malformed: self.malformed.get(),
            unknown: self.unknown.get(),
            strangers: self.strangers.get(),
            undelivered: self.undelivered.get(),
            nodes_lost: self.nodes_lost.get(),
        }
    }
}
