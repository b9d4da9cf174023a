//! `volt::axum` and `volt::hyper` end to end: axum routers over loopback, with raw requests and
//! with hyper's own client.
#![cfg(feature = "axum")]

use crate::watchdog;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::watchdog::with_workers;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::rt::{Executor, Timer};
use volt::hyper::{VoltExecutor, VoltIo, VoltTimer};
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};
use volt::task::JoinHandle;

mod deadlock;
mod http2;
mod routes;

const HELLO: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(3600);

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn serve(router: Router) -> SocketAddr {
    let (listener, address) = listen().await;
    volt::spawn(async move { volt::axum::serve(listener, router).await });
    address
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = handshake(VoltIo::new(stream)).await.unwrap();
    VoltExecutor::new().execute(connection);
    sender
}

async fn fetch(sender: &mut SendRequest<Full<Bytes>>, path: &str, body: impl Into<Bytes>) -> (u16, Bytes) {
    let method = if path.starts_with("/echo") { "POST" } else { "GET" };
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    sender.ready().await.unwrap();
    let response = sender.send_request(request.body(Full::new(body.into())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

/// Reads one answer of `hello`, headers and body.
async fn read_hello(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{}", String::from_utf8_lossy(&answer));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
}

/// Waits until the other side closes. Returns how many bytes came before.
async fn read_to_close(stream: &mut TcpStream) -> usize {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    rest.len()
}

#[test]
fn a_connection_carries_many_requests() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(hello()).await;
            let mut stream = TcpStream::connect(address).await.unwrap();
            for _ in 0..100 {
                stream.write_all(HELLO).await.unwrap();
                read_hello(&mut stream).await;
            }
        });
    });
}

#[test]
fn many_connections_are_served_concurrently() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let waiting = Arc::new(AtomicUsize::new(0));
            let all = {
                let waiting = waiting.clone();
                // Each request waits until all 50 are there, so handling one at a time would hang.
                get(move || async move {
                    waiting.fetch_add(1, Ordering::Relaxed);
                    while waiting.load(Ordering::Relaxed) < 50 {
                        volt::task::yield_now().await;
                    }
                    "all here"
                })
            };
            let address = serve(Router::new().route("/", all)).await;
            let clients: Vec<JoinHandle<_>> = (0..50)
                .map(|_| volt::spawn(async move { fetch(&mut connect(address).await, "/", "").await }))
                .collect();
            for client in clients {
                assert_eq!(client.await.unwrap(), (200, Bytes::from("all here")));
            }
        });
    });
}

#[test]
fn bodies_of_a_megabyte_go_up_and_come_down_whole() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let echo = post(|body: Bytes| async { body }).layer(DefaultBodyLimit::disable());
            let mut client = connect(serve(Router::new().route("/echo", echo)).await).await;
            let body: Bytes = (0..1_048_576_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            for _ in 0..3 {
                assert!(fetch(&mut client, "/echo", body.clone()).await == (200, body.clone()));
            }
        });
    });
}

#[test]
fn a_handler_that_panics_ends_its_connection_only() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let panics = get(|| async {
                if true {
                    panic!("on purpose")
                }
            });
            let address = serve(hello().route("/panics", panics)).await;
            let mut other = connect(address).await;
            assert_eq!(fetch(&mut other, "/", "").await.0, 200);
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /panics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            assert_eq!(read_to_close(&mut stream).await, 0);
            assert_eq!(fetch(&mut other, "/", "").await.0, 200);
            assert_eq!(fetch(&mut connect(address).await, "/", "").await.0, 200);
        });
    });
}

#[test]
fn a_head_that_does_not_come_in_time_ends_the_connection() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let server = volt::axum::serve(listener, hello()).header_read_timeout(Duration::from_millis(50));
            volt::spawn(async move { server.await });
            let mut silent = TcpStream::connect(address).await.unwrap();
            let mut half_open = TcpStream::connect(address).await.unwrap();
            half_open.write_all(b"GET / HTTP/1.1\r\nho").await.unwrap();
            let mut idle = TcpStream::connect(address).await.unwrap();
            idle.write_all(HELLO).await.unwrap();
            read_hello(&mut idle).await;
            for stream in [&mut silent, &mut half_open, &mut idle] {
                // hyper's own 30 s would apply if the setting did not take effect.
                volt::time::timeout(Duration::from_secs(20), read_to_close(stream))
                    .await
                    .expect("closed by the setting");
            }
        });
    });
}

#[test]
fn the_time_that_a_head_has_is_measured_by_the_runtimes_clock() {
    watchdog::watched(|| {
        let runtime = watchdog::builder(1).start_paused(true).build().unwrap();
        runtime.block_on(async {
            volt::time::advance(LONG).await;
            assert_eq!(VoltTimer::new().now(), volt::time::Instant::now().into_std());
            let address = serve(hello()).await;
            let mut sender = connect(address).await;
            assert_eq!(fetch(&mut sender, "/", "").await.0, 200);
        });
    });
}

#[test]
fn the_longest_header_read_timeout_does_not_overflow() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            volt::spawn(volt::axum::serve(listener, hello()).header_read_timeout(Duration::MAX).into_future());
            let mut sender = connect(address).await;
            assert_eq!(fetch(&mut sender, "/", "").await.0, 200);
        });
    });
}

#[test]
fn a_connection_above_the_limit_is_served_when_another_ends() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let server = volt::axum::serve(listener, hello()).max_connections(2).header_read_timeout(LONG);
            volt::spawn(async move { server.await });
            let mut open = Vec::new();
            for _ in 0..2 {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(HELLO).await.unwrap();
                read_hello(&mut stream).await;
                open.push(stream);
            }
            let mut third = TcpStream::connect(address).await.unwrap();
            third.write_all(HELLO).await.unwrap();
            let early = volt::time::timeout(Duration::from_millis(50), third.readable()).await;
            assert!(early.is_err(), "it waits while two are open");
            open.pop();
            read_hello(&mut third).await;
        });
    });
}

#[test]
fn an_unread_response_is_ended_by_the_write_timeout() {
    /// Far more than the buffers of a socket and its peer can store.
    const LEN: usize = 32 << 20;
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let large = hello().route("/large", get(|| async { vec![0u8; LEN] }));
            let server = volt::axum::serve(listener, large)
                .max_connections(2)
                .header_read_timeout(LONG)
                .write_timeout(Duration::from_millis(200));
            volt::spawn(async move { server.await });
            let mut silent = Vec::new();
            for _ in 0..2 {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
                silent.push(stream);
            }
            let mut third = connect(address).await;
            assert_eq!(fetch(&mut third, "/", "").await.0, 200);
            let (status, body) = fetch(&mut third, "/large", "").await;
            assert_eq!((status, body.len()), (200, LEN), "the client receives the whole body");
            for stream in &mut silent {
                assert!(read_to_close(stream).await < LEN);
            }
        });
    });
}

#[test]
fn heads_above_the_limit_are_refused() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let server = volt::axum::serve(listener, hello()).max_header_bytes(1_000);
            volt::spawn(async move { server.await });
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(2_000));
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut status = [0; 12];
            stream.read_exact(&mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 431");
        });
    });
}

#[test]
fn graceful_shutdown_finishes_requests_and_accepts_no_new_ones() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let begun = Arc::new(AtomicUsize::new(0));
            let is_ending = Arc::new(AtomicUsize::new(0));
            let slow = {
                let (begun, is_ending) = (begun.clone(), is_ending.clone());
                get(move || async move {
                    begun.store(1, Ordering::Relaxed);
                    while is_ending.load(Ordering::Relaxed) == 0 {
                        volt::task::yield_now().await;
                    }
                    "done"
                })
            };
            let (listener, address) = listen().await;
            let (stop, stopped) = (volt::spawn(std::future::pending::<()>()), Arc::new(AtomicUsize::new(0)));
            let abort = stop.abort_handle();
            let server = volt::axum::serve(listener, hello().route("/slow", slow))
                .header_read_timeout(LONG)
                .with_graceful_shutdown(async move { drop(stop.await) });
            let server = {
                let stopped = stopped.clone();
                volt::spawn(async move {
                    let result = server.await;
                    stopped.store(1, Ordering::Relaxed);
                    result
                })
            };
            let mut idle = TcpStream::connect(address).await.unwrap();
            idle.write_all(HELLO).await.unwrap();
            read_hello(&mut idle).await;
            let request = volt::spawn(async move { fetch(&mut connect(address).await, "/slow", "").await });
            while begun.load(Ordering::Relaxed) == 0 {
                volt::task::yield_now().await;
            }
            abort.abort();
            assert_eq!(read_to_close(&mut idle).await, 0, "an idle connection is closed immediately");
            let refused = async {
                while TcpStream::connect(address).await.is_ok() {
                    volt::task::yield_now().await;
                }
            };
            refused.await;
            assert_eq!(stopped.load(Ordering::Relaxed), 0, "it waits for the request that is going on");
            is_ending.store(1, Ordering::Relaxed);
            assert_eq!(request.await.unwrap(), (200, Bytes::from("done")));
            server.await.unwrap().unwrap();
        });
    });
}

#[test]
fn a_request_received_before_shutdown_is_answered() {
    watchdog::with_one_worker(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let (end, ended) = volt::sync::oneshot::channel();
            let ended = async move { drop(ended.await) };
            let server = volt::axum::serve(listener, hello()).header_read_timeout(LONG).with_graceful_shutdown(ended);
            let server = volt::spawn(async move { server.await });
            let mut idle = TcpStream::connect(address).await.unwrap();
            idle.write_all(HELLO).await.unwrap();
            read_hello(&mut idle).await;
            let (mut ends, ender) = volt::net::UnixStream::pair().unwrap();
            let ends = volt::spawn(async move {
                ends.read_exact(&mut [0]).await.unwrap();
                end.send(()).unwrap();
            });
            // Behind that task, which waits by then.
            volt::spawn(async {}).await.unwrap();
            // The end of the server and the request come in one turn of the driver, in this order,
            // while the worker is in this poll.
            let idle = volt::spawn(async move {
                ender.try_write(&[0]).unwrap();
                assert_eq!(idle.try_write(HELLO).unwrap(), HELLO.len());
                std::thread::sleep(Duration::from_millis(50));
                (idle, ender)
            });
            let (mut idle, _ender) = idle.await.unwrap();
            read_hello(&mut idle).await;
            assert_eq!(read_to_close(&mut idle).await, 0);
            ends.await.unwrap();
            server.await.unwrap().unwrap();
        });
    });
}

#[test]
fn dropping_a_server_closes_its_listener() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let server = volt::spawn(async move { volt::axum::serve(listener, hello()).await });
            assert_eq!(fetch(&mut connect(address).await, "/", "").await.0, 200);
            server.abort();
            assert!(server.await.unwrap_err().is_cancelled());
            assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
    });
}

/// After its answer, uses another protocol on the same connection: it returns its input twice.
async fn upgrade(mut request: axum::extract::Request) -> axum::response::Response {
    let upgrade = hyper::upgrade::on(&mut request);
    volt::spawn(async move {
        let mut stream = VoltIo::new(upgrade.await.unwrap());
        let mut word = [0; 4];
        stream.read_exact(&mut word).await.unwrap();
        stream.write_all(&word).await.unwrap();
        stream.write_all(&word).await.unwrap();
    });
    let answer =
        axum::response::Response::builder().status(101).header("upgrade", "twice").header("connection", "upgrade");
    answer.body(axum::body::Body::empty()).unwrap()
}

#[test]
fn a_connection_may_be_upgraded_to_another_protocol() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(Router::new().route("/", get(upgrade))).await;
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream
                .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: twice\r\nconnection: upgrade\r\n\r\nword")
                .await
                .unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            let answer = String::from_utf8(answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 101") && answer.ends_with("\r\n\r\nwordword"), "{answer}");
        });
    });
}

/// Creates a router for each connection, with the address of the peer.
#[derive(Clone)]
struct ForPeer;

impl tower_service::Service<SocketAddr> for ForPeer {
    type Response = Router;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Router, std::convert::Infallible>>;

    fn poll_ready(&mut self, _cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, peer: SocketAddr) -> Self::Future {
        std::future::ready(Ok(Router::new().route("/", get(move || async move { peer.to_string() }))))
    }
}

#[test]
fn a_service_may_be_made_for_each_peer() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            volt::spawn(async move { volt::axum::serve(listener, ForPeer).await });
            for _ in 0..3 {
                let stream = TcpStream::connect(address).await.unwrap();
                let here = stream.local_addr().unwrap().to_string();
                let (mut sender, connection) = handshake(VoltIo::new(stream)).await.unwrap();
                VoltExecutor::new().execute(connection);
                assert_eq!(fetch(&mut sender, "/", "").await, (200, Bytes::from(here)));
            }
        });
    });
}

#[test]
fn settings_that_cannot_work_are_errors_with_their_name() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let connections = volt::axum::serve(listen().await.0, hello()).max_connections(0).await;
            let bytes = volt::axum::serve(listen().await.0, hello()).max_header_bytes(0).await;
            let time = volt::axum::serve(listen().await.0, hello()).header_read_timeout(Duration::ZERO).await;
            let writes = volt::axum::serve(listen().await.0, hello()).write_timeout(Duration::ZERO).await;
            for (setting, result) in [
                ("max_connections", connections),
                ("max_header_bytes", bytes),
                ("header_read_timeout", time),
                ("write_timeout", writes),
            ] {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().starts_with(&format!("{setting} is 0")), "{error}");
            }
        });
    });
}
