//! Pipes, with and without a name.
//!
//! Writing to a pipe that nobody reads any more is an error of kind `BrokenPipe` and, unlike a
//! socket's, a SIGPIPE where the host process has not switched that off, as Rust's start-up code
//! does: there is no flag for it.

use std::fs::{self, File};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::task::{Context, Poll};

use rustix::fs::OFlags;

use crate::io::{Interest, Ready};
use crate::net::surface::{reads, tries_to_read, tries_to_write, writes};
use volt_core::context;
use volt_core::driver::readiness::{Direction, Flags};
use volt_core::driver::registration::Registration;

/// A new pipe.
///
/// # Errors
/// What the system says.
///
/// # Panics
/// Outside a runtime.
///
/// ```
/// use volt::io::{AsyncReadExt, AsyncWriteExt};
/// use volt::net::unix::pipe;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let (mut sender, mut receiver) = pipe::pipe()?;
/// sender.write_all(b"ping").await?;
/// drop(sender);
/// let mut text = String::new();
/// receiver.read_to_string(&mut text).await?;
/// assert_eq!(text, "ping");
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[track_caller]
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    let (receiver, sender) = io::pipe()?;
    Ok((Sender::from_owned_fd_unchecked(sender.into())?, Receiver::from_owned_fd_unchecked(receiver.into())?))
}

/// How a pipe with a name (a FIFO) is opened.
///
/// ```no_run
/// use volt::net::unix::pipe;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let receiver = pipe::OpenOptions::new().open_receiver("/run/service.fifo")?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read_write: bool,
    unchecked: bool,
}

impl OpenOptions {
    /// For one direction, and for nothing that is no FIFO.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Whether it is opened for both directions: then the other end is always there. A receiver
    /// never sees the end of the stream, and a sender need not wait for a receiver.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn read_write(&mut self, value: bool) -> &mut Self {
        self.read_write = value;
        self
    }

    /// Whether the file may be no FIFO.
    pub fn unchecked(&mut self, value: bool) -> &mut Self {
        self.unchecked = value;
        self
    }

    /// Opens it for reading.
    ///
    /// # Errors
    /// `InvalidInput` if it is no FIFO; what the system says.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn open_receiver(&self, path: impl AsRef<Path>) -> io::Result<Receiver> {
        Receiver::from_owned_fd_unchecked(self.open(path.as_ref(), fs::OpenOptions::new().read(true))?)
    }

    /// Opens it for writing.
    ///
    /// # Errors
    /// As [`open_receiver`](Self::open_receiver); and `ENXIO` if nobody has it open for reading.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn open_sender(&self, path: impl AsRef<Path>) -> io::Result<Sender> {
        Sender::from_owned_fd_unchecked(self.open(path.as_ref(), fs::OpenOptions::new().write(true))?)
    }

    fn open(&self, path: &Path, options: &mut fs::OpenOptions) -> io::Result<OwnedFd> {
        if self.read_write {
            options.read(true).write(true);
        }
        let file = options.custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
        if !self.unchecked && !file.metadata()?.file_type().is_fifo() {
            return Err(no_pipe());
        }
        Ok(file.into())
    }
}

fn no_pipe() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a pipe")
}

/// The end of a pipe that is written to. Dropping it, and its copies, ends the stream.
#[derive(Debug)]
pub struct Sender {
    pub(crate) io: Registration<OwnedFd>,
}

/// The end of a pipe that is read.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) io: Registration<OwnedFd>,
}

/// What an end is made from, and what becomes of it.
macro_rules! end {
    ($end:ident, $mode:ident, $interest:expr, $begin:expr) => {
        impl $end {
            /// Takes over a file, and puts it into non-blocking mode.
            ///
            /// # Errors
            /// `InvalidInput` if it is no pipe, or open for the other direction only; what the
            /// system says.
            ///
            /// # Panics
            /// Outside a runtime.
            #[track_caller]
            pub fn from_file(file: File) -> io::Result<$end> {
                Self::from_owned_fd(file.into())
            }

            /// As [`from_file`](Self::from_file), of a descriptor.
            ///
            /// # Errors
            /// As [`from_file`](Self::from_file).
            ///
            /// # Panics
            /// Outside a runtime.
            #[track_caller]
            pub fn from_owned_fd(fd: OwnedFd) -> io::Result<$end> {
                let file = File::from(fd);
                if !file.metadata()?.file_type().is_fifo() {
                    return Err(no_pipe());
                }
                let mode = rustix::fs::fcntl_getfl(&file)? & OFlags::RWMODE;
                if mode != OFlags::$mode && mode != OFlags::RDWR {
                    let text = "this end of the pipe is for the other direction";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
                }
                Self::from_owned_fd_unchecked(file.into())
            }

            /// As [`from_file`](Self::from_file), without a check of what it is.
            ///
            /// # Errors
            /// What the system says.
            ///
            /// # Panics
            /// Outside a runtime.
            #[track_caller]
            pub fn from_file_unchecked(file: File) -> io::Result<$end> {
                Self::from_owned_fd_unchecked(file.into())
            }

            /// As [`from_owned_fd`](Self::from_owned_fd), without a check of what it is.
            ///
            /// # Errors
            /// What the system says.
            ///
            /// # Panics
            /// Outside a runtime.
            #[track_caller]
            pub fn from_owned_fd_unchecked(fd: OwnedFd) -> io::Result<$end> {
                let driver = context::driver();
                rustix::io::ioctl_fionbio(&fd, true)?;
                let io = Registration::with_interest(driver, fd, $interest.to_mio(), $begin);
                Ok($end { io: io.map_err(|(_, error)| error)? })
            }

            /// Waits until something of `interest` may be done; what was found.
            ///
            /// # Errors
            /// The runtime was shut down.
            ///
            /// # Cancel safety
            /// Nothing is lost.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                Ok(Ready::of(self.io.ready(interest.awaited()).await?.found()))
            }

            /// One attempt of `operation`, a system call on this pipe, if it may succeed. Where it
            /// would have blocked, that is noted down for the next wait.
            ///
            /// # Errors
            /// `ErrorKind::WouldBlock` if the pipe is not ready; else what `operation` says.
            pub fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                self.io.try_run($interest.awaited(), |_| operation())
            }

            /// Gives the descriptor away, in blocking mode.
            ///
            /// # Errors
            /// What the system says.
            pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
                let fd = self.into_nonblocking_fd()?;
                rustix::io::ioctl_fionbio(&fd, false)?;
                Ok(fd)
            }

            /// Gives the descriptor away, in non-blocking mode.
            ///
            /// # Errors
            /// What the system says when it leaves the runtime's driver.
            pub fn into_nonblocking_fd(self) -> io::Result<OwnedFd> {
                self.io.into_source()
            }
        }

        impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.io.source().as_fd()
            }
        }

        impl AsRawFd for $end {
            fn as_raw_fd(&self) -> RawFd {
                self.io.source().as_raw_fd()
            }
        }
    };
}

end!(Sender, WRONLY, Interest::WRITABLE, Flags::WRITABLE);
end!(Receiver, RDONLY, Interest::READABLE, Flags::NONE);

impl Sender {
    /// Waits until there may be room to write, or nobody reads any more.
    ///
    /// # Errors
    /// The runtime was shut down.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.ready(Direction::Write).await.map(|_| ())
    }

    /// Polls as [`writable`](Self::writable). Of several tasks that do so, the last one is woken.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx, Direction::Write).map_ok(|_| ())
    }

    /// A pipe ends when it is closed, and not before.
    pub(crate) fn shutdown_now(&self, _: Shutdown) -> io::Result<()> {
        Ok(())
    }
}

impl Receiver {
    /// Waits until there may be something to read, the end of the stream included.
    ///
    /// # Errors
    /// The runtime was shut down.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn readable(&self) -> io::Result<()> {
        self.io.ready(Direction::Read).await.map(|_| ())
    }

    /// Polls as [`readable`](Self::readable). Of several tasks that do so, the last one is woken.
    ///
    /// # Errors
    /// As [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx, Direction::Read).map_ok(|_| ())
    }
}

tries_to_write!(io in Sender);
writes!(Sender, self => self);
tries_to_read!(io in Receiver);
reads!(Receiver, self => self);
