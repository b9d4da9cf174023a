//! `AsyncFd`, on descriptors for which Volt has no type.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::watchdog::with_workers;
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use volt::io::unix::AsyncFd;
use volt::io::{Interest, Ready};
use volt::time::timeout;

const SOON: Duration = Duration::from_millis(5);

fn pair() -> (UnixStream, UnixStream) {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    (one, other)
}

fn count(fd: &OwnedFd) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::io::read(fd, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[test]
fn a_task_waits_for_an_eventfd_and_a_timerfd() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let event = AsyncFd::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap()).unwrap();
            let adds = volt::spawn(async {
                let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK).unwrap();
                let ms = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                let once = Itimerspec { it_interval: Timespec::default(), it_value: ms };
                timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).unwrap();
                let timer = AsyncFd::with_interest(timer, Interest::READABLE).unwrap();
                timer.async_io(Interest::READABLE, count).await.unwrap()
            });
            assert_eq!(adds.await.unwrap(), 1);
            rustix::io::write(event.get_ref(), &7u64.to_ne_bytes()).unwrap();
            assert_eq!(event.async_io(Interest::READABLE, count).await.unwrap(), 7);
            assert_eq!(event.try_io(Interest::READABLE, count).unwrap_err().kind(), ErrorKind::WouldBlock);
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
    });
}

#[test]
fn readiness_persists_until_its_guard_is_cleared() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (mut there, here) = pair();
            let mut here = AsyncFd::new(here).unwrap();
            there.write_all(b"ab").unwrap();
            here.readable().await.unwrap().retain_ready();
            let mut guard = here.readable().await.unwrap();
            assert_eq!(guard.try_io(|fd| fd.get_ref().read(&mut [0; 1])).unwrap().unwrap(), 1);
            let mut guard = here.readable_mut().await.unwrap();
            assert_eq!(guard.get_inner_mut().read(&mut [0; 8]).unwrap(), 1);
            assert!(guard.try_io(|fd| fd.get_mut().read(&mut [0; 8])).is_err());
            // The kernel reports the registration and the bytes separately, and may report the
            // second after the read.
            let mut reports = 0;
            while let Ok(guard) = timeout(SOON, here.readable()).await {
                assert!(guard.unwrap().try_io(|fd| fd.get_ref().read(&mut [0; 8])).is_err());
                reports += 1;
                assert!(reports < 3, "it is cleared, and the next does not wait");
            }

            there.write_all(b"c").unwrap();
            let both = Interest::READABLE | Interest::WRITABLE;
            let mut guard = loop {
                let guard = here.ready(both).await.unwrap();
                if guard.ready().is_readable() {
                    break guard;
                }
            };
            assert!(guard.ready().is_writable());
            guard.clear_ready_matching(Ready::READABLE);
            assert_eq!(guard.ready(), Ready::WRITABLE);
            assert!(here.ready(Interest::WRITABLE).await.unwrap().ready().is_writable(), "that was not cleared");
            assert!(timeout(SOON, here.readable()).await.is_err(), "though there is something to read");
            assert_eq!(here.get_ref().read(&mut [0; 8]).unwrap(), 1);

            drop(there);
            let guard = here.readable().await.unwrap();
            assert!(guard.ready().is_read_closed());
        });
    });
}

#[test]
fn readiness_after_a_check_survives_the_clearing_of_that_check() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (mut there, here) = pair();
            let here = AsyncFd::with_interest(here, Interest::READABLE).unwrap();
            there.write_all(b"a").unwrap();
            let mut old = here.readable().await.unwrap();
            assert_eq!(here.get_ref().read(&mut [0; 8]).unwrap(), 1);
            let turns = || volt::Handle::current().snapshot().driver.events;
            let before = turns();
            there.write_all(b"b").unwrap();
            while turns() == before {
                volt::task::yield_now().await;
            }
            old.clear_ready();
            here.readable().await.unwrap().retain_ready();
            assert!(timeout(SOON, here.writable()).await.is_err(), "it is not watched for that");
        });
    });
}

#[test]
fn a_wait_for_priority_events_ends_when_the_peer_closes() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (there, here) = pair();
            let here = AsyncFd::with_interest(here, Interest::PRIORITY).unwrap();
            assert!(timeout(SOON, here.ready(Interest::PRIORITY)).await.is_err());
            drop(there);
            assert!(here.ready(Interest::PRIORITY).await.unwrap().ready().is_read_closed());
        });
    });
}

#[test]
fn a_mutable_attempt_does_not_spin_when_half_closed() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let (there, here) = pair();
            let mut here = AsyncFd::new(here).unwrap();
            there.shutdown(std::net::Shutdown::Write).unwrap();
            while !here.readable().await.unwrap().ready().is_read_closed() {
                volt::task::yield_now().await;
            }
            while here.get_ref().write(b"no room").is_ok() {}
            let both = Interest::READABLE | Interest::WRITABLE;
            let writes = here.async_io_mut(both, |stream| stream.write(b"no room"));
            assert!(timeout(SOON, writes).await.is_err());
        });
    });
}

#[test]
fn async_fd_returns_a_rejected_fd_and_deregisters_on_into_inner() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            let fd = file.as_raw_fd();
            let (file, error) = AsyncFd::try_new(file).unwrap_err().into_parts();
            assert_eq!((file.as_raw_fd(), error.kind()), (fd, ErrorKind::PermissionDenied));
            let (mut there, here) = pair();
            let here = AsyncFd::new(here).unwrap();
            assert_eq!(AsyncFd::new(here.as_raw_fd()).unwrap_err().kind(), ErrorKind::AlreadyExists);
            let here = AsyncFd::new(here.into_inner()).unwrap();
            there.write_all(b"a").unwrap();
            assert_eq!(here.async_io(Interest::READABLE, |mut here| here.read(&mut [0; 8])).await.unwrap(), 1);
        });
        assert_eq!(runtime.handle().snapshot().driver.registrations, 0);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn an_error_is_reported_as_such_and_cleared_as_such() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket.connect(gone).unwrap();
            // SAFETY: a socket of the standard library keeps its descriptor.
            let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::ERROR) }.unwrap();
            assert!(timeout(SOON, socket.ready(Interest::ERROR)).await.is_err(), "there is no error");
            socket.get_ref().send(b"anybody there?").unwrap();
            let mut guard = socket.ready(Interest::ERROR).await.unwrap();
            assert_eq!(guard.ready(), Ready::ERROR);
            assert!(socket.ready(Interest::READABLE).await.unwrap().ready().is_readable(), "to read the error");
            guard.clear_ready_matching(Ready::READABLE);
            assert_eq!(guard.ready(), Ready::ERROR);
            guard.clear_ready();
            assert!(timeout(SOON, socket.ready(Interest::ERROR)).await.is_err(), "it was cleared");
            assert_eq!(socket.get_ref().take_error().unwrap().unwrap().kind(), ErrorKind::ConnectionRefused);
        });
    });
}

#[test]
fn urgent_data_is_found_by_the_interest_in_it() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (here, _) = listener.accept().unwrap();
            here.set_nonblocking(true).unwrap();
            // SAFETY: a socket of the standard library keeps its descriptor.
            let here = unsafe { AsyncFd::register_with_interest(here, Interest::PRIORITY) }.unwrap();
            rustix::net::send(&there, b"!", rustix::net::SendFlags::OOB).unwrap();
            assert_eq!(here.ready(Interest::PRIORITY).await.unwrap().ready(), Ready::PRIORITY);
            assert!(here.readable().await.unwrap().ready().is_readable());
        });
    });
}
