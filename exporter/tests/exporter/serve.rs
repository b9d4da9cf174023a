//! Tests of an exporter over real sockets: its responses, the clients that it accepts, and the
//! settings that it rejects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use volt_exporter::Exporter;

/// Aborts the program if a test hangs. Dropped when the test is over.
pub(crate) struct Watchdog(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>);

pub(crate) fn watchdog() -> Watchdog {
    let test = std::thread::current().name().unwrap_or("?").to_string();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        if receiver.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Not a print macro: the harness captures these, and the abort would lose the name.
            let _result = writeln!(std::io::stderr(), "{test} hangs");
            std::process::abort();
        }
    });
    Watchdog(sender)
}

fn exporter() -> Exporter {
    volt_exporter::serve("127.0.0.1:0").expect("a free port")
}

/// Sends `head` and reads until the connection is closed: (status, whole response).
pub(crate) fn request(address: SocketAddr, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
    (status, answer)
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    request(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

fn metrics(exporter: &Exporter) -> String {
    let (status, text) = get(exporter.local_addr(), "/metrics");
    assert_eq!(status, 200, "{text}");
    text
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn the_page_shows_each_runtime_and_its_counters_grow() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let runtime = volt::Builder::new_multi_thread().worker_threads(2).name("moves").build().unwrap();
    let spawned = r#"volt_tasks_spawned_total{runtime="moves"}"#;
    let before = value(&metrics(&exporter), spawned).expect("the runtime is on the page");
    runtime.block_on(async {
        for _ in 0..10 {
            volt::spawn(async {}).await.unwrap();
        }
    });
    let text = metrics(&exporter);
    assert_eq!(value(&text, spawned), Some(before + 10.0));
    assert_eq!(value(&text, r#"volt_runtime_workers{runtime="moves"}"#), Some(2.0));
    // The name has a number if another test's exporter already uses `exporter`.
    let own = r#"volt_runtime_workers{runtime="exporter"#;
    assert!(text.lines().any(|line| line.starts_with(own) && line.ends_with("\"} 1")), "{text}");
    assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
}

#[test]
fn metrics_are_served_while_the_only_worker_is_stuck() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("stuck").build().unwrap();
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let blocks = runtime.spawn(async move {
        begun.send(()).unwrap();
        // A blocking call in a task, which tasks must not make.
        let _ended = released.recv();
    });
    has_begun.recv().unwrap();
    let in_flight = r#"volt_worker_in_flight_poll_seconds{runtime="stuck",worker="0"}"#;
    let first = value(&metrics(&exporter), in_flight).expect("the worker is on the page");
    let second = value(&metrics(&exporter), in_flight).unwrap();
    assert!(first > 0.0 && second > first, "a poll that goes on grows: {first} {second}");
    drop(release);
    runtime.block_on(blocks).unwrap();
}

#[test]
fn the_page_has_the_metrics_of_the_application() {
    let _watchdog = watchdog();
    // The second exporter of a program finds the recorder of the first.
    drop(exporter());
    let exporter = exporter();
    metrics::counter!("served_total", "kind" => "a").increment(3);
    metrics::histogram!("served_seconds").record(0.001);
    metrics::counter!("volt_tasks_spawned_total", "runtime" => "forged").increment(1);
    let text = metrics(&exporter);
    assert_eq!(value(&text, r#"served_total{kind="a"}"#), Some(3.0));
    assert_eq!(value(&text, r#"served_seconds_bucket{le="+Inf"}"#), Some(1.0));
    assert_eq!(value(&text, r#"served_seconds_bucket{le="0.000000256"}"#), Some(0.0));
    assert!(!text.contains("forged"), "names of the catalog are not the application's");
}

#[test]
fn only_the_requested_runtimes_are_shown() {
    let _watchdog = watchdog();
    let _wanted = volt::Builder::new_multi_thread().worker_threads(1).name("wanted").build().unwrap();
    let exporter = Exporter::builder().listen("127.0.0.1:0").runtimes(["wanted"]).serve().unwrap();
    let text = metrics(&exporter);
    assert!(text.contains(r#"runtime="wanted""#) && !text.contains(r#"runtime="exporter""#), "{text}");
}

#[test]
fn the_runbook_of_each_alert_is_served_at_its_anchor() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let (status, page) = get(exporter.local_addr(), "/runbooks");
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("content-type: text/html"), "{page}");
    let section = "<section id=\"voltworkerstuck\">\n<h2>VoltWorkerStuck</h2>";
    assert!(page.contains(section), "{page}");
    assert!(page.contains("Run `volt-console stacks`"), "{page}");
}

#[test]
fn healthz_responds_ok_and_unknown_paths_are_not_found() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let (status, text) = get(exporter.local_addr(), "/healthz");
    assert!(status == 200 && text.ends_with("\r\n\r\nok\n"), "{text}");
    assert_eq!(get(exporter.local_addr(), "/").0, 200);
    assert_eq!(get(exporter.local_addr(), "/nothing").0, 404);
}

#[test]
fn a_scraper_that_requests_openmetrics_gets_it_whole() {
    let _watchdog = watchdog();
    let _runtime = volt::Builder::new_multi_thread().worker_threads(1).name("open").build().unwrap();
    let exporter = exporter();
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.2";
    let head = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}\r\nConnection: close\r\n\r\n");
    let (status, text) = request(exporter.local_addr(), &head);
    assert_eq!(status, 200);
    assert!(text.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{text}");
    assert!(text.contains("# TYPE volt_tasks_spawned counter\n") && text.ends_with("\n# EOF\n"), "{text}");
    assert_eq!(value(&text, r#"volt_tasks_spawned_total{runtime="open"}"#), Some(0.0));
}

#[test]
fn the_programs_process_metrics_are_on_the_page() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let text = metrics(&exporter);
    let threads = value(&text, "process_threads").expect("metrics-process reports threads");
    assert!(threads >= 2.0, "{threads}");
    assert!(value(&text, "process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6), "{text}");
    assert!(value(&text, "process_cpu_seconds_total").is_some(), "{text}");
}

#[test]
fn the_snapshot_of_the_selected_runtimes_is_served_as_json() {
    let _watchdog = watchdog();
    let _runtime = volt::Builder::new_multi_thread().worker_threads(2).name("json").build().unwrap();
    let exporter = Exporter::builder().listen("127.0.0.1:0").runtimes(["json"]).serve().unwrap();
    let (status, answer) = get(exporter.local_addr(), "/snapshot");
    assert_eq!(status, 200);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{head}");
    let program: volt_telemetry::Program = serde_json::from_str(body).unwrap();
    assert_eq!(program.pid, std::process::id());
    let names: Vec<_> = program.runtimes.iter().map(|runtime| (&*runtime.runtime, runtime.workers.len())).collect();
    assert_eq!(names, [("json", 2)]);
}

#[test]
fn the_live_page_is_complete_and_loads_nothing_else() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let (status, page) = get(exporter.local_addr(), "/");
    assert!(status == 200 && page.contains("content-type: text/html; charset=utf-8\r\n"), "{page}");
    assert!(page.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{page}");
    let named = page.split(['"', '\'']).filter(|part| part.starts_with('/') && part.len() > 1);
    let parts: Vec<_> = named.collect();
    assert!(parts.len() >= 8, "{parts:?}");
    for part in parts {
        let (status, text) = get(exporter.local_addr(), part);
        assert_eq!(status, 200, "{part}");
        let is_of_page = part.starts_with("/live/");
        assert!(!is_of_page || !text.split("\r\n\r\n").next().unwrap().contains("text/plain"), "{part}: {text:.200}");
    }
    assert!(!page.contains("://"), "nothing comes from elsewhere");
}

#[test]
fn the_history_begins_before_the_page_is_opened() {
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("past").build().unwrap();
    let exporter = Exporter::builder().listen("127.0.0.1:0").runtimes(["past"]).serve().unwrap();
    // One request for `/live.json` would make a point, but there is none.
    let past = loop {
        let (status, answer) = get(exporter.local_addr(), "/live/history.json");
        assert_eq!(status, 200);
        let json: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        if json[0]["points"].as_array().is_some_and(|points| points.len() > 1) {
            break json[0].clone();
        }
        runtime.block_on(async { volt::spawn(async {}).await.unwrap() });
        // Not a synchronization: leaves the processor to others while nothing happens.
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!((&past["pid"], &past["runtime"]), (&std::process::id().into(), &"past".into()));
    assert!(past["started_at_ns"].is_u64() && past["points"][1]["at"].as_f64() > past["points"][0]["at"].as_f64());
    assert!(past["points"][1]["polls_per_second"].as_f64().is_some_and(|polls| polls > 0.0), "{past}");
}

#[test]
fn the_live_page_has_rates_from_the_second_answer_on() {
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("drawn").build().unwrap();
    let exporter = Exporter::builder().listen("127.0.0.1:0").runtimes(["drawn"]).serve().unwrap();
    let fetch = || {
        let (status, answer) = get(exporter.local_addr(), "/live.json");
        assert_eq!(status, 200);
        let json: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(
            (&json[0]["pid"], &json[0]["runtimes"][0]["runtime"]),
            (&std::process::id().into(), &"drawn".into())
        );
        json[0].clone()
    };
    let began = Instant::now();
    let first = fetch();
    let again = fetch();
    // On a machine that takes longer for two responses, the first may have become stale.
    assert!(again["at_ns"] == first["at_ns"] || began.elapsed() > Duration::from_millis(900), "it is given again");
    assert!(first["runtimes"][0]["rates"].is_null() && first["runtimes"][0]["findings"].is_array(), "{first}");
    runtime.block_on(async { volt::spawn(async {}).await.unwrap() });
    let second = loop {
        let next = fetch();
        if next["at_ns"] != first["at_ns"] {
            break next;
        }
        std::thread::yield_now();
    };
    assert!(second["runtimes"][0]["rates"]["polls_per_second"].as_f64().unwrap() > 0.0, "{second}");
}

#[test]
fn an_exporter_is_ready_while_the_required_runtimes_exist() {
    let _watchdog = watchdog();
    let exporter = Exporter::builder().listen("127.0.0.1:0").runtimes(["late"]).serve().unwrap();
    let ready = || get(exporter.local_addr(), "/readyz");
    let (status, text) = ready();
    assert!(status == 503 && text.ends_with("missing: late\n"), "{text}");
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("late").build().unwrap();
    assert_eq!(ready().0, 200);
    drop(runtime);
    assert_eq!(ready().0, 503);
}

#[test]
fn only_get_and_head_are_answered() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let fetch = |method| {
        let head =
            format!("{method} /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        request(exporter.local_addr(), &head)
    };
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        assert_eq!(fetch(method).0, 405, "{method}");
    }
    let (status, answer) = fetch("HEAD");
    assert!(status == 200 && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn on_a_loopback_address_only_local_hosts_are_answered() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let fetch = |host: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        request(exporter.local_addr(), &head).0
    };
    assert_eq!(fetch("Host: rebound.example\r\n"), 403);
    assert_eq!(fetch("Host: rebound.example:9464\r\n"), 403);
    assert_eq!(fetch("Host: localhost:9464\r\n"), 200);
    let with_authority = "GET http://rebound.example/metrics HTTP/1.1\r\nConnection: close\r\n\r\n";
    assert_eq!(request(exporter.local_addr(), with_authority).0, 403);
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(9_000));
    let mut stream = TcpStream::connect(exporter.local_addr()).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 431");
}

#[test]
fn half_open_connections_delay_no_request_for_long() {
    let _watchdog = watchdog();
    let exporter = Exporter::builder().listen("127.0.0.1:0").max_connections(8).serve().unwrap();
    let half_open = || {
        let mut stream = TcpStream::connect(exporter.local_addr()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap();
        stream
    };
    // Below the limit, idle connections have no effect.
    let _few: Vec<_> = (0..4).map(|_| half_open()).collect();
    assert_eq!(get(exporter.local_addr(), "/healthz").0, 200);
    // Above the limit, the response arrives after the server has closed the idle connections, which
    // it does within seconds although they stay open here.
    let _many: Vec<_> = (0..6).map(|_| half_open()).collect();
    assert_eq!(get(exporter.local_addr(), "/healthz").0, 200);
}

#[test]
fn connections_above_the_limit_wait_until_one_ends() {
    let _watchdog = watchdog();
    let exporter = Exporter::builder().listen("127.0.0.1:0").max_connections(1).serve().unwrap();
    let mut first = TcpStream::connect(exporter.local_addr()).unwrap();
    first.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    first.read_exact(&mut [0; 12]).unwrap();
    let mut second = TcpStream::connect(exporter.local_addr()).unwrap();
    second.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    second.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let error = second.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it waits while the first is open");
    drop(first);
    second.set_read_timeout(None).unwrap();
    let mut status = [0; 12];
    second.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

#[test]
fn unusable_settings_are_errors_with_their_name_and_a_remedy() {
    let _watchdog = watchdog();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let serve = |address: &str| volt_exporter::serve(address).unwrap_err();

    let error = serve(&taken.to_string());
    assert!(error.is_address_in_use(), "{error}");
    assert_eq!(
        error.to_string(),
        format!("listen: {taken} is already in use: choose another port, or port 0 for a free one")
    );

    let error = serve("0.0.0.0:0");
    assert!(error.is_invalid_setting());
    assert!(
        error.to_string().starts_with("listen: other machines can reach 0.0.0.0:0,")
            && error.to_string().contains("allow_remote")
    );

    let error = serve("nonsense");
    assert!(error.to_string().starts_with("listen: not an address"), "{error}");
    assert!(error.to_string().contains(volt_exporter::DEFAULT_ADDRESS), "{error}");

    // 192.0.2.0/24 is reserved for documentation: no machine has such an address.
    let error = Exporter::builder().listen("192.0.2.1:9464").allow_remote(true).serve().unwrap_err();
    assert!(error.to_string().contains("is not an address of this machine"), "{error}");

    let error = Exporter::builder().listen("127.0.0.1:0").max_connections(0).serve().unwrap_err();
    assert!(error.to_string().starts_with("max_connections: must be at least 1"), "{error}");
}

#[test]
fn allow_remote_permits_any_address_and_any_host_header() {
    let _watchdog = watchdog();
    let exporter = Exporter::builder().listen("0.0.0.0:0").allow_remote(true).serve().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], exporter.local_addr().port()));
    let (status, _) = request(address, "GET /metrics HTTP/1.1\r\nHost: node.example\r\nConnection: close\r\n\r\n");
    assert_eq!(status, 200);
}

#[test]
fn a_dropped_exporter_frees_its_port() {
    let _watchdog = watchdog();
    let exporter = exporter();
    let address = exporter.local_addr();
    assert_eq!(get(address, "/healthz").0, 200);
    let mut idle = TcpStream::connect(address).unwrap();
    drop(exporter);
    let _next = volt_exporter::serve(address).expect("the port is free as soon as the exporter is dropped");
    let mut rest = Vec::new();
    let _closed = idle.read_to_end(&mut rest);
    assert!(rest.is_empty(), "open connections are closed without a response");
}

#[test]
fn an_exporter_may_be_started_and_dropped_in_async_code() {
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("async").build().unwrap();
    let address = runtime.block_on(async {
        let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
        exporter.local_addr()
    });
    while TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
}

#[test]
fn connections_without_a_request_do_no_harm() {
    let _watchdog = watchdog();
    let exporter = exporter();
    for bytes in [&b""[..], b"\r\n", b"GET", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", &[0xff; 4096]] {
        for _ in 0..20 {
            // The server may close the connection during the write.
            let _sent = TcpStream::connect(exporter.local_addr()).unwrap().write_all(bytes);
        }
    }
    assert_eq!(get(exporter.local_addr(), "/healthz").0, 200);
}
