//! Asynchronous I/O for any file descriptor.
//!
//! [`AsyncFd`] has the methods of Tokio's type of the same name. The events that it watches are
//! chosen when it is created ([`AsyncFd::with_interest`]); other events are never reported as
//! ready.

mod errors;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll, ready};

#[doc(hidden)]
#[allow(deprecated, reason = "programs may still use it")]
pub use self::errors::AsyncFdTryNewError;
pub use self::errors::{AsyncFdRegisterError, TryIoError};
use crate::io::{Interest, Ready};
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags, Seen};
use volt_core::driver::registration::Registration;

/// An object with a file descriptor that the runtime's driver watches, so that tasks can wait until
/// it is ready.
///
/// Use it for descriptors that Volt has no type for: those of a library in another language, a
/// device, an eventfd or a timerfd.
///
/// The descriptor must be in non-blocking mode. Otherwise the first attempt that is not ready
/// blocks a worker. It must stay open while this object exists, and must not belong to another
/// `AsyncFd` of the same runtime. Regular files cannot be watched on any system: see
/// [`fs`](crate::fs).
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

/// The interest of a new `AsyncFd`, unless the caller chooses another.
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

impl<T: AsRawFd> AsyncFd<T> {
    /// Creates an `AsyncFd` that watches `inner` for reading and writing. Returns `inner` with the
    /// error if it fails.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    ///
    /// # Safety
    /// `inner.as_raw_fd()` must return the same descriptor at every call. The descriptor must stay
    /// open, and belong to `inner`, for as long as the `AsyncFd` exists.
    #[track_caller]
    pub unsafe fn register(inner: T) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::try_new(inner)
    }

    /// Creates an `AsyncFd` that watches `inner` for `interest`, as [`register`](Self::register)
    /// does.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    ///
    /// # Safety
    /// The same as for [`register`](Self::register).
    #[track_caller]
    pub unsafe fn register_with_interest(inner: T, interest: Interest) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::try_with_interest(inner, interest)
    }

    /// Creates an `AsyncFd` that watches `inner` for reading and writing.
    ///
    /// # Errors
    /// Returns `PermissionDenied` (`EPERM`) if the descriptor is of a kind that cannot be watched,
    /// and `AlreadyExists` if it is already watched. Also returns an error if the underlying system
    /// call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn new(inner: T) -> io::Result<Self> {
        Self::with_interest(inner, BOTH)
    }

    /// Creates an `AsyncFd` that watches `inner` for `interest`.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn with_interest(inner: T, interest: Interest) -> io::Result<Self> {
        Ok(Self::try_with_interest(inner, interest)?)
    }

    /// Creates an `AsyncFd` as [`new`](Self::new) does. Returns `inner` with the error if it fails.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn try_new(inner: T) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::try_with_interest(inner, BOTH)
    }

    /// Creates an `AsyncFd` as [`with_interest`](Self::with_interest) does. Returns `inner` with
    /// the error if it fails.
    ///
    /// # Errors
    /// Returns the same errors as [`new`](Self::new).
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn try_with_interest(inner: T, interest: Interest) -> Result<Self, AsyncFdRegisterError<T>> {
        let driver = context::driver();
        match Registration::with_interest(driver, inner, interest.to_mio(), Flags::NONE) {
            Ok(io) => Ok(Self { io }),
            Err((inner, cause)) => Err(AsyncFdRegisterError { inner, cause }),
        }
    }

    /// Returns a shared reference to the inner object.
    pub fn get_ref(&self) -> &T {
        self.io.source()
    }

    /// Returns a mutable reference to the inner object. Its file descriptor must not be changed.
    pub fn get_mut(&mut self) -> &mut T {
        self.io.source_mut()
    }

    /// Stops watching the descriptor, and returns the inner object.
    pub fn into_inner(self) -> T {
        self.io.take_source()
    }

    /// Waits until the descriptor is ready for at least one operation of `interest`.
    ///
    /// Returns a guard. If an attempt would block, clear the readiness through the guard, for
    /// example with [`AsyncFdReadyGuard::try_io`].
    ///
    /// # Errors
    /// Returns an error if the runtime has been shut down.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn ready(&self, interest: Interest) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        let awaited = interest.awaited();
        let seen = self.io.ready(awaited).await?;
        Ok(AsyncFdReadyGuard { fd: self, awaited, seen: Some(seen) })
    }

    /// Waits as [`ready`](Self::ready) does, and returns a guard with mutable access to the inner
    /// object.
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn ready_mut(&mut self, interest: Interest) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        let awaited = interest.awaited();
        let seen = self.io.waits().ready(awaited).await?;
        Ok(AsyncFdReadyMutGuard { fd: self, awaited, seen: Some(seen) })
    }

    /// Waits until the descriptor is readable; see [`ready`](Self::ready).
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::READABLE).await
    }

    /// Waits until the descriptor is readable; see [`ready_mut`](Self::ready_mut).
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn readable_mut(&mut self) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        self.ready_mut(Interest::READABLE).await
    }

    /// Waits until the descriptor is writable; see [`ready`](Self::ready).
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn writable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::WRITABLE).await
    }

    /// Waits until the descriptor is writable; see [`ready_mut`](Self::ready_mut).
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn writable_mut(&mut self) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        self.ready_mut(Interest::WRITABLE).await
    }

    /// Polls for readiness as [`readable`](Self::readable) does. If several tasks poll for reading,
    /// only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    pub fn poll_read_ready<'a>(&'a self, cx: &mut Context<'_>) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Read))?;
        Poll::Ready(Ok(AsyncFdReadyGuard { fd: self, awaited: Direction::Read.into(), seen: Some(seen) }))
    }

    /// Polls for readiness as [`readable_mut`](Self::readable_mut) does. If several tasks poll for
    /// reading, only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    pub fn poll_read_ready_mut<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyMutGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Read))?;
        Poll::Ready(Ok(AsyncFdReadyMutGuard { fd: self, awaited: Direction::Read.into(), seen: Some(seen) }))
    }

    /// Polls for readiness as [`writable`](Self::writable) does. If several tasks poll for writing,
    /// only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    pub fn poll_write_ready<'a>(&'a self, cx: &mut Context<'_>) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Write))?;
        Poll::Ready(Ok(AsyncFdReadyGuard { fd: self, awaited: Direction::Write.into(), seen: Some(seen) }))
    }

    /// Polls for readiness as [`writable_mut`](Self::writable_mut) does. If several tasks poll for
    /// writing, only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`ready`](Self::ready).
    pub fn poll_write_ready_mut<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyMutGuard<'a, T>>> {
        let seen = ready!(self.io.poll_ready(cx, Direction::Write))?;
        Poll::Ready(Ok(AsyncFdReadyMutGuard { fd: self, awaited: Direction::Write.into(), seen: Some(seen) }))
    }

    /// Calls `operation` until it does not return `WouldBlock`. Waits for readiness between the
    /// calls.
    ///
    /// # Errors
    /// Returns any other error of `operation`. Also returns an error if the runtime has been shut
    /// down.
    ///
    /// # Cancel safety
    /// This method is cancel safe. The poll in which `operation` completes returns its result, so
    /// dropping the future loses no result.
    pub async fn async_io<R>(&self, interest: Interest, operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.io.run(interest.awaited(), operation).await
    }

    /// Calls `operation` as [`async_io`](Self::async_io) does, with mutable access to the inner
    /// object.
    ///
    /// # Errors
    /// Returns the same errors as [`async_io`](Self::async_io).
    ///
    /// # Cancel safety
    /// The same as for [`async_io`](Self::async_io).
    pub async fn async_io_mut<R>(
        &mut self,
        interest: Interest,
        mut operation: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let (inner, waits) = self.io.source_and_waits();
        waits.run(interest.awaited(), || operation(inner)).await
    }

    /// Tries `operation` once if the descriptor may be ready. If the operation would block, the
    /// readiness is cleared, and the next wait is for a new event.
    ///
    /// # Errors
    /// Returns `ErrorKind::WouldBlock` if the descriptor is not ready for `interest`. Otherwise
    /// returns the error of `operation`.
    pub fn try_io<R>(&self, interest: Interest, operation: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.io.try_run(interest.awaited(), operation)
    }

    /// Tries `operation` as [`try_io`](Self::try_io) does, with mutable access to the inner object.
    ///
    /// # Errors
    /// Returns the same errors as [`try_io`](Self::try_io).
    pub fn try_io_mut<R>(
        &mut self,
        interest: Interest,
        operation: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let awaited = interest.awaited();
        let seen = self.io.check_for_attempt(awaited).ok_or(io::ErrorKind::WouldBlock)?;
        let mut guard = AsyncFdReadyMutGuard { fd: self, awaited, seen: Some(seen) };
        guard.try_io(|fd| operation(fd.get_mut())).unwrap_or_else(|_| Err(io::ErrorKind::WouldBlock.into()))
    }
}

impl<T: AsRawFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.get_ref().as_raw_fd()
    }
}

impl<T: AsRawFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor stays open while this object exists; see the type's documentation.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl<T: AsRawFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncFd").field("inner", self.get_ref()).finish_non_exhaustive()
    }
}

/// Represents the readiness of an [`AsyncFd`] at the time when it was found.
///
/// If an attempt would block, the readiness must be cleared through this guard. Otherwise the next
/// wait ends immediately.
#[must_use = "an attempt that would have blocked must be reported: use try_io or clear_ready"]
pub struct AsyncFdReadyGuard<'a, T: AsRawFd> {
    fd: &'a AsyncFd<T>,
    /// The flags that the wait was for.
    awaited: Flags,
    /// `None` after the readiness was cleared or retained.
    seen: Option<Seen>,
}

/// Represents the readiness of an [`AsyncFd`], with mutable access to the inner object; see
/// [`AsyncFdReadyGuard`].
#[must_use = "an attempt that would have blocked must be reported: use try_io or clear_ready"]
pub struct AsyncFdReadyMutGuard<'a, T: AsRawFd> {
    fd: &'a mut AsyncFd<T>,
    awaited: Flags,
    seen: Option<Seen>,
}

/// Defines the methods of both guards. The last argument is the value that `try_io` passes to its
/// operation.
macro_rules! guard {
    ($guard:ident, $self:ident, $fd:ty => $given:expr) => {
        impl<'a, T: AsRawFd> $guard<'a, T> {
            /// Clears the readiness that was found.
            ///
            /// Readiness that was set after that is kept. The state that a direction is closed is
            /// also kept: only [`try_io`](Self::try_io) clears it, if an attempt in that direction
            /// would block nevertheless.
            pub fn clear_ready(&mut self) {
                if let Some(seen) = self.seen.take() {
                    self.fd.io.clear(seen);
                }
            }

            /// Clears the readiness that was found as [`clear_ready`](Self::clear_ready) does, but
            /// only the states that are in `ready`.
            pub fn clear_ready_matching(&mut self, ready: Ready) {
                if let Some(seen) = self.seen {
                    self.fd.io.clear(seen.only(ready.flags()));
                    self.seen = Some(seen.only((Ready::ALL - ready).flags()));
                }
            }

            /// Keeps the readiness. Call this to make explicit that nothing is cleared.
            pub fn retain_ready(&mut self) {
                self.seen = None;
            }

            /// Returns the readiness that was found.
            pub fn ready(&self) -> Ready {
                self.seen.map_or(Ready::EMPTY, |seen| Ready::of(seen.found()))
            }

            /// Tries `operation`, a system call on the descriptor. Clears the readiness if the call
            /// would block.
            ///
            /// # Errors
            /// Returns [`TryIoError`] if the call would block. In that case, wait again. Any other
            /// error of `operation` is returned inside `Ok`.
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
    /// Returns a shared reference to the `AsyncFd`.
    pub fn get_ref(&self) -> &'a AsyncFd<T> {
        self.fd
    }

    /// Returns a shared reference to the inner object.
    pub fn get_inner(&self) -> &'a T {
        self.fd.get_ref()
    }
}

impl<T: AsRawFd> AsyncFdReadyMutGuard<'_, T> {
    /// Returns a shared reference to the `AsyncFd`.
    pub fn get_ref(&self) -> &AsyncFd<T> {
        self.fd
    }

    /// Returns a mutable reference to the `AsyncFd`.
    pub fn get_mut(&mut self) -> &mut AsyncFd<T> {
        self.fd
    }

    /// Returns a shared reference to the inner object.
    pub fn get_inner(&self) -> &T {
        self.fd.get_ref()
    }

    /// Returns a mutable reference to the inner object.
    pub fn get_inner_mut(&mut self) -> &mut T {
        self.fd.get_mut()
    }
}
