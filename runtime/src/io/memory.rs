//! Readers and writers in memory, and copies between them, which spend the cooperative budget.
//!
//! Tokio's types are always ready, and spend only the budget of Tokio's tasks: a task that copies
//! from [`repeat`] to [`sink`] would never yield. Each operation here that completes spends a unit
//! of the task's budget, like an operation of a socket.

use std::io::{IoSlice, Result, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use volt_core::coop;

use crate::task::coop::cooperative;

/// Polls an operation if a unit of the budget is left, which it spends if it completes.
fn poll_spend<T>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    let unit = ready!(coop::poll_proceed(cx));
    let output = ready!(poll(cx));
    unit.made_progress();
    Poll::Ready(output)
}

macro_rules! impl_read {
    ($name:ident) => {
        impl AsyncRead for $name {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
                let inner = Pin::new(&mut self.get_mut().0);
                poll_spend(cx, |cx| inner.poll_read(cx, buf))
            }
        }
    };
}

macro_rules! impl_write {
    ($name:ident) => {
        impl AsyncWrite for $name {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
                let inner = Pin::new(&mut self.get_mut().0);
                poll_spend(cx, |cx| inner.poll_write(cx, buf))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<Result<usize>> {
                let inner = Pin::new(&mut self.get_mut().0);
                poll_spend(cx, |cx| inner.poll_write_vectored(cx, bufs))
            }

            fn is_write_vectored(&self) -> bool {
                self.0.is_write_vectored()
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
                let inner = Pin::new(&mut self.get_mut().0);
                poll_spend(cx, |cx| inner.poll_flush(cx))
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
                let inner = Pin::new(&mut self.get_mut().0);
                poll_spend(cx, |cx| inner.poll_shutdown(cx))
            }
        }
    };
}

/// A reader that is always at its end, and a writer that discards all bytes. Created by [`empty`].
#[derive(Debug)]
#[must_use = "it does nothing unless it is read or written"]
pub struct Empty(tokio::io::Empty);

impl_read!(Empty);
impl_write!(Empty);

impl AsyncBufRead for Empty {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<&[u8]>> {
        poll_spend(cx, |_| Poll::Ready(Ok(&[][..])))
    }

    fn consume(self: Pin<&mut Self>, _amount: usize) {}
}

impl AsyncSeek for Empty {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> Result<()> {
        Pin::new(&mut self.get_mut().0).start_seek(position)
    }

    fn poll_complete(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        let inner = Pin::new(&mut self.get_mut().0);
        poll_spend(cx, |cx| inner.poll_complete(cx))
    }
}

/// Creates a reader that is always at its end. It is also a writer, which discards all bytes.
///
/// ```
/// use volt::io::AsyncReadExt;
///
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let mut text = String::new();
/// volt::io::empty().read_to_string(&mut text).await.unwrap();
/// assert!(text.is_empty());
/// # });
/// ```
pub fn empty() -> Empty {
    Empty(tokio::io::empty())
}

/// A reader that returns the same byte without end. Created by [`repeat`].
#[derive(Debug)]
#[must_use = "it does nothing unless it is read"]
pub struct Repeat(tokio::io::Repeat);

impl_read!(Repeat);

/// Creates a reader that returns `byte` without end: each read fills its whole buffer.
///
/// ```
/// use volt::io::AsyncReadExt;
///
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let mut bytes = [0; 3];
/// volt::io::repeat(7).read_exact(&mut bytes).await.unwrap();
/// assert_eq!(bytes, [7, 7, 7]);
/// # });
/// ```
pub fn repeat(byte: u8) -> Repeat {
    Repeat(tokio::io::repeat(byte))
}

/// A writer that discards all bytes. Created by [`sink`].
#[derive(Debug)]
#[must_use = "it does nothing unless it is written"]
pub struct Sink(tokio::io::Sink);

impl_write!(Sink);

/// Creates a writer that discards all bytes. A write never fails.
///
/// ```
/// use volt::io::AsyncReadExt;
///
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let mut thousand = volt::io::repeat(0).take(1_000);
/// assert_eq!(volt::io::copy(&mut thousand, &mut volt::io::sink()).await.unwrap(), 1_000);
/// # });
/// ```
pub fn sink() -> Sink {
    Sink(tokio::io::sink())
}

/// One end of a connection in memory. Created by [`duplex`].
///
/// If one end is dropped, the other end reads the bytes that are left, and then the end of the
/// stream. Writes to the other end fail with `BrokenPipe`.
#[derive(Debug)]
pub struct DuplexStream(tokio::io::DuplexStream);

impl_read!(DuplexStream);
impl_write!(DuplexStream);

/// Creates the two ends of a connection in memory.
///
/// Bytes that are written to one end can be read from the other. Each direction has a buffer of
/// `max_buf_size` bytes. A write waits while that buffer is full, until the other end reads.
///
/// # Panics
/// Panics if `max_buf_size` is 0.
///
/// ```
/// use volt::io::{AsyncReadExt, AsyncWriteExt};
///
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let (mut client, mut server) = volt::io::duplex(64);
/// client.write_all(b"ping").await.unwrap();
/// let mut bytes = [0; 4];
/// server.read_exact(&mut bytes).await.unwrap();
/// assert_eq!(&bytes, b"ping");
/// # });
/// ```
#[track_caller]
pub fn duplex(max_buf_size: usize) -> (DuplexStream, DuplexStream) {
    let (one, other) = tokio::io::duplex(max_buf_size);
    (DuplexStream(one), DuplexStream(other))
}

/// A pipe in memory, in one direction. Created by [`simplex`] and
/// [`new_unsplit`](Self::new_unsplit).
#[derive(Debug)]
pub struct SimplexStream(tokio::io::SimplexStream);

impl_read!(SimplexStream);
impl_write!(SimplexStream);

impl SimplexStream {
    /// Creates a pipe that is not split: bytes that are written to it can be read from it. A write
    /// waits while `max_buf_size` bytes are unread.
    ///
    /// # Panics
    /// Panics if `max_buf_size` is 0.
    ///
    /// ```
    /// use volt::io::{AsyncReadExt, AsyncWriteExt, SimplexStream};
    ///
    /// # let runtime = volt::Builder::new_current_thread().build().unwrap();
    /// # runtime.block_on(async {
    /// let mut pipe = SimplexStream::new_unsplit(64);
    /// pipe.write_all(b"log").await.unwrap();
    /// let mut bytes = [0; 3];
    /// pipe.read_exact(&mut bytes).await.unwrap();
    /// assert_eq!(&bytes, b"log");
    /// # });
    /// ```
    #[track_caller]
    pub fn new_unsplit(max_buf_size: usize) -> Self {
        Self(tokio::io::SimplexStream::new_unsplit(max_buf_size))
    }
}

/// Creates the reading and the writing end of a pipe in memory. A write waits while `max_buf_size`
/// bytes are unread.
///
/// Dropping the writer does not end the stream for the reader. Call
/// [`shutdown`](crate::io::AsyncWriteExt::shutdown) on the writer first.
///
/// # Panics
/// Panics if `max_buf_size` is 0.
///
/// ```
/// use volt::io::{AsyncReadExt, AsyncWriteExt};
///
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let (mut reader, mut writer) = volt::io::simplex(64);
/// writer.write_all(b"log").await.unwrap();
/// writer.shutdown().await.unwrap();
/// let mut text = String::new();
/// reader.read_to_string(&mut text).await.unwrap();
/// assert_eq!(text, "log");
/// # });
/// ```
#[track_caller]
pub fn simplex(max_buf_size: usize) -> (ReadHalf<SimplexStream>, WriteHalf<SimplexStream>) {
    tokio::io::split(SimplexStream::new_unsplit(max_buf_size))
}

/// Copies all bytes from `reader` to `writer`, and returns their number.
///
/// Reads until the end of the stream, through a buffer of 8 KiB, and then flushes `writer`. Does
/// not shut `writer` down. For another buffer size, see [`copy_buf`].
///
/// # Errors
/// Returns the first error of the reader or the writer. A read or a write that returns
/// `Interrupted` is repeated; a flush is not.
///
/// # Cancel safety
/// Not cancel safe: bytes that were read but not yet written are lost.
///
/// ```
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let (mut reader, mut writer) = (&b"hello"[..], Vec::new());
/// assert_eq!(volt::io::copy(&mut reader, &mut writer).await.unwrap(), 5);
/// assert_eq!(writer, b"hello");
/// # });
/// ```
pub async fn copy<'a, R, W>(reader: &'a mut R, writer: &'a mut W) -> Result<u64>
where
    R: AsyncRead + Unpin + ?Sized,
    W: AsyncWrite + Unpin + ?Sized,
{
    cooperative(tokio::io::copy(reader, writer)).await
}

/// Copies all bytes from `reader` to `writer` as [`copy`] does, through the buffer of `reader`.
///
/// # Errors
/// Same as [`copy`].
///
/// # Cancel safety
/// Cancel safe: bytes that were not written are still in the reader.
///
/// ```
/// use volt::io::BufReader;
///
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let mut reader = BufReader::with_capacity(64 * 1024, &b"hello"[..]);
/// let mut writer = Vec::new();
/// assert_eq!(volt::io::copy_buf(&mut reader, &mut writer).await.unwrap(), 5);
/// assert_eq!(writer, b"hello");
/// # });
/// ```
pub async fn copy_buf<'a, R, W>(reader: &'a mut R, writer: &'a mut W) -> Result<u64>
where
    R: AsyncBufRead + Unpin + ?Sized,
    W: AsyncWrite + Unpin + ?Sized,
{
    cooperative(tokio::io::copy_buf(reader, writer)).await
}
