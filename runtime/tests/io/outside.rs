//! Functions that need a runtime panic without one, and the panic names the file of the caller.

use std::os::unix::net as unix;
use std::panic::{self, AssertUnwindSafe};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use crate::folder::Folder;
use crate::watchdog::alone;
use volt::io::Interest;
use volt::io::unix::AsyncFd;
use volt::net::unix::pipe;
use volt::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixSocket, UnixStream};
use volt::process::Command;
use volt::signal::unix::{SignalKind, signal};

/// Calls `operation`, and returns the file in which it panicked.
fn file_of_panic<R>(operation: impl FnOnce() -> R) -> String {
    let file = Arc::new(Mutex::new(None));
    let (former, seen) = (panic::take_hook(), file.clone());
    panic::set_hook(Box::new(move |info| {
        *seen.lock().unwrap() = Some(info.location().unwrap().file().to_owned());
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(|| drop(operation())));
    panic::set_hook(former);
    result.expect_err("it did not panic");
    let file = file.lock().unwrap().take();
    file.expect("the hook was called")
}

/// Checks each operation.
macro_rules! panic_here {
    ($($operation:expr;)+) => {
        $(assert_eq!(file_of_panic(|| $operation), file!(), "{}", stringify!($operation));)+
    };
}

#[test]
fn functions_without_a_runtime_panic_in_their_callers_file() {
    alone(|| {
        let folder = Folder::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream_of_unix = || unix::UnixStream::pair().unwrap().0;
        let datagrams_of_unix = || unix::UnixDatagram::unbound().unwrap();
        let bound = unix::UnixListener::bind(folder.path("listener")).unwrap();
        let listening = || {
            let socket = UnixSocket::new_stream().unwrap();
            socket.bind(folder.path(&format!("socket-{}", rand()))).unwrap();
            socket
        };
        let fd = || stream_of_unix();
        panic_here! {
            TcpListener::from_std(listener.try_clone().unwrap());
            TcpStream::from_std(stream.try_clone().unwrap());
            UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
            TcpSocket::new_v4().unwrap().listen(1);
            UnixListener::bind(folder.path("other"));
            UnixListener::from_std(bound.try_clone().unwrap());
            UnixStream::from_std(stream_of_unix());
            UnixStream::pair();
            UnixDatagram::from_std(datagrams_of_unix());
            UnixDatagram::bind(folder.path("datagrams"));
            UnixDatagram::unbound();
            UnixDatagram::pair();
            listening().listen(1);
            UnixSocket::new_datagram().unwrap().datagram();
            pipe::pipe();
            // SAFETY: a socket of the standard library keeps its descriptor.
            unsafe { AsyncFd::register(fd()) };
            // SAFETY: a socket of the standard library keeps its descriptor.
            unsafe { AsyncFd::register_with_interest(fd(), Interest::READABLE) };
            AsyncFd::new(fd());
            AsyncFd::with_interest(fd(), Interest::READABLE);
            AsyncFd::try_new(fd());
            AsyncFd::try_with_interest(fd(), Interest::READABLE);
            signal(SignalKind::hangup());
            signal(SignalKind::from_raw(-1));
            Command::new("true").stdin(Stdio::null()).spawn();
            Command::new("true").spawn_with(std::process::Command::spawn);
            drop(Command::new("true").status());
            drop(Command::new("true").output());
        }
        assert!(!folder.path("other").exists(), "the panic comes first");
    });
}

/// Returns another number at every call.
fn rand() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn disabled_io_and_time_panic_and_the_rest_works() {
    alone(|| {
        let runtime = volt::Builder::new_current_thread().disable_io().disable_time().build().unwrap();
        let _entered = runtime.enter();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        panic_here! {
            TcpListener::from_std(listener.try_clone().unwrap());
            signal(SignalKind::hangup());
            volt::time::sleep(volt::time::Duration::ZERO);
            volt::time::timeout(volt::time::Duration::from_secs(1), std::future::pending::<()>());
        }
        let mut is_started = false;
        let mut command = volt::process::Command::new("true");
        panic_here! {
            command.spawn_with(|command| {
                is_started = true;
                command.spawn()
            });
        }
        assert!(!is_started, "nothing could wait for it");
        assert_eq!(runtime.block_on(async { volt::spawn(async { 1 }).await.unwrap() }), 1);
        let runtime = volt::Builder::new_current_thread().disable_io().disable_time().enable_all().build().unwrap();
        let _entered = runtime.enter();
        TcpListener::from_std(listener).unwrap();
        drop(volt::time::sleep(volt::time::Duration::ZERO));
    });
}
