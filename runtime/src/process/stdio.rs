//! Pipes to the standard streams of a child process.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{self, Stdio};

use crate::net::surface::{reads, writes};
use crate::net::unix::pipe::{Receiver, Sender};

/// The standard input stream of a child process. Dropping it closes the pipe, so the child reads
/// the end of the stream.
#[derive(Debug)]
pub struct ChildStdin(Sender);

/// The standard output stream of a child process.
#[derive(Debug)]
pub struct ChildStdout(Receiver);

/// The standard error stream of a child process.
#[derive(Debug)]
pub struct ChildStderr(Receiver);

writes!(ChildStdin, self => self.0);
reads!(ChildStdout, self => self.0);
reads!(ChildStderr, self => self.0);

macro_rules! end {
    ($end:ident, $pipe:ident) => {
        impl $end {
            /// Converts a stream of the standard library, and sets it to non-blocking mode.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            ///
            /// # Panics
            /// Panics if called outside the context of a runtime.
            #[track_caller]
            pub fn from_std(end: process::$end) -> io::Result<$end> {
                Ok($end($pipe::from_owned_fd_unchecked(end.into())?))
            }

            /// Converts the stream into a file descriptor in blocking mode, which can be used as a
            /// standard stream of another child process.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            pub fn into_owned_fd(self) -> io::Result<OwnedFd> {
                self.0.into_blocking_fd()
            }
        }

        /// Equivalent to `into_owned_fd`.
        impl TryFrom<$end> for Stdio {
            type Error = io::Error;

            fn try_from(end: $end) -> io::Result<Stdio> {
                Ok(end.into_owned_fd()?.into())
            }
        }

        impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $end {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_raw_fd()
            }
        }
    };
}

end!(ChildStdin, Sender);
end!(ChildStdout, Receiver);
end!(ChildStderr, Receiver);
