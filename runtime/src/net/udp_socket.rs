//! UDP.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BufMut;
use rustix::net::{RecvFlags, recvfrom, sockopt};
use tokio::io::ReadBuf;

use crate::net::addr::{ToSocketAddrs, resolve};
use crate::net::bytes::{fill_buf_mut, fill_read_buf};
use crate::net::surface::datagrams::datagrams;
use crate::net::surface::{descriptor, waits};
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;

/// A UDP socket. All its methods take `&self`: share it in an `Arc` to send and receive in
/// different tasks.
///
/// Of several tasks that poll the same direction (`poll_…`), the last one is woken; the `async`
/// methods may be awaited by any number of tasks.
///
/// ```
/// use volt::net::UdpSocket;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let (here, there) = (UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind("127.0.0.1:0").await?);
/// here.send_to(b"ping", there.local_addr()?).await?;
/// let mut buffer = [0; 1500];
/// let (len, from) = there.recv_from(&mut buffer).await?;
/// assert_eq!((&buffer[..len], from), (&b"ping"[..], here.local_addr()?));
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct UdpSocket {
    io: Registration<net::UdpSocket>,
}

/// Takes a datagram into memory that may be uninitialized.
fn receive(socket: &net::UdpSocket, free: &mut [MaybeUninit<u8>], flags: RecvFlags) -> io::Result<(usize, SocketAddr)> {
    let ((filled, _), _, from) = recvfrom(socket, free, flags)?;
    let from = from.ok_or_else(|| io::Error::other("the kernel gave a datagram without its sender"))?;
    Ok((filled.len(), from.try_into()?))
}

impl UdpSocket {
    /// A socket at `addr`. Port 0 asks the system for a free one. If `addr` stands for several
    /// addresses, the first that can be had is taken.
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
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        let driver = context::driver();
        let mut result = Err(io::ErrorKind::InvalidInput.into());
        for addr in resolve(addr.target()).await? {
            result = net::UdpSocket::bind(addr).and_then(|socket| {
                socket.set_nonblocking(true)?;
                Self::register(driver.clone(), socket)
            });
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn register(driver: Arc<Driver>, socket: net::UdpSocket) -> io::Result<UdpSocket> {
        Ok(UdpSocket { io: Registration::new(driver, socket, Flags::WRITABLE)? })
    }

    /// Makes `addr` the peer: the one that `send` sends to, and the only one that datagrams are
    /// taken from. If it stands for several addresses, the first that can be had is taken.
    ///
    /// # Errors
    /// What the system says of the last address; `ErrorKind::InvalidInput` for a text that is no
    /// address.
    ///
    /// # Cancel safety
    /// If it did not return, the socket has the peer that it had.
    pub async fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        let mut result = Err(io::ErrorKind::InvalidInput.into());
        for addr in resolve(addr.target()).await? {
            result = self.io.source().connect(addr);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Sends a datagram to `target`, the first of its addresses if it stands for several, waiting
    /// for room; how many bytes went.
    ///
    /// # Errors
    /// What the system says; `ErrorKind::InvalidInput` for a text that is no address.
    ///
    /// # Cancel safety
    /// If it did not return, nothing was sent.
    pub async fn send_to(&self, bytes: &[u8], target: impl ToSocketAddrs) -> io::Result<usize> {
        let target = resolve(target.target()).await?[0];
        self.io.run(Direction::Write, |socket| socket.send_to(bytes, target)).await
    }

    /// Polls as [`send_to`](Self::send_to). Of several tasks that poll to send, the last one is
    /// woken.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_send_to(&self, cx: &mut Context<'_>, bytes: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        self.io.poll_run(cx, Direction::Write, |socket| socket.send_to(bytes, target))
    }

    /// As [`send_to`](Self::send_to), without waiting.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if there is no room; what the system says.
    pub fn try_send_to(&self, bytes: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.io.try_run(Direction::Write, |socket| socket.send_to(bytes, target))
    }

    /// As [`recv`](Self::recv), but the datagram stays: the next one to receive gets it again.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.run(Direction::Read, |socket| socket.peek(buffer)).await
    }

    /// Polls as [`peek`](Self::peek). Of several tasks that poll to receive, the last one is woken.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_peek_from(cx, buffer).map_ok(drop)
    }

    /// As [`peek`](Self::peek), without waiting.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if nothing is there; what the system says.
    pub fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.try_run(Direction::Read, |socket| socket.peek(buffer))
    }

    /// As [`peek`](Self::peek), with who sent it.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.run(Direction::Read, |socket| socket.peek_from(buffer)).await
    }

    /// Polls as [`peek_from`](Self::peek_from). Of several tasks that poll to receive, the last one
    /// is woken.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_peek_from(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<SocketAddr>> {
        let peek = |socket: &_| fill_read_buf(buffer, |free| receive(socket, free, RecvFlags::PEEK));
        self.io.poll_run(cx, Direction::Read, peek).map_ok(|(_, from)| from)
    }

    /// As [`peek_from`](Self::peek_from), without waiting.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if nothing is there; what the system says.
    pub fn try_peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.try_run(Direction::Read, |socket| socket.peek_from(buffer))
    }

    /// Waits for a datagram, says who sent it, and leaves it there.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.io.run(Direction::Read, peek_sender).await
    }

    /// Polls as [`peek_sender`](Self::peek_sender). Of several tasks that poll to receive, the last
    /// one is woken.
    ///
    /// # Errors
    /// What the system says.
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.io.poll_run(cx, Direction::Read, peek_sender)
    }

    /// As [`peek_sender`](Self::peek_sender), without waiting.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if nothing is there; what the system says.
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.io.try_run(Direction::Read, peek_sender)
    }

    /// The address at this end.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// The peer that it was connected to.
    ///
    /// # Errors
    /// `ErrorKind::NotConnected` if it has none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr()
    }

    /// Joins the group `multiaddr` on the interface with that address; 0.0.0.0 = the system
    /// chooses.
    ///
    /// # Errors
    /// What the system says.
    pub fn join_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.io.source().join_multicast_v4(&multiaddr, &interface)
    }

    /// Joins the group `multiaddr` on the interface with that index; 0 = the system chooses.
    ///
    /// # Errors
    /// What the system says.
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.io.source().join_multicast_v6(multiaddr, interface)
    }

    /// Leaves a group; see [`join_multicast_v4`](Self::join_multicast_v4).
    ///
    /// # Errors
    /// What the system says.
    pub fn leave_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.io.source().leave_multicast_v4(&multiaddr, &interface)
    }

    /// Leaves a group; see [`join_multicast_v6`](Self::join_multicast_v6).
    ///
    /// # Errors
    /// What the system says.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.io.source().leave_multicast_v6(multiaddr, interface)
    }
}

/// The sender of the datagram that is next, none of whose bytes are copied.
fn peek_sender(socket: &net::UdpSocket) -> io::Result<SocketAddr> {
    Ok(receive(socket, &mut [], RecvFlags::PEEK)?.1)
}

/// A socket option: how to read it, and how to set it.
macro_rules! option {
    ($what:literal, $get:ident, $set:ident, $value:ty) => {
        #[doc = $what]
        ///
        /// # Errors
        /// What the system says.
        pub fn $get(&self) -> io::Result<$value> {
            self.io.source().$get()
        }

        #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
        ///
        /// # Errors
        /// What the system says.
        pub fn $set(&self, value: $value) -> io::Result<()> {
            self.io.source().$set(value)
        }
    };
}

impl UdpSocket {
    option!("Whether it may send to broadcast addresses (`SO_BROADCAST`).", broadcast, set_broadcast, bool);
    option!(
        "Whether this host, too, gets what it sends to a group (`IP_MULTICAST_LOOP`).",
        multicast_loop_v4,
        set_multicast_loop_v4,
        bool
    );
    option!(
        "Whether this host, too, gets what it sends to a group (`IPV6_MULTICAST_LOOP`).",
        multicast_loop_v6,
        set_multicast_loop_v6,
        bool
    );
    option!(
        "The time to live of what it sends to a group (`IP_MULTICAST_TTL`).",
        multicast_ttl_v4,
        set_multicast_ttl_v4,
        u32
    );
    option!("The time to live of packets sent (`IP_TTL`).", ttl, set_ttl, u32);

    /// The type of service of packets sent (`IP_TOS`).
    ///
    /// # Errors
    /// What the system says.
    pub fn tos_v4(&self) -> io::Result<u32> {
        Ok(sockopt::ip_tos(self.io.source())?.into())
    }

    /// Sets [`tos_v4`](Self::tos_v4).
    ///
    /// # Errors
    /// `ErrorKind::InvalidInput` above 255; what the system says.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        let tos = u8::try_from(tos).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(sockopt::set_ip_tos(self.io.source(), tos)?)
    }

    /// The traffic class of packets sent (`IPV6_TCLASS`).
    ///
    /// # Errors
    /// What the system says.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        Ok(sockopt::ipv6_tclass(self.io.source())?)
    }

    /// Sets [`tclass_v6`](Self::tclass_v6).
    ///
    /// # Errors
    /// What the system says.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_tclass(self.io.source(), tclass)?)
    }
}

datagrams!(UdpSocket, SocketAddr);
waits!(UdpSocket, poll_recv_ready, poll_send_ready);
descriptor!(UdpSocket, net::UdpSocket, std::convert::identity);

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UdpSocket");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        if let Ok(peer) = self.peer_addr() {
            debug.field("peer", &peer);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
