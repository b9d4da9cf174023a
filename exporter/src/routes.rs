//! The HTTP side: which paths there are, and who may ask.
//!
//! Invariant *no rebinding*: on a loopback address only requests whose `Host` is `localhost` or an IP address are answered. A web
//! page that makes its own name resolve to 127.0.0.1 could otherwise read the metrics through the visitor's browser.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE as CONTENT_TYPE_HEADER, HOST};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::page::{CONTENT_TYPE, Page};

/// What a page shows.
pub(crate) struct Scope {
    pub(crate) page: Page,
    /// Names of the runtimes; `None` = all.
    pub(crate) runtimes: Option<Vec<String>>,
}

impl Scope {
    fn render(&mut self) -> String {
        let mut process = volt::observe::process();
        if let Some(names) = &self.runtimes {
            process.runtimes.retain(|runtime| names.contains(&runtime.runtime));
        }
        self.page.render(&process)
    }
}

/// The service of an exporter that listens at `local_addr`.
pub(crate) fn router(scope: Scope, local_addr: SocketAddr) -> Router {
    let router = Router::new()
        .route("/", get("volt-exporter\n\n/metrics  for Prometheus\n/healthz  whether this answers\n"))
        .route("/healthz", get("ok\n"))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(Mutex::new(scope)));
    if local_addr.ip().is_loopback() { router.layer(from_fn(refuse_foreign_hosts)) } else { router }
}

async fn metrics(State(scope): State<Arc<Mutex<Scope>>>) -> Response {
    let text = scope.lock().unwrap_or_else(PoisonError::into_inner).render();
    ([(CONTENT_TYPE_HEADER, CONTENT_TYPE)], text).into_response()
}

async fn refuse_foreign_hosts(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or(""));
    match host.or(request.uri().authority().map(|authority| authority.as_str())) {
        Some(host) if !is_local(host) => {
            (StatusCode::FORBIDDEN, "this page is for this machine: ask for it as 127.0.0.1 or localhost\n")
                .into_response()
        }
        _ => next.run(request).await,
    }
}

/// Whether the value of a `Host` header is `localhost` or an IP address, with or without a port.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_and_addresses_are_local_and_names_are_not() {
        for host in ["localhost", "LocalHost:9464", "127.0.0.1", "127.0.0.1:9464", "[::1]", "[::1]:9464", "10.1.2.3:1"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["", "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "[::1"]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
