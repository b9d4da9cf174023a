//! The most common operations of async programs: a task passes something to another task, by a
//! channel, a lock or a socket, and waits for the answer.
//!
//! The channels and locks are Tokio's on every runtime, since they do not depend on a runtime. The
//! instructions of these workloads are counted with one worker (`.ci/instructions`).

use std::future::Future;
use std::net;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::future::{Either, select as first_of};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, Notify, mpsc, oneshot};

use super::sizes::MANY;
use super::wake::Slot;
use crate::meter::Meter;
use crate::runtimes::peer::Peer;
use crate::runtimes::sets::Sets;
use crate::runtimes::sockets::Sockets;

const REQUESTS: usize = 10_000;
const HOPS: usize = 10_000;
const LOCKERS: usize = 10;
const LOCKS: usize = 1_000;
const MESSAGES: usize = 10_000;
const SET: usize = 10;
const SETS: usize = 500;
const FUTURES: usize = 100;
const LAPS: usize = 100;
const ECHOES: usize = 1_000;

/// Runs `future` as a task, and measures its time.
fn timed<P: Peer>(peer: &P, future: impl Future<Output = ()> + Send + 'static) -> Duration {
    peer.run(async move {
        let began = Instant::now();
        future.await;
        began.elapsed()
    })
}

/// A task sends requests to another one through a channel, and each is answered by a oneshot.
pub(super) fn oneshot<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(REQUESTS, || {
        timed(&peer, async {
            let (requests, mut received) = mpsc::channel::<oneshot::Sender<usize>>(16);
            let server = P::spawn(async move {
                let mut served = 0;
                while let Some(answer) = received.recv().await {
                    served += 1;
                    answer.send(served).expect("the other waits");
                }
            });
            for _ in 0..REQUESTS {
                let (answer, answered) = oneshot::channel();
                requests.send(answer).await.expect("the server runs");
                answered.await.expect("the server replies");
            }
            drop(requests);
            P::join(server).await;
        })
    })
}

/// Two tasks notify each other in turns.
pub(super) fn notify<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(2 * HOPS, || {
        timed(&peer, async {
            let ends: Arc<[Notify; 2]> = Arc::default();
            let player = |mine: usize| {
                let ends = ends.clone();
                async move {
                    for _ in 0..HOPS {
                        ends[mine].notified().await;
                        ends[1 - mine].notify_one();
                    }
                }
            };
            let players = [P::spawn(player(0)), P::spawn(player(1))];
            ends[0].notify_one();
            for player in players {
                P::join(player).await;
            }
        })
    })
}

/// Ten tasks lock a mutex in turns. The owner yields, so that the others queue.
pub(super) fn mutex<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(LOCKERS * LOCKS, || {
        timed(&peer, async {
            let count = Arc::new(Mutex::new(0));
            let lockers: Vec<_> = (0..LOCKERS)
                .map(|_| {
                    let count = count.clone();
                    P::spawn(async move {
                        for _ in 0..LOCKS {
                            let mut count = count.lock().await;
                            P::yield_now().await;
                            *count += 1;
                        }
                    })
                })
                .collect();
            for locker in lockers {
                P::join(locker).await;
            }
            assert_eq!(*count.lock().await, LOCKERS * LOCKS);
        })
    })
}

/// A task receives from whichever of two channels has a message. Each channel has room for one.
pub(super) fn select<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(2 * MESSAGES, || {
        timed(&peer, async {
            let channel = || {
                let (sender, receiver) = mpsc::channel(1);
                P::detach(P::spawn(async move {
                    for message in 0..MESSAGES {
                        sender.send(message).await.expect("the receiver lives");
                    }
                }));
                receiver
            };
            let (mut one, mut other) = (channel(), channel());
            let mut received = 0;
            while received < 2 * MESSAGES {
                let (Either::Left((message, _)) | Either::Right((message, _))) =
                    first_of(pin!(one.recv()), pin!(other.recv())).await;
                if message.is_some() {
                    received += 1;
                    continue;
                }
                // One channel has ended.
                while one.recv().await.is_some() || other.recv().await.is_some() {
                    received += 1;
                }
            }
        })
    })
}

/// A task starts ten in the runtime's set of tasks, and joins them.
pub(super) fn join_set<P: Sets>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(SET * SETS, || {
        timed(&peer, async {
            for _ in 0..SETS {
                P::join_set(SET).await;
            }
        })
    })
}

/// A task polls 100 futures inside itself, each of which wakes it once.
pub(super) fn futures_unordered<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(FUTURES * LAPS, || {
        timed(&peer, async {
            for _ in 0..LAPS {
                let mut futures: FuturesUnordered<_> = (0..FUTURES).map(|_| P::yield_now()).collect();
                while futures.next().await.is_some() {}
            }
        })
    })
}

/// A task starts many and joins none; the last one notifies it.
pub(super) fn spawn_detached<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(MANY, || {
        timed(&peer, async {
            let shared = Arc::new((AtomicUsize::new(MANY), Slot::default()));
            for _ in 0..MANY {
                let shared = shared.clone();
                P::detach(P::spawn(async move {
                    // ORDERING: AcqRel; the last one comes after all others.
                    if shared.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                        shared.1.give();
                    }
                }));
            }
            shared.1.take().await;
        })
    })
}

/// An echo server and its client in one runtime, over one TCP connection.
pub(super) fn tcp_rt<P: Sockets>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(ECHOES, || {
        let listener = net::TcpListener::bind(("127.0.0.1", 0)).expect("the loopback works");
        let near = net::TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let (far, _) = listener.accept().expect("one connects");
        for end in [&near, &far] {
            end.set_nodelay(true).expect("it is TCP");
            end.set_nonblocking(true).expect("it is a socket");
        }
        timed(&peer, async {
            let (mut near, mut far) = (P::stream(near).expect("registered"), P::stream(far).expect("registered"));
            let server = P::spawn(async move {
                let mut buffer = [0; 64];
                loop {
                    let count = P::read(&mut far, &mut buffer).await.expect("the client lives");
                    if count == 0 {
                        return;
                    }
                    P::write_all(&mut far, &buffer[..count]).await.expect("the client lives");
                }
            });
            let mut buffer = [7; 64];
            for _ in 0..ECHOES {
                P::write_all(&mut near, &buffer).await.expect("the server lives");
                assert_eq!(P::read(&mut near, &mut buffer).await.expect("the server lives"), buffer.len());
            }
            drop(near);
            P::join(server).await;
        })
    })
}
