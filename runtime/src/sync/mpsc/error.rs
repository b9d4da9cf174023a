//! Channel error types.

use std::fmt;

#[doc(no_inline)]
#[expect(deprecated, reason = "Tokio still has it, for code that names it")]
pub use tokio::sync::mpsc::error::RecvError;
#[doc(no_inline)]
pub use tokio::sync::mpsc::error::{SendError, TryRecvError, TrySendError};

/// Error returned by [`Sender::send_timeout`](super::Sender::send_timeout). It contains the
/// value that was not sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// The channel stayed full for the whole timeout.
    Timeout(T),
    /// The receiver is dropped or closed.
    Closed(T),
}

impl<T> SendTimeoutError<T> {
    /// Returns the value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(value) | SendTimeoutError::Closed(value) => value,
        }
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "Timeout(..)",
            SendTimeoutError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "timed out while waiting for capacity in the channel",
            SendTimeoutError::Closed(_) => "channel closed",
        })
    }
}

impl<T> std::error::Error for SendTimeoutError<T> {}
