//! A Unix listener: a socket that accepts connections from programs on the same machine.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::net::acceptor::Acceptor;
use crate::net::surface::descriptor;
use crate::net::unix::stream::UnixStream;
use crate::net::unix::{SocketAddr, address};
use volt_core::context;
use volt_core::driver::turn::Driver;

/// A Unix socket that listens for connections.
///
/// Dropping the listener leaves the file at its path behind. Remove that file before you bind to
/// the path again.
///
/// ```
/// use volt::net::{UnixListener, UnixStream};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// # let path = std::env::temp_dir().join(format!("volt-doc-listener-{}", std::process::id()));
/// let listener = UnixListener::bind(&path)?;
/// let client = UnixStream::connect(&path).await?;
/// let (stream, _peer) = listener.accept().await?;
/// assert_eq!(stream.peer_cred()?.pid(), Some(std::process::id() as i32));
/// std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct UnixListener {
    io: Acceptor<net::UnixListener>,
}

impl UnixListener {
    /// Creates a listener that is bound to `path`, which must not exist yet. Its backlog is the
    /// largest that the system allows.
    ///
    /// # Errors
    /// Returns `AddrInUse` if `path` exists. Returns `InvalidInput` if it is longer than the system
    /// allows (107 bytes on Linux). Also returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        let driver = context::driver();
        Self::bind_on(driver, &address(path.as_ref())?)
    }

    /// Creates a listener as [`bind`](Self::bind) does, that is bound to a socket address.
    ///
    /// # Errors
    /// Returns the same errors as [`bind`](Self::bind).
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        Self::bind_on(context::driver(), &address.0)
    }

    fn bind_on(driver: Arc<Driver>, address: &net::SocketAddr) -> io::Result<UnixListener> {
        Self::register(driver, mio::net::UnixListener::bind_addr(address)?.into())
    }

    fn register(driver: Arc<Driver>, listener: net::UnixListener) -> io::Result<UnixListener> {
        Ok(UnixListener { io: Acceptor::new(driver, listener)? })
    }

    /// Accepts a new connection from this listener.
    ///
    /// Any number of tasks may wait in `accept` at the same time. If the program has run out of
    /// file descriptors or memory, `accept` waits, as
    /// [`TcpListener::accept`](crate::net::TcpListener::accept) does.
    ///
    /// # Errors
    /// Returns any other error of the system call. Such an error concerns the listener, not a
    /// single connection.
    ///
    /// # Cancel safety
    /// This method is cancel safe. The poll that accepts a connection also returns it, so no
    /// connection is lost.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        self.io.accept(|listener| self.take(listener)).await
    }

    /// Polls for a new connection as [`accept`](Self::accept) does. If several tasks poll for a
    /// connection, only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.io.poll_accept(cx, |listener| self.take(listener))
    }

    fn take(&self, listener: &net::UnixListener) -> io::Result<(UnixStream, SocketAddr)> {
        // Not mio's `accept`: it panics if the path of the client has 108 bytes, the most that
        // Linux allows, and does not return abstract names. The price is a second system call,
        // which sets the non-blocking mode.
        let (stream, peer) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok((UnixStream::register(self.io.driver().clone(), stream)?, peer.into()))
    }

    /// Returns the local address that this listener is bound to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr().map(SocketAddr::from)
    }

    /// Returns and clears the socket's pending error, if there is one (`SO_ERROR`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.io.source().take_error()
    }
}

descriptor!(UnixListener, net::UnixListener, std::convert::identity);

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UnixListener");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
