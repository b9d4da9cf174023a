//! Serves axum routers (or any tower service) over HTTP/1, and with the feature `http2` over HTTP/2
//! without TLS (h2c), on Volt: what `axum::serve`, which is bound to Tokio, is there.
//!
//! Shape: one task accepts; each connection is a task named `http PEER` and located where [`serve`]
//! was called, so that the console says whose it is.
//!
//! Bounds. Connections: [`Serve::max_connections`]; at the limit the server stops accepting, and
//! the rest waits in the kernel's backlog. A head: [`Serve::max_header_bytes`], answered with 431.
//! Time for a head, and between two requests on a connection: [`Serve::header_read_timeout`], after
//! which the connection is closed; so half-open connections go away. A client that does not read:
//! [`Serve::write_timeout`], if it was set. Bodies and the time that a handler takes are the
//! service's own business (axum's `DefaultBodyLimit`, tower's `timeout`). HTTP/2: a client's first
//! 24 bytes have the same time as a head; afterwards one that does not answer a ping in 20 s is
//! gone. A connection that was upgraded (WebSocket) is its handler's, and no longer counted.
//!
//! How it ends: connections hold the receiving end of a channel. (1) The signal is told through it;
//! (2) each connection closes when it has answered what it is in, which a request that has arrived
//! when it is told is part of; (3) the server is done when no receiver is left. The same if the
//! server's future is dropped, with nobody to wait for (3).
//!
//! Out of file descriptors: [`TcpListener::accept`] backs off and counts; nothing ends.
//!
//! Rejected: hyper-util's `auto` builder (it reads the first bytes to tell HTTP/2, without a time
//! limit on them); its `GracefulShutdown`, which does not take connections that may be upgraded;
//! answering 503 at the connection limit (it costs the descriptor that the limit is there to save).

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

use ::axum::extract::Request;
use ::axum::response::Response;
use tower_service::Service;

use crate::net::TcpListener;
use crate::sync::watch;

mod connection;
mod limit;

use connection::{Settings, serve_connection, unless};
use limit::Limit;

/// Connections served at once, unless told otherwise. Below the usual limit of 1,024 file
/// descriptors a process.
const MAX_CONNECTIONS: usize = 900;
/// Time for the head of a request, unless told otherwise: hyper's own default.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// As good as none, and an instant to which hyper adds it is no further than an `Instant` can say.
const MAX_HEADER_READ_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);
/// Largest head of a request, unless told otherwise; larger than what browsers send, cookies
/// included.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// What [`serve`] takes: a service for all connections, or one that makes a service for each.
///
/// `Kind` tells the two apart and is always inferred.
pub trait MakeConnectionService<Kind>: Send + 'static {
    /// What serves one connection.
    type Service: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static;

    /// The service for a connection from `peer`.
    fn make(&mut self, peer: SocketAddr) -> impl Future<Output = Self::Service> + Send;
}

/// [`MakeConnectionService`] by a service that serves all connections, such as a `Router`.
#[derive(Debug)]
pub enum ForAll {}

/// [`MakeConnectionService`] by a service that makes one for each peer's address, such as
/// `Router::into_make_service_with_connect_info`.
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

/// Serves `service`, an axum `Router` as a rule, to everybody who connects to `listener`.
///
/// Instead of a service it takes one that makes a service for each connection: give
/// `router.into_make_service_with_connect_info::<SocketAddr>()` (axum's feature `tokio`) and
/// handlers can extract `ConnectInfo<SocketAddr>`.
///
/// Awaiting it serves until the listener fails (or, with [`Serve::with_graceful_shutdown`], until
/// the signal).
///
/// # Errors
///
/// A setting of [`Serve`] that cannot work ([`io::ErrorKind::InvalidInput`], with its name and a
/// remedy), or what the listener failed with for good, as when the runtime shuts down. Failures of
/// single connections end those only.
///
/// # Cancel safety
///
/// Dropping the future stops accepting and closes the listener; open connections answer the request
/// they are in, then close.
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
        max_connections: MAX_CONNECTIONS,
        header_read_timeout: HEADER_READ_TIMEOUT,
        write_timeout: None,
        max_header_bytes: MAX_HEADER_BYTES,
    };
    Serve { listener, service, settings, location: Location::caller(), _kind: PhantomData }
}

/// A server that is ready to be awaited; see [`serve`].
#[must_use = "a server does nothing until it is awaited"]
pub struct Serve<M, Kind> {
    listener: TcpListener,
    service: M,
    settings: Settings,
    location: &'static Location<'static>,
    _kind: PhantomData<fn() -> Kind>,
}

impl<M, Kind> Serve<M, Kind> {
    /// Connections served at once; more wait in the kernel's backlog. At least 1; 900 unless set.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.settings.max_connections = max;
        self
    }

    /// Time for the head of a request, counted from the connection's start or the end of the
    /// request before. Above 0; 30 s unless set. More than a year is a year.
    pub fn header_read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.header_read_timeout = timeout.min(MAX_HEADER_READ_TIMEOUT);
        self
    }

    /// How long a connection lasts whose client takes nothing of what is written to it; also one
    /// that was upgraded. (Of HTTP/2 this is the connection only, not a stream that its client
    /// gives no window.) Above 0; as long as the client likes unless set.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.settings.write_timeout = Some(timeout);
        self
    }

    /// Bytes that the head of a request may have; a larger one is answered with 431. At least 1; 64
    /// KiB unless set.
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

    /// Serves until `signal` resolves; then accepts no more, closes idle connections, and ends with
    /// `Ok` when the last request has been answered.
    ///
    /// Nothing bounds that last wait here: put [`volt::time::timeout`](crate::time::timeout) around
    /// it if something must.
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

/// A server that ends gracefully; see [`Serve::with_graceful_shutdown`].
#[must_use = "a server does nothing until it is awaited"]
pub struct WithGracefulShutdown<M, Kind, F> {
    serve: Serve<M, Kind>,
    signal: F,
}

impl<M, Kind, F> WithGracefulShutdown<M, Kind, F> {
    /// Where it listens.
    ///
    /// # Errors
    ///
    /// What the operating system says.
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
    // End (1); there may be nobody to be told.
    let _told = end.send(());
    // End (3)
    end.closed().await;
    Ok(())
}
