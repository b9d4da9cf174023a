//! Serves axum routers, or any tower service, on Volt; the counterpart of `axum::serve`, which
//! requires Tokio.
//!
//! Supports HTTP/1, and with the feature `http2` also HTTP/2 without TLS (h2c).
//!
//! One task accepts connections. Each connection is served by a task with the name `http PEER` and
//! the spawn location of the [`serve`] call, so `volt-console` shows which server it belongs to.
//!
//! # Limits
//!
//! | quantity | limit | when exceeded |
//! |---|---|---|
//! | open connections | [`Serve::max_connections`] | further connections wait in the kernel's backlog |
//! | size of a request head | [`Serve::max_header_bytes`] | the server responds with status 431 |
//! | time for a request head, and idle time between requests | [`Serve::header_read_timeout`] | the connection is closed |
//! | time in which the client does not read a response | [`Serve::write_timeout`], if set | the connection is closed |
//! | HTTP/2: time for the client preface (24 bytes) | [`Serve::header_read_timeout`] | the connection is closed |
//! | HTTP/2: time until the client replies to a ping | 20 s | the connection is closed |
//!
//! The server does not limit the size of bodies or the run time of handlers. Set these limits in
//! your service, with axum's `DefaultBodyLimit` and tower's `timeout`.
//!
//! When an HTTP/1 connection is upgraded (WebSocket), its handler takes it over. From then on, it
//! does not count towards [`Serve::max_connections`], and a graceful shutdown does not wait for it.
//!
//! When the program runs out of file descriptors, [`TcpListener::accept`] retries with a backoff
//! and counts the failures; the server keeps running.
//!
//! # Routes
//!
//! The requests of a `Router` that is passed to [`serve`] are counted by method and matched path:
//! see [`Snapshot::routes`](crate::telemetry::Snapshot::routes). The console and the metrics show
//! them, and a poll that blocks its worker is reported with its route. Other services, such as the
//! result of `into_make_service_with_connect_info`, need a layer: see [`RouteLayer`].
//!
//! # Shutdown
//!
//! A graceful shutdown takes three steps:
//!
//! 1. The server closes the listener and notifies all connections.
//! 2. Each connection closes after the response to its current request. A request that has arrived
//!    by then counts as current.
//! 3. The server's future completes when all connections are closed.
//!
//! Dropping the server's future closes the connections in the same way, but does not wait for them.

// Rejected: hyper-util's `auto` builder, which reads the first bytes without a time limit; its
// `GracefulShutdown`, which does not accept connections with upgrades; a response 503 at the
// connection limit, which costs the file descriptor that the limit is meant to save.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use ::axum::Router;
use ::axum::extract::Request;
use ::axum::response::Response;
use tower_service::Service;

use crate::net::TcpListener;
use crate::sync::watch;

mod limit;

mod connection;
mod route;

use connection::{Settings, serve_connection, unless};
use limit::Limit;
pub use route::{RouteFuture, RouteLayer, RouteService};

/// Default maximum of open connections. Below the usual limit of 1,024 file descriptors per
/// program.
const MAX_CONNECTIONS: usize = 900;
/// Default time for the head of a request; the same as hyper's.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Practically unlimited, but small enough that hyper can add it to an `Instant` without overflow.
const MAX_HEADER_READ_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);
/// Default maximum size of a request head. Larger than what browsers send, including cookies.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// A service for all connections, or a service that creates a service for each connection.
///
/// [`serve`] accepts both. `Kind` distinguishes them and is always inferred.
pub trait MakeConnectionService<Kind>: Send + 'static {
    /// The service for one connection.
    type Service: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static;

    /// Returns the service for a connection from `peer`.
    fn make(&mut self, peer: SocketAddr) -> impl Future<Output = Self::Service> + Send;
}

/// The [`MakeConnectionService`] kind of a service that serves all connections, such as a `Router`.
#[derive(Debug)]
pub enum ForAll {}

/// The [`MakeConnectionService`] kind of a service that creates a service for each peer address,
/// such as the result of `Router::into_make_service_with_connect_info`.
#[derive(Debug)]
pub enum ForEach {}

impl<S> MakeConnectionService<ForAll> for S
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    type Service = S;

    async fn make(&mut self, _peer: SocketAddr) -> S {
        self.clone()
    }
}

impl<M, S> MakeConnectionService<ForEach> for M
where
    M: Service<SocketAddr, Response = S, Error = Infallible, Future: Send> + Send + 'static,
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    type Service = S;

    async fn make(&mut self, peer: SocketAddr) -> S {
        let Ok(()) = poll_fn(|cx| self.poll_ready(cx)).await;
        let Ok(service) = self.call(peer).await;
        service
    }
}

/// Serves `service`, usually an axum `Router`, on the connections that `listener` accepts.
///
/// `service` can also be a service that creates a service for each connection. For example, pass
/// `router.into_make_service_with_connect_info::<SocketAddr>()` (axum's feature `tokio`) to let
/// handlers extract `ConnectInfo<SocketAddr>`.
///
/// Awaiting the returned [`Serve`] runs the server until the listener fails. With
/// [`Serve::with_graceful_shutdown`] it also stops when the signal resolves.
///
/// # Errors
///
/// Returns [`io::ErrorKind::InvalidInput`] if a setting of [`Serve`] is invalid; the message names
/// the setting and a remedy. Returns the error of the listener if the listener fails permanently,
/// for example because the runtime shuts down. A failure of one connection ends only that
/// connection.
///
/// # Cancel safety
///
/// Dropping the future stops accepting and closes the listener. Open connections finish their
/// current request, then close.
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
pub fn serve<M, Kind>(listener: TcpListener, service: M) -> Serve<M, Kind>
where
    M: MakeConnectionService<Kind>,
{
    let settings = Settings {
        counts_routes: true,
        max_connections: MAX_CONNECTIONS,
        header_read_timeout: HEADER_READ_TIMEOUT,
        write_timeout: None,
        max_header_bytes: MAX_HEADER_BYTES,
    };
    Serve { listener, service, settings, location: Location::caller(), _kind: PhantomData }
}

/// A server that runs when it is awaited; see [`serve`].
#[must_use = "a server does nothing until it is awaited"]
pub struct Serve<M, Kind> {
    listener: TcpListener,
    service: M,
    settings: Settings,
    location: &'static Location<'static>,
    _kind: PhantomData<fn() -> Kind>,
}

impl<M, Kind> Serve<M, Kind> {
    /// Sets the maximum number of open connections. Further ones wait in the kernel's backlog.
    ///
    /// Must be at least 1. The default is 900.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.settings.max_connections = max;
        self
    }

    /// Sets the time limit for the head of a request, counted from the start of the connection or
    /// the end of the previous request.
    ///
    /// Must be greater than zero. The default is 30 seconds; the maximum is one year.
    pub fn header_read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.header_read_timeout = timeout.min(MAX_HEADER_READ_TIMEOUT);
        self
    }

    /// Sets how long a write may wait for the client to read before the connection is closed.
    ///
    /// This also applies to upgraded connections. With HTTP/2 it applies to the connection as a
    /// whole: a single stream that waits for flow-control window does not time out. Must be greater
    /// than zero. The default is no limit.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.settings.write_timeout = Some(timeout);
        self
    }

    /// Sets the maximum size of a request head in bytes. The server responds to larger ones with
    /// status 431.
    ///
    /// Must be at least 1. The default is 64 KiB.
    pub fn max_header_bytes(mut self, max: usize) -> Self {
        self.settings.max_header_bytes = max;
        self
    }

    /// Sets whether the requests of a `Router` are counted by route. The default is true.
    ///
    /// Counting takes less than a microsecond per request.
    pub fn count_routes(mut self, enable: bool) -> Self {
        self.settings.counts_routes = enable;
        self
    }

    /// Returns the local address of the listener.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Shuts the server down gracefully when `signal` resolves.
    ///
    /// The server then stops accepting, closes idle connections, and returns `Ok` after the last
    /// request has been answered. That wait has no time limit: use
    /// [`volt::time::timeout`](crate::time::timeout) to set one.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    ///
    /// # async fn example() -> std::io::Result<()> {
    /// let router = Router::new().route("/", get(|| async { "hello" }));
    /// let listener = volt::net::TcpListener::bind("127.0.0.1:0").await?;
    /// let interrupted = async { drop(volt::signal::ctrl_c().await) };
    /// volt::axum::serve(listener, router).with_graceful_shutdown(interrupted).await
    /// # }
    /// ```
    pub fn with_graceful_shutdown<F>(self, signal: F) -> WithGracefulShutdown<M, Kind, F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        WithGracefulShutdown { serve: self, signal }
    }
}

impl<M, Kind> fmt::Debug for Serve<M, Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("listener", &self.listener)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<M, Kind> IntoFuture for Serve<M, Kind>
where
    M: MakeConnectionService<Kind>,
    Kind: 'static,
{
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture(Box::pin(run(self, std::future::pending())))
    }
}

/// A server with graceful shutdown; see [`Serve::with_graceful_shutdown`].
#[must_use = "a server does nothing until it is awaited"]
pub struct WithGracefulShutdown<M, Kind, F> {
    serve: Serve<M, Kind>,
    signal: F,
}

impl<M, Kind, F> WithGracefulShutdown<M, Kind, F> {
    /// Returns the local address of the listener.
    ///
    /// # Errors
    ///
    /// Returns the error of the operating system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.serve.local_addr()
    }
}

impl<M, Kind, F> fmt::Debug for WithGracefulShutdown<M, Kind, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithGracefulShutdown").field("serve", &self.serve).finish_non_exhaustive()
    }
}

impl<M, Kind, F> IntoFuture for WithGracefulShutdown<M, Kind, F>
where
    M: MakeConnectionService<Kind>,
    Kind: 'static,
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

async fn run<M, Kind>(serve: Serve<M, Kind>, signal: impl Future<Output = ()>) -> io::Result<()>
where
    M: MakeConnectionService<Kind>,
{
    let Serve { listener, mut service, settings, location, .. } = serve;
    settings.check()?;
    if settings.counts_routes
        && let Some(router) = (&mut service as &mut dyn Any).downcast_mut::<Router>()
    {
        // `with_state` puts the layer around each handler here, and not again for each request.
        *router = std::mem::take(router).layer(RouteLayer::new()).with_state(());
    }
    let mut signal = pin!(signal);
    let limit = Limit::new(settings.max_connections);
    let (end, ending) = watch::channel(());
    loop {
        let next = async {
            let permit = limit.acquire().await;
            let (stream, peer) = listener.accept().await?;
            io::Result::Ok((permit, stream, service.make(peer).await, peer))
        };
        let Some(next) = unless(signal.as_mut(), pin!(next)).await else { break };
        let (permit, stream, service, peer) = next?;
        let connection = serve_connection(stream, service, settings, ending.clone(), permit);
        crate::task::Builder::new().name(&format!("http {peer}")).location(location).spawn(connection);
    }
    drop((listener, ending));
    // Shutdown (1). An error means that no connection is open.
    let _sent = end.send(());
    // Shutdown (3)
    end.closed().await;
    Ok(())
}
