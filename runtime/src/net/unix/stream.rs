//! A connection within this machine.
//!
//! A connect to a listener whose queue is full does not wait in the kernel, when it must not block:
//! it fails (`EAGAIN`), and nothing tells when there is room. So it is tried again by and by, 1 ms
//! later at first and every 32 ms at last, until it succeeds, fails otherwise or is dropped.
//! Rejected: handing the error on, as Tokio does: a burst of clients larger than the queue then
//! fails for no fault of theirs; a blocking connect on another thread, which nobody can call back.

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
use volt_core::driver::readiness::Direction;
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;
use volt_core::sleep::Sleep;

/// A connected Unix socket. Reads and writes through [`AsyncRead`](crate::io::AsyncRead) and
/// [`AsyncWrite`](crate::io::AsyncWrite).
///
/// Of several tasks that poll the same direction through these traits, the last one is woken; the
/// `async` methods of this type (`ready`, `readable`, `writable`) may be awaited by any number of
/// tasks.
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
    /// Connects to the socket at `path`, waiting for room in its listener's queue.
    ///
    /// # Errors
    /// `NotFound` if there is no such path, `ConnectionRefused` if nobody listens there any more;
    /// what else the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let address = address(path.as_ref())?;
        Self::connect_addr(&address).await
    }

    /// As [`connect`](Self::connect), to an address.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn connect_addr(address: &SocketAddr) -> io::Result<UnixStream> {
        let driver = context::driver();
        let mut retry = MIN_RETRY;
        let stream = loop {
            match mio::net::UnixStream::connect_addr(address) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Sleep::after(driver.clone(), retry).await;
                    retry = (retry * 2).min(MAX_RETRY);
                }
                result => break result?,
            }
        };
        let stream = Self::register(driver, stream.into())?;
        // On Linux the kernel has connected it by now; elsewhere it may be on its way.
        let is_connected = |stream: &net::UnixStream| match (stream.take_error()?, stream.peer_addr()) {
            (Some(error), _) => Err(error),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
            (None, peer) => peer.map(drop),
        };
        stream.io.run(Direction::Write, is_connected).await?;
        Ok(stream)
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let driver = context::driver();
        let (one, other) = mio::net::UnixStream::pair()?;
        Ok((Self::register(driver.clone(), one.into())?, Self::register(driver, other.into())?))
    }

    pub(super) fn register(driver: Arc<Driver>, stream: net::UnixStream) -> io::Result<UnixStream> {
        Ok(UnixStream { io: Registration::new(driver, stream, PROBABLY_READY)? })
    }

    /// The address at this end.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// The address at the other end.
    ///
    /// # Errors
    /// What the system says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr()
    }

    /// Who made the other end.
    ///
    /// # Errors
    /// What the system says.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        cred::of_peer(self.io.source())
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
