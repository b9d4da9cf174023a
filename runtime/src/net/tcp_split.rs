//! The two halves of a connection.
//!
//! Each half polls its own direction only, so the one waker that a direction's slot holds is enough for both.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::tcp_stream::TcpStream;

pub(super) fn split(stream: &mut TcpStream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    let stream = &*stream;
    (ReadHalf(stream), WriteHalf(stream))
}

pub(super) fn split_owned(stream: TcpStream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf { stream: stream.clone() }, OwnedWriteHalf { stream, shuts_down: true })
}

/// The half that reads, from [`TcpStream::split`].
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a TcpStream);

/// The half that writes, from [`TcpStream::split`].
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a TcpStream);

/// The half that reads, from [`TcpStream::into_split`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    stream: Arc<TcpStream>,
}

/// The half that writes, from [`TcpStream::into_split`]. Dropping it tells the peer that nothing more comes.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    stream: Arc<TcpStream>,
    /// Whether dropping it shuts the direction down.
    shuts_down: bool,
}

impl ReadHalf<'_> {
    /// The connection.
    pub fn as_stream(&self) -> &TcpStream {
        self.0
    }
}

impl WriteHalf<'_> {
    /// The connection.
    pub fn as_stream(&self) -> &TcpStream {
        self.0
    }
}

impl OwnedReadHalf {
    /// The connection.
    pub fn as_stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Puts the halves together again.
    ///
    /// # Errors
    /// [`ReuniteError`], with both halves in it, if they are of different connections.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<TcpStream, ReuniteError> {
        other.reunite(self)
    }

    /// The address at the other end.
    ///
    /// # Errors
    /// What the system says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

impl OwnedWriteHalf {
    /// The connection.
    pub fn as_stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Puts the halves together again.
    ///
    /// # Errors
    /// [`ReuniteError`], with both halves in it, if they are of different connections.
    ///
    /// ```
    /// # use volt::net::{TcpListener, TcpStream};
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (reader, writer) = stream.into_split();
    /// let stream = writer.reunite(reader).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn reunite(mut self, other: OwnedReadHalf) -> Result<TcpStream, ReuniteError> {
        if !Arc::ptr_eq(&self.stream, &other.stream) {
            return Err(ReuniteError(other, self));
        }
        self.shuts_down = false;
        let stream = self.stream.clone();
        drop((self, other));
        Ok(Arc::into_inner(stream).expect("a connection has two halves, and both are gone"))
    }

    /// Drops it without telling the peer anything.
    pub fn forget(mut self) {
        self.shuts_down = false;
    }

    /// The address at the other end.
    ///
    /// # Errors
    /// What the system says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        if self.shuts_down {
            // Nobody is left to be told of an error, and it means that the connection is gone.
            let _ = self.stream.shutdown_now(Shutdown::Write);
        }
    }
}

/// Two halves that are not of one connection.
#[derive(Debug)]
pub struct ReuniteError(
    /// The half that reads.
    pub OwnedReadHalf,
    /// The half that writes.
    pub OwnedWriteHalf,
);

impl fmt::Display for ReuniteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the two halves are of different connections")
    }
}

impl Error for ReuniteError {}

macro_rules! read_half {
    ($half:ty, $self:ident => $stream:expr) => {
        impl AsyncRead for $half {
            fn poll_read(
                $self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                $stream.poll_read_shared(cx, buffer)
            }
        }
    };
}

macro_rules! write_half {
    ($half:ty, $self:ident => $stream:expr) => {
        impl AsyncWrite for $half {
            fn poll_write($self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                $stream.poll_write_shared(cx, bytes)
            }

            fn poll_write_vectored(
                $self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                $stream.poll_write_vectored_shared(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush($self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown($self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready($stream.shutdown_now(Shutdown::Write))
            }
        }
    };
}

read_half!(ReadHalf<'_>, self => self.0);
read_half!(OwnedReadHalf, self => self.stream);
write_half!(WriteHalf<'_>, self => self.0);
write_half!(OwnedWriteHalf, self => self.stream);
