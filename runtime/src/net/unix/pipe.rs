//! Unix pipes: anonymous pipes and named pipes (FIFOs).
//!
//! Writing to a pipe that has no receiver left returns an error of kind `BrokenPipe`. Unlike a
//! write to a socket, it also raises SIGPIPE, because for pipes no flag prevents that. Rust's
//! start-up code disables SIGPIPE; a program without that code must do so itself.

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

/// Creates a new anonymous pipe.
///
/// # Errors
/// Returns an error if the underlying system call fails.
///
/// # Panics
/// Panics if called outside the context of a runtime.
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

/// Options for opening a named pipe (FIFO).
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
    /// Creates a new set of options: opens for one direction, and accepts FIFOs only.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets whether the FIFO is opened for both reading and writing.
    ///
    /// The FIFO then always has both ends open. A receiver never sees the end of the stream, and a
    /// sender can be opened while there is no receiver.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn read_write(&mut self, value: bool) -> &mut Self {
        self.read_write = value;
        self
    }

    /// Sets whether a file that is not a FIFO is accepted.
    pub fn unchecked(&mut self, value: bool) -> &mut Self {
        self.unchecked = value;
        self
    }

    /// Opens the FIFO for reading.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the file is not a FIFO. Also returns an error if the underlying
    /// system call fails.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn open_receiver<P: AsRef<Path>>(&self, path: P) -> io::Result<Receiver> {
        Receiver::from_owned_fd_unchecked(self.open(path.as_ref(), fs::OpenOptions::new().read(true))?)
    }

    /// Opens the FIFO for writing.
    ///
    /// # Errors
    /// Returns the same errors as [`open_receiver`](Self::open_receiver). Returns an OS error
    /// `ENXIO` if no process has the FIFO open for reading.
    ///
    /// # Panics
    /// Panics if called outside the context of a runtime.
    #[track_caller]
    pub fn open_sender<P: AsRef<Path>>(&self, path: P) -> io::Result<Sender> {
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

/// The writing end of a pipe. The stream ends when it and all its duplicates are dropped.
#[derive(Debug)]
pub struct Sender {
    pub(crate) io: Registration<OwnedFd>,
}

/// The reading end of a pipe.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) io: Registration<OwnedFd>,
}

/// The conversions from and to descriptors, for both ends.
macro_rules! end {
    ($end:ident, $mode:ident, $interest:expr, $begin:expr) => {
        impl $end {
            /// Creates an end of a pipe from a file, and sets it to non-blocking mode.
            ///
            /// # Errors
            /// Returns `InvalidInput` if the file is not a pipe, or is not open for this direction.
            /// Also returns an error if the underlying system call fails.
            ///
            /// # Panics
            /// Panics if called outside the context of a runtime.
            #[track_caller]
            pub fn from_file(file: File) -> io::Result<$end> {
                Self::from_owned_fd(file.into())
            }

            /// Creates an end of a pipe from a descriptor, as [`from_file`](Self::from_file) does.
            ///
            /// # Errors
            /// Returns the same errors as [`from_file`](Self::from_file).
            ///
            /// # Panics
            /// Panics if called outside the context of a runtime.
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

            /// Creates an end of a pipe as [`from_file`](Self::from_file) does, without checking
            /// the file's type and mode.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            ///
            /// # Panics
            /// Panics if called outside the context of a runtime.
            #[track_caller]
            pub fn from_file_unchecked(file: File) -> io::Result<$end> {
                Self::from_owned_fd_unchecked(file.into())
            }

            /// Creates an end of a pipe as [`from_owned_fd`](Self::from_owned_fd) does, without
            /// checking the descriptor's type and mode.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            ///
            /// # Panics
            /// Panics if called outside the context of a runtime.
            #[track_caller]
            pub fn from_owned_fd_unchecked(fd: OwnedFd) -> io::Result<$end> {
                let driver = context::driver();
                rustix::io::ioctl_fionbio(&fd, true)?;
                let io = Registration::with_interest(driver, fd, $interest.to_mio(), $begin);
                Ok($end { io: io.map_err(|(_, error)| error)? })
            }

            /// Waits until the pipe is ready for at least one operation of `interest`, and returns
            /// the readiness found.
            ///
            /// # Errors
            /// Returns an error if the runtime has been shut down.
            ///
            /// # Cancel safety
            /// This method is cancel safe. It does not clear readiness, so a later call finds it
            /// again.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                Ok(Ready::of(self.io.ready(interest.awaited()).await?.found()))
            }

            /// Tries `operation`, a system call on this pipe, once if the pipe may be ready. If the
            /// call would block, the readiness is cleared, and the next wait is for a new event.
            ///
            /// # Errors
            /// Returns `ErrorKind::WouldBlock` if the pipe is not ready. Otherwise returns the
            /// error of `operation`.
            pub fn try_io<R>(&self, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                self.io.try_run($interest.awaited(), |_| operation())
            }

            /// Converts the pipe into a descriptor in blocking mode.
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
                let fd = self.into_nonblocking_fd()?;
                rustix::io::ioctl_fionbio(&fd, false)?;
                Ok(fd)
            }

            /// Converts the pipe into a descriptor in non-blocking mode.
            ///
            /// # Errors
            /// Returns an error if the descriptor cannot be removed from the runtime's driver.
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
    /// Waits until the pipe may have room to write, or has no receiver left.
    ///
    /// # Errors
    /// Returns an error if the runtime has been shut down.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn writable(&self) -> io::Result<()> {
        self.io.ready(Direction::Write).await.map(|_| ())
    }

    /// Polls for readiness as [`writable`](Self::writable) does. If several tasks poll for writing,
    /// only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx, Direction::Write).map_ok(|_| ())
    }

    /// Does nothing: the stream ends only when the descriptor is closed.
    pub(crate) fn shutdown_now(&self, _: Shutdown) -> io::Result<()> {
        Ok(())
    }
}

impl Receiver {
    /// Waits until the pipe may have data to read, or has reached the end of the stream.
    ///
    /// # Errors
    /// Returns an error if the runtime has been shut down.
    ///
    /// # Cancel safety
    /// This method is cancel safe. It does not clear readiness, so a later call finds it again.
    pub async fn readable(&self) -> io::Result<()> {
        self.io.ready(Direction::Read).await.map(|_| ())
    }

    /// Polls for readiness as [`readable`](Self::readable) does. If several tasks poll for reading,
    /// only the task that polled last is woken.
    ///
    /// # Errors
    /// Returns the same errors as [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_ready(cx, Direction::Read).map_ok(|_| ())
    }
}

tries_to_write!(io in Sender);
writes!(Sender, self => self);
tries_to_read!(io in Receiver);
reads!(Receiver, self => self);
