//! A TCP socket that is neither connected nor listening yet, so that its options can be set first.
//!
//! The driver does not watch such a socket. It is registered when it becomes a stream or a
//! listener.

use std::fmt;
use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::net::device::device;
use crate::net::tcp_stream::TcpStream;
use volt_core::context;

/// A TCP socket that is neither connected nor listening yet.
///
/// Use it to set options before the socket connects or listens. `SO_REUSEADDR` is off by default,
/// unlike for [`TcpListener::bind`](crate::net::TcpListener::bind).
///
/// ```
/// use volt::net::TcpSocket;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let socket = TcpSocket::new_v4()?;
/// socket.set_reuseaddr(true)?;
/// socket.bind("127.0.0.1:0".parse().unwrap())?;
/// let listener = socket.listen(1024)?;
///
/// let socket = TcpSocket::new_v4()?;
/// socket.set_nodelay(true)?;
/// let stream = socket.connect(listener.local_addr()?).await?;
/// assert!(stream.nodelay()?);
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct TcpSocket {
    pub(super) fd: OwnedFd,
}

impl TcpSocket {
    /// Creates a new socket for IPv4.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn new_v4() -> io::Result<TcpSocket> {
        Self::new(AddressFamily::INET)
    }

    /// Creates a new socket for IPv6.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn new_v6() -> io::Result<TcpSocket> {
        Self::new(AddressFamily::INET6)
    }

    #[cfg(not(target_vendor = "apple"))]
    fn new(family: AddressFamily) -> io::Result<TcpSocket> {
        use rustix::net::{SocketFlags, socket_with};

        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(TcpSocket { fd: socket_with(family, SocketType::STREAM, flags, None)? })
    }

    #[cfg(target_vendor = "apple")]
    fn new(family: AddressFamily) -> io::Result<TcpSocket> {
        let fd = rustix::net::socket(family, SocketType::STREAM, None)?;
        rustix::io::ioctl_fioclex(&fd)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        sockopt::set_socket_nosigpipe(&fd, true)?;
        Ok(TcpSocket { fd })
    }

    /// Converts a socket of the standard library, which need not be connected, and sets it to
    /// non-blocking mode.
    ///
    /// # Panics
    /// Panics if the system refuses non-blocking mode. No system does so for a socket.
    pub fn from_std_stream(stream: net::TcpStream) -> TcpSocket {
        stream.set_nonblocking(true).expect("a socket can be non-blocking");
        TcpSocket { fd: stream.into() }
    }

    /// Binds the socket to `addr`. If the port is 0, the system assigns a free port.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails: `AddrInUse`, `AddrNotAvailable`,
    /// `PermissionDenied` and others.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::bind(&self.fd, &addr)?)
    }

    /// Connects the socket to the address `addr`, and returns the connection.
    ///
    /// # Errors
    /// Returns an error if the connection cannot be established, such as `ConnectionRefused`.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future aborts the attempt and closes the socket.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        let driver = context::driver();
        match rustix::net::connect(&self.fd, &addr) {
            Ok(()) | Err(Errno::INPROGRESS) => TcpStream::connected(driver, self.fd.into()).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a socket for a listener at `addr`. It has `SO_REUSEADDR` set, so that a program that
    /// restarts does not have to wait until old connections have timed out.
    pub(super) fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
        let socket = if addr.is_ipv4() { Self::new_v4() } else { Self::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        Ok(socket)
    }

    /// Returns the local address that this socket is bound to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(rustix::net::getsockname(&self.fd)?.try_into()?)
    }

    /// Returns and clears the socket's pending error, if there is one (`SO_ERROR`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.fd)?.err().map(io::Error::from))
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
        Ok(sockopt::set_socket_linger(&self.fd, duration)?)
    }

    /// Makes closing the socket discard unsent data and reset the connection (`SO_LINGER` with a
    /// timeout of zero).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.fd, Some(Duration::ZERO))?)
    }

    /// Returns how long closing the socket waits for unsent data (`SO_LINGER`). `None` means that
    /// closing does not wait, and that the kernel sends the data in the background.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(&self.fd)?)
    }

    /// Sets the size of the kernel's send buffer in bytes (`SO_SNDBUF`). Linux doubles the value to
    /// allow for its own overhead, and reduces a value above its limit (`net.core.wmem_max`) to it.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<()> {
        Ok(sockopt::set_socket_send_buffer_size(&self.fd, limited(bytes))?)
    }

    /// Returns the size of the kernel's send buffer in bytes (`SO_SNDBUF`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        Ok(saturating(sockopt::socket_send_buffer_size(&self.fd)?))
    }

    /// Sets the size of the kernel's receive buffer in bytes (`SO_RCVBUF`). Linux doubles the value
    /// to allow for its own overhead, and reduces a value above its limit (`net.core.rmem_max`) to
    /// it.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<()> {
        Ok(sockopt::set_socket_recv_buffer_size(&self.fd, limited(bytes))?)
    }

    /// Returns the size of the kernel's receive buffer in bytes (`SO_RCVBUF`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        Ok(saturating(sockopt::socket_recv_buffer_size(&self.fd)?))
    }

    /// Returns the type of service of packets sent from this socket (`IP_TOS`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn tos_v4(&self) -> io::Result<u32> {
        Ok(sockopt::ip_tos(&self.fd)?.into())
    }

    /// Sets the type of service of packets sent from this socket (`IP_TOS`).
    ///
    /// # Errors
    /// Returns `ErrorKind::InvalidInput` if `tos` exceeds 255. Also returns an error if the
    /// underlying system call fails.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        let tos = u8::try_from(tos).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(sockopt::set_ip_tos(&self.fd, tos)?)
    }

    /// The former name of [`tos_v4`](Self::tos_v4).
    ///
    /// # Errors
    /// Returns the same errors as [`tos_v4`](Self::tos_v4).
    #[deprecated(note = "use `tos_v4`")]
    pub fn tos(&self) -> io::Result<u32> {
        self.tos_v4()
    }

    /// The former name of [`set_tos_v4`](Self::set_tos_v4).
    ///
    /// # Errors
    /// Returns the same errors as [`set_tos_v4`](Self::set_tos_v4).
    #[deprecated(note = "use `set_tos_v4`")]
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        self.set_tos_v4(tos)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
device!(TcpSocket, self => &self.fd);

/// Returns the size, or the largest one that the system call accepts. The system's limit is lower.
fn limited(bytes: u32) -> usize {
    bytes.min(i32::MAX.unsigned_abs()) as usize
}

fn saturating(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A socket option that rustix reads and sets under the given names.
macro_rules! option {
    ($what:literal, $get:ident = $rustix_get:ident, $set:ident = $rustix_set:ident, $value:ty) => {
        impl TcpSocket {
            #[doc = $what]
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            pub fn $get(&self) -> io::Result<$value> {
                Ok(sockopt::$rustix_get(&self.fd)?)
            }

            #[doc = concat!("Sets the option that [`", stringify!($get), "`](Self::", stringify!($get), ") returns.")]
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            pub fn $set(&self, value: $value) -> io::Result<()> {
                Ok(sockopt::$rustix_set(&self.fd, value)?)
            }
        }
    };
}

option!(
    "Returns whether the kernel sends keep-alive probes to a silent peer (`SO_KEEPALIVE`).",
    keepalive = socket_keepalive,
    set_keepalive = set_socket_keepalive,
    bool
);
option!(
    "Returns whether the socket can bind to an address that old connections still use while they time out (`SO_REUSEADDR`).",
    reuseaddr = socket_reuseaddr,
    set_reuseaddr = set_socket_reuseaddr,
    bool
);
#[cfg(not(any(target_os = "solaris", target_os = "illumos")))]
option!(
    "Returns whether several sockets can bind to the same address; the kernel distributes connections among them (`SO_REUSEPORT`).",
    reuseport = socket_reuseport,
    set_reuseport = set_socket_reuseport,
    bool
);
option!(
    "Returns whether small writes are sent immediately instead of being collected (`TCP_NODELAY`).",
    nodelay = tcp_nodelay,
    set_nodelay = set_tcp_nodelay,
    bool
);
option!(
    "Returns the traffic class of packets sent from this socket (`IPV6_TCLASS`).",
    tclass_v6 = ipv6_tclass,
    set_tclass_v6 = set_ipv6_tclass,
    u32
);

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpSocket");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        debug.field("fd", &self.fd.as_raw_fd()).finish()
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl IntoRawFd for TcpSocket {
    fn into_raw_fd(self) -> RawFd {
        self.fd.into_raw_fd()
    }
}

impl FromRawFd for TcpSocket {
    /// Converts a raw file descriptor. It must be a TCP socket in non-blocking mode.
    unsafe fn from_raw_fd(fd: RawFd) -> TcpSocket {
        // SAFETY: the caller guarantees that the descriptor is open and owned by no other object.
        TcpSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) } }
    }
}
