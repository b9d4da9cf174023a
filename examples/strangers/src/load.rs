//! Clients that send requests to a server for some time, each on its own connection, and measure
//! how long the responses take.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use futures_util::future::try_join_all;
use futures_util::{SinkExt, StreamExt};
use hyper::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::grpc::SERVICE;
use crate::tls::{self, Error};

/// The longest body of a response, in bytes.
const BODY_MAX: usize = 1 << 20;

/// The result of all clients.
#[derive(Debug)]
pub struct Measured {
    pub requests: f64,
    pub requests_per_second: f64,
    /// In milliseconds.
    pub p99_ms: f64,
    /// The response, which was the same for all requests.
    pub answer: String,
}

/// A client with an open connection.
pub enum Client {
    Http { sender: http1::SendRequest<Body>, host: String, path: String },
    Https { client: reqwest::Client, url: String },
    WebSocket(Box<WebSocketStream<TcpStream>>),
    Grpc(HealthClient<Channel>),
    Redis(TcpStream),
}

impl Client {
    pub async fn http(address: SocketAddr, path: &str) -> Result<Self, Error> {
        let (sender, connection) = http1::handshake(TokioIo::new(connect(address).await?)).await?;
        tokio::spawn(connection);
        Ok(Client::Http { sender, host: address.to_string(), path: path.to_owned() })
    }

    /// Uses a separate client for each connection, because a client shares its own.
    pub fn https(address: SocketAddr, path: &str, certificate: &str) -> Result<Self, Error> {
        let url = format!("https://localhost:{}{path}", address.port());
        Ok(Client::Https { client: tls::client(certificate)?, url })
    }

    pub async fn websocket(address: SocketAddr, path: &str) -> Result<Self, Error> {
        let stream = connect(address).await?;
        let (socket, _) = tokio_tungstenite::client_async(format!("ws://{address}{path}"), stream).await?;
        Ok(Client::WebSocket(Box::new(socket)))
    }

    pub async fn grpc(address: SocketAddr) -> Result<Self, Error> {
        Ok(Client::Grpc(HealthClient::new(Endpoint::from_shared(format!("http://{address}"))?.connect().await?)))
    }

    /// A client of the Redis protocol. Sets the key that it will read.
    pub async fn redis(address: SocketAddr) -> Result<Self, Error> {
        let mut client = Client::Redis(connect(address).await?);
        let answer = client.command(b"*3\r\n$3\r\nSET\r\n$4\r\nitem\r\n$6\r\nitem 7\r\n").await?;
        if answer == "+OK\r\n" { Ok(client) } else { Err(format!("SET answered {answer:?}").into()) }
    }

    /// Sends a request, and returns the response.
    pub async fn request(&mut self) -> Result<String, Error> {
        match self {
            Client::Http { sender, host, path } => {
                let request = Request::get(&*path).header("host", &*host).body(Body::empty())?;
                // The task of the connection may still be busy with the previous response.
                sender.ready().await?;
                let answer = sender.send_request(request).await?;
                let status = answer.status();
                let text = String::from_utf8(to_bytes(Body::new(answer.into_body()), BODY_MAX).await?.into())?;
                if status.is_success() { Ok(text) } else { Err(format!("{status}: {text}").into()) }
            }
            Client::Https { client, url } => Ok(client.get(&*url).send().await?.error_for_status()?.text().await?),
            Client::WebSocket(socket) => {
                socket.send(Message::text("hello")).await?;
                Ok(socket.next().await.ok_or("the WebSocket was closed")??.into_text()?.to_string())
            }
            Client::Grpc(client) => {
                let answer = client.check(HealthCheckRequest { service: SERVICE.to_owned() }).await?;
                Ok(format!("{:?}", answer.into_inner().status()))
            }
            Client::Redis(_) => self.command(b"*2\r\n$3\r\nGET\r\n$4\r\nitem\r\n").await,
        }
    }

    /// Sends a command in Redis' protocol, and returns the response, which fits into a packet.
    async fn command(&mut self, bytes: &[u8]) -> Result<String, Error> {
        let Client::Redis(stream) = self else { return Err("this is no client of Redis".into()) };
        stream.write_all(bytes).await?;
        let mut answer = [0; 64];
        let length = stream.read(&mut answer).await?;
        Ok(String::from_utf8(answer[..length].to_vec())?)
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Lets each client send one request after the other for this time.
///
/// # Errors
///
/// Fails if a request fails, or if the responses differ.
pub async fn run(clients: Vec<Client>, duration: Duration) -> Result<Measured, Error> {
    let began = Instant::now();
    let tasks = clients.into_iter().map(|client| tokio::spawn(one(client, began + duration)));
    let mut results = Vec::new();
    for result in try_join_all(tasks).await? {
        results.push(result?);
    }
    let seconds = began.elapsed().as_secs_f64();
    let answer = results.first().ok_or("there are no clients")?.1.clone();
    if let Some((_, other)) = results.iter().find(|(_, other)| *other != answer) {
        return Err(format!("responses differ: {answer:?} and {other:?}").into());
    }
    let mut latencies: Vec<_> = results.into_iter().flat_map(|(latencies, _)| latencies).collect();
    latencies.sort_unstable();
    let quantile = |ratio: f64| latencies[((latencies.len() - 1) as f64 * ratio) as usize].as_secs_f64() * 1e3;
    Ok(Measured {
        requests: latencies.len() as f64,
        requests_per_second: latencies.len() as f64 / seconds,
        p99_ms: quantile(0.99),
        answer,
    })
}

/// Sends at least one request. Returns how long each took, and the response.
async fn one(mut client: Client, deadline: Instant) -> Result<(Vec<Duration>, String), Error> {
    let (mut latencies, mut first) = (Vec::new(), None);
    loop {
        let began = Instant::now();
        let answer = client.request().await?;
        latencies.push(began.elapsed());
        let first = first.get_or_insert_with(|| answer.clone());
        if *first != answer {
            return Err(format!("responses differ: {first:?} and {answer:?}").into());
        }
        if Instant::now() >= deadline {
            return Ok((latencies, answer));
        }
    }
}
