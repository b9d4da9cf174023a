//! The standard streams of the process, on threads for blocking work.
//!
//! A read of standard input that has begun cannot be called back: its thread sits in the kernel
//! until a line comes. So a program that ends while one waits would wait for it, and does, as long
//! as [`Builder::shutdown_timeout`](crate::Builder::shutdown_timeout) says: 10 s if nothing else is
//! said. End with [`Runtime::shutdown_background`](crate::Runtime::shutdown_background), or read on
//! a thread of your own.
//!
//! Rejected: non-blocking mode with the driver: it belongs to the open file,
//! which the process shares with the shell and with whoever else writes to the same terminal.

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

/// What was written is to be seen, a line's end or not.
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

/// Most bytes of one operation: a screen and more, and no memory to speak of.
const MAX_BUF_BYTES: usize = 64 << 10;

fn offload<S: Blocks>(source: S) -> Offload<S> {
    let mut offload = Offload::new(source);
    offload.max_buf_size = MAX_BUF_BYTES;
    offload
}

/// Standard input; see [`stdin`].
#[derive(Debug)]
pub struct Stdin(Offload<io::Stdin>);

/// Standard output; see [`stdout`].
#[derive(Debug)]
pub struct Stdout(Offload<io::Stdout>);

/// Standard error; see [`stderr`].
#[derive(Debug)]
pub struct Stderr(Offload<io::Stderr>);

/// Standard input, for reading what is piped in: read on a thread for blocking work, through the
/// buffer that the standard library has for the whole process.
///
/// **A read that waits cannot be interrupted**: the runtime's shutdown waits for it, up to
/// [`Builder::shutdown_timeout`](crate::Builder::shutdown_timeout). For interactive use take a
/// thread of your own and a channel.
///
/// Of several handles that read at once each gets a part.
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

/// Standard output. A write is done with when its bytes are handed to the thread that writes;
/// `flush` waits until they are out, and gives the error if they are not.
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

/// Standard error; as [`stdout`].
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
