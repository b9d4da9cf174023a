//! Requests are counted by route, and a stuck poll is reported with its route.

use super::*;
use axum::http::{Method, StatusCode};
use axum::routing::any;
use volt::Handle;
use volt::axum::RouteLayer;
use volt::observe;
use volt::telemetry::routes::Route;

/// Returns the routes of the current runtime once none has an active request, by name.
async fn routes() -> Vec<Route> {
    loop {
        let mut routes = Handle::current().snapshot().routes;
        if routes.iter().all(|route| route.active == 0) {
            routes.sort_by_key(Route::name);
            return routes;
        }
        volt::task::yield_now().await;
    }
}

fn names(routes: &[Route]) -> Vec<String> {
    routes.iter().map(Route::name).collect()
}

#[test]
fn requests_are_counted_by_method_and_matched_path() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let users = Router::new().route("/{id}", get(|| async { "a user" }));
            let router = hello()
                .nest("/users", users)
                .route("/echo", post(|body: Bytes| async { body }))
                .route("/fails", any(|| async { StatusCode::BAD_GATEWAY }));
            let address = serve(router).await;
            let mut client = connect(address).await;
            for path in ["/", "/users/1", "/users/2", "/echo", "/fails", "/nowhere", "/no/where"] {
                fetch(&mut client, path, "x").await;
            }
            let routes = routes().await;
            assert_eq!(
                names(&routes),
                ["GET /", "GET /fails", "GET /users/{id}", "GET unmatched", "POST /echo"],
                "{routes:#?}"
            );
            assert_eq!(routes.iter().map(|route| route.succeeded).collect::<Vec<_>>(), [1, 0, 2, 2, 1]);
            assert_eq!(routes.iter().map(|route| route.failed).collect::<Vec<_>>(), [0, 1, 0, 0, 0]);
            for route in &routes {
                assert_eq!((route.duration.count(), route.abandoned), (route.ended(), 0), "{route:?}");
                assert!(route.busy_ns > 0 && route.longest_poll_ns <= route.busy_ns, "{route:?}");
                assert!(route.busy_ns <= route.duration.sum_ns(), "{route:?}");
            }
        });
    });
}

#[test]
fn a_request_whose_client_goes_is_counted_as_abandoned() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(Router::new().route("/", get(std::future::pending::<()>))).await;
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(HELLO).await.unwrap();
            while Handle::current().snapshot().routes.iter().all(|route| route.active == 0) {
                volt::task::yield_now().await;
            }
            drop(stream);
            let routes = routes().await;
            assert_eq!((names(&routes), routes[0].abandoned), (vec!["GET /".to_owned()], 1));
            assert_eq!(routes[0].duration.count(), 0, "the request has no response");
        });
    });
}

#[test]
fn a_request_in_two_layers_is_counted_once() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(hello().layer(RouteLayer::new())).await;
            fetch(&mut connect(address).await, "/", "").await;
            assert_eq!(routes().await[0].ended(), 1);
        });
    });
}

/// A service that is no router.
#[derive(Clone)]
struct Answer(&'static str);

impl tower_service::Service<axum::extract::Request> for Answer {
    type Response = axum::response::Response;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: axum::extract::Request) -> Self::Future {
        std::future::ready(Ok(axum::response::Response::new(self.0.into())))
    }
}

/// Returns the number of requests of each route.
fn counts(routes: &[Route]) -> Vec<(String, u64)> {
    routes.iter().map(|route| (route.name(), route.succeeded)).collect()
}

/// Sends requests for the paths to a server of the router. Returns the numbers of its routes.
async fn fetch_all(router: Router, paths: &[&str]) -> Vec<Route> {
    let mut client = connect(serve(router).await).await;
    for path in paths {
        fetch(&mut client, path, "").await;
    }
    routes().await
}

fn pairs(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn a_route_of_a_service_has_its_path() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let service = Answer("a file");
            let routes = fetch_all(hello().route_service("/files/{name}", service), &["/files/a", "/files/b"]).await;
            assert_eq!(counts(&routes), pairs(&[("GET /files/{name}", 2)]));
        });
    });
}

#[test]
fn requests_of_a_nested_service_have_its_prefix() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let files = Answer("a file");
            let users = Router::new().route("/{id}", get(|| async { "a user" }));
            let router =
                hello().nest_service("/{tenant}/files", files).nest("/v1", Router::new().nest_service("/users", users));
            let paths = ["/a/files/x", "/b/files/x/y", "/v1/users/7", "/v1/users/no/where", "/no/where", "/"];
            let routes = fetch_all(router.clone(), &paths).await;
            let expected = [("GET /", 1), ("GET /v1/users/*", 2), ("GET /{tenant}/files/*", 2), ("GET unmatched", 1)];
            assert_eq!(counts(&routes), pairs(&expected));
            // The prefix itself, without and with a slash, is a path of the router.
            let routes = fetch_all(router, &["/a/files", "/a/files/", "/v1/users/"]).await;
            let of_prefixes = ["GET /v1/users/", "GET /{tenant}/files", "GET /{tenant}/files/"];
            assert!(of_prefixes.iter().all(|name| names(&routes).iter().any(|route| route == name)), "{routes:#?}");
        });
    });
}

#[test]
fn a_nested_router_with_a_layer_has_its_full_paths() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let inner = Router::new().route("/{id}", get(|| async { "inner" })).layer(RouteLayer::new());
            let middle = Router::new().nest_service("/inner", inner.clone()).layer(RouteLayer::new());
            let router = Router::new().nest_service("/outer", middle).nest_service("/users", inner);
            let paths = ["/users/1", "/users/2", "/users/no/where", "/outer/inner/7", "/outer/nowhere"];
            let routes = fetch_all(router, &paths).await;
            let expected =
                [("GET /outer/*", 1), ("GET /outer/inner/{id}", 1), ("GET /users/*", 1), ("GET /users/{id}", 2)];
            assert_eq!(counts(&routes), pairs(&expected));
            for route in &routes {
                assert_eq!((route.duration.count(), route.active), (route.ended(), 0), "{route:?}");
                assert!(route.busy_ns > 0, "counted under its last name: {route:?}");
            }
            // A task that begins at the tick in which it became ready has no delay.
            assert!(routes.iter().map(|route| route.delay_ns).sum::<u64>() > 0, "{routes:#?}");
        });
    });
}

#[test]
fn a_fallback_router_with_a_layer_has_its_paths() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let pages = Router::new().route("/pages/{name}", get(|| async { "a page" }));
            let routes = fetch_all(hello().fallback_service(pages.clone()), &["/pages/a", "/"]).await;
            assert_eq!(counts(&routes), pairs(&[("GET /", 1), ("GET unmatched", 1)]));
            let with_layer = hello().fallback_service(pages.layer(RouteLayer::new()));
            let routes = fetch_all(with_layer, &["/pages/a", "/pages/b", "/no/where"]).await;
            let expected = [("GET /", 1), ("GET /pages/{name}", 2), ("GET unmatched", 2)];
            assert_eq!(counts(&routes), pairs(&expected));
        });
    });
}

#[test]
fn a_client_cannot_add_routes() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let inner = Router::new().route("/{id}", get(|| async { "inner" })).layer(RouteLayer::new());
            let router = hello()
                .route("/users/{id}", get(|| async { "a user" }))
                .nest_service("/files", Answer("a file"))
                .nest_service("/inner", inner);
            let prefixes = ["/users", "/files", "/inner", "/nowhere"];
            let paths: Vec<_> =
                (0..400).map(|number| format!("{}/{number}?q={number}", prefixes[number % 4])).collect();
            let routes = fetch_all(router, &paths.iter().map(String::as_str).collect::<Vec<_>>()).await;
            let expected =
                [("GET /files/*", 100), ("GET /inner/{id}", 100), ("GET /users/{id}", 100), ("GET unmatched", 100)];
            assert_eq!(counts(&routes), pairs(&expected));
        });
    });
}

#[test]
fn a_name_given_after_the_end_changes_nothing() {
    watchdog::watched(|| {
        let runtime = watchdog::builder(1).build().unwrap();
        runtime.block_on(async {
            let request = observe::Request::begin("GET", "/users/*");
            let renamer = request.renamer();
            request.end(true);
            renamer.rename("GET", "/users/{id}");
            assert_eq!(counts(&routes().await), pairs(&[("GET /users/*", 1)]));
        });
    });
}

#[test]
fn a_request_that_is_renamed_while_it_ends_counts_once() {
    const REQUESTS: u64 = 2_000;
    watchdog::watched(|| {
        let runtime = watchdog::builder(1).build().unwrap();
        let _entered = runtime.enter();
        let (send, renamers) = std::sync::mpsc::channel::<observe::Renamer>();
        std::thread::scope(|scope| {
            scope.spawn(move || renamers.iter().for_each(|renamer| renamer.rename("GET", "/users/{id}")));
            for _ in 0..REQUESTS {
                let request = observe::Request::begin("GET", "/users/*");
                send.send(request.renamer()).unwrap();
                request.end(true);
            }
            drop(send);
        });
        let routes = runtime.handle().snapshot().routes;
        assert_eq!(routes.iter().map(|route| route.succeeded).sum::<u64>(), REQUESTS, "{routes:#?}");
        assert!(routes.iter().all(|route| route.active == 0), "{routes:#?}");
    });
}

#[test]
fn a_new_name_is_that_of_the_poll_in_progress() {
    watchdog::watched(|| {
        let runtime = watchdog::builder(1).build().unwrap();
        let polled = runtime.spawn(async {
            let mut request = observe::Request::begin("GET", "/users/*");
            let renamer = request.renamer();
            let name_of_poll = request.poll(|| {
                renamer.rename("GET", "/users/{id}");
                let snapshot = Handle::current().snapshot();
                snapshot.workers[0].in_flight.as_ref().and_then(|poll| poll.route.clone())
            });
            request.end(true);
            name_of_poll
        });
        let name = runtime.block_on(polled).unwrap();
        assert_eq!(name.as_deref(), Some("GET /users/{id}"));
        let routes = runtime.handle().snapshot().routes;
        assert_eq!(counts(&routes), pairs(&[("GET /users/{id}", 1)]));
        assert!(routes[0].busy_ns > 0);
    });
}

#[test]
fn a_layer_counts_the_routes_of_other_services() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let service = hello().layer(RouteLayer::new()).into_make_service();
            volt::spawn(async move { volt::axum::serve(listener, service).await });
            assert_eq!(fetch(&mut connect(address).await, "/", "").await.1, "hello");
            assert_eq!(names(&routes().await), ["GET /"]);
        });
    });
}

#[test]
fn a_server_that_counts_no_routes_has_none() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            volt::spawn(async move { volt::axum::serve(listener, hello()).count_routes(false).await });
            assert_eq!(fetch(&mut connect(address).await, "/", "").await.1, "hello");
            assert_eq!(routes().await, []);
        });
    });
}

#[test]
fn the_delay_of_a_request_is_that_of_its_task() {
    watchdog::watched(|| {
        let runtime = watchdog::builder(1).build().unwrap();
        runtime
            .block_on(runtime.spawn(async {
                // The task below waits for the worker until this poll ends.
                let waits = volt::spawn(async {
                    let mut request = observe::Request::begin("GET", "/");
                    request.poll(|| ());
                    request.poll(|| ());
                    request.end(true);
                });
                let began = std::time::Instant::now();
                while began.elapsed() < Duration::from_millis(5) {
                    std::hint::spin_loop();
                }
                waits.await.unwrap();
            }))
            .unwrap();
        let route = &runtime.handle().snapshot().routes[0];
        assert!((5_000_000..10_000_000_000).contains(&route.delay_ns), "counted for one poll of the task: {route:?}");
        assert!(route.delay_ns < 2 * runtime.handle().snapshot().schedule_delay().sum_ns(), "{route:?}");
    });
}

#[test]
fn a_dump_adds_nothing_to_a_request_that_waits() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(Router::new().route("/", get(std::future::pending::<()>))).await;
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(HELLO).await.unwrap();
            let route = || Handle::current().snapshot().routes.pop();
            while route().is_none_or(|route| route.busy_ns == 0) {
                volt::task::yield_now().await;
            }
            let before = route();
            for _ in 0..3 {
                volt::time::sleep(Duration::from_millis(2)).await;
                let dump = Handle::current().dump().await;
                assert!(dump.groups.iter().any(|group| group.awaits.is_none() && group.tasks > 0), "{dump:#?}");
            }
            assert_eq!(route(), before);
        });
    });
}

/// Sends one request with each method to a server of the router. Returns the numbers of its routes.
async fn fetch_with(router: Router, path: &str, methods: &[&str]) -> Vec<(String, u64)> {
    let mut client = connect(serve(router).await).await;
    for method in methods {
        let request = Request::builder().method(*method).uri(path).header("host", "localhost");
        client.ready().await.unwrap();
        let response = client.send_request(request.body(Full::default()).unwrap()).await.unwrap();
        response.into_body().collect().await.unwrap();
    }
    counts(&routes().await)
}

#[test]
fn methods_that_a_path_does_not_have_are_counted_together() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let methods = ["GET", "PUT", "DELETE", "PATCH", "TRACE", "GET"];
            let expected = pairs(&[("GET /", 2), ("PUT /", 1), ("other /", 3)]);
            assert_eq!(fetch_with(hello(), "/", &methods).await, expected);
        });
    });
}

#[test]
fn methods_that_an_inner_path_lacks_are_counted_together() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let methods = ["GET", "PUT", "DELETE", "PATCH", "TRACE", "GET"];
            let user = || get(|| async { "a user" });
            let inner = Router::new().route("/{id}", user()).layer(RouteLayer::new());
            let expected = pairs(&[("GET /users/{id}", 2), ("PUT /users/{id}", 1), ("other /users/{id}", 3)]);
            assert_eq!(fetch_with(hello().nest_service("/users", inner), "/users/1", &methods).await, expected);
            let inner = Router::new().route("/users/{id}", user()).layer(RouteLayer::new());
            let twice = pairs(&[("GET /users/{id}", 4), ("PUT /users/{id}", 2), ("other /users/{id}", 6)]);
            assert_eq!(fetch_with(hello().fallback_service(inner), "/users/1", &methods).await, twice);
        });
    });
}

#[test]
fn a_refused_method_does_not_rename_those_of_its_service() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let handler = |method: Method| async move {
                if method == Method::GET { StatusCode::OK } else { StatusCode::METHOD_NOT_ALLOWED }
            };
            let methods = ["POST", "GET", "POST", "GET", "DELETE", "PUT", "GET"];
            let counts = fetch_with(Router::new().route("/{name}", any(handler)), "/a", &methods).await;
            assert_eq!(counts, pairs(&[("GET /{name}", 3), ("POST /{name}", 1), ("other /{name}", 3)]));
            let files = Router::new().route("/{name}", any(handler));
            let routes = fetch_with(Router::new().nest_service("/files", files), "/files/a", &methods).await;
            let (of_files, _): (Vec<_>, Vec<_>) = routes.into_iter().partition(|(name, _)| name.ends_with("/files/*"));
            let expected = [("DELETE /files/*", 1), ("GET /files/*", 3), ("POST /files/*", 2), ("PUT /files/*", 1)];
            assert_eq!(of_files, pairs(&expected));
        });
    });
}

#[test]
fn outside_a_runtime_a_layer_passes_requests_on_uncounted() {
    use tower_service::Service;

    let mut router = hello().layer(RouteLayer::new());
    let request = Request::builder().uri("/").body(axum::body::Body::empty()).unwrap();
    let response = futures_lite::future::block_on(router.call(request)).unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert!(observe::Request::try_begin("GET", "/").is_err());
}

#[test]
fn a_poll_adds_its_delay_to_one_of_its_requests() {
    watchdog::watched(|| {
        let runtime = watchdog::builder(1).build().unwrap();
        let requests = runtime.spawn(async {
            for _ in 0..20 {
                let mut request = observe::Request::begin("GET", "/");
                request.poll(|| ());
                request.end(true);
            }
        });
        runtime.block_on(requests).unwrap();
        let snapshot = runtime.handle().snapshot();
        assert!(snapshot.routes[0].delay_ns <= snapshot.schedule_delay().sum_ns(), "{snapshot:#?}");
        assert_eq!(snapshot.routes[0].succeeded, 20);
    });
}

#[test]
fn the_polls_of_a_thread_that_is_no_worker_are_not_counted() {
    watchdog::watched(|| {
        let runtime = watchdog::builder(1).build().unwrap();
        runtime.block_on(async {
            let mut request = observe::Request::begin("GET", "/");
            request.poll(|| ());
            request.end(true);
        });
        let route = &runtime.handle().snapshot().routes[0];
        assert_eq!((route.succeeded, route.busy_ns, route.delay_ns), (1, 0, 0));
    });
}

#[test]
fn a_stuck_poll_is_reported_with_its_route() {
    watchdog::watched(|| {
        let runtime = watchdog::builder(2).sentinel_interval(Some(Duration::from_millis(10))).build().unwrap();
        let (open, is_open) = std::sync::mpsc::channel::<()>();
        let is_open = Arc::new(std::sync::Mutex::new(is_open));
        let block = get(move || {
            let is_open = is_open.clone();
            async move { is_open.lock().unwrap().recv().is_ok().to_string() }
        });
        runtime.block_on(async {
            let address = serve(Router::new().route("/block/{what}", block)).await;
            let mut client = connect(address).await;
            let answered = volt::spawn(async move { fetch(&mut client, "/block/all", "").await });
            let handle = Handle::current();
            let told = volt::task::spawn_blocking(move || {
                loop {
                    let snapshot = handle.snapshot();
                    let polls = snapshot.workers.iter().filter_map(|worker| worker.in_flight.as_ref()?.route.clone());
                    let incident = snapshot.incidents.latest.iter().find(|incident| incident.route.is_some());
                    if let (Some(incident), Some(poll)) = (incident, polls.into_iter().next()) {
                        open.send(()).unwrap();
                        return (incident.route.clone().unwrap(), poll);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let route = "GET /block/{what}".to_owned();
            assert_eq!(told.await.unwrap(), (route.clone(), route));
            assert_eq!(answered.await.unwrap().1, "true");
        });
        let snapshot = runtime.handle().snapshot();
        assert!(
            snapshot.workers.iter().filter_map(|worker| worker.in_flight.as_ref()).all(|poll| poll.route.is_none())
        );
    });
}
