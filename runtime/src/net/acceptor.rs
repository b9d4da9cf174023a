//! Accepting connections, for every kind of listener.
//!
//! A listener is a socket that the driver watches. Accepting a connection takes two steps: the
//! `accept` system call, and the registration of the new socket with the driver. Both steps are
//! handled by the same rules. If the second step fails, the connection is lost, but the listener
//! keeps working.
//!
//! An error is one of three kinds:
//!
//! - *The connection's*: the connection broke before it was accepted. The next connection is tried
//!   immediately.
//! - *The program's*: the program has run out of descriptors, memory or epoll watches. The acceptor
//!   waits, and then tries again.
//! - *All others* are returned to the caller.
//!
//! The wait is needed because the driver is edge-triggered. The kernel keeps the queued
//! connections, sends no further event for them, and lets every further attempt fail immediately.
//! If `accept` returned the error, the caller's loop would spin (5 million times per second were
//! measured). So the acceptor waits instead and keeps the readiness set. Once resources are
//! available again, it continues without action by the caller.
//!
//! Rejected: counting `EOPNOTSUPP` as an error of one connection, as accept(2) lists it. A socket
//! that does not accept connections returns the same error for every attempt.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;
use volt_core::driver::turn::Driver;
use volt_core::scheduler::lease::DriverLease;
use volt_core::sleep::RawSleep;
use volt_shim::{AtomicU32, Mutex, Ordering};

/// The first wait of an accept that ran out of resources, in ms: long enough to be cheap, short
/// enough not to be noticed.
const MIN_BACKOFF_MS: u32 = 5;
/// The wait doubles up to this limit, in ms.
const MAX_BACKOFF_MS: u32 = 1_000;

const _: () = assert!(MIN_BACKOFF_MS > 0 && MIN_BACKOFF_MS <= MAX_BACKOFF_MS);

/// A registered socket that accepts connections.
#[derive(Debug)]
pub(super) struct Acceptor<L: AsRawFd> {
    io: Registration<L>,
    /// The next wait for resources, in ms; 0 if the last accept lacked none.
    backoff_ms: AtomicU32,
    /// The wait that `poll_accept` is in, if any.
    poll_backoff: Mutex<Option<RawSleep>>,
}

impl<L: AsRawFd> Acceptor<L> {
    pub(super) fn new(driver: Arc<Driver>, listener: L) -> io::Result<Self> {
        let io = Registration::new(driver, listener, Flags::READABLE)?;
        Ok(Self { io, backoff_ms: AtomicU32::new(0), poll_backoff: Mutex::new(None) })
    }

    pub(super) fn source(&self) -> &L {
        self.io.source()
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        self.io.driver()
    }

    pub(super) fn into_source(self) -> io::Result<L> {
        self.io.into_source()
    }

    /// Returns the next connection. `accept` performs both steps.
    pub(super) async fn accept<C>(&self, accept: impl Fn(&L) -> io::Result<C>) -> io::Result<C> {
        loop {
            let accepted = self.io.run(Direction::Read, &accept).await;
            match self.judge(accepted)? {
                Outcome::Accepted(connection) => return Ok(connection),
                Outcome::Again => {}
                Outcome::After(delay) => self.pause(delay).in_operation().await?,
            }
        }
    }

    /// Polls for the next connection. If several tasks poll, only the task that polled last is
    /// woken.
    pub(super) fn poll_accept<C>(
        &self,
        cx: &mut Context<'_>,
        accept: impl Fn(&L) -> io::Result<C>,
    ) -> Poll<io::Result<C>> {
        loop {
            // Taken out instead of borrowed: polling may run a waker's code, which may call this
            // function again.
            let waiting = self.poll_backoff.lock().take();
            if let Some(mut sleep) = waiting {
                let Poll::Ready(slept) = sleep.poll_in_operation(cx) else {
                    self.set_poll_backoff(sleep);
                    return Poll::Pending;
                };
                slept?;
            }
            let accepted = ready!(self.io.poll_run(cx, Direction::Read, &accept));
            match self.judge(accepted)? {
                Outcome::Accepted(connection) => return Poll::Ready(Ok(connection)),
                Outcome::Again => {}
                Outcome::After(delay) => self.set_poll_backoff(self.pause(delay)),
            }
        }
    }

    fn set_poll_backoff(&self, sleep: RawSleep) {
        let former = self.poll_backoff.lock().replace(sleep);
        // Not under the lock: dropping it may run a waker's code, which may poll this listener.
        drop(former);
    }

    fn judge<C>(&self, accepted: io::Result<C>) -> io::Result<Outcome<C>> {
        let error = match accepted {
            Ok(connection) => {
                // ORDERING: Relaxed; the value is a hint. A race between two accepts makes a wait
                // shorter or longer.
                self.backoff_ms.store(0, Ordering::Relaxed);
                return Ok(Outcome::Accepted(connection));
            }
            Err(error) => error,
        };
        match Errno::from_io_error(&error) {
            Some(errno) if is_of_one_connection(errno) => Ok(Outcome::Again),
            Some(errno) if is_exhaustion(errno) => Ok(Outcome::After(self.back_off(&error))),
            _ => Err(error),
        }
    }

    /// Counts a wait, logs the first of a series, and returns its length.
    fn back_off(&self, error: &io::Error) -> Duration {
        // ORDERING: Relaxed; as in `judge`.
        let planned_ms = self.backoff_ms.load(Ordering::Relaxed);
        let delay_ms = planned_ms.max(MIN_BACKOFF_MS);
        // ORDERING: Relaxed; as in `judge`.
        self.backoff_ms.store((delay_ms * 2).min(MAX_BACKOFF_MS), Ordering::Relaxed);
        self.io.driver().count_accept_backoff();
        if planned_ms == 0 {
            tracing::warn!(
                %error, fd = self.io.source().as_raw_fd(),
                "cannot accept connections for lack of a resource, such as file descriptors (ulimit -n); retrying"
            );
        }
        Duration::from_millis(u64::from(delay_ms))
    }

    /// A sleep on the listener's own runtime, whichever runtime this thread belongs to.
    fn pause(&self, delay: Duration) -> RawSleep {
        RawSleep::after(DriverLease::of(self.io.driver()), delay)
    }
}

enum Outcome<C> {
    Accepted(C),
    Again,
    After(Duration),
}

/// The connection is broken, but the listener is not: see accept(2), "Error handling".
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
        #[cfg(any(target_os = "linux", target_os = "android"))]
        Errno::NONET,
    ];
    known.contains(&errno)
}

/// The program, its user or the machine has run out of a resource.
fn is_exhaustion(errno: Errno) -> bool {
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC].contains(&errno)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;
    use crate::Builder;
    use volt_core::context;
    use volt_core::driver::readiness::ShutDownError;

    #[test]
    fn a_connection_that_fails_to_register_does_not_block_accept() {
        let runtime = Builder::new_multi_thread().worker_threads(1).control_socket(false).build().unwrap();
        runtime.block_on(async {
            let listener = mio::net::TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let addr = listener.local_addr().unwrap();
            let acceptor = Acceptor::new(context::driver(), listener).unwrap();
            let [_lost, next] = [(); 2].map(|()| std::net::TcpStream::connect(addr).unwrap());
            let is_full = Cell::new(true);
            let accept = |listener: &mio::net::TcpListener| {
                let (_, peer) = listener.accept()?;
                // Fails like epoll_ctl(2) when fs.epoll.max_user_watches is exceeded.
                if is_full.take() { Err(Errno::NOSPC.into()) } else { Ok(peer) }
            };
            assert_eq!(acceptor.accept(accept).await.unwrap(), next.local_addr().unwrap());
        });
        assert_eq!(runtime.handle().snapshot().driver.accept_backoffs, 1);
    }

    #[test]
    fn a_shutdown_during_a_wait_for_resources_is_an_error() {
        let build = || Builder::new_multi_thread().worker_threads(1).control_socket(false).build().unwrap();
        let (owner, other) = (build(), build());
        let acceptor = {
            let _entered = owner.enter();
            let listener = mio::net::TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            // The first wait is the longest, so that it does not end before the shutdown.
            let acceptor = Acceptor::new(context::driver(), listener).unwrap();
            Acceptor { backoff_ms: AtomicU32::new(MAX_BACKOFF_MS), ..acceptor }
        };
        let exhausted = |_: &mio::net::TcpListener| Err::<(), io::Error>(Errno::MFILE.into());
        let mut cx = Context::from_waker(Waker::noop());
        let mut accept = pin!(acceptor.accept(exhausted));
        assert!(accept.as_mut().poll(&mut cx).is_pending());
        assert!(acceptor.poll_accept(&mut cx, exhausted).is_pending());
        owner.shutdown_background();
        let polled = poll_fn(|cx| acceptor.poll_accept(cx, exhausted));
        for error in [other.block_on(accept).unwrap_err(), other.block_on(polled).unwrap_err()] {
            assert!(ShutDownError::is_in(&error), "{error}");
        }
    }
}
