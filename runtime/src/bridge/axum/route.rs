//! Counts the requests of a router by route.
//!
//! The matched path of a request is available only inside a router. So `Router::layer` puts this
//! layer around each handler.
//!
//! A router may contain another one as a service (`nest_service`, `fallback_service`). The layer of
//! the outer router then has only the prefix at which that service is nested. It counts the request
//! under the prefix, and puts a handle into the request. If the inner router has a layer, too, that
//! layer has the whole path, and gives it to the request.
//!
//! A client can send any method, and each name of a route takes one of the few places in the table
//! of the runtime. So methods that a path refuses share the name [`OTHER`]: see [`Methods`].
//!
//! `cargo volt` adds this file to its copy of axum, and puts a [`RouteService`] around each handler
//! there. Therefore, it uses only what axum 0.7 has, too.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker, ready};

use ::axum::Router;
use ::axum::body::Body;
use ::axum::extract::{MatchedPath, Request};
use ::axum::http::{Extensions, Method, StatusCode};
use ::axum::response::Response;
use ::axum::routing::get;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::observe::{self, Renamer};
use crate::telemetry::routes::{OTHER, UNMATCHED};

/// A layer for an axum `Router` that counts its requests by method and matched path.
///
/// [`serve`](super::serve) adds it to a `Router`. Add it yourself to a router that is served in
/// another way, with `Router::layer`, which puts it around each handler. A request that passes two
/// such layers is counted once, by the outer one. Outside a Volt runtime, the layer counts nothing.
///
/// | handler of the request | counted path | example |
/// |---|---|---|
/// | a route, also inside `Router::nest`, or `Router::route_service` | the full path of the route | `/users/{id}` |
/// | a service in `Router::nest_service` | the prefix | `/files/*` |
/// | a router with this layer in `Router::nest_service` | the full path of the inner route | `/files/{name}` |
/// | a router with this layer in `Router::fallback_service` | the path of the inner route | `/users/{id}` |
/// | any other | `unmatched` | `unmatched` |
///
/// axum also registers the prefix of a nested service itself, without and with a slash at the end.
/// Requests for exactly these two paths are counted under `/files` and `/files/`.
///
/// A client can send any method. Until a path responds with the status 405 (method not allowed) for
/// the first time, each request is counted under its method. From then on, requests whose method
/// the path has never accepted are counted under the method `other`. Requests that are counted
/// under a prefix or `unmatched` keep their method.
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
        RouteService { handler: inner, methods: Arc::default() }
    }
}

/// The service of [`RouteLayer`].
#[derive(Clone, Debug)]
pub struct RouteService<S> {
    handler: S,
    /// Shared by all clones: axum clones the service for each request.
    methods: Arc<Methods>,
}

/// The methods that a handler has accepted, and whether it has refused one.
///
/// axum has a separate handler for the methods that a path does not have, which refuses all of
/// them. A service such as a file server accepts some methods, and refuses others by itself. Both
/// are handled alike. Before the first refusal, each request is counted under its method. After it,
/// a request whose method was never accepted begins as [`OTHER`]. It gets its method if the handler
/// accepts it after all.
#[derive(Debug, Default)]
struct Methods(AtomicU16);

impl Methods {
    /// The bit that is set once a method was refused. The bits of the methods are below.
    const REFUSED: u16 = 1 << 15;
    const KNOWN: [Method; 9] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::PATCH,
        Method::TRACE,
        Method::CONNECT,
    ];

    /// All methods that HTTP does not define share a bit: they are counted as one in any case.
    fn bit(method: &Method) -> u16 {
        1 << Self::KNOWN.iter().position(|known| known == method).unwrap_or(Self::KNOWN.len())
    }

    /// Returns whether a request is counted under its method from the beginning.
    fn are_named(&self, method: &Method) -> bool {
        // ORDERING: Relaxed; only decides under which method a request is counted.
        let bits = self.0.load(Ordering::Relaxed);
        bits & Self::REFUSED == 0 || bits & Self::bit(method) != 0
    }

    /// Notes a response.
    fn note(&self, method: &Method, is_refused: bool) {
        let bit = if is_refused { Self::REFUSED } else { Self::bit(method) };
        // ORDERING: Relaxed, both; see `are_named`. Most responses change nothing, so that the
        // workers share the cache line for reading.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// The mark in the extensions of a request that is counted, or that must not be counted.
#[derive(Clone)]
enum Mark {
    /// It has the name of a route.
    Named,
    /// It has the name of a prefix, or none. An inner router may change it.
    Provisional(Renamer),
}

/// The name under which a request is counted.
enum Name {
    /// Its route.
    Route(MatchedPath),
    /// The prefix at which a service is nested, or [`UNMATCHED`].
    Provisional(String),
}

impl Name {
    fn of(extensions: &Extensions) -> Self {
        match extensions.get::<MatchedPath>() {
            Some(path) => Name::Route(path.clone()),
            None => Name::Provisional(prefix(extensions).unwrap_or_else(|| UNMATCHED.to_owned())),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Name::Route(path) => path.as_str(),
            Name::Provisional(prefix) => prefix,
        }
    }
}

/// A request that is counted, and that this layer has just named.
enum Counted {
    /// It has begun here.
    Here(observe::Request),
    /// It has begun in an outer layer.
    Outside(Renamer),
}

impl Counted {
    fn renamer(&self) -> Renamer {
        match self {
            Counted::Here(request) => request.renamer(),
            Counted::Outside(renamer) => renamer.clone(),
        }
    }
}

/// A request that has begun as [`OTHER`], and its path.
struct Unproven(Renamer, MatchedPath);

impl<S> RouteService<S> {
    /// Begins to count a request that has no mark, or gives a better name to one that an outer
    /// layer counts. Marks it. Returns the request if it has begun here, and an [`Unproven`] if it
    /// gets its method only once the handler accepts that.
    fn begin(&self, request: &mut Request) -> (Option<observe::Request>, Option<Unproven>) {
        let mark = request.extensions().get::<Mark>();
        if matches!(mark, Some(Mark::Named)) {
            return (None, None);
        }
        let name = Name::of(request.extensions());
        // With a provisional name, the method belongs to an inner router, which may name it.
        let is_named = matches!(name, Name::Provisional(_)) || self.methods.are_named(request.method());
        let method = if is_named { request.method().as_str() } else { OTHER };
        let counted = match mark {
            Some(Mark::Provisional(renamer)) => {
                renamer.rename(method, name.as_str());
                Counted::Outside(renamer.clone())
            }
            _ => match observe::Request::try_begin(method, name.as_str()) {
                Ok(begun) => Counted::Here(begun),
                // Outside a runtime nothing is counted, and the request is handled all the same.
                Err(_) => return (None, None),
            },
        };
        let (mark, unproven) = match name {
            Name::Provisional(_) => (Mark::Provisional(counted.renamer()), None),
            Name::Route(_) if is_named => (Mark::Named, None),
            Name::Route(path) => (Mark::Named, Some(Unproven(counted.renamer(), path))),
        };
        request.extensions_mut().insert(mark);
        match counted {
            Counted::Here(request) => (Some(request), unproven),
            Counted::Outside(_) => (None, unproven),
        }
    }
}

impl<S> Service<Request> for RouteService<S>
where
    S: Service<Request, Response = Response>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = RouteFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.handler.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let (counted, unproven) = self.begin(&mut request);
        let method = request.method().clone();
        let methods = self.methods.clone();
        RouteFuture { handler: self.handler.call(request), counted, unproven, method, methods }
    }
}

pin_project! {
    /// The future of a [`RouteService`].
    pub struct RouteFuture<F> {
        #[pin]
        handler: F,
        counted: Option<observe::Request>,
        unproven: Option<Unproven>,
        method: Method,
        methods: Arc<Methods>,
    }
}

impl<F: Future<Output = Result<Response, E>>, E> Future for RouteFuture<F> {
    type Output = Result<Response, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let handler = this.handler;
        let (unproven, methods, method) = (this.unproven, this.methods, this.method);
        let poll = || {
            let result = ready!(handler.poll(cx));
            let status = result.as_ref().map_or(StatusCode::INTERNAL_SERVER_ERROR, Response::status);
            let is_refused = status == StatusCode::METHOD_NOT_ALLOWED;
            methods.note(method, is_refused);
            match unproven.take() {
                Some(Unproven(renamer, path)) if !is_refused => renamer.rename(method.as_str(), path.as_str()),
                _ => {}
            }
            Poll::Ready((result, status))
        };
        // `poll` also notes the methods of requests that another layer counts, or none.
        let (result, status) = ready!(match this.counted {
            Some(counted) => counted.poll(poll),
            None => poll(),
        });
        if let Some(counted) = this.counted.take() {
            counted.end(!status.is_server_error());
        }
        Poll::Ready(result)
    }
}

impl<F> fmt::Debug for RouteFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteFuture").field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// Returns the prefix at which the service that handles a request is nested, such as `/files/*`.
///
/// axum has a private extension with the prefix, to which an inner router adds the path that it
/// matches. So this passes a request with the same extensions to a router whose only path is `/`.
fn prefix(extensions: &Extensions) -> Option<String> {
    static ROOT: LazyLock<Router> = LazyLock::new(|| Router::new().route("/", get(path)));

    async fn path(path: MatchedPath) -> Response {
        let mut response = Response::new(Body::empty());
        response.extensions_mut().insert(path);
        response
    }

    let mut request = Request::new(Body::empty());
    *request.extensions_mut() = extensions.clone();
    // In axum's copy, the handler of the path has a `RouteService`.
    request.extensions_mut().insert(Mark::Named);
    let response = pin!(ROOT.clone().call(request)).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok(response)) = response else { return None };
    let path = response.extensions().get::<MatchedPath>()?.as_str();
    // Without a prefix, it is the path of the router here.
    (path != "/").then(|| format!("{path}*"))
}
