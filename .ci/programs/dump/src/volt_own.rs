//! Volt's own operations.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use volt::sync::{Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};

use crate::case::Case;

pub fn all() -> Vec<fn() -> Case> {
    vec![
        volt_mutex,
        volt_rwlock_write,
        volt_rwlock_read,
        volt_semaphore,
        volt_notify,
        volt_oneshot,
        volt_mpsc_recv,
        volt_mpsc_unbounded,
        volt_mpsc_send_full,
        volt_broadcast,
        volt_watch,
        volt_barrier,
        volt_once_cell,
        volt_join_handle,
        volt_join_set,
        volt_spawn_blocking,
        volt_sleep,
        volt_interval,
        volt_timeout,
        volt_select,
        volt_accept,
        volt_tcp_read,
        volt_tcp_readable,
        volt_udp_recv,
        volt_unix_read,
        volt_child_wait,
        volt_signal,
    ]
}

fn volt_mutex() -> Case {
    let lock = Arc::new(Mutex::new(1));
    let held = lock.clone().try_lock_owned().unwrap();
    Case::new(async move {
        *lock.lock().await += 1; // AWAIT
    })
    .ends_at(["volt::sync::lock"])
    .then(move || drop(held))
}

fn volt_rwlock_write() -> Case {
    let lock = Arc::new(RwLock::new(1));
    let held = lock.clone().try_read_owned().unwrap();
    Case::new(async move {
        *lock.write().await += 1; // AWAIT
    })
    .ends_at(["sync::rw"])
    .then(move || drop(held))
}

fn volt_rwlock_read() -> Case {
    let lock = Arc::new(RwLock::new(1));
    let held = lock.clone().try_write_owned().unwrap();
    Case::new(async move {
        assert_eq!(*lock.read().await, 1); // AWAIT
    })
    .ends_at(["sync::rw"])
    .then(move || drop(held))
}

fn volt_semaphore() -> Case {
    let permits = Arc::new(Semaphore::new(1));
    let more = permits.clone();
    Case::new(async move {
        drop(permits.acquire_many(2).await.unwrap()); // AWAIT
    })
    .ends_at(["sync::semaphore"])
    .then(move || more.add_permits(1))
}

fn volt_notify() -> Case {
    let notify = Arc::new(Notify::new());
    let other = notify.clone();
    Case::new(async move {
        notify.notified().await; // AWAIT
    })
    .ends_at(["sync::notify"])
    .then(move || other.notify_one())
}

fn volt_oneshot() -> Case {
    let (sender, receiver) = oneshot::channel();
    Case::new(async move {
        receiver.await.unwrap(); // AWAIT
    })
    .ends_at(["sync::oneshot"])
    .then(move || sender.send(()).unwrap())
}

fn volt_mpsc_recv() -> Case {
    let (sender, mut receiver) = mpsc::channel(2);
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["sync::mpsc"])
    .then(move || sender.try_send(()).unwrap())
}

fn volt_mpsc_unbounded() -> Case {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["sync::mpsc"])
    .then(move || sender.send(()).unwrap())
}

fn volt_mpsc_send_full() -> Case {
    let (sender, mut receiver) = mpsc::channel(1);
    sender.try_send(1).unwrap();
    Case::new(async move {
        sender.send(2).await.unwrap(); // AWAIT
    })
    .ends_at(["sync::mpsc"])
    .then(move || {
        receiver.try_recv().unwrap();
        std::mem::forget(receiver);
    })
}

fn volt_broadcast() -> Case {
    let (sender, mut receiver) = broadcast::channel(2);
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["sync::broadcast"])
    .then(move || assert_eq!(sender.send(()).unwrap(), 1))
}

fn volt_watch() -> Case {
    let (sender, mut receiver) = watch::channel(2);
    Case::new(async move {
        receiver.changed().await.unwrap(); // AWAIT
    })
    .ends_at(["sync::watch"])
    .then(move || {
        sender.send(4).unwrap();
        std::mem::forget(sender);
    })
}

fn volt_barrier() -> Case {
    let barrier = Arc::new(Barrier::new(2));
    let other = barrier.clone();
    Case::new(async move {
        barrier.wait().await; // AWAIT
    })
    .ends_at(["sync::barrier"])
    .then(move || assert!(other.wait().now_or_never().is_some()))
}

fn volt_once_cell() -> Case {
    let (sender, receiver) = oneshot::channel::<u32>();
    Case::new(async move {
        let cell = OnceCell::new();
        let fill = async {
            receiver.await.unwrap() // AWAIT
        };
        cell.get_or_init(|| fill).await; // AWAIT
    })
    .ends_at(["sync::oneshot"])
    .then(move || sender.send(1).unwrap())
}

fn volt_join_handle() -> Case {
    let (sender, receiver) = oneshot::channel::<()>();
    Case::new(async move {
        let task = volt::spawn(receiver);
        task.await.unwrap().unwrap(); // AWAIT
    })
    .ends_at(["JoinHandle"])
    .then(move || sender.send(()).unwrap())
}

fn volt_join_set() -> Case {
    let (sender, receiver) = oneshot::channel::<()>();
    Case::new(async move {
        let mut tasks = volt::task::JoinSet::new();
        tasks.spawn(receiver);
        tasks.join_next().await.unwrap().unwrap().unwrap(); // AWAIT
    })
    .ends_at(["join_set"])
    .then(move || sender.send(()).unwrap())
}

fn volt_spawn_blocking() -> Case {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    Case::new(async move {
        volt::task::spawn_blocking(move || receiver.recv().unwrap()).await.unwrap(); // AWAIT
    })
    .ends_at(["JoinHandle"])
    .then(move || sender.send(()).unwrap())
}

fn volt_sleep() -> Case {
    Case::new(async move {
        volt::time::sleep(Duration::from_secs(3)).await; // AWAIT
    })
    .ends_at(["Sleep"])
    .then(|| {})
}

fn volt_interval() -> Case {
    Case::new(async move {
        let mut interval = volt::time::interval(Duration::from_secs(3));
        interval.tick().await;
        interval.tick().await; // AWAIT
    })
    .ends_at(["nterval"])
    .then(|| {})
}

fn volt_timeout() -> Case {
    let (sender, receiver) = oneshot::channel::<()>();
    Case::new(async move {
        volt::time::timeout(Duration::from_secs(60), receiver).await.unwrap().unwrap(); // AWAIT
    })
    .ends_at(["imeout"; 2])
    .then(move || sender.send(()).unwrap())
}

fn volt_select() -> Case {
    let (sender, receiver) = oneshot::channel::<()>();
    let (_open, mut messages) = mpsc::channel::<()>(1);
    Case::new(async move {
        let _open = _open;
        volt::select! { _ = receiver => {}, _ = messages.recv() => {} } // AWAIT
    })
    .ends_at(["sync::oneshot", "sync::mpsc"])
    .then(move || sender.send(()).unwrap())
}

fn volt_accept() -> Case {
    let (sender, address) = std::sync::mpsc::channel();
    Case::new(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        sender.send(listener.local_addr().unwrap()).unwrap();
        listener.accept().await.unwrap(); // AWAIT
    })
    .ends_at(["TcpListener"])
    .then(move || drop(std::net::TcpStream::connect(address.recv().unwrap()).unwrap()))
}

/// A connection's both ends.
async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (ours, listener.accept().await.unwrap().0)
}

fn volt_tcp_read() -> Case {
    let (sender, receiver) = std::sync::mpsc::channel();
    Case::new(async move {
        let (mut ours, theirs) = connected().await;
        sender.send(theirs).unwrap();
        ours.read_u8().await.unwrap_err(); // AWAIT
    })
    .ends_at(["volt::net"])
    .then(move || drop(receiver.recv().unwrap()))
}

fn volt_tcp_readable() -> Case {
    let (sender, receiver) = std::sync::mpsc::channel();
    Case::new(async move {
        let (ours, theirs) = connected().await;
        sender.send(theirs).unwrap();
        ours.readable().await.unwrap(); // AWAIT
    })
    .ends_at(["volt::net"])
    .then(move || drop(receiver.recv().unwrap()))
}

fn volt_udp_recv() -> Case {
    let (sender, address) = std::sync::mpsc::channel();
    Case::new(async move {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        sender.send(socket.local_addr().unwrap()).unwrap();
        socket.recv(&mut [0; 8]).await.unwrap(); // AWAIT
    })
    .ends_at(["volt::net::surface::datagrams"])
    .then(move || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"hi", address.recv().unwrap()).unwrap();
    })
}

fn volt_unix_read() -> Case {
    let (sender, receiver) = std::sync::mpsc::channel();
    Case::new(async move {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        sender.send(theirs).unwrap();
        assert_eq!(ours.read(&mut [0; 8]).await.unwrap(), 0); // AWAIT
    })
    .ends_at(["volt::net"])
    .then(move || drop(receiver.recv().unwrap()))
}

fn volt_child_wait() -> Case {
    let (sender, receiver) = std::sync::mpsc::channel();
    Case::new(async move {
        let mut command = volt::process::Command::new("cat");
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        sender.send(child.stdin.take().unwrap()).unwrap();
        child.wait().await.unwrap(); // AWAIT
    })
    .ends_at(["volt::process::child"])
    .then(move || {
        let mut input = receiver.recv().unwrap();
        let _is_flushed = input.flush().now_or_never();
        drop(input);
    })
}

fn volt_signal() -> Case {
    Case::new(async move {
        let kind = volt::signal::unix::SignalKind::window_change();
        volt::signal::unix::signal(kind).unwrap().recv().await.unwrap(); // AWAIT
    })
    .ends_at(["volt::signal::unix"])
}
