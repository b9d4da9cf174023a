//! Sockets by the thousand, and for long: a proxy under load, and connections that do nothing. The
//! servers are processes of their own, so that what they hold can be told from what their clients
//! hold.
//!
//! `VOLT_PROXY_SECONDS` says how long the load lasts, 5 unless set.

mod within;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use strangers::proxy::raise_descriptor_limit;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::TcpStream;
use within::{Error, Server, on_volt};

/// Clients of the proxy at once.
const CLIENTS: usize = 100;
/// What a third of the load may leave behind, bytes. One of them may leave more: the lines of code
/// that a program's first stuck poll is named with stay.
const SLACK: u64 = 1 << 20;
/// Connections that are open and idle.
const IDLE: usize = 10_000;

/// Descriptors that a server opens for itself after its start: its control socket, what the
/// sentinel reads of each thread.
const OWN_DESCRIPTORS: usize = 64;

/// What `server` has in memory once it has closed what it held beyond `descriptors`.
async fn once_closed(server: &Server, descriptors: usize) -> u64 {
    while server.descriptors() > descriptors + OWN_DESCRIPTORS {
        volt::time::sleep(Duration::from_millis(20)).await;
    }
    server.resident()
}

/// Messages of up to 64 KiB to and fro, on connection after connection, until `deadline`; says how
/// many bytes.
async fn load(address: std::net::SocketAddr, seed: usize, deadline: Instant) -> Result<u64, Error> {
    let (mut bytes, mut length) = (0, 1 + seed * 7919 % 65_536);
    while Instant::now() < deadline {
        let mut stream = TcpStream::connect(address).await?;
        for _ in 0..20 {
            length = 1 + (length * 31 + 17) % 65_536;
            let message = vec![length as u8; length];
            let mut answer = vec![0; length];
            let (mut reader, mut writer) = stream.split();
            let (sent, received) = volt::join!(writer.write_all(&message), reader.read_exact(&mut answer));
            sent?;
            received?;
            assert!(answer == message);
            bytes += length as u64;
        }
        // Half of them say good-bye, the others just go.
        if length % 2 == 0 {
            stream.shutdown().await?;
            assert_eq!(stream.read(&mut [0]).await?, 0, "the proxy passes the end on");
        }
    }
    Ok(bytes)
}

#[test]
fn a_proxy_under_load_grows_neither_in_memory_nor_in_descriptors() {
    let seconds = std::env::var("VOLT_PROXY_SECONDS")
        .map_or(5, |seconds| seconds.parse().expect("VOLT_PROXY_SECONDS is a number"));
    let third = Duration::from_secs_f64(seconds as f64 / 3.0);
    let limit = third * 6 + Duration::from_secs(120);
    on_volt(limit, async || {
        let echo = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
        let proxy = Server::start(env!("CARGO_BIN_EXE_proxy"), &["--to", &echo.address.to_string()]);
        let descriptors = proxy.descriptors();
        let mut resident = Vec::new();
        // Buffers and tasks' memory that are kept are there after the first third.
        for _ in 0..3 {
            let deadline = Instant::now() + third;
            let address = proxy.address;
            let clients = (0..CLIENTS).map(|seed| volt::spawn(load(address, seed, deadline)));
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
    on_volt(Duration::from_secs(300), async || {
        let echo = Server::start(env!("CARGO_BIN_EXE_echo"), &[]);
        let (before, descriptors, sockets) = (echo.resident(), echo.descriptors(), echo.sockets());
        let mut streams = Vec::new();
        for _ in 0..IDLE / 100 {
            let some = join_all((0..100).map(|_| TcpStream::connect(echo.address))).await;
            streams.extend(some.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
        let ask = async |stream: &mut TcpStream| {
            stream.write_all(b"there?").await?;
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"there?");
            Ok::<_, Error>(())
        };
        for round in 0..2 {
            for stream in &mut streams {
                ask(stream).await?;
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
