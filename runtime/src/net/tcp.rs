//! The two halves of a TCP connection.

use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::net::surface::halves::halves;
use crate::net::surface::{reads, writes};
use crate::net::tcp_stream::TcpStream;

halves!(TcpStream, net::SocketAddr);

impl ReadHalf<'_> {
    /// Waits for data and copies it without taking it; see [`TcpStream::peek`].
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.peek(buffer).await
    }

    /// Polls as [`peek`](Self::peek).
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx, buffer)
    }
}

impl OwnedReadHalf {
    /// Waits for data and copies it without taking it; see [`TcpStream::peek`].
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.peek(buffer).await
    }

    /// Polls as [`peek`](Self::peek).
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub fn poll_peek(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_peek(cx, buffer)
    }
}
