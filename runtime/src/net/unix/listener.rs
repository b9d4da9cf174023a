//! A socket that takes connections within this machine.

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

/// A Unix socket that takes connections.
///
/// Dropping it leaves its path behind: remove the file when it is to be bound again.
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
    io: Acceptor<mio::net::UnixListener>,
}

impl UnixListener {
    /// A socket at `path`, which must not exist yet, with the longest backlog that the system
    /// allows.
    ///
    /// # Errors
    /// `AddrInUse` if it exists; `InvalidInput` if it is longer than the system takes (107 bytes on
    /// Linux); what else the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        Self::bind_addr(&address(path.as_ref())?)
    }

    /// As [`bind`](Self::bind), at an address.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn bind_addr(address: &SocketAddr) -> io::Result<UnixListener> {
        let driver = context::driver();
        Self::register(driver, mio::net::UnixListener::bind_addr(address)?)
    }

    fn register(driver: Arc<Driver>, listener: mio::net::UnixListener) -> io::Result<UnixListener> {
        Ok(UnixListener { io: Acceptor::new(driver, listener)? })
    }

    /// Takes the next connection; any number of tasks may do so at once. Waits while the process
    /// has no file descriptor or memory left, as
    /// [`TcpListener::accept`](crate::net::TcpListener::accept) does.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// No connection is lost: it is taken by the poll that returns it.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        self.io.accept(|listener| self.take(listener)).await
    }

    /// Polls for the next connection, as [`accept`](Self::accept). Of several tasks that do so, the
    /// last one is woken.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.io.poll_accept(cx, |listener| self.take(listener))
    }

    fn take(&self, listener: &mio::net::UnixListener) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, peer) = listener.accept()?;
        Ok((UnixStream::register(self.io.driver().clone(), stream.into())?, peer))
    }

    /// The address it listens at.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// Takes the socket's pending error, if it has one (`SO_ERROR`).
    ///
    /// # Errors
    /// What the system says.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.io.source().take_error()
    }
}

descriptor!(UnixListener, net::UnixListener, mio::net::UnixListener::from_std);

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UnixListener");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
