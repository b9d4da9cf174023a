//! A Unix socket that is not connected, bound or listening yet.
//!
//! The driver does not watch such a socket. It is registered when it becomes a stream, a listener
//! or a datagram socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::net::unix::address;
use crate::net::unix::datagram::UnixDatagram;
use crate::net::unix::listener::UnixListener;
use crate::net::unix::stream::{UnixStream, when_not_full};
use volt_core::context;

/// A Unix socket that is not a [`UnixStream`], [`UnixListener`] or [`UnixDatagram`] yet.
///
/// Use it to set options, or to bind the socket, before it connects or listens.
///
/// ```
/// use volt::net::UnixSocket;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// # let path = std::env::temp_dir().join(format!("volt-doc-socket-{}", std::process::id()));
/// let socket = UnixSocket::new_stream()?;
/// socket.bind(&path)?;
/// let listener = socket.listen(16)?;
/// let _client = UnixSocket::new_stream()?.connect(&path).await?;
/// listener.accept().await?;
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct UnixSocket {
    fd: OwnedFd,
}

/// Converts a path to an address for a system call. Refuses what the standard library refuses.
fn raw_address(path: &Path) -> io::Result<SocketAddrUnix> {
    address(path)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use std::os::unix::ffi::OsStrExt;

        if let [0, name @ ..] = path.as_os_str().as_bytes() {
            return Ok(SocketAddrUnix::new_abstract_name(name)?);
        }
    }
    Ok(SocketAddrUnix::new(path)?)
}

impl UnixSocket {
    /// Creates a new datagram socket.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn new_datagram() -> io::Result<UnixSocket> {
        Self::new(SocketType::DGRAM)
    }

    /// Creates a new stream socket.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn new_stream() -> io::Result<UnixSocket> {
        Self::new(SocketType::STREAM)
    }

    #[cfg(not(target_vendor = "apple"))]
    fn new(kind: SocketType) -> io::Result<UnixSocket> {
        use rustix::net::{SocketFlags, socket_with};

        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(UnixSocket { fd: socket_with(AddressFamily::UNIX, kind, flags, None)? })
    }

    #[cfg(target_vendor = "apple")]
    fn new(kind: SocketType) -> io::Result<UnixSocket> {
        let fd = rustix::net::socket(AddressFamily::UNIX, kind, None)?;
        rustix::io::ioctl_fioclex(&fd)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        sockopt::set_socket_nosigpipe(&fd, true)?;
        Ok(UnixSocket { fd })
    }

    /// Binds the socket to `path`, which must not exist yet.
    ///
    /// # Errors
    /// Returns `AddrInUse` if `path` exists. Returns `InvalidInput` if it is longer than the system
    /// allows (107 bytes on Linux). Also returns an error if the underlying system call fails.
    pub fn bind(&self, path: impl AsRef<Path>) -> io::Result<()> {
        Ok(rustix::net::bind(&self.fd, &raw_address(path.as_ref())?)?)
    }

    /// Converts the socket into a listener. Up to `backlog` connections may wait to be accepted;
    /// the system may impose a lower limit.
    ///
    /// # Errors
    /// Returns an error of kind `Other` if this is a datagram socket. Also returns an error if the
    /// underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn listen(self, backlog: u32) -> io::Result<UnixListener> {
        self.expect(SocketType::STREAM, "listen cannot be called on a datagram socket")?;
        rustix::net::listen(&self.fd, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        UnixListener::from_std(self.fd.into())
    }

    /// Connects the socket to the socket at `path`. Waits until the listener's queue has room.
    ///
    /// # Errors
    /// Returns an error of kind `Other` if this is a datagram socket. Otherwise returns the same
    /// errors as [`UnixStream::connect`].
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the attempt and closes the socket.
    pub async fn connect(self, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        self.expect(SocketType::STREAM, "connect cannot be called on a datagram socket")?;
        let driver = context::driver();
        let address = raw_address(path.as_ref())?;
        let connect = || match rustix::net::connect(&self.fd, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
            Err(error) => Err(error.into()),
        };
        when_not_full(&driver, connect).await?;
        UnixStream::connected(driver, self.fd.into()).await
    }

    /// Converts the socket into a datagram socket.
    ///
    /// # Errors
    /// Returns an error of kind `Other` if this is a stream socket. Also returns an error if the
    /// underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn datagram(self) -> io::Result<UnixDatagram> {
        self.expect(SocketType::DGRAM, "datagram cannot be called on a stream socket")?;
        UnixDatagram::from_std(self.fd.into())
    }

    /// Returns an error with this text if the socket is of another kind.
    fn expect(&self, kind: SocketType, text: &str) -> io::Result<()> {
        if sockopt::socket_type(&self.fd)? == kind { Ok(()) } else { Err(io::Error::other(text)) }
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for UnixSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl IntoRawFd for UnixSocket {
    fn into_raw_fd(self) -> RawFd {
        self.fd.into_raw_fd()
    }
}

impl FromRawFd for UnixSocket {
    /// Converts a raw file descriptor. It must be a Unix socket in non-blocking mode.
    unsafe fn from_raw_fd(fd: RawFd) -> UnixSocket {
        // SAFETY: the caller guarantees that the descriptor is open and owned by no other object.
        UnixSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) } }
    }
}
