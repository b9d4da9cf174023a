//! Tests with thousands of sockets, and over a longer time: a proxy under load, and idle
//! connections. The servers are separate programs, so that their resources can be distinguished
//! from those of their clients.
//!
//! `VOLT_PROXY_SECONDS` sets how long the load lasts (default 5).

use std::time::{Duration, Instant};

use crate::within::{Error, Server, on_runtimes};
use futures_util::future::join_all;
use strangers::proxy::raise_descriptor_limit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The number of simultaneous clients of the proxy.
const CLIENTS: usize = 100;
/// How many bytes a third of the load may leave behind. One third may leave more: the debug
/// information that is loaded for a program's first stuck poll stays in memory.
const SLACK: u64 = 1 << 20;
/// The number of open and idle connections.
const IDLE: usize = 10_000;

/// Descriptors that a server opens itself after its start: its control socket, and files that the
/// sentinel reads for each thread.
const OWN_DESCRIPTORS: usize = 64;

/// Waits until `server` has closed its descriptors beyond `descriptors`, and returns its memory.
async fn once_closed(server: &Server, descriptors: usize) -> u64 {
    while server.descriptors() > descriptors + OWN_DESCRIPTORS {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.resident()
}

/// Sends messages of up to 64 KiB back and forth, on one connection after the other, until
/// `deadline`. Returns the number of bytes.
async fn load(address: std::net::SocketAddr, seed: usize, deadline: Instant) -> Result<u64, Error> {
    let (mut bytes, mut length) = (0, 1 + seed * 7919 % 65_536);
    while Instant::now() < deadline {
        let mut stream = TcpStream::connect(address).await?;
        for _ in 0..20 {
            length = 1 + (length * 31 + 17) % 65_536;
            let message = vec![length as u8; length];
            let mut answer = vec![0; length];
            let (mut reader, mut writer) = stream.split();
            let (sent, received) = tokio::join!(writer.write_all(&message), reader.read_exact(&mut answer));
            sent?;
            received?;
            assert!(answer == message);
            bytes += length as u64;
        }
        // Half of the connections are shut down properly; the others are just dropped.
        if length % 2 == 0 {
            stream.shutdown().await?;
            assert_eq!(stream.read(&mut [0]).await?, 0, "the proxy passes the end on");
        }
    }
    Ok(bytes)
}

#[test]
fn a_proxy_under_load_leaks_neither_memory_nor_descriptors() {
    let seconds = std::env::var("VOLT_PROXY_SECONDS")
        .map_or(5, |seconds| seconds.parse().expect("VOLT_PROXY_SECONDS is a number"));
    let third = Duration::from_secs_f64(seconds as f64 / 3.0);
    let limit = third * 6 + Duration::from_secs(120);
    on_runtimes(limit, async || {
        let echo = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
        let proxy = Server::start(env!("CARGO_BIN_EXE_proxy"), &["--to", &echo.address.to_string()]);
        let descriptors = proxy.descriptors();
        let mut resident = Vec::new();
        // Buffers and task memory that are kept for reuse exist after the first third.
        for _ in 0..3 {
            let deadline = Instant::now() + third;
            let address = proxy.address;
            let clients = (0..CLIENTS).map(|seed| tokio::spawn(load(address, seed, deadline)));
            let mut bytes = 0;
            for client in join_all(clients).await {
                bytes += client??;
            }
            resident.push(once_closed(&proxy, descriptors).await);
            println!("{} MB passed, {} KB resident afterwards", bytes / 1_000_000, resident[resident.len() - 1] / 1024);
        }
        let grows = resident.windows(2).all(|pair| pair[1] > pair[0] + SLACK);
        assert!(!grows, "it grows: {resident:?}");
        Ok(())
    });
}

#[test]
fn ten_thousand_idle_connections_are_kept_and_answer_afterwards() {
    let limit = raise_descriptor_limit().unwrap();
    assert!(limit > IDLE as u64 + 100, "{limit} descriptors are allowed: raise `ulimit -Hn` above {IDLE}");
    on_runtimes(Duration::from_secs(300), async || {
        let echo = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
        let (before, descriptors, sockets) = (echo.resident(), echo.descriptors(), echo.sockets());
        let mut streams = Vec::new();
        for _ in 0..IDLE / 100 {
            let some = join_all((0..100).map(|_| TcpStream::connect(echo.address))).await;
            streams.extend(some.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
        let echo_once = async |stream: &mut TcpStream| {
            stream.write_all(b"there?").await?;
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"there?");
            Ok::<_, Error>(())
        };
        for round in 0..2 {
            for stream in &mut streams {
                echo_once(stream).await?;
            }
            println!("round {round}: {} bytes resident a connection", (echo.resident() - before) / IDLE as u64);
        }
        let held = echo.sockets() - sockets;
        assert!(held >= IDLE, "of {IDLE} connections, {held} are open");
        drop(streams);
        once_closed(&echo, descriptors).await;
        Ok(())
    });
}
