//! Conversion of addresses and host names to socket addresses.
//!
//! Functions such as `TcpStream::connect` accept any type that implements [`ToSocketAddrs`]. A
//! numeric address is used directly. A host name is resolved by the system's resolver; that call
//! blocks, so it runs on a thread for blocking work. The trait is sealed, so its method is not part
//! of the public API.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use volt_core::context;

/// A type that can be converted to one or more socket addresses.
///
/// It is implemented for socket addresses, for pairs of a host and a port, and for strings such as
/// `"127.0.0.1:80"` or `"example.org:80"`. Host names are resolved without blocking the caller's
/// worker.
///
/// This trait is sealed: no other types can implement it.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let listener = volt::net::TcpListener::bind(("localhost", 0)).await?;
/// assert!(listener.local_addr()?.ip().is_loopback());
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub trait ToSocketAddrs: sealed::Sealed {}

impl<T: sealed::Sealed + ?Sized> ToSocketAddrs for T {}

pub(super) mod sealed {
    use std::net::SocketAddr;

    pub trait Sealed {
        fn target(&self) -> Target;
    }

    /// Opaque to users: it is in the signature of a trait that they cannot name.
    #[derive(Debug, PartialEq, Eq)]
    pub enum Target {
        Addrs(Vec<SocketAddr>),
        /// A host name that must be resolved.
        Host(String, u16),
        /// A string that is neither an address nor `host:port`.
        Unreadable(String),
    }
}

use sealed::{Sealed, Target};

/// Resolves a host name, and returns all of its addresses.
///
/// The system's resolver runs on a thread of the blocking pool.
///
/// # Errors
/// Returns the resolver's error if the name cannot be resolved. Returns `ErrorKind::InvalidInput`
/// if `host` is a string that is not of the form `host:port`, or is an empty list of addresses.
///
/// # Panics
/// Panics if `host` is a host name and the future is polled outside the context of a runtime.
///
/// # Cancel safety
/// This function is cancel safe. A lookup that has started continues on its thread, and its result
/// is discarded.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// for addr in volt::net::lookup_host("localhost:80").await? {
///     assert!(addr.ip().is_loopback() && addr.port() == 80);
/// }
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub async fn lookup_host<T: ToSocketAddrs>(host: T) -> io::Result<impl Iterator<Item = SocketAddr>> {
    Ok(resolve(host.target()).await?.into_iter())
}

/// Returns the addresses that `target` stands for: at least one.
///
/// # Errors
/// Returns `ErrorKind::InvalidInput` if `target` is not a valid address, or yields no address.
/// Returns the resolver's error if the name cannot be resolved.
pub(super) async fn resolve(target: Target) -> io::Result<Vec<SocketAddr>> {
    let addrs = match target {
        Target::Addrs(addrs) => addrs,
        Target::Host(host, port) => {
            let look_up = move || std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port)).map(Vec::from_iter);
            let looked_up = context::handle().spawn_blocking(look_up);
            looked_up.await.map_err(io::Error::other)??
        }
        Target::Unreadable(text) => return Err(invalid(format!("{text:?} is not an address: use the form host:port"))),
    };
    if addrs.is_empty() {
        return Err(invalid("no address was given, or the name has no address".to_owned()));
    }
    Ok(addrs)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl<T: Sealed + ?Sized> Sealed for &T {
    fn target(&self) -> Target {
        (**self).target()
    }
}

impl Sealed for SocketAddr {
    fn target(&self) -> Target {
        Target::Addrs(vec![*self])
    }
}

impl Sealed for SocketAddrV4 {
    fn target(&self) -> Target {
        SocketAddr::V4(*self).target()
    }
}

impl Sealed for SocketAddrV6 {
    fn target(&self) -> Target {
        SocketAddr::V6(*self).target()
    }
}

impl Sealed for (IpAddr, u16) {
    fn target(&self) -> Target {
        SocketAddr::from(*self).target()
    }
}

impl Sealed for (Ipv4Addr, u16) {
    fn target(&self) -> Target {
        SocketAddr::from(*self).target()
    }
}

impl Sealed for (Ipv6Addr, u16) {
    fn target(&self) -> Target {
        SocketAddr::from(*self).target()
    }
}

impl Sealed for [SocketAddr] {
    fn target(&self) -> Target {
        Target::Addrs(self.to_vec())
    }
}

impl Sealed for Vec<SocketAddr> {
    fn target(&self) -> Target {
        self.as_slice().target()
    }
}

impl<const N: usize> Sealed for [SocketAddr; N] {
    fn target(&self) -> Target {
        self.as_slice().target()
    }
}

impl Sealed for (&str, u16) {
    fn target(&self) -> Target {
        let (host, port) = *self;
        match host.parse::<IpAddr>() {
            Ok(ip) => (ip, port).target(),
            Err(_) => Target::Host(host.to_owned(), port),
        }
    }
}

impl Sealed for (String, u16) {
    fn target(&self) -> Target {
        (self.0.as_str(), self.1).target()
    }
}

impl Sealed for str {
    fn target(&self) -> Target {
        if let Ok(addr) = self.parse::<SocketAddr>() {
            return addr.target();
        }
        let parts = self.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() => (host, port).target(),
            _ => Target::Unreadable(self.to_owned()),
        }
    }
}

impl Sealed for String {
    fn target(&self) -> Target {
        self.as_str().target()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_addresses_need_no_resolver_and_names_do() {
        let addr: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let known = || Target::Addrs(vec![addr]);
        assert_eq!("127.0.0.1:80".target(), known());
        assert_eq!(String::from("127.0.0.1:80").target(), known());
        assert_eq!(("127.0.0.1", 80).target(), known());
        assert_eq!((Ipv4Addr::LOCALHOST, 80).target(), known());
        assert_eq!([addr].target(), known());
        assert_eq!("[::1]:80".target(), (Ipv6Addr::LOCALHOST, 80).target());
        assert_eq!("example.org:80".target(), Target::Host("example.org".into(), 80));
        assert_eq!(("example.org", 80).target(), Target::Host("example.org".into(), 80));
    }

    #[test]
    fn a_text_without_a_port_is_unreadable() {
        for text in ["example.org", "127.0.0.1", "host:", ":80", "host:65536", ""] {
            assert_eq!(text.target(), Target::Unreadable(text.to_owned()));
        }
    }
}
