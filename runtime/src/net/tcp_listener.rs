//! A TCP listener: a socket that accepts connections.

use std::fmt;
use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::net::acceptor::Acceptor;
use crate::net::addr::{ToSocketAddrs, resolve};
use crate::net::surface::descriptor;
use crate::net::tcp_socket::TcpSocket;
use crate::net::tcp_stream::TcpStream;
use volt_core::context;
use volt_core::driver::turn::Driver;

/// Connections that may wait to be accepted. The standard library uses 128. A burst of 1,000
/// clients overflows a queue of that length, and each client that was refused tries again only
/// one second later.
const BACKLOG: u32 = 1024;

/// A TCP socket that listens for connections.
///
/// The listener is created by [`bind`](Self::bind), and returns connections from
/// [`accept`](Self::accept). Dropping it closes the socket.
///
/// ```
/// use volt::net::{TcpListener, TcpStream};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.local_addr()?).await?;
/// let (_stream, peer) = listener.accept().await?;
/// assert_eq!(peer, client.local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct TcpListener {
    io: Acceptor<mio::net::TcpListener>,
}

impl TcpListener {
    /// Creates a listener that is bound to `addr`.
    ///
    /// The socket has `SO_REUSEADDR` set, so that a program that restarts does not have to wait
    /// until old connections have timed out. The backlog is 1024, or the system's limit
    /// (`net.core.somaxconn`) if that is lower. [`TcpSocket::listen`] accepts another backlog. If
    /// the port is 0, the system assigns a free port.
    ///
    /// If `addr` yields several addresses, `bind` tries them in order until one succeeds.
    ///
    /// # Errors
    /// Returns the error of the last address if none of them can be bound. Returns
    /// `ErrorKind::InvalidInput` if `addr` is a string that is not a valid address.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes the socket if it was opened.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        let driver = context::driver();
        let mut result = Err(io::ErrorKind::InvalidInput.into());
        for addr in resolve(addr.target()).await? {
            result = TcpSocket::bound(addr).and_then(|socket| socket.listen_on(driver.clone(), BACKLOG));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    pub(super) fn register(driver: Arc<Driver>, listener: mio::net::TcpListener) -> io::Result<TcpListener> {
        Ok(TcpListener { io: Acceptor::new(driver, listener)? })
    }

    /// Accepts a new connection from this listener.
    ///
    /// Any number of tasks may wait in `accept` at the same time.
    ///
    /// If the program has run out of file descriptors, memory or epoll watches (`EMFILE`, `ENFILE`,
    /// `ENOBUFS`, `ENOMEM`, `ENOSPC`), `accept` does not fail. It waits for 5 ms and tries again,
    /// and doubles the wait after each further failure, up to 1 s.
    /// `volt_driver_accept_backoffs_total` counts these waits. The first wait since the last
    /// accepted connection is logged.
    ///
    /// A connection that broke while it waited in the queue is skipped. A connection that was
    /// accepted but that the driver cannot watch is closed.
    ///
    /// # Errors
    /// Returns any other error of the system call. Such an error concerns the listener, not a
    /// single connection.
    ///
    /// # Cancel safety
    /// This method is cancel safe. The poll that accepts a connection also returns it, so no
    /// connection is lost.
    ///
    /// ```no_run
    /// use volt::io::AsyncWriteExt;
    /// use volt::net::TcpListener;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let listener = TcpListener::bind("127.0.0.1:8080").await?;
    /// loop {
    ///     let (mut stream, peer) = listener.accept().await?;
    ///     println!("{peer} has connected");
    ///     volt::spawn(async move { stream.write_all(b"hello\n").await });
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.io.accept(|listener| self.take(listener)).await
    }

    /// Polls for a new connection as [`accept`](Self::accept) does. If several tasks poll for a
    /// connection, only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.io.poll_accept(cx, |listener| self.take(listener))
    }

    fn take(&self, listener: &mio::net::TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = listener.accept()?;
        Ok((TcpStream::register(self.io.driver().clone(), stream.into())?, peer))
    }

    /// Returns the local address that this listener is bound to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
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
}

impl TcpSocket {
    /// Converts the socket into a listener. Up to `backlog` connections may wait to be accepted;
    /// the system may impose a lower limit.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.listen_on(context::driver(), backlog)
    }

    fn listen_on(self, driver: Arc<Driver>, backlog: u32) -> io::Result<TcpListener> {
        rustix::net::listen(&self.fd, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        TcpListener::register(driver, mio::net::TcpListener::from_std(self.fd.into()))
    }
}

descriptor!(TcpListener, net::TcpListener, mio::net::TcpListener::from_std);

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpListener");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
