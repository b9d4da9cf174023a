//! HTTP servers and clients of hyper and h2, over a pipe in memory.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use volt::hyper::{VoltExecutor, VoltIo};

use crate::case::Case;

pub fn all() -> Vec<fn() -> Case> {
    vec![hyper_http1_idle, hyper_http1_in_handler, hyper_http2_server, h2_server_accept, hyper_http2_client]
}

async fn answers(_request: Request<Incoming>, notify: Arc<Notify>) -> Result<Response<Empty<Bytes>>, Infallible> {
    notify.notified().await; // POINT handler
    Ok(Response::new(Empty::new()))
}

fn empty_request() -> Request<Empty<Bytes>> {
    Request::builder().uri("http://shop/").body(Empty::new()).unwrap()
}

/// Writes a request, without waiting for the answer.
async fn request(pipe: &mut DuplexStream) {
    pipe.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\n\r\n").await.unwrap();
}

/// An HTTP/2 client that sends a request when it is notified.
async fn http2_client(pipe: DuplexStream, begin: Arc<Notify>) {
    let (mut sender, connection) =
        client::conn::http2::handshake::<_, _, Empty<Bytes>>(VoltExecutor::new(), VoltIo::new(pipe)).await.unwrap();
    volt::spawn(connection);
    begin.notified().await;
    let _answer = sender.send_request(empty_request()).await;
    std::future::pending::<()>().await;
}

fn hyper_http1_idle() -> Case {
    let (ours, theirs) = duplex(4096);
    Case::new(async move {
        let service = service_fn(|request| answers(request, Arc::default()));
        server::conn::http1::Builder::new().serve_connection(VoltIo::new(ours), service).await.unwrap(); // AWAIT
    })
    .ends_at(["hyper::server::conn::http1"])
    .then(move || drop(theirs))
}

fn hyper_http1_in_handler() -> Case {
    let (ours, mut theirs) = duplex(4096);
    let notify = Arc::new(Notify::new());
    let other = notify.clone();
    Case::new(async move {
        request(&mut theirs).await;
        let service = service_fn(move |request| answers(request, notify.clone()));
        let connection =
            server::conn::http1::Builder::new().keep_alive(false).serve_connection(VoltIo::new(ours), service);
        connection.await.unwrap(); // AWAIT handler
        drop(theirs);
    })
    // The connection reads on meanwhile, so that it detects that the client has left.
    .ends_at(["tokio::sync::notify", "hyper::server::conn::http1"])
    .then(move || other.notify_one())
}

fn hyper_http2_server() -> Case {
    let (ours, theirs) = duplex(4096);
    let client = volt::spawn(http2_client(theirs, Arc::default()));
    Case::new(async move {
        let service = service_fn(|request| answers(request, Arc::default()));
        let connection =
            server::conn::http2::Builder::new(VoltExecutor::new()).serve_connection(VoltIo::new(ours), service);
        let _ended = connection.await; // AWAIT
    })
    .ends_at(["hyper::server::conn::http2"])
    .then(move || client.abort())
}

fn h2_server_accept() -> Case {
    let (ours, theirs) = duplex(4096);
    let begin = Arc::new(Notify::new());
    volt::spawn(http2_client(theirs, begin.clone()));
    Case::new(async move {
        let mut connection = h2::server::handshake(ours).await.unwrap();
        connection.accept().await.unwrap().unwrap(); // AWAIT
    })
    .ends_at(["h2::server"])
    .then(move || begin.notify_one())
}

fn hyper_http2_client() -> Case {
    let (ours, theirs) = duplex(4096);
    let begin = Arc::new(Notify::new());
    let answer = begin.clone();
    volt::spawn(async move {
        let mut connection = h2::server::handshake(theirs).await.unwrap();
        let (_request, mut respond) = connection.accept().await.unwrap().unwrap();
        volt::spawn(async move {
            answer.notified().await;
            let _is_sent = respond.send_response(Response::new(()), true);
        });
        while connection.accept().await.is_some() {}
    });
    Case::new(async move {
        let (mut sender, connection) =
            client::conn::http2::handshake::<_, _, Empty<Bytes>>(VoltExecutor::new(), VoltIo::new(ours)).await.unwrap();
        let answer = async {
            let _answer = sender.send_request(empty_request()).await; // AWAIT
        };
        futures::future::select(Box::pin(connection), Box::pin(answer)).await; // AWAIT
    })
    .ends_at(["hyper::client", "tokio::sync::oneshot"])
    .then(move || begin.notify_one())
}
