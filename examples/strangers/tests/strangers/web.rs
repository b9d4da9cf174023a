//! Tests of the axum application, with reqwest and a WebSocket client.

use std::net::SocketAddr;
use std::time::Duration;

use crate::within::{Error, listen, on_runtimes};
use futures_util::{SinkExt, StreamExt, future::join_all};
use strangers::tls;
use strangers::web::{Item, PARTS, router};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

const LIMIT: Duration = Duration::from_secs(120);

async fn serve() -> Result<SocketAddr, Error> {
    let (listener, address) = listen().await?;
    let service = router().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(address)
}

#[test]
fn json_is_sent_received_and_compressed() {
    on_runtimes(LIMIT, async || {
        let url = format!("http://{}/api/item", serve().await?);
        let client = reqwest::Client::builder().gzip(false).build()?;
        let answer = client.get(&url).header("accept-encoding", "gzip").send().await?;
        assert_eq!(answer.headers()["content-encoding"], "gzip");
        // reqwest decompresses it.
        assert_eq!(reqwest::get(&url).await?.json::<Item>().await?, Item::example());
        let item = Item { name: "sent".into(), tags: vec![] };
        assert_eq!(client.post(&url).json(&item).send().await?.json::<Item>().await?, item);
        Ok(())
    });
}

#[test]
fn a_request_that_takes_too_long_is_answered_by_the_timeout() {
    on_runtimes(LIMIT, async || {
        let answer = reqwest::get(format!("http://{}/api/slow", serve().await?)).await?;
        assert_eq!(answer.status(), 408);
        Ok(())
    });
}

#[test]
fn a_handler_receives_the_caller() {
    on_runtimes(LIMIT, async || {
        let client = reqwest::Client::new();
        let answer = client.get(format!("http://{}/who", serve().await?)).send().await?.text().await?;
        let peer: SocketAddr = answer.parse()?;
        assert!(peer.ip().is_loopback() && peer.port() != 0);
        Ok(())
    });
}

#[test]
fn a_body_streams_part_by_part_and_all_events_arrive() {
    on_runtimes(LIMIT, async || {
        let address = serve().await?;
        let mut parts = reqwest::get(format!("http://{address}/stream")).await?.bytes_stream();
        let (mut text, mut chunks) = (Vec::new(), 0);
        while let Some(part) = parts.next().await {
            text.extend_from_slice(&part?);
            chunks += 1;
        }
        assert_eq!(text, (0..PARTS).map(|part| format!("part {part}\n")).collect::<String>().into_bytes());
        assert!(chunks > 1, "it came in one");
        let answer = reqwest::get(format!("http://{address}/events")).await?;
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert_eq!(answer.text().await?.matches("data: tick\n").count(), PARTS);
        Ok(())
    });
}

#[test]
fn a_websocket_echoes() {
    on_runtimes(LIMIT, async || {
        let address = serve().await?;
        let sockets = (0..20).map(async |number| {
            let stream = TcpStream::connect(address).await?;
            let (mut socket, _) = tokio_tungstenite::client_async(format!("ws://{address}/echo"), stream).await?;
            for message in 0..50 {
                let message = Message::text(format!("{number}: {message}"));
                socket.send(message.clone()).await?;
                assert_eq!(socket.next().await.ok_or("closed")??, message);
            }
            socket.close(None).await?;
            Ok::<_, Error>(())
        });
        join_all(sockets).await.into_iter().collect()
    });
}

#[test]
fn http2_without_tls_carries_many_concurrent_requests() {
    on_runtimes(LIMIT, async || {
        let url = format!("http://{}/api/item", serve().await?);
        let client = reqwest::Client::builder().http2_prior_knowledge().build()?;
        let answers = join_all((0..100).map(|_| client.get(&url).send())).await;
        for answer in answers {
            let answer = answer?;
            assert_eq!(answer.version(), reqwest::Version::HTTP_2);
            assert_eq!(answer.json::<Item>().await?, Item::example());
        }
        Ok(())
    });
}

#[test]
fn a_stalled_tls_handshake_does_not_block_https_clients() {
    on_runtimes(LIMIT, async || {
        let (listener, address) = listen().await?;
        let (acceptor, certificate) = tls::self_signed()?;
        tokio::spawn(tls::serve(listener, acceptor, router()));
        let _stalled = TcpStream::connect(address).await?;
        let url = format!("https://localhost:{}", address.port());
        let client = tls::client(&certificate)?;
        assert_eq!(client.get(&url).send().await?.text().await?, "hello");
        let answers = join_all((0..100).map(|_| client.get(format!("{url}/api/item")).send())).await;
        for answer in answers {
            assert_eq!(answer?.json::<Item>().await?, Item::example());
        }
        // A client that does not trust the certificate.
        let (_, other) = tls::self_signed()?;
        assert!(tls::client(&other)?.get(&url).send().await.unwrap_err().is_connect());
        Ok(())
    });
}
