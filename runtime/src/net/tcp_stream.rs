//! TCP connections.

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

/// Initial readiness of a new connection: its send buffer is empty, and the peer may already have
/// sent data.
pub(super) const PROBABLY_READY: Flags = Flags::READABLE.and(Flags::WRITABLE);

/// A TCP connection.
///
/// A stream is created by [`connect`](Self::connect), or by
/// [`TcpListener::accept`](crate::net::TcpListener::accept). Read and write through the traits
/// [`AsyncRead`](crate::io::AsyncRead) and [`AsyncWrite`](crate::io::AsyncWrite) and their
/// extension traits. Dropping the stream closes the connection.
///
/// If several tasks poll the same direction through these traits, only the task that polled last is
/// woken. The `async` methods of this type (`ready`, `readable`, `writable`, `peek`) may be awaited
/// by any number of tasks.
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
///
/// To wait for data without a buffer, combine [`readable`](Self::readable) with
/// [`try_read`](Self::try_read). Readiness is a hint, so the read may have to be repeated:
///
/// ```
/// use std::io::ErrorKind;
/// use volt::io::AsyncWriteExt;
/// use volt::net::{TcpListener, TcpStream};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// client.write_all(b"ping").await?;
/// let (stream, _) = listener.accept().await?;
/// let mut buffer = [0; 16];
/// let read = loop {
///     stream.readable().await?;
///     match stream.try_read(&mut buffer) {
///         Err(error) if error.kind() == ErrorKind::WouldBlock => {}
///         result => break result?,
///     }
/// };
/// assert_eq!(&buffer[..read], b"ping");
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct TcpStream {
    pub(super) io: Registration<net::TcpStream>,
}

impl TcpStream {
    /// Connects to a remote TCP socket.
    ///
    /// If `addr` yields several addresses, `connect` tries them in order until one succeeds.
    ///
    /// # Errors
    /// Returns the error of the last attempt if none of them succeeds, such as `ConnectionRefused`.
    /// Returns `ErrorKind::InvalidInput` if `addr` is a string that is not a valid address.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the attempt and closes its socket.
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
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
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

    /// Waits until an attempt to connect that is in progress succeeds, and returns the connection.
    pub(super) async fn connected(driver: Arc<Driver>, stream: net::TcpStream) -> io::Result<TcpStream> {
        let io = Registration::of_tcp(driver, stream, Flags::NONE)?;
        let is_connected = |stream: &net::TcpStream| match (stream.take_error()?, stream.peer_addr()) {
            (Some(error), _) => Err(error),
            // The event was not the end of the attempt: wait for the next one.
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
            (None, peer) => peer.map(drop),
        };
        io.run(Direction::Write, is_connected).await?;
        Ok(TcpStream { io })
    }

    pub(super) fn register(driver: Arc<Driver>, stream: net::TcpStream) -> io::Result<TcpStream> {
        Ok(TcpStream { io: Registration::of_tcp(driver, stream, PROBABLY_READY)? })
    }

    /// Receives data without removing it from the queue: the next read returns the same data again.
    ///
    /// Waits until data is available, or until the peer has closed its sending side. Returns the
    /// number of bytes copied into `buffer`.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no data from the queue.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.run(Direction::Read, |stream| stream.peek(buffer)).await
    }

    /// Polls for data as [`peek`](Self::peek) does. If several tasks poll for reading, only the
    /// task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`peek`](Self::peek).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        self.io.poll_run(cx, Direction::Read, |stream| {
            let peek = |free: &mut [_]| Ok((recv(stream, free, RecvFlags::PEEK)?.1, ()));
            Ok(fill_read_buf(buffer, peek)?.0)
        })
    }

    /// Returns the local address that this stream is bound to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// Returns the remote address that this stream is connected to.
    ///
    /// # Errors
    /// Returns `ErrorKind::NotConnected` if the connection is closed. Also returns an error if the
    /// underlying system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr()
    }

    /// Returns whether small writes are sent immediately instead of being collected
    /// (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.io.source().nodelay()
    }

    /// Sets whether small writes are sent immediately instead of being collected (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.io.source().set_nodelay(nodelay)
    }

    /// Returns the time to live of packets sent from this socket (`IP_TTL`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.source().ttl()
    }

    /// Sets the time to live of packets sent from this socket (`IP_TTL`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.source().set_ttl(ttl)
    }

    /// Returns whether received data is acknowledged immediately instead of together with the next
    /// data sent (`TCP_QUICKACK`). The kernel may change this setting at any time.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(sockopt::tcp_quickack(self.io.source())?)
    }

    /// Sets whether received data is acknowledged immediately (`TCP_QUICKACK`). The setting lasts
    /// until the kernel changes it.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        Ok(sockopt::set_tcp_quickack(self.io.source(), quickack)?)
    }

    /// Returns how long closing the socket waits for unsent data (`SO_LINGER`). `None` means that
    /// closing does not wait, and that the kernel sends the data in the background.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(self.io.source())?)
    }

    /// Sets how long closing the socket waits for unsent data (`SO_LINGER`).
    ///
    /// With any value but `None` and zero, closing the socket **blocks its thread** for up to that
    /// time. In a task, that thread is a worker.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    #[deprecated = "`SO_LINGER` blocks the thread that closes the socket: use `set_zero_linger`"]
    pub fn set_linger(&self, duration: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self.io.source(), duration)?)
    }

    /// Makes closing the socket discard unsent data and reset the connection (`SO_LINGER` with a
    /// timeout of zero).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
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
