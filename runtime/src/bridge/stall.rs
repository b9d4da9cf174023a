//! A connection that fails when its peer stops reading, so that its resources are freed.
//!
//! Bound: the time that one write waits for room in the socket's send buffer. Each write that makes
//! progress restarts the time, so a slow reader is not affected.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::TcpStream;
use volt_core::context;
use volt_core::sleep::RawSleep;

/// A TCP stream with a timeout on writes; see the module header.
pub(super) struct Unstalled {
    stream: TcpStream,
    /// `None` = no timeout.
    timeout: Option<Duration>,
    /// The timer of the write that is waiting.
    limit: Option<RawSleep>,
}

impl Unstalled {
    pub(super) fn new(stream: TcpStream, timeout: Option<Duration>) -> Self {
        Self { stream, timeout, limit: None }
    }

    /// Returns the result of a write, or an error if the write has waited longer than the timeout.
    fn limited(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.limit = None;
            return written;
        }
        let Some(timeout) = self.timeout else { return written };
        let limit = self.limit.get_or_insert_with(|| RawSleep::after(context::timers(), timeout));
        ready!(Pin::new(limit).poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.limited(cx, written)
    }
}
