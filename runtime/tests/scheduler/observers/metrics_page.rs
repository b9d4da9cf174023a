//! The page of metrics that a program serves if the environment variable `VOLT_METRICS` requests
//! it. Each test runs in a separate program, since a program has one page.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Barrier};

use volt::Builder;
use volt::observe::metrics_addr;
use volt::telemetry::catalog::find_series;

use crate::watchdog::{alone_with, builder, runtime, watched};

/// Requests a free port of 127.0.0.1.
const ANY_PORT: &[(&str, &str)] = &[("VOLT_METRICS", "0")];

fn address() -> SocketAddr {
    metrics_addr().expect("the page is served")
}

/// Sends `request` and reads until the connection is closed. Returns the head and the body of the
/// response.
fn response(request: &str) -> (String, String) {
    let mut client = TcpStream::connect(address()).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    read(client)
}

fn read(mut client: TcpStream) -> (String, String) {
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
    (head.to_owned(), body.to_owned())
}

fn page() -> String {
    let (head, body) = response(&format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", address()));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn the_page_shows_the_runtimes_and_their_counters_grow() {
    alone_with(ANY_PORT, || {
        watched(|| {
            assert_eq!(metrics_addr(), None, "nothing is served before the first runtime");
            let service = builder(2).name("service").build().unwrap();
            assert!(address().ip().is_loopback());
            let other = Builder::new_current_thread().name("other").build().unwrap();
            let spawned = r#"volt_tasks_spawned_total{runtime="service"}"#;
            let before = value(&page(), spawned).expect("the runtime is on the page");
            service.block_on(async {
                for _ in 0..10 {
                    volt::spawn(async {}).await.unwrap();
                }
            });
            let now = page();
            assert_eq!(value(&now, spawned), Some(before + 10.0));
            assert_eq!(value(&now, r#"volt_runtime_workers{runtime="other"}"#), Some(1.0));
            assert_eq!(value(&now, "volt_program_up"), Some(1.0));
            for line in now.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
                let name = line.split(['{', ' ']).next().unwrap();
                assert!(find_series(name).is_some(), "{line}");
            }
            drop((service, other));
            let now = page();
            assert!(!now.contains("runtime=") && value(&now, "volt_program_up") == Some(1.0), "{now}");
            let _again = builder(1).name("again").build().unwrap();
            assert_eq!(value(&page(), r#"volt_runtime_workers{runtime="again"}"#), Some(1.0));
        });
    });
}

#[test]
fn each_request_gets_one_response_and_is_closed() {
    alone_with(ANY_PORT, || {
        watched(|| {
            let _runtime = runtime(1);
            let (head, page) = response("GET /metrics HTTP/1.0\r\n\r\n");
            assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", page.len())), "{head}");
            assert!(head.ends_with("\r\nConnection: close"), "{head}");
            let (head, body) = response("HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}\n{body}");
            assert!(!head.contains("\r\nContent-Length: 0\r\n"), "{head}");
            let (head, body) = response("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 404 ") && body.contains("/metrics"), "{head}\n{body}");
            let (head, body) = response("GET /runbooks HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("docs/alerts.md"), "{head}\n{body}");
            let (head, _) = response("POST /metrics HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
            assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
            let (head, body) = response("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 403 ") && !body.contains("volt_"), "{head}\n{body}");
            let (head, page) = response("GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200 ") && page.ends_with("\n\n"), "{head}");
            let (head, _) = response("\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
        });
    });
}

#[test]
fn bad_clients_do_not_keep_others_from_the_page() {
    alone_with(ANY_PORT, || {
        watched(|| {
            let _runtime = runtime(1);
            let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
            let (head, _) = response(&long);
            assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
            // One is silent, one stops in the middle, one leaves, and one does not read.
            let silent = TcpStream::connect(address()).unwrap();
            let mut slow = TcpStream::connect(address()).unwrap();
            slow.write_all(b"GET /met").unwrap();
            TcpStream::connect(address()).unwrap().shutdown(Shutdown::Both).unwrap();
            // And one that never stops sending.
            let endless = std::thread::spawn(|| {
                let mut client = TcpStream::connect(address()).unwrap();
                let sent = client.write_all(b"GET / HTTP/1.1\r\n\r\n");
                while sent.is_ok() && client.write_all(&[0; 1 << 16]).is_ok() {}
            });
            let mut unread = TcpStream::connect(address()).unwrap();
            unread.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            assert!(page().contains("volt_tasks_alive"));
            // They were not served any more, or got a whole response.
            for mut client in [silent, slow] {
                let mut rest = String::new();
                assert_eq!(client.read_to_string(&mut rest).unwrap_or(0), 0, "{rest}");
            }
            assert!(read(unread).1.ends_with("\n\n"));
            endless.join().unwrap();
        });
    });
}

#[test]
fn a_head_in_pieces_is_read_to_its_end() {
    alone_with(ANY_PORT, || {
        watched(|| {
            let _runtime = runtime(1);
            let mut client = TcpStream::connect(address()).unwrap();
            client.set_nodelay(true).unwrap();
            for piece in ["GET /metr", "ics HTTP/1.1\r", "\nHost: localhost\r\n\r", "\n"] {
                client.write_all(piece.as_bytes()).unwrap();
                std::thread::yield_now();
            }
            let (head, body) = read(client);
            assert!(head.starts_with("HTTP/1.1 200 ") && body.contains("volt_tasks_alive"), "{head}");
        });
    });
}

#[test]
fn the_page_responds_while_all_workers_are_stuck() {
    alone_with(ANY_PORT, || {
        watched(|| {
            const WORKERS: usize = 2;
            let runtime = builder(WORKERS).name("stuck").build().unwrap();
            let (begun, end) = (Arc::new(Barrier::new(WORKERS + 1)), Arc::new(Barrier::new(WORKERS + 1)));
            let tasks = [(); WORKERS].map(|()| {
                let (begun, end) = (begun.clone(), end.clone());
                runtime.spawn(async move {
                    begun.wait();
                    end.wait();
                })
            });
            begun.wait();
            let page = page();
            for worker in 0..WORKERS {
                let series = format!(r#"volt_worker_in_flight_poll_seconds{{runtime="stuck",worker="{worker}"}}"#);
                assert!(value(&page, &series) > Some(0.0), "{page}");
            }
            end.wait();
            tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
            // The thread in `block_on` is the only worker, and it is busy with this request.
            let current = Builder::new_current_thread().name("current").build().unwrap();
            let page = current.block_on(async { volt::spawn(async { self::page() }).await.unwrap() });
            let series = r#"volt_worker_in_flight_poll_seconds{runtime="current",worker="0"}"#;
            assert!(value(&page, series) > Some(0.0), "{page}");
        });
    });
}

#[test]
fn a_busy_port_is_reported_once_and_the_program_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let stderr = alone_with(&[("VOLT_METRICS", &taken)], || {
        watched(|| {
            tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
            for _ in 0..2 {
                let runtime = runtime(1);
                assert_eq!(runtime.block_on(async { volt::spawn(async { 7 }).await.unwrap() }), 7);
                assert_eq!(metrics_addr(), None);
            }
        });
    });
    let Some(stderr) = stderr else { return };
    let reported =
        format!("volt: VOLT_METRICS={taken}: the address is already in use: choose another port; the program");
    assert_eq!(stderr.matches(&reported).count(), 1, "{stderr}");
    let event = "ERROR volt::observe: no metrics are served; the program continues";
    assert_eq!(stderr.matches(event).count(), 1, "{stderr}");
}

#[test]
fn an_address_without_a_port_is_refused_with_its_remedy() {
    let stderr = alone_with(&[("VOLT_METRICS", "localhost")], || {
        watched(|| {
            let _runtime = runtime(1);
            assert_eq!(metrics_addr(), None);
        });
    });
    let Some(stderr) = stderr else { return };
    assert!(stderr.contains("volt: VOLT_METRICS=localhost: not an address"), "{stderr}");
    assert!(stderr.contains("use the form 127.0.0.1:9464, or a port such as 9464"), "{stderr}");
}
