//! A connection between two Unix sockets.
//!
//! A non-blocking connect to a listener whose queue is full does not wait in the kernel. It fails
//! with `EAGAIN`, and the kernel sends no event when the queue has room. So the connect is
//! repeated: after 1 ms, then after twice the previous wait, up to 32 ms. It ends when the connect
//! succeeds or fails with another error, or when the future is dropped.
//!
//! Rejected: returning the error, as Tokio does, since a burst of clients larger than the queue
//! would fail through no fault of theirs. Rejected: a blocking connect on another thread, which
//! cannot be cancelled.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net;
use std::path::Path;
use std::sync::Arc;

use crate::net::surface::{descriptor, reads, tries_to_read, tries_to_write, waits, writes};
use crate::net::tcp_stream::PROBABLY_READY;
use crate::net::unix::cred::{self, UCred};
use crate::net::unix::{MAX_RETRY, MIN_RETRY, SocketAddr, address};
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;
use volt_core::scheduler::lease::DriverLease;
use volt_core::sleep::RawSleep;
use volt_core::task::yield_now;

/// A connected Unix stream socket.
///
/// A stream is created by [`connect`](Self::connect), by
/// [`UnixListener::accept`](crate::net::UnixListener::accept) or by [`pair`](Self::pair). Read and
/// write through [`AsyncRead`](crate::io::AsyncRead) and [`AsyncWrite`](crate::io::AsyncWrite).
///
/// If several tasks poll the same direction through these traits, only the task that polled last is
/// woken. The `async` methods of this type (`ready`, `readable`, `writable`) may be awaited by any
/// number of tasks.
///
/// ```
/// use volt::io::{AsyncReadExt, AsyncWriteExt};
/// use volt::net::UnixStream;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let (mut here, mut there) = UnixStream::pair()?;
/// here.write_all(b"ping").await?;
/// here.shutdown().await?;
/// let mut text = String::new();
/// there.read_to_string(&mut text).await?;
/// assert_eq!(text, "ping");
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct UnixStream {
    pub(super) io: Registration<net::UnixStream>,
}

impl UnixStream {
    /// Connects to the socket at `path`. Waits until the listener's queue has room.
    ///
    /// # Errors
    /// Returns `NotFound` if `path` does not exist. Returns `ConnectionRefused` if no socket
    /// listens at `path`. Also returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the attempt and closes its socket.
    pub async fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        Self::connect_addr(&address(path.as_ref())?.into()).await
    }

    /// Connects as [`connect`](Self::connect) does, to a socket address.
    ///
    /// # Errors
    /// Returns the same errors as [`connect`](Self::connect).
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// The same as for [`connect`](Self::connect).
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        let driver = context::driver();
        let stream = when_not_full(&driver, || mio::net::UnixStream::connect_addr(&address.0)).await?;
        Self::connected(driver, stream.into()).await
    }

    /// Waits until an attempt to connect that is in progress succeeds, and returns the connection.
    pub(super) async fn connected(driver: Arc<Driver>, stream: net::UnixStream) -> io::Result<UnixStream> {
        let stream = Self::register(driver, stream)?;
        // On Linux the socket is connected at this point: it is in the queue of the listener. If
        // the listener is closed before other tasks have run, the attempt fails. On other systems
        // it may still be in progress.
        yield_now().await;
        let is_connected = |stream: &net::UnixStream| match (stream.take_error()?, stream.peer_addr()) {
            (Some(error), _) => Err(error),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
            (None, peer) => peer.map(drop),
        };
        stream.io.run(Direction::Write, is_connected).await?;
        Ok(stream)
    }

    /// Creates a pair of sockets that are connected to each other.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let driver = context::driver();
        let (one, other) = mio::net::UnixStream::pair()?;
        // The buffers are empty: there is room to write, and nothing to read.
        let register = |stream: mio::net::UnixStream| {
            Ok::<_, io::Error>(UnixStream { io: Registration::new(driver.clone(), stream.into(), Flags::WRITABLE)? })
        };
        Ok((register(one)?, register(other)?))
    }

    pub(super) fn register(driver: Arc<Driver>, stream: net::UnixStream) -> io::Result<UnixStream> {
        Ok(UnixStream { io: Registration::new(driver, stream, PROBABLY_READY)? })
    }

    /// Returns the local address that this stream is bound to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr().map(SocketAddr::from)
    }

    /// Returns the remote address that this stream is connected to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr().map(SocketAddr::from)
    }

    /// Returns the credentials of the process at the other end; see [`UCred`].
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        cred::of_peer(self.io.source())
    }
}

/// Tries to connect until the queue of the listener is not full; see the header of this file.
pub(super) async fn when_not_full<C>(
    driver: &Arc<Driver>,
    mut connect: impl FnMut() -> io::Result<C>,
) -> io::Result<C> {
    let mut retry = MIN_RETRY;
    loop {
        match connect() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                RawSleep::after(DriverLease::of(driver), retry).in_operation().await?;
                retry = (retry * 2).min(MAX_RETRY);
            }
            result => return result,
        }
    }
}

waits!(UnixStream, poll_read_ready, poll_write_ready);
descriptor!(UnixStream, net::UnixStream, std::convert::identity);
tries_to_read!(io in UnixStream);
tries_to_write!(io in UnixStream);
reads!(UnixStream, self => self);
writes!(UnixStream, self => self);

impl AsRef<UnixStream> for UnixStream {
    fn as_ref(&self) -> &UnixStream {
        self
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UnixStream");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        if let Ok(peer) = self.peer_addr() {
            debug.field("peer", &peer);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
