//! Spawning tasks, and waiting for them.

use std::hint::spin_loop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::latch::Latch;
use super::sizes::{MANY, ONE_BY_ONE};
use crate::meter::Meter;
use crate::runtimes::peer::Peer;

/// Tasks spawned before the first is awaited, in the workloads that do not use [`MANY`].
const FEW: usize = 200;
/// How often these are spawned per batch.
const FEW_TIMES: usize = 20;
/// Tasks that an outside thread spawns and awaits one at a time, per batch.
const ONE_BY_ONE_REMOTE: usize = 100;
const CHAIN: usize = 1_000;
const CHILDREN: usize = 100;
/// Fan-outs per batch.
const FANS: usize = 20;
const CHILD_WORK: Duration = Duration::from_micros(1);

/// An outside thread spawns many empty tasks, and waits for them all.
pub(super) fn spawn_remote<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    let mut joins = Vec::with_capacity(MANY);
    meter.cost_ns(MANY, || {
        let began = Instant::now();
        joins.extend((0..MANY).map(|_| peer.spawn_from_outside(async {})));
        peer.block_on(async {
            for join in joins.drain(..) {
                P::join(join).await;
            }
        });
        began.elapsed()
    })
}

/// The same without join handles: the last task notifies the thread.
pub(super) fn spawn_remote_detached<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(MANY, || {
        let latch = Arc::new(Latch::new(MANY));
        let began = Instant::now();
        for _ in 0..MANY {
            let latch = latch.clone();
            P::detach(peer.spawn_from_outside(async move { latch.count_down() }));
        }
        latch.wait();
        began.elapsed()
    })
}

async fn spawn_and_join<P: Peer>(count: usize, times: usize) -> Duration {
    let mut joins = Vec::with_capacity(count);
    let began = Instant::now();
    for _ in 0..times {
        joins.extend((0..count).map(|_| P::spawn(async {})));
        for join in joins.drain(..) {
            P::join(join).await;
        }
    }
    began.elapsed()
}

/// A task spawns many, and awaits them all.
pub(super) fn spawn_local<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(MANY, || peer.run(spawn_and_join::<P>(MANY, 1)))
}

/// The same with so few that they fit every runtime's local queue.
pub(super) fn spawn_local_200<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(FEW * FEW_TIMES, || peer.run(spawn_and_join::<P>(FEW, FEW_TIMES)))
}

/// The same, one at a time.
pub(super) fn spawn_join_local<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(ONE_BY_ONE, || peer.run(spawn_and_join::<P>(1, ONE_BY_ONE)))
}

/// An outside thread spawns a task and blocks until it has ended, one at a time.
pub(super) fn spawn_join_remote<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(ONE_BY_ONE_REMOTE, || {
        let began = Instant::now();
        (0..ONE_BY_ONE_REMOTE).for_each(|_| peer.run(async {}));
        began.elapsed()
    })
}

fn chain<P: Peer>(left: usize, began: Instant, done: oneshot::Sender<Duration>) {
    if left == 0 {
        done.send(began.elapsed()).expect("a receiver waits");
    } else {
        P::detach(P::spawn(async move { chain::<P>(left - 1, began, done) }));
    }
}

/// Each task spawns the next.
pub(super) fn chained_spawn<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(CHAIN, || {
        peer.run(async {
            let (done, took) = oneshot::channel();
            chain::<P>(CHAIN, Instant::now(), done);
            took.await.expect("the chain ends")
        })
    })
}

/// A task spawns children that work for 1 µs each, and awaits them. With two workers the minimum is
/// 500 ns per child.
pub(super) fn fan_out_in<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    let fan = async || {
        let children: Vec<_> = (0..CHILDREN)
            .map(|_| {
                P::spawn(async {
                    let began = Instant::now();
                    while began.elapsed() < CHILD_WORK {
                        spin_loop();
                    }
                })
            })
            .collect();
        for child in children {
            P::join(child).await;
        }
    };
    meter.cost_ns(CHILDREN * FANS, || {
        peer.run(async move {
            let began = Instant::now();
            for _ in 0..FANS {
                fan().await;
            }
            began.elapsed()
        })
    })
}
