//! Tests of sleep, locks and I/O. A blocked thread stays blocked, so after the first pair of
//! samples that shows the expected cause, every pair must show it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, RwLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use volt_telemetry::incident::Cause;

use super::{Going, WINDOW, watch};

/// Pairs of samples that must agree.
const PAIRS: u32 = 20;
/// One of many sleeps: long compared to a window, short enough to wait for at the end.
const NAP: Duration = Duration::from_millis(300);
/// `NAP` as a kernel type.
const NAP_SPEC: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Watches a thread that is blocked by `body` until `release`.
fn assert_blocked(cause: Cause, body: impl FnOnce() + Send + 'static, release: impl FnOnce()) {
    let watched = watch(body);
    watched.see(cause, 1, WINDOW);
    let others = watched.see(cause, PAIRS, WINDOW);
    assert!(others.is_empty(), "{cause:?} at first, then {others:?}");
    release();
    watched.join();
}

/// Like `assert_blocked`, with a thread that naps again and again and is awake for an instant in
/// between.
fn naps(cause: Cause, nap: impl Fn() + Send + 'static) {
    let going = Going::new();
    let is_going = going.clone();
    let watched = watch(move || {
        while is_going.is_on() {
            nap();
        }
    });
    let others = watched.see(cause, PAIRS, WINDOW);
    assert!(others.values().sum::<u32>() < PAIRS, "{cause:?}, but also {others:?}");
    going.end();
    watched.join();
}

#[test]
fn a_thread_that_sleeps_has_the_cause_sleep() {
    naps(Cause::Sleep, || thread::sleep(NAP));
}

#[test]
fn a_poll_without_descriptors_has_the_cause_sleep() {
    naps(Cause::Sleep, || assert_eq!(poll(&mut [], Some(&NAP_SPEC)).unwrap(), 0));
}

#[test]
fn a_mutex_locked_by_another_thread_has_the_cause_lock() {
    let mutex = Arc::new(Mutex::new(()));
    let guard = mutex.lock().unwrap();
    let same = Arc::clone(&mutex);
    assert_blocked(Cause::Lock, move || drop(same.lock().unwrap()), || drop(guard));
}

#[test]
fn a_read_lock_behind_a_writer_has_the_cause_lock() {
    let lock = Arc::new(RwLock::new(()));
    let guard = lock.write().unwrap();
    let same = Arc::clone(&lock);
    assert_blocked(Cause::Lock, move || drop(same.read().unwrap()), || drop(guard));
}

#[test]
fn a_condition_that_does_not_come_has_the_cause_lock() {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let same = Arc::clone(&pair);
    let body = move || drop(same.1.wait_while(same.0.lock().unwrap(), |is_over| !*is_over).unwrap());
    assert_blocked(Cause::Lock, body, || {
        *pair.0.lock().unwrap() = true;
        pair.1.notify_one();
    });
}

#[test]
fn a_condition_with_a_time_limit_has_the_cause_lock_not_sleep() {
    let pair = (Mutex::new(()), Condvar::new());
    naps(Cause::Lock, move || drop(pair.1.wait_timeout(pair.0.lock().unwrap(), NAP).unwrap()));
}

#[test]
fn an_empty_channel_has_the_cause_lock() {
    let (sender, receiver) = mpsc::channel();
    assert_blocked(Cause::Lock, move || receiver.recv().unwrap(), || sender.send(()).unwrap());
}

#[test]
fn joining_a_thread_has_the_cause_lock() {
    let (end, is_over) = mpsc::channel::<()>();
    let other = thread::spawn(move || is_over.recv().unwrap());
    assert_blocked(Cause::Lock, move || other.join().unwrap(), || end.send(()).unwrap());
}

#[test]
fn waiting_for_a_child_process_has_the_cause_lock() {
    // `cat` exits at the end of its input.
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let input = child.stdin.take();
    assert_blocked(Cause::Lock, move || assert!(child.wait().unwrap().success()), || drop(input));
}

/// Creates a file that no other program opens, and that is removed with its last handle.
fn file() -> File {
    rustix::fs::memfd_create("volt", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into()
}

/// Opens the same file again: a lock through one handle excludes the other.
fn reopened(file: &File) -> File {
    use std::os::fd::AsRawFd;
    File::options().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap()
}

#[test]
fn a_file_locked_through_another_handle_has_the_cause_lock() {
    let file = file();
    let same = reopened(&file);
    flock(&file, FlockOperation::LockExclusive).unwrap();
    assert_blocked(Cause::Lock, move || flock(same, FlockOperation::LockExclusive).unwrap(), || drop(file));
}

#[test]
fn a_part_of_a_file_locked_by_another_has_the_cause_lock() {
    // Such locks belong to a process, so another process must hold it.
    if super::is_child() {
        let file: File = File::options().read(true).write(true).open(std::env::var("VOLT_LOCKED").unwrap()).unwrap();
        fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
        eprintln!("locked");
        std::io::stdin().read_to_string(&mut String::new()).unwrap();
        return;
    }
    let path = std::env::temp_dir().join(format!("volt-locked-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    let test = concat!(module_path!(), "::a_part_of_a_file_locked_by_another_has_the_cause_lock");
    let child = super::Again::start_with(test, &[("VOLT_LOCKED", path.as_os_str())]);
    while child.line() != "locked" {}
    std::fs::remove_file(&path).unwrap();
    assert_blocked(Cause::Lock, move || fcntl_lock(&file, FlockOperation::LockExclusive).unwrap(), || drop(child));
}

#[test]
fn an_empty_pipe_has_the_cause_io() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    assert_blocked(Cause::Io, move || assert_eq!(reader.read(&mut [0]).unwrap(), 0), || drop(writer));
}

#[test]
fn a_full_pipe_has_the_cause_io() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    assert_blocked(Cause::Io, move || drop(writer.write_all(&vec![0; 1 << 21]).unwrap_err()), || drop(reader));
}

#[test]
fn a_listener_without_a_client_has_the_cause_io() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert_blocked(Cause::Io, move || drop(listener.accept().unwrap()), || drop(TcpStream::connect(address).unwrap()));
}

#[test]
fn a_silent_tcp_peer_has_the_cause_io() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    assert_blocked(Cause::Io, move || assert_eq!(stream.read(&mut [0]).unwrap(), 0), || drop(peer));
}

#[test]
fn a_datagram_that_does_not_come_has_the_cause_io() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let send = || assert_eq!(sender.send_to(b"x", address).unwrap(), 1);
    assert_blocked(Cause::Io, move || assert_eq!(socket.recv(&mut [0]).unwrap(), 1), send);
}

#[test]
fn a_silent_unix_socket_has_the_cause_io() {
    let (mut stream, peer) = UnixStream::pair().unwrap();
    assert_blocked(Cause::Io, move || assert_eq!(stream.read(&mut [0]).unwrap(), 0), || drop(peer));
    let (datagrams, peer) = UnixDatagram::pair().unwrap();
    assert_blocked(
        Cause::Io,
        move || assert_eq!(datagrams.recv(&mut [0]).unwrap(), 1),
        || assert_eq!(peer.send(b"x").unwrap(), 1),
    );
}

#[test]
fn a_poll_with_descriptors_has_the_cause_io() {
    let (reader, writer) = std::io::pipe().unwrap();
    let body = move || assert_eq!(poll(&mut [PollFd::new(&reader, PollFlags::IN)], None).unwrap(), 1);
    assert_blocked(Cause::Io, body, || drop(writer));
}

#[test]
fn an_epoll_by_hand_has_the_cause_io() {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    epoll::add(&set, &event, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
    let body = move || {
        let mut events = Vec::with_capacity(1);
        assert_eq!(epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None).unwrap(), 1);
    };
    assert_blocked(Cause::Io, body, || assert_eq!(rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap(), 8));
}

#[test]
fn an_event_that_does_not_come_has_the_cause_io() {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let same = Arc::clone(&event);
    let body = move || assert_eq!(rustix::io::read(&same, &mut [0_u8; 8]).unwrap(), 8);
    assert_blocked(Cause::Io, body, || assert_eq!(rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap(), 8));
}
