//! What hyper asks of a runtime: an executor, a timer, and sockets under hyper's own traits.
//!
//! [`VoltExecutor`], [`VoltTimer`] and [`VoltIo`] stand where hyper-util's `TokioExecutor`,
//! `TokioTimer` and `TokioIo` would; a whole server for axum is [`volt::axum`](crate::axum).
//!
//! Invariants. *Filled is initialised*: both kinds of buffer count as filled only what is. *Cursor
//! first*: bytes count as read only after the reader has filled them from the start of the cursor's
//! own memory, which is checked, since a reader could hand back another buffer.
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

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use ::hyper::rt::{Executor, Read, ReadBufCursor, Sleep, Timer, Write};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Runs hyper's background futures as tasks of the current runtime.
///
/// [`execute`](Executor::execute) panics outside a runtime, as [`volt::spawn`](crate::spawn) does.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct VoltExecutor {}

impl VoltExecutor {
    /// An executor; it finds the current runtime when it is used, not here.
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

/// Gives hyper the timers of the current runtime, for its time-outs.
///
/// Its sleeps panic outside a runtime, as [`volt::time::sleep`](crate::time::sleep) does.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct VoltTimer {}

impl VoltTimer {
    /// A timer; it finds the current runtime when it is used, not here.
    pub fn new() -> Self {
        Self {}
    }
}

impl Timer for VoltTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(VoltSleep { inner: crate::time::sleep(duration) })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(VoltSleep { inner: crate::time::sleep_until(deadline) })
    }

    /// By the clock that the sleeps go by; outside a runtime, where a client's pool may ask when it
    /// drops a connection, by the process's.
    fn now(&self) -> Instant {
        crate::Handle::try_current().map_or_else(Instant::now, |_| crate::time::now())
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<VoltSleep>() {
            Some(sleep) => sleep.get_mut().inner.reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

/// [`Sleep`](crate::time::Sleep) of Volt's with hyper's marker on it.
struct VoltSleep {
    inner: crate::time::Sleep,
}

impl Future for VoltSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.inner).poll(cx)
    }
}

impl Sleep for VoltSleep {}

pin_project! {
    /// A stream of Volt's (or any `AsyncRead + AsyncWrite`) under hyper's [`Read`] and [`Write`];
    /// and the other way round, so that what hyper gives away (`hyper::upgrade::Upgraded`) can be
    /// used as a stream.
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

    /// What is inside.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// What is inside, to change it.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Takes out what is inside.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: AsyncRead> Read for VoltIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut cursor: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        // SAFETY: Cursor first: the memory goes into a ReadBuf, which lets nobody make initialised
        // bytes uninitialised again.
        let memory = unsafe { cursor.as_mut() };
        let start = memory.as_ptr().cast::<u8>();
        let mut buffer = ReadBuf::uninit(memory);
        ready!(self.project().inner.poll_read(cx, &mut buffer))?;
        assert_eq!(buffer.filled().as_ptr(), start, "the reader put another buffer in place of the one that it got");
        let read = buffer.filled().len();
        // SAFETY: Cursor first: the assertion says that these `read` bytes lie at the cursor, and a
        // ReadBuf counts as filled only what is initialised.
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
        // SAFETY: Filled is initialised: the memory goes into a buffer of hyper's, which lets
        // nobody make initialised bytes uninitialised again.
        let memory = unsafe { buffer.unfilled_mut() };
        let mut within = ::hyper::rt::ReadBuf::uninit(memory);
        ready!(self.project().inner.poll_read(cx, within.unfilled()))?;
        let read = within.filled().len();
        // SAFETY: Filled is initialised: they are the first of the unfilled ones, since nobody can
        // put another buffer in `within`'s place, of which the reader had a cursor only.
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
