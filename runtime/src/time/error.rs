//! Errors of timers: [`Elapsed`] and [`Error`].

use std::error;
use std::fmt;
use std::io;

/// Error returned by [`Timeout`](super::Timeout) when the time elapses before the future completes.
///
/// Converts into an `io::Error` of kind `TimedOut`.
///
/// ```
/// use volt::time::{Duration, timeout};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let elapsed = timeout(Duration::ZERO, std::future::pending::<()>()).await.unwrap_err();
/// assert_eq!(elapsed.to_string(), "deadline has elapsed");
/// assert_eq!(std::io::Error::from(elapsed).kind(), std::io::ErrorKind::TimedOut);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    _private: (),
}

impl Elapsed {
    pub(super) fn new() -> Elapsed {
        Elapsed { _private: () }
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("deadline has elapsed")
    }
}

impl error::Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(_: Elapsed) -> io::Error {
        io::ErrorKind::TimedOut.into()
    }
}

/// The error of a timer, for code that uses Tokio's type of the same name.
///
/// No function of Volt returns it. A duration of more than 30 years is shortened to 30 years. A
/// timer panics if it is awaited after its runtime was shut down, or if the runtime already has
/// 4,294,967,295 timers.
///
/// ```
/// use volt::time::error::Error;
///
/// let error = Error::shutdown();
/// assert!(error.is_shutdown() && !error.is_invalid());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Error {
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Shutdown,
    AtCapacity,
    Invalid,
}

impl Error {
    /// Creates the error of a timer whose runtime was shut down.
    pub fn shutdown() -> Error {
        Error { kind: Kind::Shutdown }
    }

    /// Returns whether the timer's runtime was shut down.
    pub fn is_shutdown(&self) -> bool {
        self.kind == Kind::Shutdown
    }

    /// Creates the error of a runtime that has no room for another timer.
    pub fn at_capacity() -> Error {
        Error { kind: Kind::AtCapacity }
    }

    /// Returns whether the runtime has no room for another timer.
    pub fn is_at_capacity(&self) -> bool {
        self.kind == Kind::AtCapacity
    }

    /// Creates the error of a timer with an invalid duration.
    pub fn invalid() -> Error {
        Error { kind: Kind::Invalid }
    }

    /// Returns whether the timer's duration is invalid.
    pub fn is_invalid(&self) -> bool {
        self.kind == Kind::Invalid
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self.kind {
            Kind::Shutdown => "the runtime of this timer was shut down",
            Kind::AtCapacity => "the runtime has no room for another timer",
            Kind::Invalid => "the duration of this timer is longer than a timer can wait",
        })
    }
}

impl error::Error for Error {}
