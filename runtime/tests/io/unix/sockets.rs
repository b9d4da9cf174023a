//! Unix stream sockets and pipes, through the public API.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::folder::Folder;
#[cfg(target_os = "linux")]
use crate::unix::datagrams::longest;
use crate::watchdog::with_workers;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use volt::io::unix::AsyncFd;
use volt::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use volt::net::unix::pipe;
use volt::net::{UnixDatagram, UnixListener, UnixStream};
use volt::time::timeout;

const SOON: Duration = Duration::from_millis(5);

#[test]
fn streams_echo_and_their_halves_close_one_direction() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("echo");
            let listener = UnixListener::bind(&path).unwrap();
            assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(path.as_path()));
            let server = volt::spawn(async move {
                let (mut stream, peer) = listener.accept().await.unwrap();
                assert!(peer.is_unnamed());
                let cred = stream.peer_cred().unwrap();
                assert_eq!(cred.pid(), Some(std::process::id() as i32));
                assert_eq!(cred.uid(), rustix::process::getuid().as_raw());
                let (mut reader, mut writer) = stream.split();
                volt::io::copy(&mut reader, &mut writer).await.unwrap()
            });
            let stream = UnixStream::connect(&path).await.unwrap();
            assert!(stream.is_write_vectored());
            assert_eq!(stream.peer_addr().unwrap().as_pathname(), Some(path.as_path()));
            let (mut reader, mut writer) = stream.into_split();
            let text = "a long text ".repeat(100_000);
            let sent = text.clone();
            let writes = volt::spawn(async move { writer.write_all(sent.as_bytes()).await.unwrap() });
            let mut echo = String::new();
            reader.read_to_string(&mut echo).await.unwrap();
            writes.await.unwrap();
            assert!(echo == text && server.await.unwrap() == text.len() as u64);
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_client_with_the_longest_path_is_accepted() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let (path, own) = (folder.path("listener"), longest(&folder));
            let listener = UnixListener::bind(&path).unwrap();
            let client = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
            rustix::net::bind(&client, &SocketAddrUnix::new(&own).unwrap()).unwrap();
            rustix::net::connect(&client, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            let (_stream, peer) = listener.accept().await.unwrap();
            assert_eq!(peer.as_pathname(), Some(own.as_path()));
        });
    });
}

#[test]
fn bytes_after_a_passed_descriptor_are_read_without_a_new_event() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (peer, here) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut here = UnixStream::from_std(here).unwrap();
            // There is nothing to read, and its readiness is cleared.
            assert!(timeout(SOON, here.read(&mut [0])).await.is_err());
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [peer.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
            sendmsg(&peer, &[IoSlice::new(b"a")], &mut control, SendFlags::empty()).unwrap();
            sendmsg(&peer, &[IoSlice::new(b"b")], &mut SendAncillaryBuffer::default(), SendFlags::empty()).unwrap();
            // A read ends where the descriptor was sent, although there is more data and room for
            // it.
            let mut text = [0; 2];
            here.read_exact(&mut text).await.unwrap();
            assert_eq!(&text, b"ab");
        });
    });
}

#[test]
fn binding_a_taken_path_and_connecting_to_a_dead_one_fail() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("taken");
            assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::NotFound);
            let listener = UnixListener::bind(&path).unwrap();
            assert_eq!(UnixListener::bind(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
            drop(listener);
            assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let too_long = folder.path(&"x".repeat(120));
            assert_eq!(UnixListener::bind(too_long).unwrap_err().kind(), ErrorKind::InvalidInput);
        });
    });
}

#[test]
fn more_clients_than_the_accept_queue_are_all_served() {
    const CLIENTS: usize = 24;
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("small");
            let listener = {
                let fd = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
                let fd = fd.unwrap();
                rustix::net::bind(&fd, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
                rustix::net::listen(&fd, 1).unwrap();
                UnixListener::from_std(fd.into()).unwrap()
            };
            let clients = (0..CLIENTS).map(|_| {
                let path = path.clone();
                volt::spawn(async move { UnixStream::connect(path).await.unwrap() })
            });
            let clients = clients.collect::<Vec<_>>();
            // Until then some of them wait.
            while clients.iter().filter(|client| client.is_finished()).count() < 2 {
                volt::task::yield_now().await;
            }
            assert!(clients.iter().any(|client| !client.is_finished()));
            for _ in 0..CLIENTS {
                listener.accept().await.unwrap();
            }
            for client in clients {
                client.await.unwrap();
            }
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_unix_listener_queues_as_many_as_the_system_allows() {
    // More than the 128 of the standard library's TCP listeners, and fewer than the descriptors
    // that a program may have.
    const CLIENTS: usize = 300;
    let limit: usize = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("large");
            let _listener = UnixListener::bind(&path).unwrap();
            // Each is connected before any was accepted.
            let clients = (0..CLIENTS.min(limit)).map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap());
            assert_eq!(clients.collect::<Vec<_>>().len(), CLIENTS.min(limit));
        });
    });
}

#[test]
#[cfg(any(target_os = "linux", target_os = "android"))]
fn an_abstract_socket_name_is_freed_with_its_socket() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let name = format!("\0volt-test-{}", std::process::id());
            let listener = UnixListener::bind(&name).unwrap();
            let bound = listener.local_addr().unwrap();
            assert_eq!(bound.as_abstract_name(), Some(&name.as_bytes()[1..]));
            let stream = UnixStream::connect(&name).await.unwrap();
            listener.accept().await.unwrap();
            drop((listener, stream));
            assert_eq!(UnixStream::connect_addr(&bound).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let datagrams = UnixDatagram::bind(&name).unwrap();
            let sender = UnixDatagram::bind(format!("{name}-sender")).unwrap();
            sender.send_to(b"x", &name).await.unwrap();
            let mut buffer = Vec::with_capacity(8);
            let (_, from) = datagrams.recv_buf_from(&mut buffer).await.unwrap();
            assert_eq!(from.as_abstract_name(), sender.local_addr().unwrap().as_abstract_name());
        });
    });
}

#[test]
fn a_pipe_ends_without_its_sender_and_breaks_without_a_receiver() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let (mut sender, mut receiver) = pipe::pipe().unwrap();
            let text = "more than a pipe holds ".repeat(10_000);
            let sent = text.clone();
            let writes = volt::spawn(async move { sender.write_all(sent.as_bytes()).await.map(|()| sender) });
            let mut received = vec![0; text.len()];
            receiver.read_exact(&mut received).await.unwrap();
            assert!(received == text.as_bytes());
            let sender = writes.await.unwrap().unwrap();
            assert_eq!(receiver.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            drop(sender);
            assert!(receiver.ready(Interest::READABLE).await.unwrap().is_read_closed());
            assert_eq!(receiver.read(&mut [0]).await.unwrap(), 0);

            let (sender, receiver) = pipe::pipe().unwrap();
            drop(receiver);
            while !sender.ready(Interest::WRITABLE).await.unwrap().is_write_closed() {
                volt::task::yield_now().await;
            }

            let (mut sender, receiver) = pipe::pipe().unwrap();
            while sender.try_write(&[7; 4096]).is_ok() {}
            let writes = volt::spawn(async move { sender.write_all(b"x").await });
            drop(receiver);
            assert_eq!(writes.await.unwrap().unwrap_err().kind(), ErrorKind::BrokenPipe);

            let path = folder.path("fifo");
            let error = pipe::OpenOptions::new().open_receiver(folder.path(".")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            assert!(pipe::OpenOptions::new().open_sender(&path).is_err(), "no process reads it");
            let mut receiver = pipe::OpenOptions::new().open_receiver(&path).unwrap();
            let mut sender = pipe::OpenOptions::new().open_sender(&path).unwrap();
            sender.write_all(b"named").await.unwrap();
            assert_eq!(receiver.read(&mut [0; 16]).await.unwrap(), 5);
            let fd = sender.into_blocking_fd().unwrap();
            assert_eq!(pipe::Receiver::from_owned_fd(fd).unwrap_err().kind(), ErrorKind::InvalidInput);
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
    });
}

#[test]
fn a_task_waits_again_for_a_named_pipe_with_a_new_sender() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("fifo");
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            let mut receiver = pipe::OpenOptions::new().open_receiver(&path).unwrap();
            drop(pipe::OpenOptions::new().open_sender(&path).unwrap());
            assert_eq!(receiver.read(&mut [0; 16]).await.unwrap(), 0, "there is no sender");
            let mut sender = pipe::OpenOptions::new().open_sender(&path).unwrap();
            assert!(timeout(SOON, receiver.read(&mut [0; 16])).await.is_err(), "a sender is open, but has not written");
            let reads = volt::spawn(async move {
                let read = receiver.read(&mut [0; 16]).await.unwrap();
                (read, receiver.read(&mut [0; 16]).await.unwrap())
            });
            sender.write_all(b"again").await.unwrap();
            drop(sender);
            assert_eq!(reads.await.unwrap(), (5, 0), "the second end is reported like the first");
        });
    });
}

/// Returns the number of attempts that `attempt` makes while there is nothing to read. It returns
/// `None` when it would have blocked.
async fn attempts_in_vain(mut attempt: impl AsyncFnMut() -> Option<()>) -> u32 {
    let mut attempts = 0;
    let until_done = async {
        while attempt().await.is_none() {
            attempts += 1;
        }
    };
    assert!(timeout(SOON, until_done).await.is_err());
    attempts
}

#[test]
fn failed_reads_of_a_reopened_named_pipe_do_not_spin() {
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("fifo");
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            let open = || pipe::OpenOptions::new().open_receiver(&path).unwrap();
            let (mut receiver, fd) = (open(), AsyncFd::new(open().into_nonblocking_fd().unwrap()).unwrap());
            drop(pipe::OpenOptions::new().open_sender(&path).unwrap());
            assert_eq!(receiver.read(&mut [0]).await.unwrap(), 0, "there is no sender");
            let read = |fd: &OwnedFd| Ok(rustix::io::read(fd, &mut [0])?);
            assert_eq!(fd.async_io(Interest::READABLE, read).await.unwrap(), 0);
            let mut sender = pipe::OpenOptions::new().open_sender(&path).unwrap();

            let by_try_read = attempts_in_vain(async || {
                receiver.readable().await.unwrap();
                receiver.try_read(&mut [0]).ok().map(drop)
            });
            assert!(by_try_read.await <= 2);
            let by_guard = attempts_in_vain(async || {
                let mut guard = fd.readable().await.unwrap();
                guard.try_io(|fd| read(fd.get_ref())).ok().map(drop)
            });
            assert!(by_guard.await <= 2);

            sender.write_all(b"ab").await.unwrap();
            assert_eq!(receiver.read(&mut [0]).await.unwrap(), 1);
            assert_eq!(fd.async_io(Interest::READABLE, read).await.unwrap(), 1);
        });
    });
}

#[test]
fn waiting_for_both_directions_does_not_spin_when_half_closed() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (here, mut there) = UnixStream::pair().unwrap();
            there.shutdown().await.unwrap();
            while !here.ready(Interest::READABLE).await.unwrap().is_read_closed() {
                volt::task::yield_now().await;
            }
            let write = || Ok(rustix::net::send(&here, b"no room", SendFlags::NOSIGNAL)?);
            while write().is_ok() {}
            let writes = here.async_io(Interest::READABLE | Interest::WRITABLE, write);
            assert!(timeout(SOON, writes).await.is_err());
            assert_eq!(here.try_read(&mut [0]).unwrap(), 0, "the end is still reported");
        });
    });
}

#[test]
fn the_credentials_of_the_peer_are_known_unless_it_is_hidden() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (here, _there) = UnixStream::pair().unwrap();
            let peer = here.peer_cred().unwrap();
            assert_eq!(peer.pid(), Some(std::process::id() as i32));
            assert_eq!(peer.uid(), rustix::process::getuid().as_raw());
            // The kernel returns pid 0, as for a peer in a pid namespace that is not visible from
            // this one.
            let alone = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
            let alone = UnixStream::from_std(alone.unwrap().into()).unwrap();
            assert_eq!(alone.peer_cred().unwrap().pid(), None);
        });
    });
}

#[test]
fn several_tasks_may_wait_in_accept_on_one_listener() {
    const TASKS: usize = 8;
    with_workers(|runtime| {
        let folder = Folder::new();
        runtime.block_on(async {
            let path = folder.path("many");
            let listener = Arc::new(UnixListener::bind(&path).unwrap());
            let accepts = (0..TASKS).map(|_| {
                let listener = listener.clone();
                volt::spawn(async move { poll_or_await(&listener).await })
            });
            let accepts = accepts.collect::<Vec<_>>();
            let mut clients = Vec::new();
            for _ in 0..TASKS {
                clients.push(UnixStream::connect(&path).await.unwrap());
            }
            for accept in accepts {
                accept.await.unwrap();
            }
        });
    });
}

async fn poll_or_await(listener: &UnixListener) -> UnixStream {
    assert!(timeout(Duration::ZERO, std::future::pending::<()>()).await.is_err());
    listener.accept().await.unwrap().0
}
