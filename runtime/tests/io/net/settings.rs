//! Ports, backlogs and options of sockets.

use super::*;

#[test]
fn a_port_that_is_taken_is_an_error_and_one_just_left_is_not() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (listener, addr) = listen().await;
            assert_eq!(TcpListener::bind(addr).await.unwrap_err().kind(), ErrorKind::AddrInUse);
            // Its connection, closed from this end, stays in TIME_WAIT.
            let mut client = TcpStream::connect(addr).await.unwrap();
            drop(listener.accept().await.unwrap());
            client.read_to_end(&mut Vec::new()).await.unwrap();
            drop((client, listener));
            TcpListener::bind(addr).await.unwrap();
        });
    });
}

/// Returns how many connections the kernel lets wait for an accept at `listener`.
#[cfg(target_os = "linux")]
fn backlog_of(listener: &TcpListener) -> u32 {
    // The words of a `tcp_info`: 8 bytes of small fields, then `tcpi_rto` and so on. For a
    // listening socket the kernel stores its backlog in `tcpi_sacked`, the eighth word.
    let mut info = [0_u32; 32];
    let mut len = size_of_val(&info) as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the kernel writes at most `len` bytes to `info`, for which any bytes are values.
    let got = unsafe { libc::getsockopt(listener.as_raw_fd(), level, option, info.as_mut_ptr().cast(), &raw mut len) };
    assert!(got == 0 && len >= 32, "{}", std::io::Error::last_os_error());
    info[7]
}

#[test]
#[cfg(target_os = "linux")]
fn a_listener_has_a_backlog_of_1024_or_as_requested() {
    let limit: u32 = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    with_workers(|runtime| {
        runtime.block_on(async {
            for host in ["127.0.0.1:0", "[::1]:0"] {
                match TcpListener::bind(host).await {
                    Ok(listener) => assert_eq!(backlog_of(&listener), limit.min(1024), "{host}"),
                    // A machine without IPv6.
                    Err(error) => assert_eq!((error.kind(), host), (ErrorKind::AddrNotAvailable, "[::1]:0")),
                }
            }
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            assert_eq!(backlog_of(&socket.listen(7).unwrap()), limit.min(7));
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_socket_is_bound_to_an_interface_and_released() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let tcp = TcpSocket::new_v4().unwrap();
            let udp = volt::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
            assert_eq!((tcp.device().unwrap(), udp.device().unwrap()), (None, None));
            assert_eq!(tcp.bind_device(Some(b"no-such-device")).unwrap_err().raw_os_error(), Some(libc::ENODEV));
            tcp.bind_device(Some(b"lo")).unwrap();
            udp.bind_device(Some(b"lo")).unwrap();
            assert_eq!((tcp.device().unwrap(), udp.device().unwrap()), (Some(b"lo".to_vec()), Some(b"lo".to_vec())));
            // Requires a right that the program may lack.
            match tcp.bind_device(None) {
                Ok(()) => assert_eq!(tcp.device().unwrap(), None),
                Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
            }
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_buffer_above_the_limit_gets_the_size_of_the_limit() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let sizes = [u32::MAX, i32::MAX.unsigned_abs()].map(|bytes| {
                let socket = TcpSocket::new_v4().unwrap();
                socket.set_send_buffer_size(bytes).unwrap();
                socket.set_recv_buffer_size(bytes).unwrap();
                (socket.send_buffer_size().unwrap(), socket.recv_buffer_size().unwrap())
            });
            assert_eq!(sizes[0], sizes[1]);
        });
    });
}

#[test]
#[allow(deprecated, reason = "these are the deprecated functions")]
fn a_stream_lingers_for_the_time_that_was_set() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (client, _server) = pair().await;
            assert_eq!(client.linger().unwrap(), None);
            client.set_linger(Some(Duration::from_secs(3))).unwrap();
            assert_eq!(client.linger().unwrap(), Some(Duration::from_secs(3)));
            client.set_zero_linger().unwrap();
            assert_eq!(client.linger().unwrap(), Some(Duration::ZERO));
            client.set_linger(None).unwrap();
            assert_eq!(client.linger().unwrap(), None);
        });
    });
}

#[test]
fn a_socket_keeps_the_options_that_were_set_before_it_was_bound() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let bound = |addr: SocketAddr| {
                let socket = TcpSocket::new_v4().unwrap();
                socket.set_reuseaddr(true).unwrap();
                socket.set_reuseport(true).unwrap();
                socket.bind(addr).map(|()| socket)
            };
            let first = bound((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let addr = first.local_addr().unwrap();
            let (first, second) = (first.listen(16).unwrap(), bound(addr).unwrap().listen(16).unwrap());
            assert_eq!(
                TcpListener::bind(addr).await.unwrap_err().kind(),
                ErrorKind::AddrInUse,
                "it did not ask to share"
            );

            let client = TcpSocket::new_v4().unwrap();
            client.set_nodelay(true).unwrap();
            client.set_keepalive(true).unwrap();
            client.set_zero_linger().unwrap();
            client.set_send_buffer_size(32 * 1024).unwrap();
            client.set_recv_buffer_size(32 * 1024).unwrap();
            assert!(client.keepalive().unwrap() && client.send_buffer_size().unwrap() >= 32 * 1024);
            client.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).unwrap();
            let here = client.local_addr().unwrap();
            let client = client.connect(addr).await.unwrap();
            assert!(client.nodelay().unwrap());
            assert_eq!(client.linger().unwrap(), Some(Duration::ZERO));
            assert_eq!(client.local_addr().unwrap(), here);
            let (_stream, peer) = volt::select! {
                accepted = first.accept() => accepted.unwrap(),
                accepted = second.accept() => accepted.unwrap(),
            };
            assert_eq!(peer, here);
        });
    });
}
