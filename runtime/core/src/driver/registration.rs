//! What the driver watches, a socket as a rule: tries an operation when it may be ready, waits when
//! it was not. All descriptors come through here, mio's, the standard library's and foreign ones
//! alike: what counts is the number.
//!
//! Who uses it: `net`, `io`, `process`, `signal`. Every operation that need not wait spends one
//! unit of the cooperative budget.
//!
//! Invariants. *Deregistered first*: a socket leaves the kernel's list while its descriptor is
//! open; afterwards the number may belong to another. *Optimistic*: a socket that is likely to be
//! ready begins as if it were, which saves a turn of the driver.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mio::unix::SourceFd;
use mio::{Interest, Token};

use crate::coop;
use crate::driver::readiness::{Direction, Flags, Readiness, Seen};
use crate::driver::turn::Driver;

/// What a socket is watched for.
const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

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
    /// Registers `source`, in non-blocking mode, with `driver`; it begins with the given flags.
    ///
    /// # Errors
    /// As `Driver::register`.
    pub fn new(driver: Arc<Driver>, source: S, begin: Flags) -> io::Result<Self> {
        Self::with_interest(driver, source, BOTH, begin).map_err(|(_, error)| error)
    }

    /// As [`new`](Self::new), for these events only; where it fails the source comes back.
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

    /// The socket.
    pub fn source(&self) -> &S {
        self.source.as_ref().expect("a registration holds its socket until it is taken apart")
    }

    /// The socket.
    pub fn source_mut(&mut self) -> &mut S {
        self.source.as_mut().expect("a registration holds its socket until it is taken apart")
    }

    /// The driver it is registered with.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Deregisters the socket and hands it back.
    pub fn into_source(self) -> io::Result<S> {
        let (source, deregistered) = self.take_apart();
        deregistered.map(|()| source)
    }

    /// The same, and it comes back in any case: an error means that the kernel's list does not hold
    /// it, which is what was wanted.
    pub fn take_source(self) -> S {
        self.take_apart().0
    }

    fn take_apart(mut self) -> (S, io::Result<()>) {
        let source = self.source.take().expect("a registration holds its socket until it is taken apart");
        let deregistered = self.driver.deregister(&mut SourceFd(&source.as_raw_fd()), self.token);
        (source, deregistered)
    }

    /// What is ready now, of these.
    ///
    /// # Errors
    /// The runtime is shut down.
    pub fn check(&self, awaited: impl Into<Flags>) -> io::Result<Option<Seen>> {
        self.readiness.check(awaited)
    }

    /// Tries `operation` until it does not block, waiting in the queue for one of these flags in
    /// between.
    pub async fn run<R>(
        &self,
        awaited: impl Into<Flags>,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let awaited = awaited.into();
        loop {
            let (seen, unit) = self.readiness.ready(awaited).await?;
            match self.attempt(seen, awaited, &mut operation) {
                Attempt::Done(result) => {
                    unit.made_progress();
                    return result;
                }
                Attempt::Blocked => {}
                // The next wait ends at once: others first.
                Attempt::BlockedAndClosed => {
                    unit.made_progress();
                    coop::yield_once().await;
                }
            }
        }
    }

    /// Waits until an attempt may succeed, and makes none.
    pub async fn ready(&self, awaited: impl Into<Flags>) -> io::Result<Seen> {
        let (seen, unit) = self.readiness.ready(awaited).await?;
        unit.made_progress();
        Ok(seen)
    }

    /// Waits until an attempt may succeed, and makes none; for the `poll_` functions, see
    /// `Readiness::poll_ready`.
    pub fn poll_ready(&self, cx: &mut Context<'_>, direction: Direction) -> Poll<io::Result<Seen>> {
        let unit = ready!(coop::poll_proceed(cx));
        let seen = ready!(self.readiness.poll_ready(cx, direction))?;
        unit.made_progress();
        Poll::Ready(Ok(seen))
    }

    /// As [`run`](Self::run), but waits in the slot of `direction`.
    pub fn poll_run<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let unit = ready!(coop::poll_proceed(cx));
        loop {
            let seen = ready!(self.readiness.poll_ready(cx, direction))?;
            if let Attempt::Done(result) = self.attempt(seen, direction.into(), &mut operation) {
                unit.made_progress();
                return Poll::Ready(result);
            }
        }
    }

    /// As [`poll_run`](Self::poll_run) for an operation that moves up to `len` bytes.
    ///
    /// Where it moves fewer, the kernel's buffer is empty (or full), and on Linux the next change
    /// is told by a new event (epoll(7), question 9): the next attempt would only find that out
    /// by a system call.
    pub fn poll_transfer(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        len: usize,
        operation: impl FnMut(&S) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let seen = self.readiness.check(direction)?;
        let result = ready!(self.poll_run(cx, direction, operation));
        if let (Some(seen), Ok(moved)) = (seen, &result)
            && cfg!(any(target_os = "linux", target_os = "android"))
            && (1..len).contains(moved)
        {
            self.readiness.clear(seen);
        }
        Poll::Ready(result)
    }

    /// One attempt, if the socket may be ready.
    ///
    /// # Errors
    /// `ErrorKind::WouldBlock` if it is not; else what the operation says.
    pub fn try_run<R>(&self, awaited: impl Into<Flags>, operation: impl FnOnce(&S) -> io::Result<R>) -> io::Result<R> {
        let awaited = awaited.into();
        let Some(seen) = self.readiness.check(awaited)? else { return Err(io::ErrorKind::WouldBlock.into()) };
        let result = operation(self.source());
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            self.readiness.refute(seen, awaited);
        }
        result
    }

    /// What was seen is not to be tried again; see `Readiness::clear`.
    pub fn clear(&self, seen: Seen) {
        self.readiness.clear(seen);
    }

    /// An attempt after `seen`, which a check for `awaited` gave, would have blocked; see
    /// `Readiness::refute`.
    pub fn refute(&self, seen: Seen, awaited: Flags) {
        self.readiness.refute(seen, awaited);
    }

    /// One attempt after a check for `awaited`. Where it would have blocked, the readiness was
    /// taken back.
    fn attempt<R>(&self, seen: Seen, awaited: Flags, operation: &mut impl FnMut(&S) -> io::Result<R>) -> Attempt<R> {
        loop {
            match operation(self.source()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_all = self.readiness.refute(seen, awaited);
                    return if is_all { Attempt::Blocked } else { Attempt::BlockedAndClosed };
                }
                // A signal came before anything was done; rare, and no reason to wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Attempt::Done(result),
            }
        }
    }
}

/// What became of an attempt.
enum Attempt<R> {
    Done(io::Result<R>),
    Blocked,
    /// It would have blocked, and one direction is closed all the same: perhaps the other than the
    /// one that it was in.
    BlockedAndClosed,
}

impl<S: AsRawFd> Drop for Registration<S> {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            // An error means that the kernel's list does not hold it: nothing is left to be done.
            let _ = self.driver.deregister(&mut SourceFd(&source.as_raw_fd()), self.token);
        }
    }
}
