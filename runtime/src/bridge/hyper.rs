//! The runtime components that hyper requires: an executor, a timer and an I/O adapter.
//!
//! [`VoltExecutor`], [`VoltTimer`] and [`VoltIo`] correspond to hyper-util's `TokioExecutor`,
//! `TokioTimer` and `TokioIo`. For a complete axum server, see [`volt::axum`](crate::axum).
//!
//! ```
//! use http_body_util::{BodyExt, Empty};
//! use volt::hyper::{VoltExecutor, VoltIo, VoltTimer};
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let listener = volt::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
//! let address = listener.local_addr().unwrap();
//! volt::spawn(async move {
//!     let (stream, _) = listener.accept().await.unwrap();
//!     let hello = hyper::service::service_fn(async |_| Ok::<_, hyper::Error>(hyper::Response::new("hello".to_string())));
//!     hyper::server::conn::http1::Builder::new().timer(VoltTimer::new()).serve_connection(VoltIo::new(stream), hello).await
//! });
//!
//! let stream = volt::net::TcpStream::connect(address).await.unwrap();
//! let (mut sender, connection) = hyper::client::conn::http1::handshake(VoltIo::new(stream)).await.unwrap();
//! hyper::rt::Executor::execute(&VoltExecutor::new(), connection);
//! let request = hyper::Request::get("/").header("host", "localhost").body(Empty::<&[u8]>::new()).unwrap();
//! let response = sender.send_request(request).await.unwrap();
//! assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
//! # });
//! ```

// Invariants of the unsafe code, which converts between the read buffers of Tokio and of hyper:
// * FILLED IS INITIALISED: both kinds of buffer count only initialised bytes as filled.
// * CURSOR FIRST: bytes count as read only if the reader has filled them from the start of the
//   cursor's memory. This is checked, because a reader could return a different buffer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ::hyper::rt::{Executor, Read, ReadBufCursor, Sleep, Timer, Write};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use volt_core::context;
use volt_core::sleep::RawSleep;

/// Spawns hyper's background futures onto the current runtime.
///
/// [`execute`](Executor::execute) panics if called outside a runtime, like
/// [`volt::spawn`](crate::spawn).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct VoltExecutor {}

impl VoltExecutor {
    /// Creates an executor. It uses the runtime that is current when a future is executed.
    pub fn new() -> Self {
        Self {}
    }
}

impl<F> Executor<F> for VoltExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        crate::task::Builder::new().name("hyper").spawn(future);
    }
}

/// Implements hyper's [`Timer`] with the timers of the current runtime.
///
/// Its sleeps panic if created outside a runtime, like [`volt::time::sleep`](crate::time::sleep).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct VoltTimer {}

impl VoltTimer {
    /// Creates a timer. It uses the runtime that is current when a sleep is created.
    pub fn new() -> Self {
        Self {}
    }
}

impl Timer for VoltTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(VoltSleep { inner: RawSleep::after(context::timers(), duration) })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(VoltSleep { inner: RawSleep::until(context::timers(), deadline.into()) })
    }

    /// Returns the time of the runtime's clock, which the sleeps use. Does not panic outside a
    /// runtime: a client's connection pool may call this when it drops a connection.
    fn now(&self) -> Instant {
        crate::time::Instant::now().into_std()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<VoltSleep>() {
            Some(sleep) => sleep.get_mut().inner.reset(deadline.into()),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// A Volt [`Sleep`](crate::time::Sleep) that implements hyper's `Sleep` trait.
struct VoltSleep {
    inner: RawSleep,
}

impl Future for VoltSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

impl Sleep for VoltSleep {}

pin_project! {
    /// Adapts an `AsyncRead + AsyncWrite` stream to hyper's [`Read`] and [`Write`], and the
    /// reverse.
    ///
    /// The reverse direction makes a stream out of hyper's I/O types, such as
    /// `hyper::upgrade::Upgraded`.
    #[derive(Debug)]
    pub struct VoltIo<T> {
        #[pin]
        inner: T,
    }
}

impl<T> VoltIo<T> {
    /// Wraps `inner`.
    pub fn new(inner: T) -> Self {
        Self { inner }
    }

    /// Returns a reference to the wrapped value.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Returns a mutable reference to the wrapped value.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Consumes the adapter and returns the wrapped value.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: AsyncRead> Read for VoltIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut cursor: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        // SAFETY: CURSOR FIRST. The memory goes into a ReadBuf, whose safe API cannot make
        // initialised bytes uninitialised again.
        let memory = unsafe { cursor.as_mut() };
        let start = memory.as_ptr().cast::<u8>();
        let mut buffer = ReadBuf::uninit(memory);
        ready!(self.project().inner.poll_read(cx, &mut buffer))?;
        assert_eq!(buffer.filled().as_ptr(), start, "the reader put another buffer in place of the one that it got");
        let read = buffer.filled().len();
        // SAFETY: CURSOR FIRST. The assertion proves that these `read` bytes lie at the cursor, and
        // a ReadBuf counts only initialised bytes as filled.
        unsafe { cursor.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> Write for VoltIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write_vectored(cx, slices)
    }
}

impl<T: Read> AsyncRead for VoltIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // SAFETY: FILLED IS INITIALISED. The memory goes into hyper's buffer, whose safe API cannot
        // make initialised bytes uninitialised again.
        let memory = unsafe { buffer.unfilled_mut() };
        let mut within = ::hyper::rt::ReadBuf::uninit(memory);
        ready!(self.project().inner.poll_read(cx, within.unfilled()))?;
        let read = within.filled().len();
        // SAFETY: FILLED IS INITIALISED. These are the first of the unfilled bytes: the reader had
        // only a cursor and could not replace `within` by another buffer.
        unsafe { buffer.assume_init(read) };
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<T: Write> AsyncWrite for VoltIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().inner.poll_write_vectored(cx, slices)
    }
}
