//! An axum application with common features: JSON, a streaming body, server-sent events, a
//! WebSocket, the client's address, and tower-http's middleware around it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{ConnectInfo, Json, Path};
use axum::http::StatusCode;
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tower_http::compression::CompressionLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// The time limit of a request.
pub const LIMIT: Duration = Duration::from_millis(500);
/// The number of parts of `/stream`, and of events of `/events`.
pub const PARTS: usize = 5;

/// The JSON body of requests and responses of `/api/item`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    pub name: String,
    pub tags: Vec<String>,
}

impl Item {
    /// Returns an item whose JSON is long enough to be compressed.
    pub fn example() -> Self {
        Item { name: "volt".into(), tags: (0..20).map(|tag| format!("tag number {tag}")).collect() }
    }
}

/// Returns the application. `/` has no middleware; the routes under `/api` have it.
pub fn router() -> Router {
    let api = Router::new()
        .route("/item", get(async || Json(Item::example())).post(async |Json(item): Json<Item>| Json(item)))
        .route("/slow", get(slow))
        .layer(CompressionLayer::new())
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, LIMIT))
        .layer(TraceLayer::new_for_http());
    Router::new()
        .route("/", get(async || "hello"))
        .route("/who", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()))
        .route("/stream", get(parts))
        .route("/events", get(events))
        .route("/echo", get(echo))
        .route("/numbers/{number}", get(async |Path(number): Path<u64>| number.to_string()))
        .nest_service("/squares", squares())
        .nest("/api", api)
}

/// A router that another one has as a service.
fn squares() -> Router {
    Router::new().route("/{number}", get(async |Path(number): Path<u64>| (number * number).to_string()))
}

async fn slow() -> &'static str {
    std::future::pending().await
}

/// Returns a stream of one part every 10 ms.
fn each_part<T>(part: impl Fn(usize) -> T) -> impl Stream<Item = Result<T, Infallible>> {
    stream::unfold((0, part), async |(number, part)| {
        if number == PARTS {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        Some((Ok(part(number)), (number + 1, part)))
    })
}

async fn parts() -> Body {
    Body::from_stream(each_part(|number| Bytes::from(format!("part {number}\n"))))
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(each_part(|number| Event::default().id(number.to_string()).data("tick"))).keep_alive(KeepAlive::default())
}

/// axum spawns the future after an upgrade.
async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(echo_all)
}

async fn echo_all(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}
