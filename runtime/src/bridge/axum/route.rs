//! Counts the requests of a router by route.
//!
//! Only the inside of a router has the path that matched. So the layer is put around each handler,
//! as `Router::layer` does.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use ::axum::extract::{MatchedPath, Request};
use ::axum::http::StatusCode;
use ::axum::response::Response;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;
use volt_telemetry::routes::{OTHER, UNMATCHED};

use crate::observe;

/// A layer for an axum `Router` that counts its requests by method and matched path.
///
/// [`serve`](super::serve) adds it to a `Router`. Add it yourself to a router that is served in
/// another way, with `Router::layer`, which puts it around each handler. A request that passes two
/// such layers is counted once, by the outer one. Requests that no route matches are counted under
/// the path `unmatched`, and so are those of a service that is nested by `Router::nest_service`.
/// The routes of a router that is nested by `Router::nest` have their full paths. Of the requests
/// with a method that a path does not support, the first is counted under its method, and later
/// ones under the method `other`.
///
/// Outside a Volt runtime, the layer counts nothing.
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
        RouteService { handler: inner, refuses: Arc::default() }
    }
}

/// The service of [`RouteLayer`].
#[derive(Clone, Debug)]
pub struct RouteService<S> {
    handler: S,
    /// Whether the last response was 405. A path has a separate handler for the methods that it
    /// does not have. They are counted as one method, since a client can send any.
    refuses: Arc<AtomicBool>,
}

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
        self.handler.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let is_counted = request.extensions_mut().insert(Counted).is_some();
        let counted = (!is_counted).then(|| {
            let path = request.extensions().get::<MatchedPath>();
            // ORDERING: Relaxed; only decides under which method a request is counted.
            let method = if self.refuses.load(Ordering::Relaxed) { OTHER } else { request.method().as_str() };
            // Outside a runtime nothing is counted, and the request is handled all the same.
            observe::Request::try_begin(method, path.map_or(UNMATCHED, MatchedPath::as_str)).ok()
        });
        RouteFuture { handler: self.handler.call(request), counted: counted.flatten(), refuses: self.refuses.clone() }
    }
}

pin_project! {
    /// The future of a [`RouteService`].
    pub struct RouteFuture<F> {
        #[pin]
        handler: F,
        counted: Option<observe::Request>,
        refuses: Arc<AtomicBool>,
    }
}

impl<F: Future<Output = Result<Response, Infallible>>> Future for RouteFuture<F> {
    type Output = Result<Response, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(counted) = this.counted else { return this.handler.poll(cx) };
        let Ok(response) = ready!(counted.poll(|| this.handler.poll(cx)));
        let is_refused = response.status() == StatusCode::METHOD_NOT_ALLOWED;
        // ORDERING: Relaxed, both; see `call`.
        if this.refuses.load(Ordering::Relaxed) != is_refused {
            this.refuses.store(is_refused, Ordering::Relaxed);
        }
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
