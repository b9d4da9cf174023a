//! Counts the requests of a router by route.
//!
//! Only the inside of a router has the path that matched. So the layer is put around each handler,
//! as `Router::layer` does.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::axum::extract::{MatchedPath, Request};
use ::axum::response::Response;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use volt_telemetry::routes::UNMATCHED;

use crate::observe;

/// A layer for an axum `Router` that counts its requests by method and matched path.
///
/// [`serve`](super::serve) adds it to a `Router`. Add it yourself to a router that is served in
/// another way. A request that passes two such layers is counted once, by the outer one. Requests
/// that no route matches are counted under the path `unmatched`.
///
/// Requires a Volt runtime: see [`observe::Request::begin`].
///
/// ```
/// use axum::{Router, routing::get};
/// use volt::axum::RouteLayer;
///
/// # async fn example() -> std::io::Result<()> {
/// let router = Router::new().route("/users/{id}", get(|| async { "hello" })).layer(RouteLayer::new());
/// let listener = volt::net::TcpListener::bind("127.0.0.1:0").await?;
/// volt::axum::serve(listener, router.into_make_service()).await
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteLayer(());

impl RouteLayer {
    /// Creates the layer.
    pub fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = RouteService<S>;

    fn layer(&self, inner: S) -> RouteService<S> {
        RouteService(inner)
    }
}

/// The service of [`RouteLayer`].
#[derive(Clone, Copy, Debug)]
pub struct RouteService<S>(S);

/// The mark in the extensions of a request that is counted.
#[derive(Clone, Copy)]
struct Counted;

impl<S> Service<Request> for RouteService<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = RouteFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let is_counted = request.extensions_mut().insert(Counted).is_some();
        let counted = (!is_counted).then(|| {
            let path = request.extensions().get::<MatchedPath>();
            observe::Request::begin(request.method().as_str(), path.map_or(UNMATCHED, MatchedPath::as_str))
        });
        RouteFuture { handler: self.0.call(request), counted }
    }
}

pin_project! {
    /// The future of a [`RouteService`].
    pub struct RouteFuture<F> {
        #[pin]
        handler: F,
        counted: Option<observe::Request>,
    }
}

impl<F: Future<Output = Result<Response, Infallible>>> Future for RouteFuture<F> {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(counted) = this.counted else { return this.handler.poll(cx) };
        let Ok(response) = ready!(counted.poll(|| this.handler.poll(cx)));
        if let Some(counted) = this.counted.take() {
            counted.end(!response.status().is_server_error());
        }
        Poll::Ready(Ok(response))
    }
}

impl<F> fmt::Debug for RouteFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFuture").field("counted", &self.counted).finish_non_exhaustive()
    }
}
