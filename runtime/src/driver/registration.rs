//! A socket and its place in the driver: tries an operation when the socket may be ready, waits when it was not.
//!
//! Who uses it: `net`. Every operation spends one unit of the cooperative budget, and gives it back if it has to wait.
//!
//! Invariants. *Deregistered first*: a socket leaves the kernel's list while its descriptor is open; afterwards the number may
//! belong to another. *Optimistic*: a socket that is likely to be ready begins as if it were, which saves a turn of the driver.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mio::Token;
use mio::event::Source;

use crate::coop;
use crate::driver::Driver;
use crate::driver::readiness::{Direction, Flags, Readiness, Seen};

/// A registered socket.
#[derive(Debug)]
pub(crate) struct Registration<S: Source> {
    /// `None` only after `into_source`.
    source: Option<S>,
    token: Token,
    readiness: Arc<Readiness>,
    driver: Arc<Driver>,
}

impl<S: Source> Registration<S> {
    /// Registers `source`, in non-blocking mode, with `driver`; it begins with the given flags.
    ///
    /// # Errors
    /// As [`Driver::register`].
    pub(crate) fn new(driver: Arc<Driver>, mut source: S, begin: Flags) -> io::Result<Self> {
        let (token, readiness) = driver.register(&mut source, begin)?;
        Ok(Self { source: Some(source), token, readiness, driver })
    }

    /// The socket.
    pub(crate) fn source(&self) -> &S {
        self.source.as_ref().expect("a registration holds its socket until it is taken apart")
    }

    /// The driver it is registered with.
    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Deregisters the socket and hands it back.
    pub(crate) fn into_source(mut self) -> io::Result<S> {
        let mut source = self.source.take().expect("a registration holds its socket until it is taken apart");
        self.driver.deregister(&mut source, self.token)?;
        Ok(source)
    }

    /// Tries `operation` until it does not block, waiting in the queue of `direction` in between.
    pub(crate) async fn run<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let (seen, unit) = self.readiness.ready(direction).await?;
            if let Some(result) = self.attempt(seen, &mut operation) {
                unit.made_progress();
                return result;
            }
        }
    }

    /// Waits until an attempt may succeed, and makes none.
    pub(crate) async fn ready(&self, direction: Direction) -> io::Result<()> {
        let (_, unit) = self.readiness.ready(direction).await?;
        unit.made_progress();
        Ok(())
    }

    /// Waits until an attempt may succeed, and makes none; for the `poll_` functions, see [`Readiness::poll_ready`].
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>, direction: Direction) -> Poll<io::Result<()>> {
        let unit = ready!(coop::poll_proceed(cx));
        let _ = ready!(self.readiness.poll_ready(cx, direction))?;
        unit.made_progress();
        Poll::Ready(Ok(()))
    }

    /// As [`run`](Self::run), but waits in the slot of `direction`.
    pub(crate) fn poll_run<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        let unit = ready!(coop::poll_proceed(cx));
        loop {
            let seen = ready!(self.readiness.poll_ready(cx, direction))?;
            if let Some(result) = self.attempt(seen, &mut operation) {
                unit.made_progress();
                return Poll::Ready(result);
            }
        }
    }

    /// As [`poll_run`](Self::poll_run) for an operation that moves up to `len` bytes.
    ///
    /// Where it moves fewer, the kernel's buffer is empty (or full), and on Linux the next change is told by a new event
    /// (epoll(7), question 9): the next attempt would only find that out by a system call.
    pub(crate) fn poll_transfer(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        len: usize,
        operation: impl FnMut(&S) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let seen = self.readiness.look(direction)?;
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
    pub(crate) fn try_run<R>(
        &self,
        direction: Direction,
        mut operation: impl FnMut(&S) -> io::Result<R>,
    ) -> io::Result<R> {
        let seen = self.readiness.look(direction)?;
        let result = seen.and_then(|seen| self.attempt(seen, &mut operation));
        result.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    /// `None`: it would have blocked, and the readiness was taken back.
    fn attempt<R>(&self, seen: Seen, operation: &mut impl FnMut(&S) -> io::Result<R>) -> Option<io::Result<R>> {
        loop {
            match operation(self.source()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readiness.clear(seen);
                    return None;
                }
                // A signal came before anything was done; rare, and no reason to wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Some(result),
            }
        }
    }
}

impl<S: Source> Drop for Registration<S> {
    fn drop(&mut self) {
        if let Some(mut source) = self.source.take() {
            // An error means that the kernel's list does not hold it: nothing is left to be done.
            let _ = self.driver.deregister(&mut source, self.token);
        }
    }
}
