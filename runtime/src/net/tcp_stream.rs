//! A TCP connection.

use std::fmt;
use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::{RecvFlags, recv, sockopt};
use tokio::io::ReadBuf;

use crate::net::addr::{ToSocketAddrs, resolve};
use crate::net::bytes::fill_read_buf;
use crate::net::surface::{descriptor, reads, tries_to_read, tries_to_write, waits, writes};
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;

/// What a new connection begins as: its buffer for sending is empty, and its peer may have sent
/// already.
pub(super) const PROBABLY_READY: Flags = Flags::READABLE.and(Flags::WRITABLE);

/// A TCP connection. Reads and writes through [`AsyncRead`](crate::io::AsyncRead) and
/// [`AsyncWrite`](crate::io::AsyncWrite); dropping it closes the connection.
///
/// Of several tasks that poll the same direction through these traits, the last one is woken; the
/// `async` methods of this type (`ready`, `readable`, `writable`, `peek`) may be awaited by any
/// number of tasks.
///
/// ```no_run
/// use volt::io::{AsyncReadExt, AsyncWriteExt};
/// use volt::net::TcpStream;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let mut stream = TcpStream::connect("example.org:80").await?;
/// stream.write_all(b"GET / HTTP/1.0\r\nHost: example.org\r\n\r\n").await?;
/// let mut page = Vec::new();
/// stream.read_to_end(&mut page).await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct TcpStream {
    pub(super) io: Registration<net::TcpStream>,
}

impl TcpStream {
    /// Opens a connection. If `addr` stands for several addresses, they are tried one after the
    /// other.
    ///
    /// # Errors
    /// What the last attempt met (`ConnectionRefused`, ...); `ErrorKind::InvalidInput` for a text
    /// that is no address.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    ///
    /// ```
    /// use volt::net::{TcpListener, TcpStream};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let stream = TcpStream::connect(listener.local_addr()?).await?;
    /// assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<TcpStream> {
        let driver = context::driver();
        let mut result = Err(io::ErrorKind::InvalidInput.into());
        for addr in resolve(addr.target()).await? {
            result = match mio::net::TcpStream::connect(addr) {
                Ok(stream) => Self::connected(driver.clone(), stream.into()).await,
                Err(error) => Err(error),
            };
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// A connection whose attempt goes on, once it has ended.
    pub(super) async fn connected(driver: Arc<Driver>, stream: net::TcpStream) -> io::Result<TcpStream> {
        let io = Registration::new(driver, stream, Flags::NONE)?;
        let is_connected = |stream: &net::TcpStream| match (stream.take_error()?, stream.peer_addr()) {
            (Some(error), _) => Err(error),
            // Told of something else than the end of the attempt.
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
            (None, peer) => peer.map(drop),
        };
        io.run(Direction::Write, is_connected).await?;
        Ok(TcpStream { io })
    }

    pub(super) fn register(driver: Arc<Driver>, stream: net::TcpStream) -> io::Result<TcpStream> {
        Ok(TcpStream { io: Registration::new(driver, stream, PROBABLY_READY)? })
    }

    /// Waits for data and copies it without taking it: the next read gives it again.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.run(Direction::Read, |stream| stream.peek(buffer)).await
    }

    /// Polls as [`peek`](Self::peek). Of several tasks that poll to read, the last one is woken.
    ///
    /// # Errors
    /// As [`peek`](Self::peek).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.io.poll_run(cx, Direction::Read, |stream| {
            let peek = |free: &mut [_]| Ok((recv(stream, free, RecvFlags::PEEK)?.1, ()));
            Ok(fill_read_buf(buffer, peek)?.0)
        })
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
    /// What the system says; `ErrorKind::NotConnected` once the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr()
    }

    /// Whether small writes are sent at once (`TCP_NODELAY`) instead of being gathered.
    ///
    /// # Errors
    /// What the system says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io.source().nodelay()
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// What the system says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.source().set_nodelay(nodelay)
    }

    /// The time to live of packets sent (`IP_TTL`).
    ///
    /// # Errors
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.source().ttl()
    }

    /// Sets the time to live of packets sent (`IP_TTL`).
    ///
    /// # Errors
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.source().set_ttl(ttl)
    }

    /// Whether data is acknowledged at once instead of with what is sent next (`TCP_QUICKACK`). The
    /// kernel changes it by itself.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(sockopt::tcp_quickack(self.io.source())?)
    }

    /// Sets whether data is acknowledged at once (`TCP_QUICKACK`), until the kernel changes it.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_quickack(self.io.source(), quickack)?)
    }

    /// How long closing waits for what was not yet sent (`SO_LINGER`); `None` = the kernel sends it
    /// by itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(self.io.source())?)
    }

    /// Makes closing throw away what was not yet sent and reset the connection (`SO_LINGER` with 0
    /// seconds). Other times would make closing block its thread, and are not offered.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self.io.source(), Some(Duration::ZERO))?)
    }
}

waits!(TcpStream, poll_read_ready, poll_write_ready);
descriptor!(TcpStream, net::TcpStream, std::convert::identity);
tries_to_read!(io in TcpStream);
tries_to_write!(io in TcpStream);
reads!(TcpStream, self => self);
writes!(TcpStream, self => self);

impl AsRef<TcpStream> for TcpStream {
    fn as_ref(&self) -> &TcpStream {
        self
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpStream");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        if let Ok(peer) = self.peer_addr() {
            debug.field("peer", &peer);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
