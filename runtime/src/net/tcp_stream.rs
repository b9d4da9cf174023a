//! A TCP connection.
//!
//! Invariants. *No SIGPIPE*: writing to a connection that the peer has closed is an error of kind `BrokenPipe` even where the
//! host process lets SIGPIPE kill it: std's `write` sends with `MSG_NOSIGNAL`, its `write_vectored` does not (it is `writev`), so
//! vectored writes go through `sendmsg` here. *Only written*: memory that was never initialized goes to `recv` alone, which writes.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::context;
use crate::driver::Driver;
use crate::driver::readiness::{Direction, Flags};
use crate::driver::registration::Registration;
use crate::net::addr::{ToSocketAddrs, resolve};
use crate::net::tcp_split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf, split, split_owned};

/// What a new connection begins as: its buffer for sending is empty, and its peer may have sent already.
const PROBABLY_READY: Flags = Flags::READABLE.and(Flags::WRITABLE);

/// A TCP connection. Reads and writes through [`AsyncRead`] and [`AsyncWrite`]; dropping it closes the connection.
///
/// Of several tasks that poll the same direction through these traits, the last one is woken; the `async` methods of this
/// type (`readable`, `writable`, `peek`) may be awaited by any number of tasks.
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
    io: Registration<mio::net::TcpStream>,
}

impl TcpStream {
    /// Opens a connection. If `addr` stands for several addresses, they are tried one after the other.
    ///
    /// # Errors
    /// What the last attempt met (`ConnectionRefused`, ...); `ErrorKind::InvalidInput` for a text that is no address.
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
            result = Self::connect_one(driver.clone(), addr).await;
            if result.is_ok() {
                break;
            }
        }
        result
    }

    async fn connect_one(driver: Arc<Driver>, addr: SocketAddr) -> io::Result<TcpStream> {
        let io = Registration::new(driver, mio::net::TcpStream::connect(addr)?, Flags::NONE)?;
        let is_connected = |stream: &mio::net::TcpStream| match (stream.take_error()?, stream.peer_addr()) {
            (Some(error), _) => Err(error),
            // Told of something else than the end of the attempt.
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
            (None, peer) => peer.map(drop),
        };
        io.run(Direction::Write, is_connected).await?;
        Ok(TcpStream { io })
    }

    pub(super) fn register(driver: Arc<Driver>, stream: mio::net::TcpStream) -> io::Result<TcpStream> {
        Ok(TcpStream { io: Registration::new(driver, stream, PROBABLY_READY)? })
    }

    /// Takes over a connection of the standard library, and puts it into non-blocking mode.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn from_std(stream: net::TcpStream) -> io::Result<TcpStream> {
        let driver = context::driver();
        stream.set_nonblocking(true)?;
        Self::register(driver, mio::net::TcpStream::from_std(stream))
    }

    /// Gives the connection to the standard library, in non-blocking mode.
    ///
    /// # Errors
    /// What the system says when the socket leaves the runtime's driver.
    pub fn into_std(self) -> io::Result<net::TcpStream> {
        Ok(self.io.into_source()?.into())
    }

    /// Waits until there may be something to read, the peer's end of stream included.
    ///
    /// # Errors
    /// The runtime was shut down.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    ///
    /// ```
    /// # use volt::net::{TcpListener, TcpStream};
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (stream, _) = listener.accept().await?;
    /// client.try_write(b"hello")?;
    /// let mut buffer = [0; 16];
    /// let read = loop {
    ///     stream.readable().await?;
    ///     match stream.try_read(&mut buffer) {
    ///         // It only might have been there.
    ///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
    ///         result => break result?,
    ///     }
    /// };
    /// assert_eq!(&buffer[..read], b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn readable(&self) -> io::Result<()> {
        self.io.ready(Direction::Read).await
    }

    /// Waits until there may be room to write.
    ///
    /// # Errors
    /// The runtime was shut down.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.ready(Direction::Write).await
    }

    /// Polls as [`readable`](Self::readable). Of several tasks that poll to read, the last one is woken.
    ///
    /// # Errors
    /// As [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx, Direction::Read)
    }

    /// Polls as [`writable`](Self::writable). Of several tasks that poll to write, the last one is woken.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx, Direction::Write)
    }

    /// Reads what is there, without waiting; 0 bytes mean the end of the stream (or an empty buffer).
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if nothing is there; what the system says.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.try_run(Direction::Read, |mut stream| stream.read(buffer))
    }

    /// Writes what fits, without waiting; how many bytes did.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if nothing fits; what the system says.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io.try_run(Direction::Write, |mut stream| stream.write(bytes))
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

    /// Splits it into a half that reads and one that writes, for one task. See [`into_split`](Self::into_split) for two.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        split(self)
    }

    /// Splits it into a half that reads and one that writes, which may live in different tasks. Dropping the writing half
    /// tells the peer that nothing more comes.
    ///
    /// ```
    /// use volt::io::{AsyncReadExt, AsyncWriteExt};
    /// # use volt::net::{TcpListener, TcpStream};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let client = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (mut server, _) = listener.accept().await?;
    /// let (mut reader, mut writer) = client.into_split();
    /// volt::spawn(async move { writer.write_all(b"last words").await });
    /// # server.write_all(b"answer").await?;
    /// # let mut heard = String::new();
    /// # server.read_to_string(&mut heard).await?;
    /// # assert_eq!(heard, "last words");
    /// # drop(server);
    /// let mut answer = String::new();
    /// reader.read_to_string(&mut answer).await?;
    /// # assert_eq!(answer, "answer");
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split_owned(self)
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

    /// Takes the socket's pending error, if it has one (`SO_ERROR`).
    ///
    /// # Errors
    /// What the system says.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.io.source().take_error()
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

    /// Makes closing throw away what was not yet sent and reset the connection (`SO_LINGER` with 0 seconds), or not. Other
    /// times would make closing block its thread, and are not offered.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_reset_on_close(&self, reset: bool) -> io::Result<()> {
        let linger = reset.then_some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(self.io.source(), linger).map_err(io::Error::from)
    }

    pub(super) fn shutdown_now(&self, how: Shutdown) -> io::Result<()> {
        match self.io.source().shutdown(how) {
            // The peer was first: what was asked for is so.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    pub(super) fn poll_read_shared(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // SAFETY: Only written: `recv` puts bytes in and takes no initialized byte back.
        let free = unsafe { buffer.unfilled_mut() };
        let len = free.len();
        let receive = |stream: &mio::net::TcpStream| Ok(recv(stream, &mut *free, RecvFlags::empty())?.1);
        let read = self.io.poll_transfer(cx, Direction::Read, len, receive);
        read.map_ok(|read| {
            // SAFETY: Only written: `recv` said that it filled this many, from the first on; without `TRUNC` it says no more.
            unsafe { buffer.assume_init(read) };
            buffer.advance(read);
        })
    }

    pub(super) fn poll_write_shared(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.io.poll_transfer(cx, Direction::Write, bytes.len(), |mut stream| stream.write(bytes))
    }

    pub(super) fn poll_write_vectored_shared(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The kernel takes no more in one call; what is left goes with the next. Cut here, so that a call that took all it was
        // given is not mistaken for one that found the buffer full.
        let slices = &slices[..slices.len().min(MAX_SLICES)];
        let len = slices.iter().map(|slice| slice.len()).sum();
        self.io.poll_transfer(cx, Direction::Write, len, |stream| send_vectored(stream, slices))
    }
}

/// See *No SIGPIPE*.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn send_vectored(stream: &mio::net::TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

    Ok(sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
}

/// See *No SIGPIPE*: here the socket itself has `SO_NOSIGPIPE`, set by mio.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn send_vectored(mut stream: &mio::net::TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    stream.write_vectored(slices)
}

/// Slices in one system call: `UIO_MAXIOV`, the same on all systems.
const MAX_SLICES: usize = 1024;

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_read_shared(cx, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_shared(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored_shared(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing to do: what was written is with the kernel.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Tells the peer that nothing more comes; reading goes on.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_now(Shutdown::Write))
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

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.source().as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.io.source().as_raw_fd()
    }
}
