//! A socket that takes TCP connections.
//!
//! Errors of `accept` are of three kinds. *A connection's*: it was gone before it was taken; the next one is tried at once.
//! *The process's*: it has no descriptor or no memory left. The kernel keeps the connection and, edge-triggered, tells nothing
//! more, while the next attempt fails at once: an accept that returned the error would make its caller's loop spin (5 million
//! times a second were seen). So the wait is in here, the readiness stays, and when something was freed accept goes on by itself.
//! *Everything else* is the caller's.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::context;
use crate::driver::Driver;
use crate::driver::readiness::{Direction, Flags};
use crate::driver::registration::Registration;
use crate::net::addr::{ToSocketAddrs, resolve};
use crate::net::tcp_stream::TcpStream;
use crate::shim::{AtomicU32, Mutex, Ordering};
use crate::time::sleep::Sleep;

/// First wait of an accept that found no descriptor, ms: long enough to be cheap, short enough not to be noticed.
const MIN_BACKOFF_MS: u32 = 5;
/// The wait doubles up to this, ms.
const MAX_BACKOFF_MS: u32 = 1_000;

const _: () = assert!(MIN_BACKOFF_MS > 0 && MIN_BACKOFF_MS <= MAX_BACKOFF_MS);

/// A TCP socket that takes connections.
///
/// ```
/// use volt::net::{TcpListener, TcpStream};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let client = TcpStream::connect(listener.local_addr()?).await?;
/// let (_stream, peer) = listener.accept().await?;
/// assert_eq!(peer, client.local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct TcpListener {
    io: Registration<mio::net::TcpListener>,
    /// The next wait for a descriptor, ms; 0 = the last accept did not lack one.
    backoff_ms: AtomicU32,
    /// The wait that `poll_accept` is in.
    poll_backoff: Mutex<Option<Sleep>>,
}

impl TcpListener {
    /// Opens a socket at `addr`, with `SO_REUSEADDR` so that a restart need not wait for old connections to time out, and a
    /// backlog of 128 or what the system allows. Port 0 asks the system for a free one.
    ///
    /// If `addr` stands for several addresses, the first that can be had is taken.
    ///
    /// # Errors
    /// What the system says of the last address; `ErrorKind::InvalidInput` for a text that is no address.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Cancel safety
    /// Dropping the future closes what it opened.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<TcpListener> {
        let driver = context::driver();
        let mut result = Err(io::ErrorKind::InvalidInput.into());
        for addr in resolve(addr.target()).await? {
            result = mio::net::TcpListener::bind(addr).and_then(|listener| Self::register(driver.clone(), listener));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Takes over a socket of the standard library, and puts it into non-blocking mode.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let listener = volt::net::TcpListener::from_std(listener)?;
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn from_std(listener: net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Self::register(context::driver(), mio::net::TcpListener::from_std(listener))
    }

    /// Gives the socket to the standard library, in non-blocking mode.
    ///
    /// # Errors
    /// What the system says when the socket leaves the runtime's driver.
    pub fn into_std(self) -> io::Result<net::TcpListener> {
        Ok(self.io.into_source()?.into())
    }

    fn register(driver: Arc<Driver>, listener: mio::net::TcpListener) -> io::Result<TcpListener> {
        let io = Registration::new(driver, listener, Flags::READABLE)?;
        Ok(TcpListener { io, backoff_ms: AtomicU32::new(0), poll_backoff: Mutex::new(None) })
    }

    /// Takes the next connection; any number of tasks may do so at once.
    ///
    /// While the process has no file descriptor or memory left (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`) this waits, 5 ms at
    /// first and up to 1 s, and goes on by itself; each wait is counted (`accept_backoffs`), the first of a spell is logged.
    /// A connection that broke while it waited is passed over.
    ///
    /// # Errors
    /// Any other error of the system. It concerns the listener, not one connection.
    ///
    /// # Cancel safety
    /// No connection is lost: it is taken by the poll that returns it.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        loop {
            let accepted = self.io.run(Direction::Read, mio::net::TcpListener::accept).await;
            match self.judge(accepted)? {
                Outcome::Accepted(stream, peer) => return Ok((stream, peer)),
                Outcome::Again => {}
                Outcome::After(delay) => self.pause(delay).await,
            }
        }
    }

    /// Polls for the next connection, as [`accept`](Self::accept). Of several tasks that do so, the last one is woken.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        loop {
            // Taken out, not held: a wake-up may run code that comes back here.
            let waiting = self.poll_backoff.lock().take();
            if let Some(mut sleep) = waiting
                && Pin::new(&mut sleep).poll(cx).is_pending()
            {
                *self.poll_backoff.lock() = Some(sleep);
                return Poll::Pending;
            }
            let accepted = ready!(self.io.poll_run(cx, Direction::Read, mio::net::TcpListener::accept));
            match self.judge(accepted)? {
                Outcome::Accepted(stream, peer) => return Poll::Ready(Ok((stream, peer))),
                Outcome::Again => {}
                Outcome::After(delay) => *self.poll_backoff.lock() = Some(self.pause(delay)),
            }
        }
    }

    fn judge(&self, accepted: io::Result<(mio::net::TcpStream, SocketAddr)>) -> io::Result<Outcome> {
        let error = match accepted {
            Ok((stream, peer)) => {
                // ORDERING: Relaxed; a hint, of which a race between two accepts costs a shorter or a longer wait.
                self.backoff_ms.store(0, Ordering::Relaxed);
                let stream = TcpStream::register(self.io.driver().clone(), stream)?;
                return Ok(Outcome::Accepted(stream, peer));
            }
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(errno) if is_of_one_connection(errno) => Ok(Outcome::Again),
            Some(errno) if is_exhaustion(errno) => Ok(Outcome::After(self.back_off(&error))),
            _ => Err(error),
        }
    }

    /// Counts a wait, logs the first of a spell, and gives its length.
    fn back_off(&self, error: &io::Error) -> Duration {
        // ORDERING: Relaxed; as in `judge`.
        let planned_ms = self.backoff_ms.load(Ordering::Relaxed);
        let delay_ms = planned_ms.max(MIN_BACKOFF_MS);
        // ORDERING: Relaxed; as in `judge`.
        self.backoff_ms.store((delay_ms * 2).min(MAX_BACKOFF_MS), Ordering::Relaxed);
        self.io.driver().count_accept_backoff();
        if planned_ms == 0 {
            tracing::warn!(%error, listener = ?self.local_addr().ok(), "accept waits until the process has resources again");
        }
        Duration::from_millis(u64::from(delay_ms))
    }

    /// A sleep on the listener's own runtime, whichever this thread is in.
    fn pause(&self, delay: Duration) -> Sleep {
        Sleep::on(self.io.driver().clone(), Instant::now() + delay)
    }

    /// The address it listens at.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.source().local_addr()
    }

    /// The time to live of packets sent from this socket (`IP_TTL`).
    ///
    /// # Errors
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.io.source().ttl()
    }

    /// Sets the time to live of packets sent from this socket (`IP_TTL`).
    ///
    /// # Errors
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.io.source().set_ttl(ttl)
    }
}

enum Outcome {
    Accepted(TcpStream, SocketAddr),
    Again,
    After(Duration),
}

/// The connection is broken, the listener is not: accept(2), "Error handling".
fn is_of_one_connection(errno: Errno) -> bool {
    let known = [
        Errno::CONNABORTED,
        Errno::CONNRESET,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::NOPROTOOPT,
    ];
    known.contains(&errno)
}

/// The process, or the machine, has none left.
fn is_exhaustion(errno: Errno) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&errno)
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TcpListener");
        if let Ok(addr) = self.local_addr() {
            debug.field("addr", &addr);
        }
        debug.field("fd", &self.as_raw_fd()).finish_non_exhaustive()
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.source().as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.io.source().as_raw_fd()
    }
}
