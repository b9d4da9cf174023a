//! UDP over loopback, through the public API.

use crate::watchdog;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::watchdog::{watched, with_workers};
use volt::io::{Interest, ReadBuf};
use volt::net::UdpSocket;
use volt::time::timeout;

const SOON: Duration = Duration::from_millis(5);

async fn bound() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

/// Returns two sockets, each connected to the other.
async fn pair() -> (UdpSocket, UdpSocket) {
    let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
    one.connect(other_addr).await.unwrap();
    other.connect(one_addr).await.unwrap();
    (one, other)
}

#[test]
fn a_datagram_arrives_whole_or_truncated_to_the_buffer() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let ((one, one_addr), (other, other_addr)) = (bound().await, bound().await);
            let mut buffer = [0; 64];
            for text in ["first", "", "third"] {
                assert_eq!(one.send_to(text.as_bytes(), other_addr).await.unwrap(), text.len());
                let (len, from) = other.recv_from(&mut buffer).await.unwrap();
                assert_eq!((&buffer[..len], from), (text.as_bytes(), one_addr));
            }
            one.send_to(b"too long", ("localhost", other_addr.port())).await.unwrap();
            one.send_to(b"next", other_addr).await.unwrap();
            assert_eq!(other.recv(&mut buffer[..3]).await.unwrap(), 3);
            assert_eq!(other.recv(&mut buffer).await.unwrap(), 4, "the rest of the one before is lost");
        });
    });
}

#[test]
fn many_tasks_send_and_receive_on_one_socket() {
    const TASKS: usize = 16;
    const EACH: usize = 50;
    with_workers(|runtime| {
        runtime.block_on(async {
            let (server, addr) = bound().await;
            let server = Arc::new(server);
            let echoes = (0..4).map(|_| {
                let server = server.clone();
                volt::spawn(async move {
                    let mut buffer = [0; 64];
                    loop {
                        let (len, from) = server.recv_from(&mut buffer).await.unwrap();
                        server.send_to(&buffer[..len], from).await.unwrap();
                    }
                })
            });
            let echoes = echoes.collect::<Vec<_>>();
            let clients = (0..TASKS).map(|id| {
                volt::spawn(async move {
                    let (client, _) = bound().await;
                    client.connect(addr).await.unwrap();
                    let mut buffer = [0; 64];
                    for n in 0..EACH {
                        let text = format!("{id} {n}");
                        client.send(text.as_bytes()).await.unwrap();
                        let len = client.recv(&mut buffer).await.unwrap();
                        assert_eq!(&buffer[..len], text.as_bytes());
                    }
                })
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.unwrap();
            }
            echoes.iter().for_each(|echo| echo.abort());
        });
    });
}

#[test]
fn a_peek_leaves_the_datagram_and_returns_its_sender() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (one, other) = pair().await;
            let from = one.local_addr().unwrap();
            one.send(b"abc").await.unwrap();
            let mut buffer = [0; 16];
            assert_eq!(other.peek_sender().await.unwrap(), from);
            assert_eq!(other.try_peek_sender().unwrap(), from);
            assert_eq!(poll_fn(|cx| other.poll_peek_sender(cx)).await.unwrap(), from);
            assert_eq!(other.peek(&mut buffer).await.unwrap(), 3);
            assert_eq!(other.try_peek(&mut buffer).unwrap(), 3);
            assert_eq!(other.peek_from(&mut buffer).await.unwrap(), (3, from));
            assert_eq!(other.try_peek_from(&mut buffer).unwrap(), (3, from));
            let mut peeked = ReadBuf::new(&mut buffer);
            assert_eq!(poll_fn(|cx| other.poll_peek_from(cx, &mut peeked)).await.unwrap(), from);
            assert_eq!(peeked.filled(), b"abc");
            let mut taken = Vec::with_capacity(16);
            assert_eq!(other.recv_buf_from(&mut taken).await.unwrap(), (3, from));
            assert_eq!(taken, b"abc");
            assert_eq!(other.try_peek(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
    });
}

#[test]
fn udp_try_operations_do_not_wait_and_poll_recv_is_woken() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (one, other) = pair().await;
            let mut buffer = [0; 16];
            assert_eq!(other.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert_eq!(other.try_recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            assert!(timeout(SOON, other.recv(&mut buffer)).await.is_err(), "dropped, it takes nothing along");
            let other = Arc::new(other);
            let waits = volt::spawn({
                let other = other.clone();
                async move {
                    let mut buffer = [0; 16];
                    let mut buffer = ReadBuf::new(&mut buffer);
                    poll_fn(|cx| other.poll_recv(cx, &mut buffer)).await.unwrap();
                    buffer.filled().to_vec()
                }
            });
            assert!(one.ready(Interest::WRITABLE).await.unwrap().is_writable());
            assert_eq!(poll_fn(|cx| one.poll_send(cx, b"polled")).await.unwrap(), 6);
            assert_eq!(waits.await.unwrap(), b"polled");
            one.try_send(b"tried").unwrap();
            other.readable().await.unwrap();
            assert_eq!(other.try_recv_from(&mut buffer).unwrap(), (5, one.local_addr().unwrap()));
        });
    });
}

#[test]
fn a_missing_peer_refuses_and_the_socket_continues() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (gone, gone_addr) = bound().await;
            drop(gone);
            let (socket, _) = bound().await;
            assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
            socket.connect(gone_addr).await.unwrap();
            socket.send(b"anybody there?").await.unwrap();
            assert_eq!(socket.recv(&mut [0; 16]).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let (other, addr) = bound().await;
            socket.connect(addr).await.unwrap();
            socket.send(b"x").await.unwrap();
            assert_eq!(other.recv(&mut [0; 16]).await.unwrap(), 1);
        });
    });
}

#[test]
fn options_are_kept_and_a_group_gets_what_is_sent_to_it() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (socket, _) = bound().await;
            socket.set_broadcast(true).unwrap();
            socket.set_ttl(7).unwrap();
            socket.set_multicast_ttl_v4(3).unwrap();
            socket.set_multicast_loop_v4(true).unwrap();
            socket.set_tos_v4(0x10).unwrap();
            assert!(socket.broadcast().unwrap() && socket.multicast_loop_v4().unwrap());
            let read = (socket.ttl().unwrap(), socket.multicast_ttl_v4().unwrap(), socket.tos_v4().unwrap());
            assert_eq!(read, (7, 3, 0x10));
            assert_eq!(socket.set_tos_v4(256).unwrap_err().kind(), ErrorKind::InvalidInput);

            let group = Ipv4Addr::new(224, 0, 0, 123);
            let member = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
            let port = member.local_addr().unwrap().port();
            member.join_multicast_v4(group, Ipv4Addr::LOCALHOST).unwrap();
            // From a socket on loopback, so that the packet goes there.
            rustix::net::sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST).unwrap();
            socket.send_to(b"all", (group, port)).await.unwrap();
            assert_eq!(member.recv(&mut [0; 16]).await.unwrap(), 3);
            member.leave_multicast_v4(group, Ipv4Addr::LOCALHOST).unwrap();
        });
    });
}

#[test]
fn udp_sockets_convert_from_and_to_std_and_deregister() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        let socket = runtime.block_on(async {
            let socket = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
            UdpSocket::try_from(socket.into_std().unwrap()).unwrap()
        });
        let addr = socket.local_addr().unwrap();
        let waits = runtime.spawn(async move { socket.recv(&mut [0; 16]).await });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 1);
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", addr).unwrap();
        assert_eq!(runtime.block_on(waits).unwrap().unwrap(), 1);
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
    });
}
