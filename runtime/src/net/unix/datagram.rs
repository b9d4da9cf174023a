//! Unix datagram sockets.
//!
//! A datagram socket can send to a receiver that it is not connected to. If the queue of that
//! receiver is full, the kernel refuses the datagram, and sends no event when the queue has room
//! again. A writable event only covers the sender's own buffer, and the queue of its peer if it has
//! one. Linux even sends such an event immediately, because the refused datagram leaves the
//! sender's buffer. A sender that waited for events would therefore try again without end.
//!
//! So a refused sender checks whether the socket itself is writable. If it is, the queue of the
//! receiver is full: the sender ignores events, and tries again after 1 ms, then after twice the
//! previous wait, up to 32 ms. If it is not, the sender waits for an event. But the socket is also
//! not writable while the queue of its peer is full, whatever the receiver. So `send_to` tries
//! again after these times in this case, too. `poll_send_to` does not.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BufMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SocketAddrUnix, recvfrom};
use tokio::io::ReadBuf;

use crate::net::bytes::{fill_buf_mut, fill_read_buf, receive_into};
use crate::net::surface::datagrams::datagrams;
use crate::net::surface::{descriptor, waits};
use crate::net::unix::{MAX_RETRY, MIN_RETRY, SocketAddr, address};
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;
use volt_core::scheduler::lease::DriverLease;
use volt_core::sleep::RawSleep;
use volt_shim::Mutex;

/// A Unix datagram socket.
///
/// All methods take `&self`. To send and receive in different tasks, share the socket in an `Arc`.
///
/// Datagrams are not lost on the way to the receiver: if its queue is full, `send` waits.
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
    /// The wait that `poll_send_to` is in, if any, and its length.
    poll_retry: Mutex<Option<(RawSleep, Duration)>>,
}

/// Sends a datagram. Returns `None` if the queue of the receiver is full, although the socket
/// itself is writable; see the header of this file.
fn send(socket: &net::UnixDatagram, bytes: &[u8], target: &net::SocketAddr) -> io::Result<Option<usize>> {
    match socket.send_to_addr(bytes, target) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_writable(socket) => Ok(None),
        sent => sent.map(Some),
    }
}

/// Returns whether the socket is writable at this moment. If the system call fails, the caller
/// waits for an event, as if it were not.
fn is_writable(socket: &net::UnixDatagram) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    let result = poll(&mut polled, Some(&Timespec::default()));
    result.is_ok() && polled[0].revents().contains(PollFlags::OUT)
}

/// Receives a datagram into memory that may be uninitialized, with the address of its sender.
fn receive(
    socket: &net::UnixDatagram,
    free: &mut [MaybeUninit<u8>],
    flags: RecvFlags,
) -> io::Result<(usize, SocketAddr)> {
    let ((filled, _), _, from) = recvfrom(socket, free, flags)?;
    // A path of 108 bytes, the most that Linux allows. The kernel counts a zero byte behind it, for
    // which the address has no room: rustix panics, and the standard library does not create such
    // an address. So the sender counts as one without an address.
    let from = from.filter(|from| from.addr_len() as usize <= size_of::<libc::sockaddr_un>());
    // The address of a sender that is not bound to one.
    let nameless = || net::SocketAddr::from_pathname("");
    let from = match from.map(SocketAddrUnix::try_from).transpose()? {
        None => nameless()?,
        Some(from) => match (from.path_bytes(), abstract_name(&from)) {
            (_, Some(name)) => name?,
            (Some(path), None) => address(Path::new(std::ffi::OsStr::from_bytes(path)))?,
            (None, None) => nameless()?,
        },
    };
    Ok((filled.len(), from.into()))
}

/// Receives a datagram.
fn receive_from(socket: &net::UnixDatagram, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    socket.recv_from(buffer).map(|(len, from)| (len, from.into()))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn abstract_name(address: &SocketAddrUnix) -> Option<io::Result<net::SocketAddr>> {
    use std::os::linux::net::SocketAddrExt;

    address.abstract_name().map(net::SocketAddr::from_abstract_name)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn abstract_name(_: &SocketAddrUnix) -> Option<io::Result<net::SocketAddr>> {
    None
}

impl UnixDatagram {
    /// Creates a socket that is bound to `path`, which must not exist yet.
    ///
    /// # Errors
    /// Returns `AddrInUse` if `path` exists. Returns `InvalidInput` if it is longer than the system
    /// allows (107 bytes on Linux). Also returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        Self::from_std(net::UnixDatagram::bind_addr(&address(path.as_ref())?)?)
    }

    /// Creates a socket that is not bound to an address. It can send datagrams, but other sockets
    /// cannot send to it, even after it is connected.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn unbound() -> io::Result<UnixDatagram> {
        Self::from_std(net::UnixDatagram::unbound()?)
    }

    /// Creates a pair of sockets that are connected to each other.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (one, other) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    fn register(driver: Arc<Driver>, socket: net::UnixDatagram) -> io::Result<UnixDatagram> {
        let io = Registration::new(driver, socket, Flags::WRITABLE)?;
        Ok(UnixDatagram { io, poll_retry: Mutex::new(None) })
    }

    /// Connects the socket to the socket at `path`, the peer. `send` then sends datagrams to the
    /// peer.
    ///
    /// # Errors
    /// Returns `NotFound` if `path` does not exist. Returns `ConnectionRefused` if the socket that
    /// was bound to it is closed. Also returns an error if the underlying system call fails.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.io.source().connect_addr(&address(path.as_ref())?)
    }

    /// Sends a datagram to the socket at `target`, and returns the number of bytes sent.
    ///
    /// Waits until the receiver's queue has room.
    ///
    /// # Errors
    /// Returns the same errors as [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the future is dropped before it completes, the datagram was
    /// not sent.
    ///
    /// ```
    /// use volt::net::UnixDatagram;
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// # let path = std::env::temp_dir().join(format!("volt-doc-datagram-{}", std::process::id()));
    /// let (receiver, sender) = (UnixDatagram::bind(&path)?, UnixDatagram::unbound()?);
    /// sender.send_to(b"ping", &path).await?;
    /// let mut buffer = [0; 16];
    /// let (len, from) = receiver.recv_from(&mut buffer).await?;
    /// assert!(len == 4 && from.is_unnamed());
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn send_to<P: AsRef<Path>>(&self, bytes: &[u8], target: P) -> io::Result<usize> {
        let target = address(target.as_ref())?;
        let mut retry = MIN_RETRY;
        loop {
            let mut sleep = self.pause(retry);
            let mut attempts = pin!(self.io.run(Direction::Write, |socket| send(socket, bytes, &target)));
            // Not a `Timeout`, which panics if the runtime is shut down.
            let attempted = poll_fn(|cx| match attempts.as_mut().poll(cx)? {
                Poll::Ready(sent) => Poll::Ready(Ok::<_, io::Error>(Some(sent))),
                Poll::Pending => sleep.poll_in_operation(cx).map_ok(|()| None),
            });
            match attempted.await? {
                Some(Some(sent)) => return Ok(sent),
                Some(None) => sleep.in_operation().await?,
                // No event has come.
                None => match self.io.source().send_to_addr(bytes, &target) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                },
            }
            retry = (retry * 2).min(MAX_RETRY);
        }
    }

    /// A sleep on the socket's own runtime, whichever runtime this thread belongs to.
    fn pause(&self, duration: Duration) -> RawSleep {
        RawSleep::after(DriverLease::of(self.io.driver()), duration)
    }

    /// Polls for sending a datagram as [`send_to`](Self::send_to) does. If several tasks poll for
    /// sending, only the task that polled last is woken.
    ///
    /// If other senders have filled the receiver's queue, the kernel sends no event when the queue
    /// has room again. The task is then woken to try again, after 1 ms to 32 ms. If the socket is
    /// connected, and the queue of its peer is full, the task waits for that queue, whatever the
    /// target. Prefer [`send_to`](Self::send_to) for such a socket.
    ///
    /// # Errors
    /// Returns the same errors as [`connect`](Self::connect).
    pub fn poll_send_to<P: AsRef<Path>>(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        target: P,
    ) -> Poll<io::Result<usize>> {
        let target = address(target.as_ref())?;
        let sent = ready!(self.io.poll_run(cx, Direction::Write, |socket| send(socket, bytes, &target)))?;
        // Taken out instead of borrowed: polling or dropping it may run a waker's code, which may
        // call this function again.
        let waiting = self.poll_retry.lock().take();
        if let Some(sent) = sent {
            return Poll::Ready(Ok(sent));
        }
        let (mut sleep, mut retry) = waiting.unwrap_or_else(|| (self.pause(MIN_RETRY), MIN_RETRY));
        // If it has elapsed, the attempt was the one for which it was set.
        while let Poll::Ready(slept) = sleep.poll_in_operation(cx) {
            slept?;
            retry = (retry * 2).min(MAX_RETRY);
            sleep = self.pause(retry);
        }
        let former = self.poll_retry.lock().replace((sleep, retry));
        drop(former);
        Poll::Pending
    }

    /// Tries to send a datagram to `target` without waiting.
    ///
    /// A loop that alternates this with [`writable`](Self::writable) can spin: if other senders
    /// have filled the receiver's queue, the socket itself is writable. Use
    /// [`send_to`](Self::send_to) instead.
    ///
    /// # Errors
    /// Returns `ErrorKind::WouldBlock` if there is no room. Otherwise returns the same errors as
    /// [`connect`](Self::connect).
    pub fn try_send_to<P: AsRef<Path>>(&self, bytes: &[u8], target: P) -> io::Result<usize> {
        let target = address(target.as_ref())?;
        self.io.try_run(Direction::Write, |socket| socket.send_to_addr(bytes, &target))
    }

    /// Returns the local address that this socket is bound to.
    ///
    /// # Errors
    /// Returns an error if the underlying system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr().map(SocketAddr::from)
    }

    /// Returns the address of the peer that this socket is connected to.
    ///
    /// # Errors
    /// Returns `ErrorKind::NotConnected` if the socket is not connected. Also returns an error if
    /// the underlying system call fails.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().peer_addr().map(SocketAddr::from)
    }

    /// Shuts down the read direction, the write direction or both.
    ///
    /// # Errors
    /// Returns `ErrorKind::NotConnected` if the socket is not connected. Also returns an error if
    /// the underlying system call fails.
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
