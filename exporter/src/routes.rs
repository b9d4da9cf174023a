//! The HTTP routes of the exporter, and the checks on requests.
//!
//! Invariant *no rebinding*: on a loopback address, only requests whose `Host` is `localhost` or an
//! IP address get a response. Otherwise a web page that makes its own name resolve to 127.0.0.1
//! could read the metrics through the visitor's browser.
//!
//! Invariant *one collection at a time*: a collection may take a second and blocks a worker's
//! thread, of which there are few. Requests that arrive during a collection wait as tasks, which
//! takes no thread, and all that waited share the next collection.
//!
//! Invariant *no dumps for other websites*: see [`live::tasks`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE as CONTENT_TYPE_HEADER, HOST, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use volt::sync::Mutex;
use volt_diagnosis::exposition::{CONTENT_TYPE, Origin, is_local_host};
use volt_telemetry::snapshot::Program;

use crate::application;
use crate::discovery::{Discovery, Seen};
use crate::live::tasks::{Refusal, Target, Turn, Wanted, What};
use crate::live::{self, Live};
use crate::openmetrics;
use crate::page::Page;
use crate::runbooks;

/// The content of a page.
pub(crate) struct Scope {
    pub(crate) page: Page,
    pub(crate) live: Live,
    pub(crate) source: Source,
    /// The names of the runtimes; `None` means all.
    pub(crate) runtimes: Option<Vec<String>>,
    /// The last collection, and when it began.
    pub(crate) last: Option<(Instant, Arc<[Seen]>)>,
}

/// Whose runtimes a page shows.
pub(crate) enum Source {
    /// This program's runtimes.
    Own,
    /// The runtimes of other programs, which have to be collected from them.
    Found(Discovery),
}

impl Scope {
    /// Returns the selected runtimes of every program, in a state no older than the request. May
    /// block while other programs reply.
    pub(crate) fn collect(&mut self) -> Arc<[Seen]> {
        if let Some((_, seen)) = &self.last {
            return seen.clone();
        }
        let began_at = Instant::now();
        let mut seen = match &mut self.source {
            Source::Own => vec![Seen { origin: Origin::new(), program: Some(volt::observe::program()) }],
            Source::Found(discovery) => discovery.collect(),
        };
        if let Some(names) = &self.runtimes {
            for program in seen.iter_mut().filter_map(|seen| seen.program.as_mut()) {
                program.runtimes.retain(|runtime| names.contains(&runtime.runtime));
            }
        }
        self.last.insert((began_at, seen.into())).1.clone()
    }

    fn render(&mut self) -> String {
        if self.page.has_application() {
            application::collect_process_metrics();
        }
        let seen = self.collect();
        let mut page = Vec::new();
        let programs = seen.iter().map(|seen| (seen.origin.clone(), seen.program.as_ref()));
        self.page.render_all(&programs.collect::<Vec<_>>(), &mut page).expect("a Vec accepts every write");
        String::from_utf8(page).expect("the format is UTF-8 throughout")
    }

    /// Returns the data of the live page as JSON.
    fn live(&mut self) -> String {
        match self.live.fresh() {
            Some(answer) => answer,
            None => {
                let seen = self.collect();
                self.live.answer(&seen)
            }
        }
    }

    /// Adds to the history of the live page, if that is due.
    pub(crate) fn note_history(&mut self) {
        let _answer = self.live();
    }

    /// Returns the program that has the wanted runtime, and begins a request to it.
    fn target(&mut self, wanted: &Wanted) -> Result<(Target, Turn), Refusal> {
        let (target, origin) = self.find(wanted).ok_or_else(|| Refusal::no_runtime(wanted))?;
        Ok((target, self.live.turns().take(origin)?))
    }

    fn find(&mut self, wanted: &Wanted) -> Option<(Target, Origin)> {
        self.runtimes.as_ref().is_none_or(|names| names.contains(&wanted.runtime)).then_some(())?;
        let named = vec![wanted.program.clone(), wanted.pid.to_string()];
        if let Source::Found(discovery) = &self.source
            && discovery.socket(&named).is_none()
        {
            // The exporter or the program has just started.
            self.collect();
        }
        match &self.source {
            Source::Own => (wanted.pid == std::process::id()).then(|| (Target::Own, Origin::new())),
            Source::Found(discovery) => Some((Target::Socket(discovery.socket(&named)?.to_owned()), named)),
        }
    }

    /// Returns one program as an object, or several as an array.
    fn json(&mut self) -> Response {
        let seen = self.collect();
        let mut programs: Vec<&Program> = seen.iter().filter_map(|seen| seen.program.as_ref()).collect();
        match self.source {
            Source::Own => Json(programs.pop()).into_response(),
            Source::Found(_) => Json(programs).into_response(),
        }
    }

    /// Returns the names of selected runtimes that no program has.
    fn missing(&mut self) -> Vec<String> {
        let seen = self.collect();
        let is_there = |name: &String| {
            let runtimes = seen.iter().filter_map(|seen| seen.program.as_ref()).flat_map(|program| &program.runtimes);
            runtimes.into_iter().any(|runtime| runtime.runtime == *name)
        };
        self.runtimes.iter().flatten().filter(|name| !is_there(name)).cloned().collect()
    }
}

/// Runs `work` with the scope. Other programs may take a second to reply, so the worker's tasks are
/// handed to another thread for that time.
pub(crate) async fn with<T>(scope: &Mutex<Scope>, work: impl FnOnce(&mut Scope) -> T) -> T {
    let received_at = Instant::now();
    let mut scope = scope.lock().await;
    scope.last.take_if(|(began_at, _)| *began_at < received_at);
    volt::task::block_in_place(|| work(&mut scope))
}

type Shared = State<Arc<Mutex<Scope>>>;

/// Creates the routes of an exporter that listens at `local_addr`.
pub(crate) fn router(scope: Arc<Mutex<Scope>>, local_addr: SocketAddr) -> Router {
    let files = live::paths().fold(Router::new(), |router, path| router.route(path, get(async || live::file(path))));
    let router = files
        .route("/live.json", get(live_json))
        .route("/live/history.json", get(history_json))
        .route("/live/dump.json", get(dump_json))
        .route("/live/tasks.json", get(tasks_json))
        .route(runbooks::PATH, get(async || live::html(&runbooks::PAGE)))
        .route("/healthz", get("ok\n"))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .route("/snapshot", get(snapshot))
        .with_state(scope);
    if is_local(local_addr) { router.layer(from_fn(refuse_foreign_hosts)) } else { router }
}

/// Returns whether only this machine can reach the address.
pub(crate) fn is_local(address: SocketAddr) -> bool {
    // The canonical form of `::ffff:127.0.0.1` is 127.0.0.1.
    address.ip().to_canonical().is_loopback()
}

async fn metrics(State(scope): Shared, headers: HeaderMap) -> Response {
    let text = with(&scope, Scope::render).await;
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (content_type, text) = if openmetrics::is_preferred(accepts) {
        (openmetrics::CONTENT_TYPE, openmetrics::from_text(&text))
    } else {
        (CONTENT_TYPE, text)
    };
    ([(CONTENT_TYPE_HEADER, content_type), (VARY, "accept")], text).into_response()
}

async fn live_json(State(scope): Shared) -> Response {
    let text = with(&scope, Scope::live).await;
    ([(CONTENT_TYPE_HEADER, "application/json")], text).into_response()
}

async fn history_json(State(scope): Shared) -> Response {
    let text = with(&scope, |scope| scope.live.history()).await;
    ([(CONTENT_TYPE_HEADER, "application/json")], text).into_response()
}

type WantedQuery = Result<Query<Wanted>, QueryRejection>;

async fn dump_json(State(scope): Shared, headers: HeaderMap, wanted: WantedQuery) -> Response {
    reply_of_program(&scope, What::Dump, &headers, wanted).await.unwrap_or_else(Refusal::into_response)
}

async fn tasks_json(State(scope): Shared, headers: HeaderMap, wanted: WantedQuery) -> Response {
    reply_of_program(&scope, What::List, &headers, wanted).await.unwrap_or_else(Refusal::into_response)
}

async fn reply_of_program(
    scope: &Mutex<Scope>,
    what: What,
    headers: &HeaderMap,
    wanted: WantedQuery,
) -> Result<Response, Refusal> {
    let wanted = wanted.map(|Query(wanted)| wanted).map_err(|error| error.body_text());
    let wanted = Wanted::check(headers, wanted)?;
    let (target, turn) = with(scope, |scope| scope.target(&wanted)).await?;
    let text = target.reply(what, wanted, turn).await?;
    Ok(([(CONTENT_TYPE_HEADER, "application/json"), (CACHE_CONTROL, "no-store")], text).into_response())
}

async fn snapshot(State(scope): Shared) -> Response {
    with(&scope, Scope::json).await
}

async fn readiness(State(scope): Shared) -> Response {
    let missing = with(&scope, Scope::missing).await;
    if missing.is_empty() {
        return "ready\n".into_response();
    }
    let text = format!("missing: {}\n", missing.join(", "));
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn refuse_foreign_hosts(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.to_str().unwrap_or(""));
    match host.or(request.uri().authority().map(|authority| authority.as_str())) {
        Some(host) if !is_local_host(host) => {
            (StatusCode::FORBIDDEN, "this page is only for this machine: request it from 127.0.0.1 or localhost\n")
                .into_response()
        }
        _ => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;
    use crate::exporter::Exporter;

    /// Returns the scope of a page that observes other programs, of which there are none.
    fn scope() -> Arc<Mutex<Scope>> {
        let source = Source::Found(Discovery::new(Vec::new()));
        let scope = Scope { page: Page::new(), live: Live::default(), source, runtimes: None, last: None };
        Arc::new(Mutex::new(scope))
    }

    fn request(exporter: &Exporter, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(exporter.local_addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        stream
    }

    fn response(stream: &mut TcpStream) -> String {
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it responds");
        response
    }

    #[test]
    fn a_mapped_loopback_address_is_local() {
        let is_local = |address: &str| is_local(address.parse().unwrap());
        assert!(["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"].into_iter().all(is_local));
        assert!(!["0.0.0.0:1", "[::]:1", "[::ffff:192.0.2.1]:1"].into_iter().any(is_local));
    }

    #[test]
    fn requests_during_a_collection_share_the_next_one() {
        volt::Runtime::new().unwrap().block_on(async {
            let scope = scope();
            let mut held = scope.lock().await;
            let former = held.collect();
            let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(with(&scope, Scope::collect))).collect();
            for request in &mut waiting {
                let request: Pin<&mut _> = request.as_mut();
                assert!(request.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            drop(held);
            let mut shared = Vec::new();
            for request in waiting {
                shared.push(request.await);
            }
            assert!(shared.iter().all(|seen| Arc::ptr_eq(seen, &shared[0])), "each had its own");
            assert!(!Arc::ptr_eq(&shared[0], &former), "it is older than the requests");
            assert!(!Arc::ptr_eq(&shared[0], &with(&scope, Scope::collect).await), "it is older than this request");
        });
    }

    #[test]
    fn the_health_is_reported_during_a_collection() {
        let scope = scope();
        let exporter = Exporter::start(TcpListener::bind("127.0.0.1:0").unwrap(), scope.clone(), None, 8).unwrap();
        // Like a collection that never ends.
        let held = scope.try_lock().unwrap();
        let mut scrape = request(&exporter, "/metrics");
        let health = response(&mut request(&exporter, "/healthz"));
        assert!(health.starts_with("HTTP/1.1 200") && health.ends_with("ok\n"), "{health}");
        scrape.set_nonblocking(true).unwrap();
        assert_eq!(scrape.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "the scrape waits");
        drop(held);
        scrape.set_nonblocking(false).unwrap();
        let page = response(&mut scrape);
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    }
}
