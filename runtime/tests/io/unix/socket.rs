//! `UnixSocket`, the addresses of Unix sockets, and connections at their beginning.

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::os::unix::net;
use std::pin::pin;
use std::task::Poll;

use crate::folder::Folder;
use crate::watchdog::with_workers;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::unix::SocketAddr;
use volt::net::{UnixListener, UnixSocket, UnixStream};

#[test]
fn a_unix_socket_becomes_a_stream_a_listener_or_datagrams() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let (server, client) = (folder.path("server"), folder.path("client"));
            let socket = UnixSocket::new_stream().unwrap();
            socket.bind(&server).unwrap();
            let listener = socket.listen(4).unwrap();
            let socket = UnixSocket::new_stream().unwrap();
            socket.bind(&client).unwrap();
            let mut stream = socket.connect(&server).await.unwrap();
            let (mut accepted, peer) = listener.accept().await.unwrap();
            assert_eq!(peer.as_pathname(), Some(&*client));
            accepted.write_all(b"x").await.unwrap();
            assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 1);

            let socket = UnixSocket::new_datagram().unwrap();
            socket.bind(folder.path("datagrams")).unwrap();
            let receiver = socket.datagram().unwrap();
            let sender = UnixSocket::new_datagram().unwrap().datagram().unwrap();
            sender.send_to(b"abc", folder.path("datagrams")).await.unwrap();
            let (len, from) = receiver.recv_from(&mut [0; 8]).await.unwrap();
            assert!(len == 3 && from.is_unnamed());
        });
    });
}

#[test]
#[cfg(any(target_os = "linux", target_os = "android"))]
fn accept_returns_the_abstract_name_of_a_client() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let listener = UnixListener::bind(folder.path("listener")).unwrap();
            let name = format!("volt-test-{}-client", std::process::id());
            let socket = UnixSocket::new_stream().unwrap();
            socket.bind(format!("\0{name}")).unwrap();
            let _stream = socket.connect(folder.path("listener")).await.unwrap();
            let (_accepted, peer) = listener.accept().await.unwrap();
            assert_eq!(peer.as_abstract_name(), Some(name.as_bytes()));
        });
    });
}

#[test]
fn a_unix_socket_refuses_what_its_kind_cannot_do() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let datagrams = || UnixSocket::new_datagram().unwrap();
            assert_eq!(datagrams().listen(1).unwrap_err().kind(), ErrorKind::Other);
            assert_eq!(datagrams().connect(folder.path("no")).await.unwrap_err().kind(), ErrorKind::Other);
            let stream = || UnixSocket::new_stream().unwrap();
            assert_eq!(stream().datagram().unwrap_err().kind(), ErrorKind::Other);
            assert_eq!(stream().connect(folder.path("no")).await.unwrap_err().kind(), ErrorKind::NotFound);
            assert_eq!(stream().bind("x".repeat(200)).unwrap_err().kind(), ErrorKind::InvalidInput);
            stream().bind(folder.path("taken")).unwrap();
            assert_eq!(stream().bind(folder.path("taken")).unwrap_err().kind(), ErrorKind::AddrInUse);
        });
    });
}

#[test]
fn an_address_converts_from_and_to_the_one_of_std() {
    let std = net::SocketAddr::from_pathname("/run/x").unwrap();
    let address = SocketAddr::from(std.clone());
    assert_eq!(address.as_pathname(), std.as_pathname());
    assert!(!address.is_unnamed());
    assert_eq!(format!("{address:?}"), format!("{std:?}"));
    assert_eq!(net::SocketAddr::from(address).as_pathname(), std.as_pathname());
}

#[test]
fn a_new_pair_has_room_to_write_and_nothing_to_read() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (here, there) = UnixStream::pair().unwrap();
            // No event has come: the first polls of both decide.
            let is_writable = pin!(here.writable()).poll(&mut context()).is_ready();
            let is_readable = pin!(there.readable()).poll(&mut context()).is_ready();
            assert_eq!((is_writable, is_readable), (true, false));
            assert_eq!(here.try_write(b"x").unwrap(), 1);
            there.readable().await.unwrap();
            assert_eq!(there.try_read(&mut [0; 4]).unwrap(), 1);
        });
    });
}

fn context() -> std::task::Context<'static> {
    std::task::Context::from_waker(std::task::Waker::noop())
}

#[test]
fn connecting_fails_if_the_listener_closes_before_it_accepts() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("listener");
            let listener = UnixListener::bind(&path).unwrap();
            let mut connect = pin!(UnixStream::connect(&path));
            poll_fn(|cx| {
                assert!(connect.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(listener);
            assert_eq!(connect.await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn connecting_to_a_full_listener_fails_if_its_runtime_ends() {
    use crate::watchdog::{runtime, watched};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

    watched(|| {
        let folder = Folder::new();
        let path = folder.path("full");
        let (owner, other) = (runtime(1), runtime(1));
        let entered = owner.enter();
        let socket = UnixSocket::new_stream().unwrap();
        socket.bind(&path).unwrap();
        let _listener = socket.listen(1).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        let connected = std::iter::from_fn(|| {
            let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
            rustix::net::connect(&client, &address).is_ok().then_some(client)
        });
        let _clients = connected.collect::<Vec<_>>();
        let mut connect = pin!(UnixStream::connect(&path));
        assert!(connect.as_mut().poll(&mut context()).is_pending());
        drop(entered);
        owner.shutdown_background();
        let error = other.block_on(connect).unwrap_err();
        assert!(volt::runtime::is_rt_shutdown_err(&error), "{error}");
    });
}
