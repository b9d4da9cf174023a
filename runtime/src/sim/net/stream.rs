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
///
/// Dropping the stream closes the connection: the other end reads the bytes in flight and then the
/// end of the stream. Once that has arrived, its writes fail with
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe). Until then, and during a
/// [partition](super::Net::partition), they succeed as long as there is room, and the bytes are
/// lost.
pub struct Stream {
    net: Arc<Shared>,
    connection: Arc<Connection>,
    /// 0 has connected, 1 has accepted.
    end: usize,
    /// Wakes the reader when the first segment arrives.
    arrival: Option<Pin<Box<Sleep>>>,
    /// Wakes the writer when the news arrives that the other end was dropped.
    drop_of_reader: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(net: Arc<Shared>, connection: Arc<Connection>, end: usize) -> Self {
        Self { net, connection, end, arrival: None, drop_of_reader: None }
    }

    /// Returns the name of the host of this end.
    pub fn local_host(&self) -> &str {
        self.connection.host(self.end)
    }

    /// Returns the name of the host of the other end.
    pub fn peer_host(&self) -> &str {
        self.connection.host(1 - self.end)
    }

    fn is_partitioned(&self) -> bool {
        self.net.are_partitioned(self.local_host(), self.peer_host())
    }
}

/// Polls `timer` for `at`. Ready once that time has come.
fn poll_timer(timer: &mut Option<Pin<Box<Sleep>>>, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
    if sleep.deadline() != at {
        sleep.as_mut().reset(at);
    }
    ready!(sleep.as_mut().poll(cx));
    *timer = None;
    Poll::Ready(())
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let unit = ready!(coop::poll_proceed(cx));
        loop {
            let is_partitioned = stream.is_partitioned();
            let max = buf.remaining();
            match stream.connection.read(stream.end, max, is_partitioned, cx, |bytes| buf.put_slice(bytes))? {
                Arrived::Now => break,
                Arrived::At(at) => ready!(poll_timer(&mut stream.arrival, at, cx)),
                Arrived::Nothing => return Poll::Pending,
            }
        }
        unit.made_progress();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        let unit = ready!(coop::poll_proceed(cx));
        let is_partitioned = stream.is_partitioned();
        while !bytes.is_empty() {
            match stream.connection.room(stream.end, is_partitioned, cx) {
                Arrived::Now => break,
                Arrived::At(at) => ready!(poll_timer(&mut stream.drop_of_reader, at, cx)),
                Arrived::Nothing => return Poll::Pending,
            }
        }
        // Drawn once for each write, however often it is polled before there is room.
        if stream.net.draws(Draw::Reset) {
            stream.connection.reset();
        }
        let latency = stream.net.draw_latency();
        let written = stream.connection.write(stream.end, bytes, is_partitioned, latency);
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
        self.connection.leave(self.end, latency);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (local, peer) = (self.local_host(), self.peer_host());
        f.debug_struct("Stream").field("local_host", &local).field("peer_host", &peer).finish_non_exhaustive()
    }
}
