//! The driver, through the public API.

use crate::watchdog;
use std::io::Write;
use std::os::unix::net::UnixStream as Peer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::watchdog::watched;
use volt::io::AsyncReadExt;
use volt::net::UnixStream;

/// A gap in the eager hand-off would show in few rounds only.
const ROUNDS: usize = 100;

/// Returns one end of Volt's type, and one of the standard library's.
fn pair() -> (UnixStream, Peer) {
    let (here, there) = Peer::pair().unwrap();
    (UnixStream::from_std(here).unwrap(), there)
}

#[test]
fn eager_handoff_serves_events_while_the_driver_worker_is_stuck() {
    watched(|| {
        // Without the sentinel, so that no other thread checks the driver.
        let runtime = watchdog::builder(2).eager_driver_handoff(true).build().unwrap();
        for _ in 0..ROUNDS {
            let ((mut first, mut first_peer), (mut second, mut second_peer)) = {
                let _entered = runtime.enter();
                (pair(), pair())
            };
            let (is_stuck, is_free) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let stuck = runtime.spawn({
                let (is_stuck, is_free) = (is_stuck.clone(), is_free.clone());
                async move {
                    first.read_u8().await.unwrap();
                    is_stuck.store(true, Ordering::Release);
                    while !is_free.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                }
            });
            let frees = runtime.spawn(async move {
                second.read_u8().await.unwrap();
                is_free.store(true, Ordering::Release);
            });
            while runtime.handle().snapshot().workers.iter().any(|worker| worker.in_flight.is_some()) {
                std::thread::yield_now();
            }
            first_peer.write_all(b"x").unwrap();
            while !is_stuck.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            second_peer.write_all(b"x").unwrap();
            runtime.block_on(async { volt::join!(stuck, frees) }).0.unwrap();
        }
    });
}

#[test]
fn eager_handoff_serves_events_while_only_one_worker_is_free() {
    const WORKERS: usize = 4;
    watched(|| {
        // Without the sentinel, so that no other thread checks the driver.
        let runtime = watchdog::builder(WORKERS).eager_driver_handoff(true).build().unwrap();
        for _ in 0..ROUNDS {
            let (mut stream, mut peer) = {
                let _entered = runtime.enter();
                pair()
            };
            let (stuck_count, is_free) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let stuck: Vec<_> = (1..WORKERS)
                .map(|_| {
                    let (stuck_count, is_free) = (stuck_count.clone(), is_free.clone());
                    runtime.spawn(async move {
                        stuck_count.fetch_add(1, Ordering::Release);
                        while !is_free.load(Ordering::Acquire) {
                            std::thread::yield_now();
                        }
                    })
                })
                .collect();
            let frees = runtime.spawn(async move {
                stream.read_u8().await.unwrap();
                is_free.store(true, Ordering::Release);
            });
            while stuck_count.load(Ordering::Acquire) < WORKERS - 1 {
                std::thread::yield_now();
            }
            peer.write_all(b"x").unwrap();
            runtime.block_on(frees).unwrap();
            stuck.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        }
    });
}

#[test]
fn with_one_event_a_turn_every_socket_gets_its_own() {
    const SOCKETS: usize = 200;
    watched(|| {
        let runtime = watchdog::builder(2).max_io_completions(1).build().unwrap();
        let (mut peers, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..SOCKETS {
            let (mut stream, peer) = {
                let _entered = runtime.enter();
                pair()
            };
            peers.push(peer);
            tasks.push(runtime.spawn(async move { stream.read_u8().await.unwrap() }));
        }
        for (n, peer) in peers.iter_mut().enumerate() {
            peer.write_all(&[n as u8]).unwrap();
        }
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(runtime.block_on(task).unwrap(), n as u8);
        }
        let driver = runtime.handle().snapshot().driver;
        assert!(driver.polls >= driver.events, "more than one event in a turn: {driver:?}");
    });
}
