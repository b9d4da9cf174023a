//! The standard streams of the program, read and written on threads for blocking work.
//!
//! A read of standard input cannot be cancelled once it has started: its thread blocks in the
//! kernel until a line arrives. So a runtime that shuts down during such a read waits for it, up to
//! [`Builder::shutdown_timeout`](crate::Builder::shutdown_timeout) (10 s by default). To avoid that
//! wait, end with [`Runtime::shutdown_background`](crate::Runtime::shutdown_background), or read on
//! a dedicated thread.
//!
//! Rejected: non-blocking mode and the driver. The mode belongs to the open file, which the program
//! shares with the shell and with all other programs that write to the same terminal.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::io::offload::{Blocks, Offload, append};

impl Blocks for io::Stdin {
    fn read_some(&self, into: &mut Vec<u8>, max: usize) -> io::Result<usize> {
        into.resize(max, 0);
        let read = self.lock().read(into);
        into.truncate(*read.as_ref().unwrap_or(&0));
        read
    }
}

/// Flushes after each write, so that output is visible even without a newline.
impl Blocks for io::Stdout {
    fn write_whole(&self, bytes: &[u8]) -> io::Result<()> {
        let mut stdout = self.lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}

impl Blocks for io::Stderr {
    fn write_whole(&self, bytes: &[u8]) -> io::Result<()> {
        self.lock().write_all(bytes)
    }
}

/// Maximum number of bytes of one operation: more than a full screen, and little memory.
const MAX_BUF_BYTES: usize = 64 << 10;

fn offload<S: Blocks>(source: S) -> Offload<S> {
    let mut offload = Offload::new(source);
    offload.max_buf_size = MAX_BUF_BYTES;
    offload
}

/// A handle to the standard input of the program, created by [`stdin`].
#[derive(Debug)]
pub struct Stdin(Offload<io::Stdin>);

/// A handle to the standard output of the program, created by [`stdout`].
#[derive(Debug)]
pub struct Stdout(Offload<io::Stdout>);

/// A handle to the standard error of the program, created by [`stderr`].
#[derive(Debug)]
pub struct Stderr(Offload<io::Stderr>);

/// Returns a handle to the standard input of the program.
///
/// Use it for input that is piped into the program. Reads run on a thread of the blocking pool,
/// through the buffer that the standard library shares between all handles of the program. If
/// several handles read concurrently, each receives a part of the input.
///
/// **A read that waits cannot be cancelled**: the shutdown of the runtime waits for it, up to
/// [`Builder::shutdown_timeout`](crate::Builder::shutdown_timeout). For interactive input, use a
/// dedicated thread and a channel.
///
/// # Panics
/// Reads panic if they start outside the context of a runtime. This function does not.
///
/// ```no_run
/// use volt::io::{AsyncBufReadExt, BufReader};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let mut lines = BufReader::new(volt::io::stdin()).lines();
/// while let Some(line) = lines.next_line().await? {
///     println!("{line}");
/// }
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub fn stdin() -> Stdin {
    Stdin(offload(io::stdin()))
}

/// Returns a handle to the standard output of the program.
///
/// A write completes when its bytes are passed to the thread that writes them.
/// [`flush`](crate::io::AsyncWriteExt::flush) waits until that thread has written them, and returns
/// the error if it failed. Call `flush` after the last write: a program that calls
/// [`std::process::exit`] may otherwise lose it.
///
/// The bytes of one write stay together, also if several tasks write. A `write_all` of more than 64
/// KiB consists of several writes, between which other tasks may write.
///
/// # Panics
/// Writes panic if they start outside the context of a runtime. This function does not.
///
/// ```
/// use volt::io::AsyncWriteExt;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let mut stdout = volt::io::stdout();
/// stdout.write_all(b"hello\n").await?;
/// stdout.flush().await?;
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub fn stdout() -> Stdout {
    Stdout(offload(io::stdout()))
}

/// Returns a handle to the standard error of the program. Its writes behave like those of
/// [`stdout`].
pub fn stderr() -> Stderr {
    Stderr(offload(io::stderr()))
}

impl AsyncRead for Stdin {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, into)
    }
}

macro_rules! writes {
    ($stream:ident) => {
        impl AsyncWrite for $stream {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                self.0.poll_write(cx, |buffer, max| append(buffer, bytes, max))
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_flush(cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_flush(cx)
            }
        }
    };
}

writes!(Stdout);
writes!(Stderr);

macro_rules! descriptor {
    ($stream:ident) => {
        impl AsFd for $stream {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.source().as_fd()
            }
        }

        impl AsRawFd for $stream {
            fn as_raw_fd(&self) -> RawFd {
                self.0.source().as_raw_fd()
            }
        }
    };
}

descriptor!(Stdin);
descriptor!(Stdout);
descriptor!(Stderr);
