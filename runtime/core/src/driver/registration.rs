//! A file descriptor, usually a socket, that is registered with the driver. It tries an operation
//! when the descriptor may be ready, and waits when the operation would block.
//!
//! `net`, `io`, `process` and `signal` use it. All kinds of descriptors come through here, whether
//! from mio, the standard library or elsewhere, since only the number of the descriptor counts.
//! Every operation that completes uses one unit of the cooperative budget, except `try_run`.
//!
//! Invariants:
//! * *Deregistered first*: a socket leaves the kernel's list while its descriptor is open, since
//!   its number may belong to another descriptor afterwards.
//! * *Optimistic*: a socket that is likely to be ready starts with its flags set, which saves a
//!   turn of the driver.

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mio::unix::SourceFd;
use mio::{Interest, Token};

use crate::coop;
use crate::driver::readiness::{Direction, Flags, Readiness, Seen};
use crate::driver::turn::Driver;

/// The events for which a socket is registered by default.
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
/// The events for which a TCP stream is registered. The last one adds no event to a stream without
/// urgent data.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOTH_AND_MARK: Interest = BOTH.add(Interest::PRIORITY);
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOTH_AND_MARK: Interest = BOTH;

/// A registered socket.
#[derive(Debug)]
pub struct Registration<S: AsRawFd> {
    /// `None` only after `into_source`.
    source: Option<S>,
    token: Token,
    readiness: Arc<Readiness>,
    driver: Arc<Driver>,
}

impl<S: AsRawFd> Registration<S> {
    /// Registers `source`, which must be in non-blocking mode, with `driver`. Its readiness starts
    /// with the flags `begin`.
    ///
    /// # Errors
    /// Fails as `Driver::register` does.
    pub fn new(driver: Arc<Driver>, source: S, begin: Flags) -> io::Result<Self> {
        Self::with_interest(driver, source, BOTH, begin).map_err(|(_, error)| error)
    }

    /// Same as [`new`](Self::new), for a TCP stream, which is also watched for urgent data; see
    /// [`poll_transfer`](Self::poll_transfer).
    ///
    /// # Errors
    /// Fails as `Driver::register` does.
    pub fn of_tcp(driver: Arc<Driver>, source: S, begin: Flags) -> io::Result<Self> {
        Self::with_interest(driver, source, BOTH_AND_MARK, begin.and(Flags::MARKABLE)).map_err(|(_, error)| error)
    }

    /// Same as [`new`](Self::new), but registers only for `interest`. On failure the source is
    /// returned with the error.
    pub fn with_interest(
        driver: Arc<Driver>,
        source: S,
        interest: Interest,
        begin: Flags,
    ) -> Result<Self, (S, io::Error)> {
        match driver.register(&mut SourceFd(&source.as_raw_fd()), interest, begin) {
            Ok((token, readiness)) => Ok(Self { source: Some(source), token, readiness, driver }),
            Err(error) => Err((source, error)),
        }
    }

    /// Returns the socket.
    pub fn source(&self) -> &S {
        self.source.as_ref().expect("a registration holds its socket until it is taken apart")
    }

    /// Returns the socket.
    pub fn source_mut(&mut self) -> &mut S {
        self.source_and_waits().0
    }

    /// Returns the socket and the part that [waits](Self::waits), so that an operation may change
    /// the socket.
    pub fn source_and_waits(&mut self) -> (&mut S, Waits<'_>) {
        let source = self.source.as_mut().expect("a registration holds its socket until it is taken apart");
        (source, Waits(&self.readiness))
    }

    /// Returns the driver with which the socket is registered.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Deregisters the socket and returns it.
    ///
    /// # Errors
    /// Fails if the system refuses to deregister the socket, which is then dropped.
    pub fn into_source(self) -> io::Result<S> {
        let (source, deregistered) = self.take_apart();
        deregistered.map(|()| source)
    }

    /// Deregisters the socket and returns it in any case. An error only means that it is not in the
    /// kernel's list, as intended.
    pub fn take_source(self) -> S {
        self.take_apart().0
    }

    fn take_apart(mut self) -> (S, io::Result<()>) {
        let source = self.source.take().expect("a registration holds its socket until it is taken apart");
        let deregistered = self.driver.deregister(&mut SourceFd(&source.as_raw_fd()), self.token);
        (source, deregistered)
    }

    /// Returns which of the flags `awaited` are set, also after the shutdown of the runtime.
    pub fn check_for_attempt(&self, awaited: Flags) -> Option<Seen> {
        self.readiness.check_for_attempt(awaited)
    }

    /// Tries `operation` until it does not block; see [`Waits::run`].
    pub fn run<R>(
        &self,
        awaited: impl Into<Flags>,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> impl Future<Output = io::Result<R>> {
        self.waits().run(awaited, move || operation(self.source()))
    }

    /// Returns the part of this registration that waits. Its futures do not borrow the socket, so
    /// they are `Send` even if those of the registration are not.
    pub fn waits(&self) -> Waits<'_> {
        Waits(&self.readiness)
    }

    /// Waits until an attempt may succeed, without making one; see [`Waits::ready`].
    pub async fn ready(&self, awaited: impl Into<Flags>) -> io::Result<Seen> {
        self.waits().ready(awaited).await
    }

    /// Waits until an attempt may succeed, without making one. For the `poll_` functions, see
    /// `Readiness::poll_ready`.
    pub fn poll_ready(&self, cx: &mut Context<'_>, direction: Direction) -> Poll<io::Result<Seen>> {
        let unit = ready!(coop::poll_proceed(cx));
        let seen = ready!(self.readiness.poll_ready(cx, direction))?;
        unit.made_progress();
        Poll::Ready(Ok(seen))
    }

    /// Same as [`run`](Self::run), but waits in the slot of `direction`.
    pub fn poll_run<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let unit = ready!(coop::poll_proceed(cx));
        loop {
            let seen = ready!(self.readiness.poll_ready(cx, direction))?;
            let attempt = self.waits().attempt(seen, direction.into(), || operation(self.source()));
            if let Attempt::Done(result) = attempt {
                unit.made_progress();
                return Poll::Ready(result);
            }
        }
    }

    /// Same as [`poll_run`](Self::poll_run), for an operation that moves up to `len` bytes.
    ///
    /// If it moves fewer, the kernel's buffer is empty (or full), and Linux reports the next change
    /// by a new event (epoll(7), question 9). So the flag is cleared here, which saves the system
    /// call of a next attempt that would block.
    ///
    /// A read from a TCP stream also ends at the mark of urgent data. So once there has been any,
    /// the flag stays if `has_more` finds data behind the mark. If there is none, it is cleared:
    /// the next attempt would discard the urgent byte (*Marks* in `readiness`). An event that is
    /// collected after the checks here changes the tick, or sets the flag again.
    pub fn poll_transfer(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        len: usize,
        operation: impl FnMut(&S) -> io::Result<usize>,
        has_more: impl FnOnce(&S) -> bool,
    ) -> Poll<io::Result<usize>> {
        let seen = self.readiness.check(direction)?;
        let result = ready!(self.poll_run(cx, direction, operation));
        if let (Some(seen), Ok(moved)) = (seen, &result)
            && cfg!(any(target_os = "linux", target_os = "android"))
            && (1..len).contains(moved)
            && (self.check_for_attempt(Flags::MARKED).is_none() || !has_more(self.source()))
        {
            self.readiness.clear(seen);
        }
        Poll::Ready(result)
    }

    /// Makes one attempt, if the socket may be ready. After the shutdown of the runtime too: data
    /// that has arrived can still be read.
    ///
    /// # Errors
    /// Returns `ErrorKind::WouldBlock` if the socket is not ready. Otherwise returns the error of
    /// the operation.
    pub fn try_run<R>(&self, awaited: impl Into<Flags>, operation: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        let awaited = awaited.into();
        let seen = self.readiness.check_for_attempt(awaited).ok_or(io::ErrorKind::WouldBlock)?;
        let result = operation(self.source());
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.readiness.refute(seen, awaited);
        }
        result
    }

    /// Clears the flags of `seen`; see `Readiness::clear`.
    pub fn clear(&self, seen: Seen) {
        self.readiness.clear(seen);
    }

    /// Clears the flags of `seen`, the result of a check for `awaited`, after an attempt that would
    /// have blocked; see `Readiness::refute`.
    pub fn refute(&self, seen: Seen, awaited: Flags) {
        self.readiness.refute(seen, awaited);
    }
}

/// Waits for the readiness of a socket, without access to the socket.
#[derive(Clone, Copy, Debug)]
pub struct Waits<'a>(&'a Readiness);

impl Waits<'_> {
    /// Waits until an attempt may succeed, without making one.
    ///
    /// A wait that ends immediately spends a unit of the cooperative budget. It ends immediately
    /// even if no unit is left: programs poll it once to find out whether a socket is ready.
    pub async fn ready(self, awaited: impl Into<Flags>) -> io::Result<Seen> {
        let awaited = awaited.into();
        if let Some(seen) = self.0.check(awaited)? {
            coop::spend();
            return Ok(seen);
        }
        let (seen, unit) = self.0.ready(awaited).await?;
        unit.made_progress();
        Ok(seen)
    }

    /// Tries `operation` until it does not block. In between, waits in the queue for one of the
    /// flags `awaited`.
    pub async fn run<R>(
        self,
        awaited: impl Into<Flags>,
        mut operation: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let awaited = awaited.into();
        loop {
            let (seen, unit) = self.0.ready(awaited).await?;
            match self.attempt(seen, awaited, &mut operation) {
                Attempt::Done(result) => {
                    unit.made_progress();
                    return result;
                }
                Attempt::Blocked => {}
                // The next wait would end immediately, so let other tasks run first.
                Attempt::BlockedAndClosed => {
                    unit.made_progress();
                    coop::yield_once().await;
                }
            }
        }
    }

    /// Makes one attempt after a check for `awaited`. If it would have blocked, the flags are
    /// cleared.
    fn attempt<R>(self, seen: Seen, awaited: Flags, mut operation: impl FnMut() -> io::Result<R>) -> Attempt<R> {
        loop {
            match operation() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_all = self.0.refute(seen, awaited);
                    return if is_all { Attempt::Blocked } else { Attempt::BlockedAndClosed };
                }
                // A signal came before anything was done. This is rare, and no reason to wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Attempt::Done(result),
            }
        }
    }
}

/// The result of an attempt.
enum Attempt<R> {
    Done(io::Result<R>),
    Blocked,
    /// It would have blocked although a direction is closed, perhaps the other direction.
    BlockedAndClosed,
}

impl<S: AsRawFd> Drop for Registration<S> {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            // An error means that the socket is not in the kernel's list, so nothing is left to do.
            let _ = self.driver.deregister(&mut SourceFd(&source.as_raw_fd()), self.token);
        }
    }
}
