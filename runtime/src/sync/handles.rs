//! Counts the senders and receivers of a channel with many receivers, and identifies the channel to
//! which a handle belongs. A dump shows both.
//!
//! Each sender owns an `Arc` of the channel's [`Channel`], each receiver a `Weak`. So the counts of
//! the two are the numbers of senders and receivers. Tokio's receivers do not return these, and
//! the future of their operation borrows them while it waits.
//!
//! The channel also measures how far its slowest receiver is behind ([`Lag`]), for which a dump
//! upgrades a weak sender for a moment. At that moment, the number of senders that Tokio counts is
//! one higher. If the last sender is dropped at that moment, the channel is closed only afterwards.
//!
//! Writers: handles that are created, cloned and dropped. Reader: a dump.
//!
//! Rejected: a record of each receiver's position, since Tokio does not return the position of the
//! channel: each send would have to count, by a read-modify-write.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use volt_core::task::resources::{Awaited, Key};
use volt_telemetry::dump::Resource;

/// The state that the handles of a channel share. Its address identifies the channel.
struct Channel<L> {
    /// The number of weak senders, which own a `Weak` as receivers do.
    weak_senders: AtomicUsize,
    lag: L,
}

/// Measures how far the slowest receiver of a channel is behind.
pub(super) trait Lag {
    /// Returns the number of messages that it has not received, and how many the channel keeps.
    /// `None` if the channel keeps no messages, or all senders are dropped.
    fn messages(&self) -> Option<(usize, usize)>;
}

/// For a channel that keeps only its latest value.
impl Lag for () {
    fn messages(&self) -> Option<(usize, usize)> {
        None
    }
}

/// A part of each sender.
pub(super) struct OfSender<L>(Arc<Channel<L>>);

/// A part of each receiver.
pub(super) struct OfReceiver<L>(Weak<Channel<L>>);

/// A part of each weak sender.
pub(super) struct OfWeakSender<L>(Weak<Channel<L>>);

impl<L> Clone for OfSender<L> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<L> Clone for OfReceiver<L> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<L: Lag> OfSender<L> {
    /// Returns the part of the first sender of a channel.
    pub(super) fn new(lag: L) -> Self {
        Self(Arc::new(Channel { weak_senders: AtomicUsize::new(0), lag }))
    }

    pub(super) fn receiver(&self) -> OfReceiver<L> {
        OfReceiver(Arc::downgrade(&self.0))
    }

    pub(super) fn downgrade(&self) -> OfWeakSender<L> {
        let weak = OfWeakSender(Arc::downgrade(&self.0));
        weak.count();
        weak
    }

    /// Returns the channel, whose receivers a sender awaits.
    pub(super) fn awaited(&self, kind: &'static str, receivers: usize) -> Awaited {
        let key = Key::receivers_of(Arc::as_ptr(&self.0));
        Awaited::new(key, kind, Resource { receivers: Some(receivers as u64), ..numbers(&self.0.lag) })
    }
}

impl<L: Lag> OfReceiver<L> {
    /// Returns the channel, whose senders a receiver awaits.
    pub(super) fn awaited(&self, kind: &'static str) -> Awaited {
        // Read before the upgrade below, which counts as one more sender.
        let senders = Some(self.0.strong_count() as u64);
        let (weak_senders, numbers) = self.0.upgrade().map_or((0, Resource::default()), |channel| {
            // ORDERING: Relaxed: a number for a report.
            (channel.weak_senders.load(Ordering::Relaxed), numbers(&channel.lag))
        });
        let receivers = Some(self.0.weak_count().saturating_sub(weak_senders) as u64);
        Awaited::new(Key::of(self.0.as_ptr().cast::<()>()), kind, Resource { senders, receivers, ..numbers })
    }

    /// Returns whether a sender exists.
    pub(super) fn has_senders(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Returns the messages that the slowest receiver has not received.
fn numbers(lag: &impl Lag) -> Resource {
    let (messages, capacity) = lag.messages().unzip();
    let [messages, capacity] = [messages, capacity].map(|number| number.map(|number| number as u64));
    Resource { messages, capacity, ..Resource::default() }
}

impl<L> OfWeakSender<L> {
    /// Returns the part of a sender; `None` if all senders are dropped.
    pub(super) fn upgrade(&self) -> Option<OfSender<L>> {
        self.0.upgrade().map(OfSender)
    }

    /// Returns whether a sender exists.
    pub(super) fn has_senders(&self) -> bool {
        self.0.strong_count() > 0
    }

    fn count(&self) {
        if let Some(channel) = self.0.upgrade() {
            // ORDERING: Relaxed: as in `OfReceiver::awaited`.
            channel.weak_senders.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<L> Clone for OfWeakSender<L> {
    fn clone(&self) -> Self {
        let weak = Self(self.0.clone());
        weak.count();
        weak
    }
}

impl<L> Drop for OfWeakSender<L> {
    fn drop(&mut self) {
        // Without a sender, no receiver waits.
        if let Some(channel) = self.0.upgrade() {
            // ORDERING: Relaxed: as in `OfReceiver::awaited`.
            channel.weak_senders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
