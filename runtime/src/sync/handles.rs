//! The handles of a channel whose receivers are many, in numbers, for dumps: which channel a handle
//! belongs to, and how many handles there are.
//!
//! Each sender owns an `Arc` of the channel's [`Channel`], each receiver a `Weak`. So the counts of
//! the two are the numbers of senders and receivers. Tokio's receivers do not return these, and
//! the future of their operation borrows them while it waits.
//!
//! Writers: handles that are created, cloned and dropped. Reader: a dump.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use volt_core::task::resources::{Awaited, Key};
use volt_telemetry::dump::Resource;

/// The state that the handles of a channel share. Its address identifies the channel.
#[derive(Default)]
struct Channel {
    /// The number of weak senders, which own a `Weak` as receivers do.
    weak_senders: AtomicUsize,
}

/// A part of each sender.
#[derive(Clone, Default)]
pub(super) struct OfSender(Arc<Channel>);

/// A part of each receiver.
#[derive(Clone)]
pub(super) struct OfReceiver(Weak<Channel>);

/// A part of each weak sender.
pub(super) struct OfWeakSender(Weak<Channel>);

impl OfSender {
    pub(super) fn receiver(&self) -> OfReceiver {
        OfReceiver(Arc::downgrade(&self.0))
    }

    pub(super) fn downgrade(&self) -> OfWeakSender {
        let weak = OfWeakSender(Arc::downgrade(&self.0));
        weak.count();
        weak
    }

    /// Returns the channel, whose receivers a sender awaits.
    pub(super) fn awaited(&self, kind: &'static str, receivers: usize, messages: Option<usize>) -> Awaited {
        let (receivers, messages) = (Some(receivers as u64), messages.map(|messages| messages as u64));
        let key = Key::receivers_of(Arc::as_ptr(&self.0));
        Awaited::new(key, kind, Resource { receivers, messages, ..Resource::default() })
    }
}

impl OfReceiver {
    /// Returns the channel, whose senders a receiver awaits.
    pub(super) fn awaited(&self, kind: &'static str) -> Awaited {
        // ORDERING: Relaxed: a number for a report.
        let weak_senders = self.0.upgrade().map_or(0, |channel| channel.weak_senders.load(Ordering::Relaxed));
        let senders = Some(self.0.strong_count() as u64);
        let receivers = Some(self.0.weak_count().saturating_sub(weak_senders) as u64);
        Awaited::new(Key::of(self.0.as_ptr()), kind, Resource { senders, receivers, ..Resource::default() })
    }
}

impl OfWeakSender {
    /// Returns the part of a sender; `None` if all senders are dropped.
    pub(super) fn upgrade(&self) -> Option<OfSender> {
        self.0.upgrade().map(OfSender)
    }

    fn count(&self) {
        if let Some(channel) = self.0.upgrade() {
            // ORDERING: Relaxed: as in `OfReceiver::awaited`.
            channel.weak_senders.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Clone for OfWeakSender {
    fn clone(&self) -> Self {
        let weak = Self(self.0.clone());
        weak.count();
        weak
    }
}

impl Drop for OfWeakSender {
    fn drop(&mut self) {
        // Without a sender, no receiver waits.
        if let Some(channel) = self.0.upgrade() {
            // ORDERING: Relaxed: as in `OfReceiver::awaited`.
            channel.weak_senders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
