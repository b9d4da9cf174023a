//! HTTP/2 without TLS, and connections that only begin like it.

use super::*;

#[test]
fn http2_is_detected_by_the_first_bytes_and_ends_gracefully() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let (end, ended) = volt::sync::oneshot::channel();
            let ended = async move { drop(ended.await) };
            let server = volt::axum::serve(listener, hello()).header_read_timeout(LONG).with_graceful_shutdown(ended);
            let server = volt::spawn(async move { server.await });
            let stream = TcpStream::connect(address).await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(VoltExecutor::new(), VoltIo::new(stream)).await.unwrap();
            let connection = volt::spawn(connection);
            // At the same time, on one connection.
            let fetch = |sender: &mut hyper::client::conn::http2::SendRequest<Full<Bytes>>| {
                let request = Request::get("http://localhost/").body(Full::default()).unwrap();
                sender.send_request(request)
            };
            let (one, other) = volt::join!(fetch(&mut sender.clone()), fetch(&mut sender));
            for answer in [one.unwrap(), other.unwrap()] {
                assert_eq!((answer.version(), answer.status().as_u16()), (hyper::Version::HTTP_2, 200));
                assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
            }
            assert_eq!(self::fetch(&mut connect(address).await, "/", "").await.0, 200, "HTTP/1 beside it");
            end.send(()).unwrap();
            server.await.unwrap().unwrap();
            connection.await.unwrap().unwrap();
        });
    });
}

#[test]
fn a_websocket_may_come_over_http2() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let address = serve(Router::new().route("/", axum::routing::any(|| async { "open" }))).await;
            let stream = TcpStream::connect(address).await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(VoltExecutor::new(), VoltIo::new(stream)).await.unwrap();
            VoltExecutor::new().execute(connection);
            // The server's settings come before its first answer.
            let first = Request::get("http://localhost/").body(Full::<Bytes>::default()).unwrap();
            assert_eq!(sender.send_request(first).await.unwrap().status().as_u16(), 200);
            // RFC 8441
            let opens = Request::connect("http://localhost/").extension(hyper::ext::Protocol::from_static("websocket"));
            let opened = sender.send_request(opens.body(Full::default()).unwrap()).await.unwrap();
            assert_eq!(opened.status().as_u16(), 200);
        });
    });
}

#[test]
fn a_partial_http2_preface_is_served_as_http1_or_times_out() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let server = volt::axum::serve(listener, hello()).header_read_timeout(Duration::from_millis(50));
            volt::spawn(async move { server.await });
            let mut half = TcpStream::connect(address).await.unwrap();
            half.write_all(b"PRI * HTTP/2.0\r\n\r\nSM").await.unwrap();
            assert_eq!(volt::time::timeout(LONG / 60, read_to_close(&mut half)).await.expect("in time"), 0);
            let mut other = TcpStream::connect(address).await.unwrap();
            other.write_all(b"P").await.unwrap();
            other.write_all(b"OST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            let mut status = [0; 12];
            other.read_exact(&mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 405");
        });
    });
}
