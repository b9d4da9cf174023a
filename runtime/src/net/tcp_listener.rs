//! A socket that takes TCP connections.

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

/// Connections that may wait for an accept: with the 128 of the standard library, 1,000 clients
/// that connect at once overflow the queue, and those that are turned away try again a second
/// later.
const BACKLOG: u32 = 1024;

/// A TCP socket that takes connections.
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
    /// Opens a socket at `addr`, with `SO_REUSEADDR` so that a restart need not wait for old
    /// connections to time out, and a backlog of 1024 or what the system allows
    /// (`net.core.somaxconn`). Port 0 asks the system for a free one. For another backlog see
    /// [`TcpSocket::listen`].
    ///
    /// If `addr` stands for several addresses, the first that can be had is taken.
    ///
    /// # Errors
    /// What the system says of the last address; `ErrorKind::InvalidInput` for a text that is no
    /// address.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it opened.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
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

    /// Takes the next connection; any number of tasks may do so at once.
    ///
    /// While the process has no file descriptor, memory or epoll watch left (`EMFILE`, `ENFILE`,
    /// `ENOBUFS`, `ENOMEM`, `ENOSPC`) this waits, 5 ms at first and up to 1 s, and goes on by
    /// itself; each wait is counted (`accept_backoffs`), the first of a spell is logged.
    /// A connection that broke while it waited is passed over, and one that could be taken and not
    /// watched is closed.
    ///
    /// # Errors
    /// Any other error of the system. It concerns the listener, not one connection.
    ///
    /// # Cancel safety
    /// No connection is lost: it is taken by the poll that returns it.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.io.accept(|listener| self.take(listener)).await
    }

    /// Polls for the next connection, as [`accept`](Self::accept). Of several tasks that do so, the
    /// last one is woken.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.io.poll_accept(cx, |listener| self.take(listener))
    }

    fn take(&self, listener: &mio::net::TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = listener.accept()?;
        Ok((TcpStream::register(self.io.driver().clone(), stream.into())?, peer))
    }

    /// The address it listens at.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// The time to live of packets sent from this socket (`IP_TTL`).
    ///
    /// # Errors
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.source().ttl()
    }

    /// Sets the time to live of packets sent from this socket (`IP_TTL`).
    ///
    /// # Errors
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.source().set_ttl(ttl)
    }
}

impl TcpSocket {
    /// Takes connections, `backlog` of which may wait to be accepted, or what the system allows.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
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
