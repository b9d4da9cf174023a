//! The ends of pipes to a child's standard streams.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::{self, Stdio};

use crate::net::surface::{reads, writes};
use crate::net::unix::pipe::{Receiver, Sender};

/// A pipe to a child's standard input. Dropping it tells the child that nothing more comes.
#[derive(Debug)]
pub struct ChildStdin(Sender);

/// A pipe from a child's standard output.
#[derive(Debug)]
pub struct ChildStdout(Receiver);

/// A pipe from a child's standard error.
#[derive(Debug)]
pub struct ChildStderr(Receiver);

writes!(ChildStdin, self => self.0);
reads!(ChildStdout, self => self.0);
reads!(ChildStderr, self => self.0);

macro_rules! end {
    ($end:ident, $pipe:ident) => {
        impl $end {
            /// Takes over the standard library's, and puts it into non-blocking mode.
            ///
            /// # Errors
            /// What the system says.
            ///
            /// # Panics
            /// Outside a runtime.
            #[track_caller]
            pub fn from_std(end: process::$end) -> io::Result<$end> {
                Ok($end($pipe::from_owned_fd_unchecked(end.into())?))
            }

            /// Gives the descriptor away, in blocking mode, as it is for another child's standard
            /// stream.
            ///
            /// # Errors
            /// What the system says.
            pub fn into_owned_fd(self) -> io::Result<OwnedFd> {
                self.0.into_blocking_fd()
            }
        }

        /// As `into_owned_fd`.
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
