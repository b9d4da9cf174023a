//! The datagrams on their way to a socket, by the time at which they arrive.
//!
//! A receive takes the first one once its time has come. Beyond a number of datagrams, further ones
//! are lost, as when the buffer of a kernel is full.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::pipe::lock;
use crate::sync::Notify;
use crate::sync::futures::Notified;
use crate::time::Instant;

/// The most datagrams in a mailbox.
const MAILBOX_DATAGRAMS: usize = 1024;

/// The datagrams on their way to a socket.
#[derive(Default)]
pub(super) struct Mailbox {
    entries: Mutex<Entries>,
    /// Notified when a datagram is added.
    added: Notify,
}

#[derive(Default)]
struct Entries {
    /// By the time of arrival, and then in the order in which they were sent.
    datagrams: BTreeMap<(Instant, u64), (Vec<u8>, String)>,
    sent: u64,
}

impl Mailbox {
    pub(super) fn add(&self, arrives_at: Instant, bytes: &[u8], from: &str) {
        let mut entries = lock(&self.entries);
        if entries.datagrams.len() < MAILBOX_DATAGRAMS {
            let number = entries.sent;
            entries.sent += 1;
            entries.datagrams.insert((arrives_at, number), (bytes.to_vec(), from.to_owned()));
        }
        drop(entries);
        self.added.notify_waiters();
    }

    /// Returns a future that is ready when a datagram is added after this call.
    pub(super) fn added(&self) -> Notified<'_> {
        self.added.notified()
    }

    /// Takes the first datagram if it has arrived. Otherwise returns when it arrives, if one is on
    /// its way.
    pub(super) fn take(&self) -> Result<(Vec<u8>, String), Option<Instant>> {
        let mut entries = lock(&self.entries);
        match entries.datagrams.first_entry() {
            Some(first) if first.key().0 <= Instant::now() => Ok(first.remove()),
            first => Err(first.map(|first| first.key().0)),
        }
    }
}
