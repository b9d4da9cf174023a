//! A UDP socket.

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
use crate::net::bytes::{fill_buf_mut, fill_read_buf, receive_into};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::net::device::device;
use crate::net::surface::datagrams::datagrams;
use crate::net::surface::{descriptor, waits};
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;

/// A UDP socket.
///
/// All methods take `&self`. To send and receive in different tasks, share the socket in an `Arc`.
///
/// If several tasks poll the same direction through the `poll_…` methods, only the task that polled
/// last is woken. The `async` methods may be awaited by any number of tasks.
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

/// Receives a datagram into memory that may be uninitialized.
fn receive(socket: &net::UdpSocket, free: &mut [MaybeUninit<u8>], flags: RecvFlags) -> io::Result<(usize, SocketAddr)> {
    let ((filled, _), _, from) = recvfrom(socket, free, flags)?;
    let from = from.ok_or_else(|| io::Error::other("the kernel returned a datagram without its sender"))?;
    Ok((filled.len(), from.try_into()?))
}

/// Receives a datagram.
fn receive_from(socket: &net::UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    socket.recv_from(buffer)
}

impl UdpSocket {
    /// Creates a UDP socket that is bound to `addr`.
    ///
    /// If the port is 0, the system assigns a free port. If `addr` yields several addresses, `bind`
    /// tries them in order until one succeeds.
    ///
    /// # Errors
    /// Returns the error of the last address if none of them can be bound. Returns
    /// `ErrorKind::InvalidInput` if `addr` is a string that is not a valid address.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes the socket if it was opened.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
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

    /// Connects the socket to a remote address, the peer.
    ///
    /// `send` then sends datagrams to the peer, and the socket receives datagrams from the peer
    /// only. If `addr` yields several addresses, `connect` tries them in order until one succeeds.
    ///
    /// # Errors
    /// Returns the error of the last address if the socket can be connected to none of them.
    /// Returns `ErrorKind::InvalidInput` if `addr` is a string that is not a valid address.
    ///
    /// # Panics
    /// Panics if `addr` is a host name and the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the future is dropped before it completes, the socket keeps
    /// its previous peer.
    ///
    /// ```
    /// use volt::net::UdpSocket;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let (here, there) = (UdpSocket::bind("127.0.0.1:0").await?, UdpSocket::bind("127.0.0.1:0").await?);
    /// here.connect(there.local_addr()?).await?;
    /// here.send(b"ping").await?;
    /// let mut buffer = [0; 1500];
    /// assert_eq!(there.recv(&mut buffer).await?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        let mut result = Err(io::ErrorKind::InvalidInput.into());
        for addr in resolve(addr.target()).await? {
            result = self.io.source().connect(addr);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Sends a datagram to `target`, and returns the number of bytes sent.
    ///
    /// Waits until the socket's send buffer has room. If `target` yields several addresses, the
    /// first one is used.
    ///
    /// # Errors
    /// Returns `ErrorKind::InvalidInput` if `target` is a string that is not a valid address. Also
    /// returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if `target` is a host name and the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the future is dropped before it completes, the datagram was
    /// not sent.
    pub async fn send_to<A: ToSocketAddrs>(&self, bytes: &[u8], target: A) -> io::Result<usize> {
        let target = resolve(target.target()).await?[0];
        self.io.run(Direction::Write, |socket| socket.send_to(bytes, target)).await
    }

    /// Polls for sending a datagram as [`send_to`](Self::send_to) does. If several tasks poll for
    /// sending, only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn poll_send_to(&self, cx: &mut Context<'_>, bytes: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        self.io.poll_run(cx, Direction::Write, |socket| socket.send_to(bytes, target))
    }

    /// Tries to send a datagram to `target` without waiting.
    ///
    /// # Errors
    /// Returns `ErrorKind::WouldBlock` if the send buffer has no room. Also returns an error if the
    /// underlying system call fails.
    pub fn try_send_to(&self, bytes: &[u8], target: SocketAddr) -> io::Result<usize> {
        self.io.try_run(Direction::Write, |socket| socket.send_to(bytes, target))
    }

    /// Receives a datagram as [`recv`](Self::recv) does, but does not remove it from the queue. The
    /// next receive returns the same datagram again.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no datagram from the queue.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.run(Direction::Read, |socket| socket.peek(buffer)).await
    }

    /// Polls for a datagram as [`peek`](Self::peek) does. If several tasks poll for receiving, only
    /// the task that polled last is woken.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_peek_from(cx, buffer).map_ok(drop)
    }

    /// Tries to receive a datagram as [`peek`](Self::peek) does, without waiting.
    ///
    /// # Errors
    /// Returns `ErrorKind::WouldBlock` if no datagram is available. Also returns an error if the
    /// underlying system call fails.
    pub fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.try_run(Direction::Read, |socket| socket.peek(buffer))
    }

    /// Receives a datagram as [`peek`](Self::peek) does, and also returns the sender's address.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no datagram from the queue.
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.run(Direction::Read, |socket| socket.peek_from(buffer)).await
    }

    /// Polls for a datagram as [`peek_from`](Self::peek_from) does. If several tasks poll for
    /// receiving, only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn poll_peek_from(&self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<SocketAddr>> {
        let peek = |socket: &_| fill_read_buf(buffer, |free| receive(socket, free, RecvFlags::PEEK));
        self.io.poll_run(cx, Direction::Read, peek).map_ok(|(_, from)| from)
    }

    /// Tries to receive a datagram as [`peek_from`](Self::peek_from) does, without waiting.
    ///
    /// # Errors
    /// Returns `ErrorKind::WouldBlock` if no datagram is available. Also returns an error if the
    /// underlying system call fails.
    pub fn try_peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.io.try_run(Direction::Read, |socket| socket.peek_from(buffer))
    }

    /// Waits for a datagram, and returns the sender's address. The datagram stays in the queue.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It removes no datagram from the queue.
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.io.run(Direction::Read, peek_sender).await
    }

    /// Polls for a sender as [`peek_sender`](Self::peek_sender) does. If several tasks poll for
    /// receiving, only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn poll_peek_sender(&self, cx: &mut Context<'_>) -> Poll<io::Result<SocketAddr>> {
        self.io.poll_run(cx, Direction::Read, peek_sender)
    }

    /// Returns the sender of the next datagram as [`peek_sender`](Self::peek_sender) does, without
    /// waiting.
    ///
    /// # Errors
    /// Returns `ErrorKind::WouldBlock` if no datagram is available. Also returns an error if the
    /// underlying system call fails.
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.io.try_run(Direction::Read, peek_sender)
    }

    /// Returns the local address that this socket is bound to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// Returns the address of the peer that this socket is connected to.
    ///
    /// # Errors
    /// Returns `ErrorKind::NotConnected` if the socket is not connected. Also returns an error if
    /// the underlying system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr()
    }

    /// Joins the IPv4 multicast group `multiaddr` on the interface whose address is `interface`.
    /// With 0.0.0.0, the system chooses the interface.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn join_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.io.source().join_multicast_v4(&multiaddr, &interface)
    }

    /// Joins the IPv6 multicast group `multiaddr` on the interface whose index is `interface`. With
    /// 0, the system chooses the interface.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn join_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.io.source().join_multicast_v6(multiaddr, interface)
    }

    /// Leaves an IPv4 multicast group that was joined by
    /// [`join_multicast_v4`](Self::join_multicast_v4).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn leave_multicast_v4(&self, multiaddr: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.io.source().leave_multicast_v4(&multiaddr, &interface)
    }

    /// Leaves an IPv6 multicast group that was joined by
    /// [`join_multicast_v6`](Self::join_multicast_v6).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn leave_multicast_v6(&self, multiaddr: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.io.source().leave_multicast_v6(multiaddr, interface)
    }
}

/// Returns the sender of the next datagram without copying any of its bytes.
fn peek_sender(socket: &net::UdpSocket) -> io::Result<SocketAddr> {
    Ok(receive(socket, &mut [], RecvFlags::PEEK)?.1)
}

/// Defines the getter and the setter of a socket option.
macro_rules! option {
    ($what:literal, $get:ident, $set:ident, $value:ty) => {
        #[doc = $what]
        ///
        /// # Errors
        /// Returns an error if the underlying system call fails.
        pub fn $get(&self) -> io::Result<$value> {
            self.io.source().$get()
        }

        #[doc = concat!("Sets the option that [`", stringify!($get), "`](Self::", stringify!($get), ") returns.")]
        ///
        /// # Errors
        /// Returns an error if the underlying system call fails.
        pub fn $set(&self, value: $value) -> io::Result<()> {
            self.io.source().$set(value)
        }
    };
}

impl UdpSocket {
    option!(
        "Returns whether the socket may send to broadcast addresses (`SO_BROADCAST`).",
        broadcast,
        set_broadcast,
        bool
    );
    option!(
        "Returns whether datagrams sent to a multicast group are also delivered to this host (`IP_MULTICAST_LOOP`).",
        multicast_loop_v4,
        set_multicast_loop_v4,
        bool
    );
    option!(
        "Returns whether datagrams sent to a multicast group are also delivered to this host (`IPV6_MULTICAST_LOOP`).",
        multicast_loop_v6,
        set_multicast_loop_v6,
        bool
    );
    option!(
        "Returns the time to live of datagrams sent to a multicast group (`IP_MULTICAST_TTL`).",
        multicast_ttl_v4,
        set_multicast_ttl_v4,
        u32
    );
    option!("Returns the time to live of packets sent from this socket (`IP_TTL`).", ttl, set_ttl, u32);

    /// Returns the type of service of packets sent from this socket (`IP_TOS`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn tos_v4(&self) -> io::Result<u32> {
        Ok(sockopt::ip_tos(self.io.source())?.into())
    }

    /// Sets the type of service of packets sent from this socket (`IP_TOS`).
    ///
    /// # Errors
    /// Returns `ErrorKind::InvalidInput` if `tos` exceeds 255. Also returns an error if the
    /// underlying system call fails.
    pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
        let tos = u8::try_from(tos).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(sockopt::set_ip_tos(self.io.source(), tos)?)
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

    /// Returns the traffic class of packets sent from this socket (`IPV6_TCLASS`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn tclass_v6(&self) -> io::Result<u32> {
        Ok(sockopt::ipv6_tclass(self.io.source())?)
    }

    /// Sets the traffic class of packets sent from this socket (`IPV6_TCLASS`).
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
        Ok(sockopt::set_ipv6_tclass(self.io.source(), tclass)?)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
device!(UdpSocket, self => self.io.source());
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
