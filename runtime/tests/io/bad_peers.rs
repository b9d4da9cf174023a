//! Peers and names that misbehave: the errors have the expected kind, memory stays bounded, and
//! other tasks are not disturbed. (Out of descriptors: `accept_emfile.rs`. SIGPIPE:
//! `signals/sigpipe.rs`.)

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::watchdog::with_workers;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, lookup_host};
use volt::time::{sleep, timeout};

const SOON: Duration = Duration::from_millis(20);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Returns one end of Volt's type, and one of the standard library's, which the test controls.
async fn pair() -> (TcpStream, std::net::TcpStream) {
    let (listener, addr) = listen().await;
    let peer = std::net::TcpStream::connect(addr).unwrap();
    (listener.accept().await.unwrap().0, peer)
}

/// Runs an echo at the same time, which must continue: each answer is awaited.
async fn echo_beside() -> volt::task::JoinHandle<u32> {
    let (listener, addr) = listen().await;
    volt::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut reader, mut writer) = stream.split();
        volt::io::copy(&mut reader, &mut writer).await.unwrap();
    });
    volt::spawn(async move {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        for n in 0..50u32 {
            stream.write_all(&n.to_be_bytes()).await.unwrap();
            assert_eq!(stream.read_u32().await.unwrap(), n);
        }
        50
    })
}

#[test]
fn a_peer_that_closes_ends_the_stream_and_then_breaks_the_pipe() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (mut stream, peer) = pair().await;
            drop(peer);
            assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
            assert_eq!(stream.read_u8().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
            // The first write brings the answer that the peer has left, and a later one fails
            // because of it.
            let error = loop {
                if let Err(error) = stream.write_all(b"x").await {
                    break error;
                }
            };
            assert!([ErrorKind::BrokenPipe, ErrorKind::ConnectionReset].contains(&error.kind()), "{error}");
            assert_eq!(stream.write_all(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        });
    });
}

#[test]
fn a_reset_fails_the_waiting_read_and_no_other_connection() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let beside = echo_beside().await;
            let (mut stream, peer) = pair().await;
            let waits = volt::spawn(async move { stream.read(&mut [0; 8]).await });
            rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
            drop(peer);
            assert_eq!(waits.await.unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
            assert_eq!(beside.await.unwrap(), 50);
        });
    });
}

#[test]
fn a_timeout_ends_a_stalled_connection_and_frees_its_descriptor() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let beside = echo_beside().await;
            // The peer sends a part of the announced length, and is silent from then on.
            let (mut stream, mut peer) = pair().await;
            peer.write_all(&[0, 0, 0, 9, 1, 2]).unwrap();
            let whole = async {
                let len = stream.read_u32().await?;
                let mut bytes = vec![0; len as usize];
                stream.read_exact(&mut bytes).await.map(|_| bytes)
            };
            assert!(timeout(SOON, whole).await.is_err());
            drop(stream);
            assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
            assert_eq!(beside.await.unwrap(), 50);
        });
        while runtime.handle().snapshot().driver.registrations > 0 {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_reader_that_never_reads_applies_backpressure() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let beside = echo_beside().await;
            let (mut stream, peer) = pair().await;
            let mut written = 0usize;
            let chunk = vec![7; 64 * 1024];
            loop {
                while let Ok(result) = timeout(SOON, stream.write(&chunk)).await {
                    written += result.unwrap();
                    assert!(written < 64 << 20, "{written} bytes went somewhere");
                }
                // The kernel may find more room after a while.
                match stream.try_write(&chunk) {
                    Ok(more) => written += more,
                    Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            assert_eq!(beside.await.unwrap(), 50);
            // A write that was dropped has written nothing.
            drop(stream);
            let mut peer = peer;
            let mut received = 0;
            let mut buffer = vec![0; 64 * 1024];
            loop {
                match peer.read(&mut buffer).unwrap() {
                    0 => break,
                    read => received += read,
                }
            }
            assert_eq!(received, written);
        });
    });
}

#[test]
fn a_peer_sending_single_bytes_does_not_delay_others() {
    const BYTES: usize = 30;
    with_workers(|runtime| {
        runtime.block_on(async {
            let (mut stream, mut peer) = pair().await;
            peer.set_nodelay(true).unwrap();
            let beside = echo_beside().await;
            let reads = volt::spawn(async move {
                let mut line = [0; BYTES];
                stream.read_exact(&mut line).await.unwrap();
                line
            });
            for byte in 0..BYTES {
                assert!(!reads.is_finished());
                peer.write_all(&[byte as u8]).unwrap();
                sleep(Duration::from_millis(2)).await;
            }
            assert!(reads.await.unwrap().iter().enumerate().all(|(n, &byte)| n == usize::from(byte)));
            assert_eq!(beside.await.unwrap(), 50);
        });
    });
}

#[test]
fn a_partial_write_completes_in_order() {
    const LEN: usize = 256 << 10;
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            let socket = TcpSocket::new_v4().unwrap();
            // So small that each write is partial.
            socket.set_send_buffer_size(4096).unwrap();
            let (client, accepted) = volt::join!(socket.connect(addr), listener.accept());
            let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
            let bytes: Vec<u8> = (0..LEN).map(|n| (n % 241) as u8).collect();
            let sent = bytes.clone();
            let writes = volt::spawn(async move {
                let first = client.write(&sent).await.unwrap();
                assert!(first < LEN, "the first write took everything");
                client.write_all(&sent[first..]).await.unwrap();
            });
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.unwrap();
            writes.await.unwrap();
            assert!(received == bytes);
        });
    });
}

#[test]
fn connecting_to_nowhere_is_refused_unreachable_or_times_out() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            drop(listener);
            assert_eq!(TcpStream::connect(addr).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            // No host has this address, and no network has a route to it.
            let error = TcpStream::connect(("255.255.255.255", 1)).await.unwrap_err();
            let kinds = [ErrorKind::NetworkUnreachable, ErrorKind::PermissionDenied, ErrorKind::HostUnreachable];
            assert!(kinds.contains(&error.kind()), "{error:?}");
            // A listener that accepts no connection, with a full queue. The kernel reports nothing,
            // so the program's own limit applies.
            let (listener, addr) = {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
                let listener = socket.listen(0).unwrap();
                let addr = listener.local_addr().unwrap();
                (listener, addr)
            };
            let mut queued = Vec::new();
            let error = loop {
                match timeout(5 * SOON, TcpStream::connect(addr)).await {
                    Ok(stream) => queued.push(stream.unwrap()),
                    Err(elapsed) => break std::io::Error::from(elapsed),
                }
                assert!(queued.len() < 64, "the queue has no end");
            };
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            drop(listener);
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0, "the cancelled connections are deregistered");
    });
}

#[test]
fn unresolvable_host_names_fail_in_every_address_argument() {
    with_workers(|runtime| {
        runtime.block_on(async {
            // Too long to query a name server: no test may depend on one.
            let nobody = format!("{}.invalid:80", "x".repeat(300));
            lookup_host(nobody.as_str()).await.map(drop).unwrap_err();
            TcpStream::connect(nobody.as_str()).await.unwrap_err();
            TcpListener::bind(nobody.as_str()).await.unwrap_err();
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            socket.send_to(b"x", nobody.as_str()).await.unwrap_err();
            socket.connect(nobody.as_str()).await.unwrap_err();
            for nonsense in ["localhost", "localhost:http", "a\0b:1"] {
                assert_eq!(lookup_host(nonsense).await.map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
            }
        });
    });
}
