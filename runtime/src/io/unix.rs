//! Descriptors of others, watched by the runtime's driver.
//!
//! Tokio's type of that name, method for method. What it watches for is chosen when it is made
//! ([`AsyncFd::with_interest`]); a set that was left out never becomes ready.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};

use crate::io::{Interest, Ready};
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags, Seen};
use volt_core::driver::registration::Registration;

/// Lets a task wait for a descriptor that a foreign type owns: of a library in another language, a
/// device, an eventfd, a timerfd.
///
/// The descriptor must be in non-blocking mode, or the first attempt that is not ready blocks a
/// worker. It must stay open as long as this lives, and belong to no other `AsyncFd` of the
/// runtime. Regular files cannot be watched, by any system: see [`fs`](crate::fs).
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use volt::io::unix::AsyncFd;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let (mut there, here) = UnixStream::pair()?;
/// here.set_nonblocking(true)?;
/// let here = AsyncFd::new(here)?;
/// there.write_all(b"ping")?;
/// let mut buffer = [0; 16];
/// let read = loop {
///     let mut guard = here.readable().await?;
///     // An attempt that would have blocked ends the readiness, and the loop waits again.
///     if let Ok(result) = guard.try_io(|here| here.get_ref().read(&mut buffer)) {
///         break result?;
///     }
/// };
/// assert_eq!(&buffer[..read], b"ping");
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub struct AsyncFd<T: AsRawFd> {
    io: Registration<T>,
}

/// What a new one is watched for.
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

impl<T: AsRawFd> AsyncFd<T> {
    /// Watches it for reading and writing.
    ///
    /// # Errors
    /// What the system says: `PermissionDenied` (`EPERM`) for what cannot be watched,
    /// `AlreadyExists` for what is watched already.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn new(inner: T) -> io::Result<Self> {
        Self::with_interest(inner, BOTH)
    }

    /// Watches it for `interest`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn with_interest(inner: T, interest: Interest) -> io::Result<Self> {
        Ok(Self::try_with_interest(inner, interest)?)
    }

    /// As [`new`](Self::new); `inner` comes back where it fails.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn try_new(inner: T) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::try_with_interest(inner, BOTH)
    }

    /// As [`with_interest`](Self::with_interest); `inner` comes back where it fails.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn try_with_interest(inner: T, interest: Interest) -> Result<Self, AsyncFdRegisterError<T>> {
        let driver = context::driver();
        match Registration::with_interest(driver, inner, interest.to_mio(), Flags::NONE) {
            Ok(io) => Ok(Self { io }),
            Err((inner, cause)) => Err(AsyncFdRegisterError { inner, cause }),
        }
    }

    /// What it watches.
    pub fn get_ref(&self) -> &T {
        self.io.source()
    }

    /// What it watches. Its descriptor must stay the same.
    pub fn get_mut(&mut self) -> &mut T {
        self.io.source_mut()
    }

    /// Watches it no longer.
    pub fn into_inner(self) -> T {
        self.io.take_source()
    }

    /// Waits until something of `interest` may be done. The guard takes the readiness back when an
    /// attempt would have blocked.
    ///
    /// # Errors
    /// The runtime was shut down.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ready(&self, interest: Interest) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        let awaited = interest.awaited();
        let seen = self.io.ready(awaited).await?;
        Ok(AsyncFdReadyGuard { fd: self, awaited, seen: Some(seen) })
    }

    /// As [`ready`](Self::ready), with a guard that gives `&mut T`.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn ready_mut(&mut self, interest: Interest) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        let awaited = interest.awaited();
        let seen = self.io.ready(awaited).await?;
        Ok(AsyncFdReadyMutGuard { fd: self, awaited, seen: Some(seen) })
    }

    /// Waits until it may be read; see [`ready`](Self::ready).
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::READABLE).await
    }

    /// Waits until it may be read; see [`ready_mut`](Self::ready_mut).
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn readable_mut(&mut self) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        self.ready_mut(Interest::READABLE).await
    }

    /// Waits until it may be written to; see [`ready`](Self::ready).
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn writable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::WRITABLE).await
    }

    /// Waits until it may be written to; see [`ready_mut`](Self::ready_mut).
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn writable_mut(&mut self) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        self.ready_mut(Interest::WRITABLE).await
    }

    /// Polls as [`readable`](Self::readable). Of several tasks that poll to read, the last one is
    /// woken.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_read_ready<'a>(&'a self, cx: &mut Context<'_>) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Read))?;
        Poll::Ready(Ok(AsyncFdReadyGuard { fd: self, awaited: Direction::Read.into(), seen: Some(seen) }))
    }

    /// Polls as [`readable_mut`](Self::readable_mut). Of several tasks that poll to read, the last
    /// one is woken.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_read_ready_mut<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyMutGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Read))?;
        Poll::Ready(Ok(AsyncFdReadyMutGuard { fd: self, awaited: Direction::Read.into(), seen: Some(seen) }))
    }

    /// Polls as [`writable`](Self::writable). Of several tasks that poll to write, the last one is
    /// woken.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_write_ready<'a>(&'a self, cx: &mut Context<'_>) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Write))?;
        Poll::Ready(Ok(AsyncFdReadyGuard { fd: self, awaited: Direction::Write.into(), seen: Some(seen) }))
    }

    /// Polls as [`writable_mut`](Self::writable_mut). Of several tasks that poll to write, the last
    /// one is woken.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    pub fn poll_write_ready_mut<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyMutGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Write))?;
        Poll::Ready(Ok(AsyncFdReadyMutGuard { fd: self, awaited: Direction::Write.into(), seen: Some(seen) }))
    }

    /// Tries `operation` again and again until it does not block, and waits in between.
    ///
    /// # Errors
    /// What `operation` says; the runtime was shut down.
    ///
    /// # Cancel safety
    /// `operation` has either come to an end, and this returns, or it would have blocked.
    pub async fn async_io<R>(&self, interest: Interest, operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.io.run(interest.awaited(), operation).await
    }

    /// As [`async_io`](Self::async_io), with `&mut T`.
    ///
    /// # Errors
    /// As [`async_io`](Self::async_io).
    ///
    /// # Cancel safety
    /// As [`async_io`](Self::async_io).
    pub async fn async_io_mut<R>(
        &mut self,
        interest: Interest,
        mut operation: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let mut guard = self.ready_mut(interest).await?;
            if let Ok(result) = guard.try_io(|fd| operation(fd.get_mut())) {
                return result;
            }
        }
    }

    /// One attempt of `operation`, if it may succeed. Where it would have blocked, that is noted
    /// down for the next wait.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if nothing of `interest` may be done; else what `operation` says.
    pub fn try_io<R>(&self, interest: Interest, operation: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.io.try_run(interest.awaited(), operation)
    }

    /// As [`try_io`](Self::try_io), with `&mut T`.
    ///
    /// # Errors
    /// As [`try_io`](Self::try_io).
    pub fn try_io_mut<R>(
        &mut self,
        interest: Interest,
        operation: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let awaited = interest.awaited();
        let Some(seen) = self.io.check(awaited)? else { return Err(io::ErrorKind::WouldBlock.into()) };
        let mut guard = AsyncFdReadyMutGuard { fd: self, awaited, seen: Some(seen) };
        guard.try_io(|fd| operation(fd.get_mut())).unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into()))
    }
}

impl<T: AsRawFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.get_ref().as_raw_fd()
    }
}

impl<T: AsRawFd + AsFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl<T: AsRawFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncFd").field("inner", self.get_ref()).finish_non_exhaustive()
    }
}

/// That an [`AsyncFd`] was found ready. Whoever tries and would have blocked says so here, or the
/// next wait ends at once.
#[must_use = "an attempt that would have blocked must be reported: use try_io or clear_ready"]
pub struct AsyncFdReadyGuard<'a, T: AsRawFd> {
    fd: &'a AsyncFd<T>,
    /// What was awaited.
    awaited: Flags,
    /// `None` once taken back.
    seen: Option<Seen>,
}

/// As [`AsyncFdReadyGuard`], with `&mut` access.
#[must_use = "an attempt that would have blocked must be reported: use try_io or clear_ready"]
pub struct AsyncFdReadyMutGuard<'a, T: AsRawFd> {
    fd: &'a mut AsyncFd<T>,
    awaited: Flags,
    seen: Option<Seen>,
}

/// What both guards do; the last argument is what `try_io` gives its operation.
macro_rules! guard {
    ($guard:ident, $self:ident, $fd:ty => $given:expr) => {
        impl<'a, T: AsRawFd> $guard<'a, T> {
            /// Takes back what was found. What became ready after it was found stays, and so does
            /// that one end is closed: only [`try_io`](Self::try_io) knows of an attempt that would
            /// have blocked all the same.
            pub fn clear_ready(&mut self) {
                if let Some(seen) = self.seen.take() {
                    self.fd.io.clear(seen);
                }
            }

            /// As [`clear_ready`](Self::clear_ready), of what is in `ready` only.
            pub fn clear_ready_matching(&mut self, ready: Ready) {
                if let Some(seen) = self.seen {
                    self.fd.io.clear(seen.only(ready.flags()));
                    self.seen = Some(seen.only((Ready::ALL - ready).flags()));
                }
            }

            /// Leaves it as it is; to say that this is meant.
            pub fn retain_ready(&mut self) {
                self.seen = None;
            }

            /// What was found.
            pub fn ready(&self) -> Ready {
                self.seen.map_or(Ready::EMPTY, |seen| Ready::of(seen.found()))
            }

            /// One attempt of `operation`, a system call on the descriptor. Where it would have
            /// blocked, the readiness is taken back.
            ///
            /// # Errors
            /// [`TryIoError`] if it would have blocked: wait again. What `operation` says otherwise
            /// is inside the `Ok`.
            pub fn try_io<R>(
                &mut $self,
                operation: impl FnOnce($fd) -> io::Result<R>,
            ) -> Result<io::Result<R>, TryIoError> {
                match operation($given) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if let Some(seen) = $self.seen.take() {
                            $self.fd.io.refute(seen, $self.awaited);
                        }
                        Err(TryIoError { _private: () })
                    }
                    result => Ok(result),
                }
            }
        }

        impl<T: AsRawFd + fmt::Debug> fmt::Debug for $guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($guard)).field("fd", &self.fd).field("ready", &self.ready()).finish()
            }
        }
    };
}

guard!(AsyncFdReadyGuard, self, &'a AsyncFd<T> => self.fd);
guard!(AsyncFdReadyMutGuard, self, &mut AsyncFd<T> => self.fd);

impl<'a, T: AsRawFd> AsyncFdReadyGuard<'a, T> {
    /// What was found ready.
    pub fn get_ref(&self) -> &'a AsyncFd<T> {
        self.fd
    }

    /// What that watches.
    pub fn get_inner(&self) -> &'a T {
        self.fd.get_ref()
    }
}

impl<T: AsRawFd> AsyncFdReadyMutGuard<'_, T> {
    /// What was found ready.
    pub fn get_ref(&self) -> &AsyncFd<T> {
        self.fd
    }

    /// What was found ready.
    pub fn get_mut(&mut self) -> &mut AsyncFd<T> {
        self.fd
    }

    /// What that watches.
    pub fn get_inner(&self) -> &T {
        self.fd.get_ref()
    }

    /// What that watches.
    pub fn get_inner_mut(&mut self) -> &mut T {
        self.fd.get_mut()
    }
}

/// An attempt that would have blocked; see [`AsyncFdReadyGuard::try_io`].
#[derive(Debug)]
pub struct TryIoError {
    _private: (),
}

impl fmt::Display for TryIoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attempt would have blocked")
    }
}

impl Error for TryIoError {}

/// A descriptor that could not be watched, and why; see [`AsyncFd::try_new`].
pub struct AsyncFdRegisterError<T> {
    inner: T,
    cause: io::Error,
}

impl<T> AsyncFdRegisterError<T> {
    /// What was to be watched, and why it is not.
    pub fn into_parts(self) -> (T, io::Error) {
        (self.inner, self.cause)
    }
}

impl<T> fmt::Display for AsyncFdRegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the descriptor cannot be watched: {}", self.cause)
    }
}

impl<T> fmt::Debug for AsyncFdRegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cause, f)
    }
}

impl<T> Error for AsyncFdRegisterError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl<T> From<AsyncFdRegisterError<T>> for io::Error {
    fn from(error: AsyncFdRegisterError<T>) -> io::Error {
        error.cause
    }
}
