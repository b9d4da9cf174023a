//! The address of a Unix socket.

use std::fmt;
use std::os::unix::net;
use std::path::Path;

/// The address of a Unix socket: a path, an abstract name, or none.
///
/// It is a wrapper of the standard library's type, and can be converted from and to it. Use the
/// standard library's type to create an address.
///
/// ```
/// use std::os::unix::net;
/// use volt::net::unix::SocketAddr;
///
/// let address = SocketAddr::from(net::SocketAddr::from_pathname("/run/service.sock")?);
/// assert_eq!(address.as_pathname().unwrap().to_str(), Some("/run/service.sock"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct SocketAddr(pub(super) net::SocketAddr);

impl SocketAddr {
    /// Returns true if the socket is not bound to an address.
    pub fn is_unnamed(&self) -> bool {
        self.0.is_unnamed()
    }

    /// Returns the path, if the address is one.
    pub fn as_pathname(&self) -> Option<&Path> {
        self.0.as_pathname()
    }

    /// Returns the abstract name without the leading zero byte, if the address is one.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn as_abstract_name(&self) -> Option<&[u8]> {
        std::os::linux::net::SocketAddrExt::as_abstract_name(&self.0)
    }
}

impl fmt::Debug for SocketAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<net::SocketAddr> for SocketAddr {
    fn from(address: net::SocketAddr) -> SocketAddr {
        SocketAddr(address)
    }
}

impl From<SocketAddr> for net::SocketAddr {
    fn from(address: SocketAddr) -> net::SocketAddr {
        address.0
    }
}
