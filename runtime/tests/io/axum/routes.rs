//! Requests are counted by route, and a stuck poll is reported with its route.

use super::*;
use axum::http::StatusCode;
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
                ask(&mut client, path, "x").await;
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
            assert_eq!(routes[0].duration.count(), 0, "it was not answered");
        });
    });
}

#[test]
fn a_request_in_two_layers_is_counted_once() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(hello().layer(RouteLayer::new())).await;
            ask(&mut connect(address).await, "/", "").await;
            assert_eq!(routes().await[0].ended(), 1);
        });
    });
}

#[test]
fn a_layer_counts_the_routes_of_other_services() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let service = hello().layer(RouteLayer::new()).into_make_service();
            volt::spawn(async move { volt::axum::serve(listener, service).await });
            assert_eq!(ask(&mut connect(address).await, "/", "").await.1, "hello");
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
            assert_eq!(ask(&mut connect(address).await, "/", "").await.1, "hello");
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

#[test]
fn methods_that_a_path_does_not_have_are_counted_together() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(hello()).await;
            let mut client = connect(address).await;
            for method in ["GET", "PUT", "DELETE", "PATCH", "TRACE", "GET"] {
                let request = Request::builder().method(method).uri("/").header("host", "localhost");
                client.ready().await.unwrap();
                let response = client.send_request(request.body(Full::default()).unwrap()).await.unwrap();
                response.into_body().collect().await.unwrap();
            }
            let routes = routes().await;
            assert_eq!(names(&routes), ["GET /", "PUT /", "other /"]);
            assert_eq!(routes.iter().map(Route::ended).collect::<Vec<_>>(), [2, 1, 3]);
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
            let asked = volt::spawn(async move { ask(&mut client, "/block/all", "").await });
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
            assert_eq!(asked.await.unwrap().1, "true");
        });
        let snapshot = runtime.handle().snapshot();
        assert!(
            snapshot.workers.iter().filter_map(|worker| worker.in_flight.as_ref()).all(|poll| poll.route.is_none())
        );
    });
}
