//! The errors of [`AsyncFd`](super::AsyncFd).

use std::error::Error;
use std::fmt;
use std::io;

/// The error returned by [`AsyncFdReadyGuard::try_io`](super::AsyncFdReadyGuard::try_io) if the
/// operation would block.
#[derive(Debug)]
pub struct TryIoError {
    pub(super) _private: (),
}

impl fmt::Display for TryIoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attempt would have blocked")
    }
}

impl Error for TryIoError {}

/// The error returned by [`AsyncFd::try_new`](super::AsyncFd::try_new) if the descriptor cannot be
/// watched. Contains the inner object and the cause.
pub struct AsyncFdRegisterError<T> {
    pub(super) inner: T,
    pub(super) cause: io::Error,
}

/// The former name of [`AsyncFdRegisterError`].
#[deprecated(note = "use `AsyncFdRegisterError`")]
pub type AsyncFdTryNewError<T> = AsyncFdRegisterError<T>;

impl<T> AsyncFdRegisterError<T> {
    /// Returns the inner object and the cause of the error.
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
