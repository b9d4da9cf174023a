//! Datagrams within this machine.
//!
//! A datagram for a receiver whose queue is full, sent by a socket that is not connected to it, is
//! refused, and nothing tells when there is room: the kernel's word that a socket can be written to
//! is about its own buffer, and about its peer's. So `send_to` tries by itself by and by, as often
//! as a connect to a full listener does, beside waiting for the word. `poll_send_to` can only wait
//! for it.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BufMut;
use rustix::net::{RecvFlags, SocketAddrUnix, recvfrom};
use tokio::io::ReadBuf;

use crate::net::bytes::{fill_buf_mut, fill_read_buf};
use crate::net::surface::datagrams::datagrams;
use crate::net::surface::{descriptor, waits};
use crate::net::unix::{MAX_RETRY, MIN_RETRY, SocketAddr, address};
use crate::time::timeout::timeout_on;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;

/// A Unix socket for datagrams. All its methods take `&self`: share it in an `Arc` to send and
/// receive in different tasks.
///
/// Nothing is lost on the way: where a receiver's queue is full, `send` waits.
///
/// ```
/// use volt::net::UnixDatagram;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let (here, there) = UnixDatagram::pair()?;
/// here.send(b"ping").await?;
/// let mut buffer = [0; 16];
/// assert_eq!(there.recv(&mut buffer).await?, 4);
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct UnixDatagram {
    io: Registration<net::UnixDatagram>,
}

/// Takes a datagram into memory that may be uninitialized.
fn receive(
    socket: &net::UnixDatagram,
    free: &mut [MaybeUninit<u8>],
    flags: RecvFlags,
) -> io::Result<(usize, SocketAddr)> {
    let ((filled, _), _, from) = recvfrom(socket, free, flags)?;
    // A sender without an address.
    let nameless = || SocketAddr::from_pathname("");
    let from = match from.map(SocketAddrUnix::try_from).transpose()? {
        None => nameless()?,
        Some(from) => match (from.path_bytes(), abstract_name(&from)) {
            (_, Some(name)) => name?,
            (Some(path), None) => address(Path::new(std::ffi::OsStr::from_bytes(path)))?,
            (None, None) => nameless()?,
        },
    };
    Ok((filled.len(), from))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn abstract_name(address: &SocketAddrUnix) -> Option<io::Result<SocketAddr>> {
    use std::os::linux::net::SocketAddrExt;

    address.abstract_name().map(SocketAddr::from_abstract_name)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn abstract_name(_: &SocketAddrUnix) -> Option<io::Result<SocketAddr>> {
    None
}

impl UnixDatagram {
    /// A socket at `path`, which must not exist yet.
    ///
    /// # Errors
    /// `AddrInUse` if it exists; `InvalidInput` if it is longer than the system takes (107 bytes on
    /// Linux); what else the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        Self::from_std(net::UnixDatagram::bind_addr(&address(path.as_ref())?)?)
    }

    /// A socket without an address: nobody can send to it, unless it was connected.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn unbound() -> io::Result<UnixDatagram> {
        Self::from_std(net::UnixDatagram::unbound()?)
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, other) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    fn register(driver: Arc<Driver>, socket: net::UnixDatagram) -> io::Result<UnixDatagram> {
        Ok(UnixDatagram { io: Registration::new(driver, socket, Flags::WRITABLE)? })
    }

    /// Makes the socket at `path` the peer: the one that `send` sends to.
    ///
    /// # Errors
    /// `NotFound` if there is no such path, `ConnectionRefused` if its socket is gone; what else
    /// the system says.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.io.source().connect_addr(&address(path.as_ref())?)
    }

    /// Sends a datagram to the socket at `target`, waiting for room; how many bytes went.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// If it did not return, nothing was sent.
    pub async fn send_to(&self, bytes: &[u8], target: impl AsRef<Path>) -> io::Result<usize> {
        let target = address(target.as_ref())?;
        let send = |socket: &net::UnixDatagram| socket.send_to_addr(bytes, &target);
        let mut retry = MIN_RETRY;
        loop {
            if let Ok(result) = timeout_on(self.io.driver().clone(), retry, self.io.run(Direction::Write, send)).await {
                return result;
            }
            match send(self.io.source()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => retry = (retry * 2).min(MAX_RETRY),
                result => return result,
            }
        }
    }

    /// Polls as [`send_to`](Self::send_to), but for a receiver that is full of what others sent may
    /// wait until the next event of this socket. Of several tasks that poll to send, the last
    /// one is woken.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        target: impl AsRef<Path>,
    ) -> Poll<io::Result<usize>> {
        let target = address(target.as_ref())?;
        self.io.poll_run(cx, Direction::Write, |socket| socket.send_to_addr(bytes, &target))
    }

    /// As [`send_to`](Self::send_to), without waiting.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if there is no room; as [`connect`](Self::connect).
    pub fn try_send_to(&self, bytes: &[u8], target: impl AsRef<Path>) -> io::Result<usize> {
        let target = address(target.as_ref())?;
        self.io.try_run(Direction::Write, |socket| socket.send_to_addr(bytes, &target))
    }

    /// The address at this end.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// The address of the peer.
    ///
    /// # Errors
    /// `ErrorKind::NotConnected` if it has none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr()
    }

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// `ErrorKind::NotConnected` if it has no peer.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.io.source().shutdown(how)
    }
}

datagrams!(UnixDatagram, SocketAddr);
waits!(UnixDatagram, poll_recv_ready, poll_send_ready);
descriptor!(UnixDatagram, net::UnixDatagram, std::convert::identity);

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("UnixDatagram");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}
