//! Unix datagram sockets.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use crate::folder::Folder;
use crate::watchdog::with_workers;
use volt::io::ReadBuf;
use volt::net::UnixDatagram;
use volt::time::timeout;

const SOON: Duration = Duration::from_millis(5);

/// Returns a path in the folder that has 108 bytes, the most that Linux allows. The kernel counts a
/// zero byte behind the path, for which its address has no room.
#[cfg(target_os = "linux")]
pub fn longest(folder: &Folder) -> std::path::PathBuf {
    let begin = folder.path("").as_os_str().len();
    folder.path(&"x".repeat(108 - begin))
}

#[test]
fn datagrams_come_whole_in_order_and_with_their_senders() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let (server, client) = (folder.path("server"), folder.path("client"));
            let (receiver, sender) = (UnixDatagram::bind(&server).unwrap(), UnixDatagram::bind(&client).unwrap());
            let mut buffer = [0; 64];
            sender.send_to(b"first", &server).await.unwrap();
            let (len, from) = receiver.recv_from(&mut buffer).await.unwrap();
            assert_eq!((&buffer[..len], from.as_pathname()), (&b"first"[..], Some(client.as_path())));
            sender.connect(&server).unwrap();
            sender.send(b"second").await.unwrap();
            let mut polled = ReadBuf::new(&mut buffer);
            let from = poll_fn(|cx| receiver.poll_recv_from(cx, &mut polled)).await.unwrap();
            assert_eq!((polled.filled(), from.as_pathname()), (&b"second"[..], Some(client.as_path())));
            assert_eq!(receiver.try_recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            let nameless = UnixDatagram::unbound().unwrap();
            nameless.try_send_to(b"third", &server).unwrap();
            let mut third = Vec::with_capacity(8);
            assert!(receiver.recv_buf_from(&mut third).await.unwrap().1.is_unnamed());
            assert_eq!(third, b"third");
            drop(receiver);
            assert_eq!(sender.send(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
    });
}

#[test]
fn send_to_waits_while_the_receivers_queue_is_full() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("full");
            let receiver = UnixDatagram::bind(&path).unwrap();
            let queued = fill(&path);
            let waits = [false, true].map(|is_polled| {
                let path = path.clone();
                volt::spawn(
                    async move { send_late(&UnixDatagram::unbound().unwrap(), &path, is_polled).await.unwrap() },
                )
            });
            assert!(timeout(4 * SOON, receiver.readable()).await.is_ok());
            assert!(waits.iter().all(|waits| !waits.is_finished()));
            let mut buffer = [0; 16];
            for _ in 0..queued {
                assert_eq!(receiver.recv(&mut buffer).await.unwrap(), 6);
            }
            for waits in waits {
                assert_eq!(receiver.recv(&mut buffer).await.unwrap(), 4);
                assert_eq!(waits.await.unwrap(), 4);
            }
        });
    });
}

/// Fills the queue of a receiver, and returns the number of datagrams sent. One sender does not
/// suffice if its own buffer is smaller than the queue.
fn fill(path: &Path) -> u32 {
    let mut queued = 0;
    loop {
        let (filler, before) = (UnixDatagram::unbound().unwrap(), queued);
        while filler.try_send_to(b"filler", path).is_ok() {
            queued += 1;
        }
        if queued == before {
            return queued;
        }
    }
}

/// Sends four bytes by `poll_send_to` or by `send_to`.
async fn send_late(sender: &UnixDatagram, path: &Path, is_polled: bool) -> io::Result<usize> {
    if is_polled {
        poll_fn(|cx| sender.poll_send_to(cx, b"late", path)).await
    } else {
        sender.send_to(b"late", path).await
    }
}

#[test]
#[cfg(target_os = "linux")]
fn sending_to_a_full_receiver_does_not_spin() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("full");
            let (receiver, sender) = (UnixDatagram::bind(&path).unwrap(), UnixDatagram::unbound().unwrap());
            let events = || runtime.handle().snapshot().driver.events;
            for is_polled in [false, true] {
                fill(&path);
                let before = events();
                // Each attempt makes the socket writable again.
                assert!(timeout(20 * SOON, send_late(&sender, &path, is_polled)).await.is_err());
                let caused = events() - before;
                assert!(caused < 50, "{caused} events in 100 ms");
                receiver.recv(&mut [0; 16]).await.unwrap();
                timeout(Duration::from_secs(10), send_late(&sender, &path, is_polled)).await.unwrap().unwrap();
            }
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn sending_to_a_full_receiver_fails_if_the_runtime_shuts_down() {
    use crate::watchdog::{runtime, watched};
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    watched(|| {
        for is_polled in [false, true] {
            let folder = Folder::new();
            let path = folder.path("full");
            let (owner, other) = (runtime(1), runtime(1));
            let (_receiver, sender) = owner.block_on(async {
                let receiver = UnixDatagram::bind(&path).unwrap();
                fill(&path);
                (receiver, UnixDatagram::unbound().unwrap())
            });
            let mut send = pin!(send_late(&sender, &path, is_polled));
            assert!(send.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            owner.shutdown_background();
            let error = other.block_on(send).unwrap_err();
            assert!(volt::runtime::is_rt_shutdown_err(&error), "{error}");
        }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn datagrams_of_a_sender_with_the_longest_path_are_received() {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};

    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let (path, own) = (folder.path("receiver"), longest(&folder));
            let receiver = UnixDatagram::bind(&path).unwrap();
            let sender = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
            rustix::net::bind(&sender, &SocketAddrUnix::new(&own).unwrap()).unwrap();
            rustix::net::connect(&sender, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            for _ in 0..5 {
                rustix::net::send(&sender, b"a", SendFlags::empty()).unwrap();
            }
            let mut space = [0; 8];
            let mut buffer = ReadBuf::new(&mut space);
            poll_fn(|cx| receiver.poll_recv(cx, &mut buffer)).await.unwrap();
            let from = poll_fn(|cx| receiver.poll_recv_from(cx, &mut buffer)).await.unwrap();
            assert!(from.is_unnamed());
            let mut bytes = Vec::with_capacity(8);
            assert_eq!(receiver.recv_buf(&mut bytes).await.unwrap(), 1);
            let (received, from) = receiver.recv_buf_from(&mut bytes).await.unwrap();
            assert!(received == 1 && from.is_unnamed());
            assert_eq!((buffer.filled(), bytes.as_slice()), (&b"aa"[..], &b"aa"[..]));
            let (received, from) = receiver.recv_from(&mut [0; 8]).await.unwrap();
            assert_eq!((received, from.as_pathname()), (1, Some(own.as_path())));
        });
    });
}
