//! One end of a simulated connection.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use volt_core::coop;

use super::pipe::{Arrived, Connection};
use super::{Draw, Shared};
use crate::time::{Duration, Instant, Sleep, sleep_until};

/// One end of a connection in a [`Net`](super::Net).
///
/// It implements [`AsyncRead`] and [`AsyncWrite`]. Its operations spend the cooperative budget, as
/// those of a socket do. At most 64 KiB are in flight in each direction; a write waits for room.
/// Dropping the stream closes the connection: the other end reads the bytes in flight and then the
/// end of the stream, and its writes fail with [`BrokenPipe`](io::ErrorKind::BrokenPipe).
pub struct Stream {
    net: Arc<Shared>,
    connection: Arc<Connection>,
    /// 0 has connected, 1 has accepted.
    end: usize,
    /// Wakes the reader when the first segment arrives.
    arrival: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(net: Arc<Shared>, connection: Arc<Connection>, end: usize) -> Self {
        Self { net, connection, end, arrival: None }
    }

    /// Returns the name of the host of this end.
    pub fn local_host(&self) -> &str {
        self.connection.host(self.end)
    }

    /// Returns the name of the host of the other end.
    pub fn peer_host(&self) -> &str {
        self.connection.host(1 - self.end)
    }

    /// Polls a timer for `at`. Ready once that time has come.
    fn poll_arrival(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let arrival = self.arrival.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if arrival.deadline() != at {
            arrival.as_mut().reset(at);
        }
        ready!(arrival.as_mut().poll(cx));
        self.arrival = None;
        Poll::Ready(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let unit = ready!(coop::poll_proceed(cx));
        loop {
            let is_partitioned = stream.net.are_partitioned(stream.local_host(), stream.peer_host());
            let max = buf.remaining();
            match stream.connection.read(stream.end, max, is_partitioned, cx, |bytes| buf.put_slice(bytes))? {
                Arrived::Now => break,
                Arrived::At(at) => ready!(stream.poll_arrival(at, cx)),
                Arrived::Nothing => return Poll::Pending,
            }
        }
        unit.made_progress();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let unit = ready!(coop::poll_proceed(cx));
        if !bytes.is_empty() {
            ready!(self.connection.poll_room(self.end, cx));
        }
        // Drawn once for each write, however often it is polled before there is room.
        if self.net.draws(Draw::Reset) {
            self.connection.reset();
        }
        let written = self.connection.write(self.end, bytes, self.net.draw_latency());
        unit.made_progress();
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.shut_down(self.end, self.net.draw_latency());
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The stream may be dropped outside its runtime, where there is no seed to draw from.
        let latency = volt_core::context::draw().map_or(Duration::ZERO, |_| self.net.draw_latency());
        self.connection.shut_down(self.end, latency);
        self.connection.leave(self.end);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, peer) = (self.local_host(), self.peer_host());
        f.debug_struct("Stream").field("local_host", &local).field("peer_host", &peer).finish_non_exhaustive()
    }
}
