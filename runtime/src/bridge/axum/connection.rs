//! Serves one connection, from its first byte to its end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use ::axum::body::Body;
use ::axum::extract::Request;
use ::axum::response::Response;
use ::hyper::body::Incoming;
use ::hyper::server::conn::http1;
#[cfg(feature = "http2")]
use futures_util::future::{Either, select};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

use super::limit::Permit;
#[cfg(feature = "http2")]
use crate::bridge::hyper::VoltExecutor;
use crate::bridge::hyper::{VoltIo, VoltTimer};
#[cfg(feature = "http2")]
use crate::bridge::preface;
use crate::bridge::stall::Unstalled;
use crate::net::TcpStream;
use crate::sync::watch;

/// The error that ended a connection.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// Whether the requests of a router are counted by route.
    pub(super) counts_routes: bool,
    pub(super) max_connections: usize,
    pub(super) header_read_timeout: Duration,
    pub(super) write_timeout: Option<Duration>,
    pub(super) max_header_bytes: usize,
}

pub(super) async fn serve_connection<S>(
    stream: TcpStream,
    service: S,
    settings: Settings,
    ending: watch::Receiver<()>,
    permit: Permit,
) where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + 'static,
{
    // The server writes responses as a whole, so Nagle's algorithm would only delay them. This
    // fails only on a connection that is already closed.
    let _is_set = stream.set_nodelay(true);
    let stream = Unstalled::new(stream, settings.write_timeout);
    let service = TowerToHyperService::new(WithBody(service));
    if let Err(error) = serve_stream(stream, service, settings, ending).await {
        tracing::debug!(target: "volt::http", %error, "connection ended");
    }
    drop(permit);
}

#[cfg(not(feature = "http2"))]
async fn serve_stream<S>(
    stream: Unstalled,
    service: S,
    settings: Settings,
    ending: watch::Receiver<()>,
) -> Result<(), BoxError>
where
    S: HyperService,
{
    serve_http1(stream, service, settings, ending).await
}

#[cfg(feature = "http2")]
async fn serve_stream<S>(
    stream: Unstalled,
    service: S,
    settings: Settings,
    mut ending: watch::Receiver<()>,
) -> Result<(), BoxError>
where
    S: HyperService,
{
    let preface_or_end = crate::time::timeout(settings.header_read_timeout, preface::read_preface(stream));
    let preface_or_end = match select(pin!(preface_or_end), pin!(ending.changed())).await {
        Either::Left((preface_or_end, _)) => preface_or_end,
        Either::Right(_) => return Ok(()),
    };
    let (is_http2, stream) = preface_or_end??;
    if !is_http2 {
        return serve_http1(stream, service, settings, ending).await;
    }
    let connection = ::hyper::server::conn::http2::Builder::new(VoltExecutor::new())
        .timer(VoltTimer::new())
        .max_header_list_size(u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX))
        // WebSocket over HTTP/2: RFC 8441.
        .enable_connect_protocol()
        // Detects clients that disappeared without closing the connection.
        .keep_alive_interval(settings.header_read_timeout)
        .serve_connection(VoltIo::new(stream), service);
    drive(connection, |connection| connection.graceful_shutdown(), ending).await
}

async fn serve_http1<I, S>(
    stream: I,
    service: S,
    settings: Settings,
    ending: watch::Receiver<()>,
) -> Result<(), BoxError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: HyperService,
{
    let connection = http1::Builder::new()
        .timer(VoltTimer::new())
        .header_read_timeout(settings.header_read_timeout)
        .max_header_size(settings.max_header_bytes)
        .serve_connection(VoltIo::new(stream), service)
        .with_upgrades();
    drive(connection, |connection| connection.graceful_shutdown(), ending).await
}

/// Serves `connection` until it ends. After the shutdown signal, finishes the current request and
/// then closes.
async fn drive<C>(connection: C, end: fn(Pin<&mut C>), mut ending: watch::Receiver<()>) -> Result<(), BoxError>
where
    C: Future<Output = ::hyper::Result<()>>,
{
    let mut connection = pin!(connection);
    let ended = unless(pin!(ending.changed()), connection.as_mut()).await;
    Ok(match ended {
        Some(ended) => ended,
        // Shutdown (2)
        None => match poll_fn(|cx| Poll::Ready(connection.as_mut().poll(cx))).await {
            Poll::Ready(ended) => ended,
            Poll::Pending => {
                end(connection.as_mut());
                connection.await
            }
        },
    }?)
}

/// The bounds on a service that hyper can serve.
trait HyperService:
    ::hyper::service::Service<::hyper::Request<Incoming>, Response = Response, Error = Infallible, Future: Send>
    + Send
    + 'static
{
}

impl<S> HyperService for S where
    S: ::hyper::service::Service<::hyper::Request<Incoming>, Response = Response, Error = Infallible, Future: Send>
        + Send
        + 'static
{
}

impl Settings {
    pub(super) fn check(&self) -> io::Result<()> {
        let refuse = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        match self {
            Settings { max_connections: 0, .. } => {
                refuse("max_connections is 0, so no client could connect: set at least 1")
            }
            Settings { max_header_bytes: 0, .. } => {
                refuse("max_header_bytes is 0: no request would fit; set at least a few hundred")
            }
            Settings { header_read_timeout: Duration::ZERO, .. } => {
                refuse("header_read_timeout is 0 s: no request could arrive in time; set at least a few milliseconds")
            }
            Settings { write_timeout: Some(Duration::ZERO), .. } => {
                refuse("write_timeout is 0 s: no response could be sent in time; set at least a few seconds")
            }
            _ => Ok(()),
        }
    }
}

/// Adapts a service for axum's body type to the bodies that hyper reads.
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

/// Returns the output of `next`, or `None` if `signal` completes first.
pub(super) async fn unless<E, T>(
    mut signal: Pin<&mut impl Future<Output = E>>,
    mut next: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| match signal.as_mut().poll(cx) {
        Poll::Ready(_) => Poll::Ready(None),
        Poll::Pending => next.as_mut().poll(cx).map(Some),
    })
    .await
}
