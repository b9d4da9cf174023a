//! TCP over loopback, through the public API.

use crate::watchdog;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::watchdog::{watched, with_workers};
use volt::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use volt::io::{Interest, ReadBuf, Ready};
use volt::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use volt::time::timeout;

mod settings;
#[cfg(target_os = "linux")]
mod urgent;

const SOON: Duration = Duration::from_millis(5);

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// Returns both ends of a connection: the connecting one, the accepting one.
async fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen().await;
    let client = TcpStream::connect(addr).await.unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server)
}

/// Writes to `stream` until nothing more fits, even after the kernel has moved all that it can to
/// the other end. Returns the number of bytes.
async fn fill(stream: &TcpStream) -> usize {
    let mut written = 0;
    loop {
        match stream.try_write(&[7; 64 * 1024]) {
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if timeout(10 * SOON, stream.writable()).await.is_err() {
                    return written;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn many_connections_echo_what_they_are_sent() {
    const CONNECTIONS: usize = 200;
    const MESSAGES: usize = 20;
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            let server = volt::spawn(async move {
                for _ in 0..CONNECTIONS {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    volt::spawn(async move {
                        let (mut reader, mut writer) = stream.split();
                        volt::io::copy(&mut reader, &mut writer).await.unwrap()
                    });
                }
            });
            let clients = (0..CONNECTIONS).map(|id| {
                volt::spawn(async move {
                    let mut stream = TcpStream::connect(addr).await.unwrap();
                    stream.set_nodelay(true).unwrap();
                    for n in 0..MESSAGES {
                        let message = vec![(id + n) as u8; 1 + n * 997];
                        let mut echo = vec![0; message.len()];
                        stream.write_all(&message).await.unwrap();
                        stream.read_exact(&mut echo).await.unwrap();
                        assert_eq!(message, echo);
                    }
                })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
            server.await.unwrap();
        });
        let driver = runtime.handle().snapshot().driver;
        assert!(driver.events > 0 && driver.polls > 0, "{driver:?}");
    });
}

#[test]
fn a_large_transfer_survives_full_buffers_in_both_directions() {
    const LEN: usize = 8 << 20;
    with_workers(|runtime| {
        runtime.block_on(async {
            let (client, server) = pair().await;
            let both = [client, server].map(|stream| {
                let (mut reader, mut writer) = stream.into_split();
                let writes = volt::spawn(async move {
                    let bytes: Vec<u8> = (0..LEN).map(|n| (n % 251) as u8).collect();
                    writer.write_all(&bytes).await.unwrap();
                });
                let reads = volt::spawn(async move {
                    let mut bytes = Vec::new();
                    reader.read_to_end(&mut bytes).await.unwrap();
                    assert_eq!(bytes.len(), LEN);
                    assert!(bytes.iter().enumerate().all(|(n, &byte)| byte == (n % 251) as u8));
                });
                [writes, reads]
            });
            for task in both.into_iter().flatten() {
                task.await.unwrap();
            }
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0, "a dropped socket is deregistered");
    });
}

#[test]
fn after_a_half_close_the_other_half_continues() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (mut client, mut server) = pair().await;
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut received = Vec::new();
            server.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, b"question");
            assert_eq!(server.read(&mut [0]).await.unwrap(), 0, "the end of the stream is seen again and again");
            server.write_all(b"answer").await.unwrap();
            drop(server);
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "answer");
        });
    });
}

#[test]
fn connecting_without_a_listener_is_refused() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            drop(listener);
            let error = TcpStream::connect(addr).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            // The last of several addresses may be the one that works.
            let (_listener, good) = listen().await;
            let stream = TcpStream::connect([addr, good]).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), good);
        });
    });
}

#[test]
fn a_reset_ends_a_read_and_a_write_that_wait() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (client, server) = pair().await;
            fill(&server).await;
            let (mut reader, mut writer) = server.into_split();
            let read = volt::spawn(async move { reader.read(&mut [0]).await });
            let write = volt::spawn(async move { writer.write_all(&[7; 1 << 20]).await });
            volt::time::sleep(SOON).await;
            assert!(!read.is_finished() && !write.is_finished());
            client.set_zero_linger().unwrap();
            drop(client);
            // One of them gets the reset itself, the other may get its consequence.
            let errors = [read.await.unwrap().map(drop), write.await.unwrap()];
            let kinds = errors.map(|result| result.err().map(|error| error.kind()));
            assert!(kinds.contains(&Some(ErrorKind::ConnectionReset)), "{kinds:?}");
            assert!(kinds[1].is_some(), "{kinds:?}");
        });
    });
}

#[test]
fn a_vectored_write_sends_its_slices_in_order_however_many() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (mut client, mut server) = pair().await;
            assert!(client.is_write_vectored());
            // More than the kernel accepts in one call.
            let texts: Vec<String> = (0..3_000).map(|n| format!("{n} ")).collect();
            let whole = texts.concat();
            let writes = volt::spawn(async move {
                let mut slices: Vec<IoSlice<'_>> = texts.iter().map(|text| IoSlice::new(text.as_bytes())).collect();
                let mut slices = slices.as_mut_slice();
                while !slices.is_empty() {
                    let written = client.write_vectored(slices).await.unwrap();
                    IoSlice::advance_slices(&mut slices, written);
                }
            });
            let mut received = String::new();
            server.read_to_string(&mut received).await.unwrap();
            writes.await.unwrap();
            assert_eq!(received, whole);
        });
    });
}

#[test]
fn several_tasks_may_wait_in_accept_on_one_listener() {
    const TASKS: usize = 8;
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            let listener = Arc::new(listener);
            let accepts: Vec<_> = (0..TASKS)
                .map(|_| {
                    let listener = listener.clone();
                    volt::spawn(async move { listener.accept().await.unwrap() })
                })
                .collect();
            let mut clients = Vec::new();
            for _ in 0..TASKS {
                clients.push(TcpStream::connect(addr).await.unwrap());
            }
            for accept in accepts {
                accept.await.unwrap();
            }
        });
    });
}

#[test]
fn a_dropped_accept_leaves_the_next_connection_to_others() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            assert!(timeout(SOON, listener.accept()).await.is_err());
            let client = TcpStream::connect(addr).await.unwrap();
            let (_, peer) = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        });
    });
}

#[test]
fn readable_and_writable_wait_until_an_attempt_is_worth_it() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (client, server) = pair().await;
            let mut buffer = [0; 64 * 1024];
            // A new connection counts as readable until it was tried; more than once if an event
            // comes at that moment.
            while timeout(SOON, server.readable()).await.is_ok() {
                assert_eq!(server.try_read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
            client.try_write(b"abc").unwrap();
            server.readable().await.unwrap();
            assert_eq!(server.peek(&mut buffer).await.unwrap(), 3);
            assert_eq!(server.try_read(&mut buffer).unwrap(), 3, "a peek takes nothing");

            // Ends with a wait for room that does not come.
            let mut left = fill(&client).await;
            while left > 0 {
                server.readable().await.unwrap();
                match server.try_read(&mut buffer) {
                    Ok(read) => left -= read,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            client.writable().await.unwrap();
        });
    });
}

#[test]
fn dropping_the_write_half_ends_the_stream_but_reunite_does_not() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (client, mut server) = pair().await;
            let (reader, writer) = client.into_split();
            let (other_reader, _other_writer) = pair().await.0.into_split();
            let error = writer.reunite(other_reader).unwrap_err();
            let (reader, writer) = reader.reunite(error.1).unwrap().into_split();
            assert!(timeout(SOON, server.read(&mut [0])).await.is_err(), "nothing was shut down yet");
            drop(writer);
            assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
            drop(reader);
        });
    });
}

#[test]
fn host_names_are_resolved_and_invalid_ones_refused() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let listener = TcpListener::bind("localhost:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let stream = TcpStream::connect(("localhost", port)).await.unwrap();
            assert!(stream.peer_addr().unwrap().ip().is_loopback());
            for nonsense in ["no port", ":1", ""] {
                let error = TcpStream::connect(nonsense).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            }
            let none: [SocketAddr; 0] = [];
            assert_eq!(TcpListener::bind(none).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        });
    });
}

#[test]
fn sockets_come_from_the_standard_library_and_go_back() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let listener = TcpListener::from_std(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
            let addr = listener.local_addr().unwrap();
            let mut client = TcpStream::from_std(std::net::TcpStream::connect(addr).unwrap()).unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            client.write_all(b"x").await.unwrap();
            assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 1);
            let listener = TcpListener::from_std(listener.into_std().unwrap()).unwrap();
            let server = TcpStream::from_std(server.into_std().unwrap()).unwrap();
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            assert_eq!(listener.accept().await.unwrap().1, client.local_addr().unwrap());
        });
    });
}

#[test]
fn ready_distinguishes_directions_and_the_end_of_the_stream() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (client, server) = pair().await;
            fill(&client).await;
            let both = Interest::READABLE | Interest::WRITABLE;
            assert!(timeout(SOON, client.ready(both)).await.is_err(), "nothing to read, and no room to write");
            server.try_write(b"x").unwrap();
            let ready = client.ready(both).await.unwrap();
            assert!(ready.is_readable() && !ready.is_writable(), "{ready:?}");
            let err = || Err::<(), _>(ErrorKind::WouldBlock.into());
            assert_eq!(client.try_io(Interest::READABLE, err).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(timeout(SOON, client.readable()).await.is_err(), "an attempt that would have blocked is believed");
            drop(server);
            let ready = client.ready(Interest::READABLE).await.unwrap();
            assert!((ready & Ready::READ_CLOSED).is_read_closed(), "{ready:?}");
        });
    });
}

#[test]
fn try_read_fills_several_buffers_and_peek_consumes_nothing() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (client, server) = pair().await;
            let (mut reader, writer) = server.into_split();
            let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cdef")];
            assert_eq!(client.try_write_vectored(&slices).unwrap(), 6);
            let mut seen = [0; 16];
            assert_eq!(reader.peek(&mut seen).await.unwrap(), 6);
            let mut seen = ReadBuf::new(&mut seen);
            assert_eq!(poll_fn(|cx| reader.poll_peek(cx, &mut seen)).await.unwrap(), 6);
            assert_eq!(seen.filled(), b"abcdef");
            let (mut one, mut other) = ([0; 1], [0; 2]);
            let mut slices = [&mut one[..], &mut other[..]].map(std::io::IoSliceMut::new);
            assert_eq!(reader.try_read_vectored(&mut slices).unwrap(), 3);
            assert_eq!((&one, &other), (b"a", b"bc"));
            let mut rest = Vec::with_capacity(16);
            assert_eq!(reader.try_read_buf(&mut rest).unwrap(), 3);
            assert_eq!(rest, b"def");
            let read = reader.as_ref().async_io(Interest::READABLE, || reader.try_read(&mut [0; 1]));
            let (read, written) = volt::join!(read, async { client.try_write(b"g") });
            assert_eq!((read.unwrap(), written.unwrap()), (1, 1));
            assert_eq!(writer.local_addr().unwrap(), client.peer_addr().unwrap());
        });
    });
}

#[test]
fn an_unknown_host_name_does_not_block_other_lookups() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let nobody = volt::spawn(async { lookup_host("nobody.invalid:80").await.map(drop) });
            let known = lookup_host(("localhost", 80)).await.unwrap().collect::<Vec<_>>();
            assert!(!known.is_empty() && known.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 80));
            nobody.await.unwrap().unwrap_err();
        });
    });
}

#[test]
fn a_task_that_always_has_something_to_read_lets_others_run() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        runtime.block_on(async {
            let (mut client, mut server) = pair().await;
            let reads = volt::spawn(async move {
                let mut bytes = 0;
                // A byte at a time: the data outlasts many budgets.
                while server.read(&mut [0]).await.unwrap() == 1 {
                    bytes += 1;
                }
                bytes
            });
            client.write_all(&[1; 100_000]).await.unwrap();
            let others = (0..100).map(|_| volt::spawn(async {})).collect::<Vec<_>>();
            for other in others {
                other.await.unwrap();
            }
            drop(client);
            assert_eq!(reads.await.unwrap(), 100_000);
        });
        let yields: u64 = runtime.handle().snapshot().workers.iter().map(|worker| worker.coop_yields).sum();
        assert!(yields > 0, "the reader was never made to yield");
    });
}

#[test]
fn sockets_fail_after_their_runtime_was_shut_down() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        let (mut client, _server) = runtime.block_on(pair());
        let (listener, _) = runtime.block_on(listen());
        drop(runtime);
        let mut cx = Context::from_waker(Waker::noop());
        let mut accept = pin!(listener.accept());
        let Poll::Ready(Err(error)) = accept.as_mut().poll(&mut cx) else { panic!("accept waits for ever") };
        assert!(error.to_string().contains("shut down"), "{error}");
        let Poll::Ready(Err(error)) = Pin::new(&mut client).poll_write(&mut cx, b"x") else { panic!("it wrote") };
        assert_eq!(error.kind(), ErrorKind::Other);
        assert!(volt::runtime::is_rt_shutdown_err(&error));
        assert!(client.try_read(&mut [0]).is_err());
    });
}

#[test]
fn data_that_arrived_is_still_read_after_the_shutdown() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        let (client, server) = runtime.block_on(pair());
        assert_eq!(client.try_write(b"abc").unwrap(), 3);
        runtime.block_on(server.readable()).unwrap();
        runtime.block_on(async { server.peek(&mut [0]).await }).unwrap();
        drop(runtime);
        let mut buffer = [0; 8];
        assert_eq!(server.try_read(&mut buffer).unwrap(), 3);
        assert_eq!(server.try_read(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        // No event will come, so a wait fails instead of lasting forever.
        let mut readable = pin!(server.readable());
        let Poll::Ready(Err(error)) = readable.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it waits for ever")
        };
        assert!(volt::runtime::is_rt_shutdown_err(&error));
        assert!(!volt::runtime::is_rt_shutdown_err(&std::io::Error::other("shut down")));
    });
}

#[test]
fn the_futures_of_sockets_may_move_between_threads() {
    fn is_send<T: Send>(_: T) {}

    is_send(TcpStream::connect("127.0.0.1:1"));
    is_send(TcpListener::bind(String::from("127.0.0.1:1")));
    is_send(async { listen().await.0.accept().await.map(drop) });
    is_send(async { pair().await.0.peek(&mut [0]).await });
}
