//! What went between this node and others, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that many add to.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        // ORDERING: Relaxed; a count, which publishes nothing.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        // ORDERING: Relaxed; a reading for show.
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of a system with a relay; [`RelayCounts`] says what they are.
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

/// What went between a system and those of other nodes since its start, as
/// [`System::relay_counts`](crate::System::relay_counts) found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounts {
    /// Frames that the relay took.
    pub sent: u64,
    /// Frames that came.
    pub received: u64,
    /// Frames that the relay did not take, as its queue was full or the node gone. Senders were
    /// told, or the frame was kept and offered again.
    pub refused: u64,
    /// Frames of others that did not come, by the gaps in their numbers. Each gap ends what hangs
    /// on the conversation.
    pub lost: u64,
    /// Frames that came again, or too late. They were left.
    pub duplicates: u64,
    /// Frames of a conversation that was broken off. They were left.
    pub stale: u64,
    /// What came and was no frame.
    pub malformed: u64,
    /// Frames of a kind or a version that this one does not know. They were left.
    pub unknown: u64,
    /// Frames from lives of nodes that were not up. They were left.
    pub strangers: u64,
    /// Messages that came and were dropped: the process had ended, or its mailbox was full.
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
