//! A simulated socket for datagrams.
//!
//! A send adds the datagram to the mailbox of the receiving socket; twice if it is duplicated, and
//! not at all if it is lost.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::mailbox::Mailbox;
use super::{Draw, Shared};
use crate::task::consume_budget;
use crate::time::{Instant, timeout_at};

/// The most bytes of a datagram, as with UDP over IPv4.
const DATAGRAM_BYTES: usize = 65_507;

/// A socket that sends and receives datagrams in a [`Net`](super::Net). Created by
/// [`Net::bind`](super::Net::bind).
///
/// As with UDP, a datagram arrives as a whole or not at all. It is lost if, when it is sent, its
/// receiver has no socket, or 1024 datagrams are on their way to that socket or not received yet,
/// or the two hosts are [partitioned](super::Net::partition); and with the probability
/// [`loss_ratio`](super::Net::loss_ratio). The sender gets no error. A socket that is dropped loses
/// all that are on their way to it. With the probability
/// [`duplicate_ratio`](super::Net::duplicate_ratio), a datagram arrives twice. Each has its own
/// [delay](super::Net::latency), so datagrams overtake each other.
pub struct Socket {
    net: Arc<Shared>,
    host: String,
    mailbox: Arc<Mailbox>,
}

impl Socket {
    pub(super) fn new(net: Arc<Shared>, host: &str) -> Self {
        Self { net, host: host.to_owned(), mailbox: Arc::default() }
    }

    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    /// Returns the name of its host.
    pub fn local_host(&self) -> &str {
        &self.host
    }

    /// Sends a datagram to the socket of the host `target`, and returns its length. Never waits,
    /// except for the task's cooperative budget.
    ///
    /// # Errors
    /// Returns an error of kind [`InvalidInput`](io::ErrorKind::InvalidInput) if the datagram is
    /// longer than 65,507 bytes.
    ///
    /// # Panics
    /// Panics outside a runtime with a [seed](crate::Builder::seed) if the delays vary, or if
    /// datagrams can be lost or duplicated.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the future is dropped before it completes, nothing was sent.
    pub async fn send_to(&self, bytes: &[u8], target: &str) -> io::Result<usize> {
        consume_budget().await;
        if bytes.len() > DATAGRAM_BYTES {
            let text = format!("a datagram of {} bytes: at most {DATAGRAM_BYTES} are possible", bytes.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // Draws the same numbers whether or not the datagram can arrive, so that a partition does
        // not change the faults of other datagrams.
        let (is_lost, is_duplicated) = (self.net.draws(Draw::Loss), self.net.draws(Draw::Duplicate));
        let copies = if is_duplicated { 2 } else { 1 };
        let delays: Vec<_> = (0..copies).map(|_| self.net.draw_latency()).collect();
        if is_lost || self.net.are_partitioned(&self.host, target) {
            return Ok(bytes.len());
        }
        if let Some(mailbox) = self.net.mailbox_of(target) {
            delays.into_iter().for_each(|delay| mailbox.add(Instant::now() + delay, bytes, &self.host));
        }
        Ok(bytes.len())
    }

    /// Waits for a datagram. Returns how many of its bytes are in `buf`, and the host that sent it.
    /// Bytes for which `buf` has no room are lost.
    ///
    /// # Errors
    /// Never fails. Returns a `Result` as the method of [`UdpSocket`](crate::net::UdpSocket) does.
    ///
    /// # Panics
    /// Panics if it is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the future is dropped before it completes, no datagram was
    /// taken.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, String)> {
        consume_budget().await;
        loop {
            let added = self.mailbox.added();
            match self.mailbox.take() {
                Ok((bytes, from)) => {
                    let count = bytes.len().min(buf.len());
                    buf[..count].copy_from_slice(&bytes[..count]);
                    return Ok((count, from));
                }
                // Ready if it arrives, or if another one is added, which may arrive earlier.
                Err(Some(at)) => _ = timeout_at(at, added).await,
                Err(None) => added.await,
            }
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("local_host", &self.host).finish_non_exhaustive()
    }
}
