//! TCP utility types: the two halves that a [`TcpStream`] can be split into.

use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::net::surface::halves::halves;
use crate::net::surface::{reads, writes};
use crate::net::tcp_stream::TcpStream;

halves!(TcpStream, net::SocketAddr);

impl ReadHalf<'_> {
    /// Receives data without removing it from the queue; see [`TcpStream::peek`].
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no data from the queue.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buffer).await
    }

    /// Polls for data as [`peek`](Self::peek) does.
    ///
    /// # Errors
    /// Returns the same errors as [`peek`](Self::peek).
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx, buffer)
    }
}

impl OwnedReadHalf {
    /// Receives data without removing it from the queue; see [`TcpStream::peek`].
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no data from the queue.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.peek(buffer).await
    }

    /// Polls for data as [`peek`](Self::peek) does.
    ///
    /// # Errors
    /// Returns the same errors as [`peek`](Self::peek).
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_peek(cx, buffer)
    }
}
