//! A TCP socket that is neither connected nor listening yet, so that its options can be set before.
//!
//! It is not registered with a driver: whatever it becomes is.

use std::fmt;
use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::net::tcp_stream::TcpStream;
use volt_core::context;

/// A TCP socket whose options are set before it connects or listens.
///
/// Unlike [`TcpListener::bind`](crate::net::TcpListener::bind) it leaves `SO_REUSEADDR` off until
/// told otherwise.
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
    /// A socket for IPv4.
    ///
    /// # Errors
    /// What the system says.
    pub fn new_v4() -> io::Result<TcpSocket> {
        Self::new(AddressFamily::INET)
    }

    /// A socket for IPv6.
    ///
    /// # Errors
    /// What the system says.
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

    /// Takes over a socket of the standard library, which need not be connected yet, and puts it
    /// into non-blocking mode.
    ///
    /// # Panics
    /// If the system refuses that mode, which it does for no socket.
    pub fn from_std_stream(stream: net::TcpStream) -> TcpSocket {
        stream.set_nonblocking(true).expect("a socket can be non-blocking");
        TcpSocket { fd: stream.into() }
    }

    /// Gives the socket its address. Port 0 asks the system for a free one.
    ///
    /// # Errors
    /// What the system says: `AddrInUse`, `AddrNotAvailable`, `PermissionDenied`, ...
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::bind(&self.fd, &addr)?)
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// What the system says (`ConnectionRefused`, ...).
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        let driver = context::driver();
        match rustix::net::connect(&self.fd, &addr) {
            Ok(()) | Err(Errno::INPROGRESS) => TcpStream::connected(driver, self.fd.into()).await,
            Err(error) => Err(error.into()),
        }
    }

    /// A socket with the address of a listener: a restart need not wait until old connections have
    /// timed out.
    pub(super) fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
        let socket = if addr.is_ipv4() { Self::new_v4() } else { Self::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        Ok(socket)
    }

    /// The address at this end.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(rustix::net::getsockname(&self.fd)?.try_into()?)
    }

    /// Takes the socket's pending error, if it has one (`SO_ERROR`).
    ///
    /// # Errors
    /// What the system says.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(sockopt::socket_error(&self.fd)?.err().map(io::Error::from))
    }

    /// Sets how long closing waits for what was not yet sent (`SO_LINGER`). Closing then **blocks
    /// its thread** for so long: with anything but `None` and zero that is a worker.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_linger(&self, duration: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(&self.fd, duration)?)
    }

    /// Makes closing throw away what was not yet sent and reset the connection (`SO_LINGER` with 0
    /// seconds).
    ///
    /// # Errors
    /// What the system says.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// How long closing waits for what was not yet sent (`SO_LINGER`); `None` = the kernel sends it
    /// by itself.
    ///
    /// # Errors
    /// What the system says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(sockopt::socket_linger(&self.fd)?)
    }

    /// Sets the kernel's buffer for sending, bytes (`SO_SNDBUF`). Linux doubles the number, for its
    /// own needs.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<()> {
        Ok(sockopt::set_socket_send_buffer_size(&self.fd, bytes as usize)?)
    }

    /// The kernel's buffer for sending, bytes (`SO_SNDBUF`).
    ///
    /// # Errors
    /// What the system says.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        Ok(saturating(sockopt::socket_send_buffer_size(&self.fd)?))
    }

    /// Sets the kernel's buffer for receiving, bytes (`SO_RCVBUF`). Linux doubles the number, for
    /// its own needs.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<()> {
        Ok(sockopt::set_socket_recv_buffer_size(&self.fd, bytes as usize)?)
    }

    /// The kernel's buffer for receiving, bytes (`SO_RCVBUF`).
    ///
    /// # Errors
    /// What the system says.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        Ok(saturating(sockopt::socket_recv_buffer_size(&self.fd)?))
    }

    /// The type of service of packets sent (`IP_TOS`).
    ///
    /// # Errors
    /// What the system says.
    pub fn tos_v4(&self) -> io::Result<u32> {
        Ok(sockopt::ip_tos(&self.fd)?.into())
    }

    /// Sets [`tos_v4`](Self::tos_v4).
    ///
    /// # Errors
    /// `ErrorKind::InvalidInput` above 255; what the system says.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        let tos = u8::try_from(tos).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(sockopt::set_ip_tos(&self.fd, tos)?)
    }
}

fn saturating(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// An option that rustix reads and sets under these names.
macro_rules! option {
    ($what:literal, $get:ident = $rustix_get:ident, $set:ident = $rustix_set:ident, $value:ty) => {
        impl TcpSocket {
            #[doc = $what]
            ///
            /// # Errors
            /// What the system says.
            pub fn $get(&self) -> io::Result<$value> {
                Ok(sockopt::$rustix_get(&self.fd)?)
            }

            #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
            ///
            /// # Errors
            /// What the system says.
            pub fn $set(&self, value: $value) -> io::Result<()> {
                Ok(sockopt::$rustix_set(&self.fd, value)?)
            }
        }
    };
}

option!(
    "Whether the kernel asks a silent peer, by and by, if it is still there (`SO_KEEPALIVE`).",
    keepalive = socket_keepalive,
    set_keepalive = set_socket_keepalive,
    bool
);
option!(
    "Whether an address may be taken of which old connections have yet to time out (`SO_REUSEADDR`).",
    reuseaddr = socket_reuseaddr,
    set_reuseaddr = set_socket_reuseaddr,
    bool
);
#[cfg(not(any(target_os = "solaris", target_os = "illumos")))]
option!(
    "Whether several sockets may have the same address, among which the kernel spreads connections (`SO_REUSEPORT`).",
    reuseport = socket_reuseport,
    set_reuseport = set_socket_reuseport,
    bool
);
option!(
    "Whether small writes are sent at once (`TCP_NODELAY`) instead of being gathered.",
    nodelay = tcp_nodelay,
    set_nodelay = set_tcp_nodelay,
    bool
);
option!(
    "The traffic class of packets sent (`IPV6_TCLASS`).",
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
    /// The descriptor must be a TCP socket in non-blocking mode.
    unsafe fn from_raw_fd(fd: RawFd) -> TcpSocket {
        // SAFETY: the caller says that it is open and nobody else's.
        TcpSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) } }
    }
}
