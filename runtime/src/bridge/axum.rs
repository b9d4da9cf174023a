//! Serves axum routers (or any tower service) over HTTP/1 on Volt: what `axum::serve`, which is bound to Tokio, is there.
//!
//! Shape: one task accepts; each connection is a task named `http PEER` and located where [`serve`] was called,
//! so that the console says whose it is.
//!
//! Bounds. Connections: [`Serve::max_connections`]; at the limit the server stops accepting, and the rest waits in the kernel's
//! backlog. A head: [`Serve::max_header_bytes`], answered with 431. Time for a head, and between two requests on a connection:
//! [`Serve::header_read_timeout`], after which the connection is closed; so half-open connections go away. Bodies and the time
//! that a handler takes are the service's own business (axum's `DefaultBodyLimit`, tower's `timeout`).
//!
//! Not served: HTTP/2 and upgrades (WebSocket).
//!
//! Out of file descriptors: [`TcpListener::accept`] backs off and counts; nothing ends.
//!
//! Rejected: hyper-util's `auto` builder (it reads the first bytes to tell HTTP/2, without a time limit on them); answering 503
//! at the connection limit (it costs the descriptor that the limit is there to save).

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ::axum::body::Body;
use ::axum::extract::Request;
use ::axum::response::Response;
use ::hyper::body::Incoming;
use ::hyper::server::conn::http1;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tower_service::Service;

use super::hyper::{VoltIo, VoltTimer};
use crate::net::{TcpListener, TcpStream};

/// Connections served at once, unless told otherwise. Below the usual limit of 1,024 file descriptors a process.
const MAX_CONNECTIONS: usize = 900;
/// Time for the head of a request, unless told otherwise: hyper's own default.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest head of a request, unless told otherwise; larger than what browsers send, cookies included.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Serves `service`, an axum `Router` as a rule, to everybody who connects to `listener`.
///
/// Awaiting it serves until the listener fails (or, with [`Serve::with_graceful_shutdown`], until the signal).
///
/// # Errors
///
/// A setting of [`Serve`] that cannot work ([`io::ErrorKind::InvalidInput`], with its name and a remedy), or what the listener
/// failed with for good, as when the runtime shuts down. Failures of single connections end those only.
///
/// # Cancel safety
///
/// Dropping the future stops accepting and closes the listener; open connections answer the request they are in, then close.
///
/// ```
/// use axum::{Router, routing::get};
///
/// # async fn example() -> std::io::Result<()> {
/// let router = Router::new().route("/", get(|| async { "hello" }));
/// let listener = volt::net::TcpListener::bind("127.0.0.1:0").await?;
/// volt::axum::serve(listener, router).await
/// # }
/// ```
#[track_caller]
pub fn serve<S>(listener: TcpListener, service: S) -> Serve<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let settings = Settings {
        max_connections: MAX_CONNECTIONS,
        header_read_timeout: HEADER_READ_TIMEOUT,
        max_header_bytes: MAX_HEADER_BYTES,
    };
    Serve { listener, service, settings, location: Location::caller() }
}

/// A server that is ready to be awaited; see [`serve`].
#[must_use = "a server does nothing until it is awaited"]
pub struct Serve<S> {
    listener: TcpListener,
    service: S,
    settings: Settings,
    location: &'static Location<'static>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    max_connections: usize,
    header_read_timeout: Duration,
    max_header_bytes: usize,
}

impl<S> Serve<S> {
    /// Connections served at once; more wait in the kernel's backlog. At least 1; 900 unless set.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.settings.max_connections = max;
        self
    }

    /// Time for the head of a request, counted from the connection's start or the end of the request before. Above 0; 30 s
    /// unless set.
    pub fn header_read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.header_read_timeout = timeout;
        self
    }

    /// Bytes that the head of a request may have; a larger one is answered with 431. At least 1; 64 KiB unless set.
    pub fn max_header_bytes(mut self, max: usize) -> Self {
        self.settings.max_header_bytes = max;
        self
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `signal` resolves; then accepts no more, closes idle connections, and ends with `Ok` when the last request
    /// has been answered.
    ///
    /// Nothing bounds that last wait here: put [`volt::time::timeout`](crate::time::timeout) around it if something must.
    pub fn with_graceful_shutdown<F>(self, signal: F) -> WithGracefulShutdown<S, F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        WithGracefulShutdown { serve: self, signal }
    }
}

impl<S> fmt::Debug for Serve<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("listener", &self.listener)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<S> IntoFuture for Serve<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture(Box::pin(run(self, std::future::pending())))
    }
}

/// A server that ends gracefully; see [`Serve::with_graceful_shutdown`].
#[must_use = "a server does nothing until it is awaited"]
pub struct WithGracefulShutdown<S, F> {
    serve: Serve<S>,
    signal: F,
}

impl<S, F> WithGracefulShutdown<S, F> {
    /// Where it listens.
    ///
    /// # Errors
    ///
    /// What the operating system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.serve.local_addr()
    }
}

impl<S, F> fmt::Debug for WithGracefulShutdown<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithGracefulShutdown").field("serve", &self.serve).finish_non_exhaustive()
    }
}

impl<S, F> IntoFuture for WithGracefulShutdown<S, F>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    F: Future<Output = ()> + Send + 'static,
{
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture(Box::pin(run(self.serve, self.signal)))
    }
}

/// The future of a server.
pub struct ServeFuture(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>);

impl Future for ServeFuture {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ServeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServeFuture")
    }
}

async fn run<S>(serve: Serve<S>, signal: impl Future<Output = ()>) -> io::Result<()>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let Serve { listener, service, settings, location } = serve;
    settings.check()?;
    let mut signal = pin!(signal);
    let limit = Limit::new(settings.max_connections);
    let graceful = GracefulShutdown::new();
    loop {
        let next = async {
            let permit = limit.acquire().await;
            (permit, listener.accept().await)
        };
        let Some((permit, accepted)) = unless(signal.as_mut(), pin!(next)).await else { break };
        let (stream, peer) = accepted?;
        let connection = serve_connection(stream, service.clone(), settings, graceful.watcher(), permit);
        crate::task::Builder::new().name(&format!("http {peer}")).location(location).spawn(connection);
    }
    drop(listener);
    graceful.shutdown().await;
    Ok(())
}

/// `next`'s output, or `None` if `signal` comes first.
async fn unless<T>(
    mut signal: Pin<&mut impl Future<Output = ()>>,
    mut next: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| match signal.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => next.as_mut().poll(cx).map(Some),
    })
    .await
}

async fn serve_connection<S>(stream: TcpStream, service: S, settings: Settings, watcher: Watcher, permit: Permit)
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    // Answers are written whole; waiting for more to send with them would only delay them. Refused = a connection that is gone.
    let _is_set = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(VoltTimer::new())
        .header_read_timeout(settings.header_read_timeout)
        .max_header_size(settings.max_header_bytes)
        .serve_connection(VoltIo::new(stream), TowerToHyperService::new(WithBody(service)));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(target: "volt::http", %error, "connection ended");
    }
    drop(permit);
}

impl Settings {
    fn check(&self) -> io::Result<()> {
        let refuse = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        match self {
            Settings { max_connections: 0, .. } => refuse("max_connections is 0: nobody could connect; set at least 1"),
            Settings { max_header_bytes: 0, .. } => {
                refuse("max_header_bytes is 0: no request would fit; set at least some hundred")
            }
            Settings { header_read_timeout: Duration::ZERO, .. } => {
                refuse("header_read_timeout is 0 s: no request could come in time; set at least some milliseconds")
            }
            _ => Ok(()),
        }
    }
}

/// Gives a service that takes axum's bodies the bodies that hyper reads.
#[derive(Clone)]
struct WithBody<S>(S);

impl<S: Service<Request>> Service<::hyper::Request<Incoming>> for WithBody<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: ::hyper::Request<Incoming>) -> S::Future {
        self.0.call(request.map(Body::new))
    }
}

/// Counts connections, for the one task that accepts them.
#[derive(Clone)]
struct Limit(Arc<Mutex<Open>>);

struct Open {
    /// Permits left.
    free: usize,
    /// The task that waits for one; there is only one that accepts.
    waiter: Option<Waker>,
}

impl Limit {
    fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Open { free: max, waiter: None })))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more connection is allowed.
    async fn acquire(&self) -> Permit {
        poll_fn(|cx| {
            let mut open = self.open();
            if open.free == 0 {
                open.waiter = Some(cx.waker().clone());
                return Poll::Pending;
            }
            open.free -= 1;
            Poll::Ready(Permit(self.clone()))
        })
        .await
    }
}

/// The right to one connection; given back on drop.
struct Permit(Limit);

impl Drop for Permit {
    fn drop(&mut self) {
        let waiter = {
            let mut open = self.0.open();
            open.free += 1;
            open.waiter.take()
        };
        waiter.into_iter().for_each(Waker::wake);
    }
}
