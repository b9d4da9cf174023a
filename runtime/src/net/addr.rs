//! What can be given as an address, and how a host name becomes one.
//!
//! An address in figures is taken at once. A name is looked up by the system's resolver, which
//! blocks, so on a thread for blocking work. The trait is sealed: its method belongs to us.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use volt_core::context;

/// What can be given where an address is asked for: addresses, pairs of host and port, and texts
/// such as `"127.0.0.1:80"` or `"example.org:80"`. Names are looked up without blocking the
/// caller's worker.
///
/// Sealed: the types below are all that implement it.
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

    /// Opaque outside: it stands in the signature of a trait that nobody can name.
    #[derive(Debug, PartialEq, Eq)]
    pub enum Target {
        Addrs(Vec<SocketAddr>),
        /// A name to be looked up.
        Host(String, u16),
        /// A text that is neither address nor `host:port`.
        Unreadable(String),
    }
}

use sealed::{Sealed, Target};

/// Looks a host name up by the system's resolver, on a thread for blocking work; all the addresses
/// that it has.
///
/// # Errors
/// What the resolver says of a name that nobody has; `ErrorKind::InvalidInput` for a text that is
/// no `host:port`.
///
/// # Panics
/// Outside a runtime.
///
/// # Cancel safety
/// Nothing is lost. A lookup that has begun goes on, on its thread, and its result is dropped.
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
pub async fn lookup_host(host: impl ToSocketAddrs) -> io::Result<impl Iterator<Item = SocketAddr>> {
    Ok(resolve(host.target()).await?.into_iter())
}

/// The addresses that `target` stands for, one at least.
///
/// # Errors
/// `ErrorKind::InvalidInput` for a text that is no address, or no address at all; what the resolver
/// says.
pub(super) async fn resolve(target: Target) -> io::Result<Vec<SocketAddr>> {
    let addrs = match target {
        Target::Addrs(addrs) => addrs,
        Target::Host(host, port) => {
            let look_up = move || std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port)).map(Vec::from_iter);
            let looked_up = context::handle().spawn_blocking(look_up);
            looked_up.await.map_err(io::Error::other)??
        }
        Target::Unreadable(text) => return Err(invalid(format!("{text:?} is no address: write host:port"))),
    };
    if addrs.is_empty() {
        return Err(invalid("no address was given, or none belongs to the name".to_owned()));
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
    fn figures_need_no_resolver_and_names_do() {
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
