//! Tasks that pass values to each other, and to threads that block. The channels are Tokio's on
//! every runtime, since they do not depend on a runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::sizes::PINGS;
use crate::meter::Meter;
use crate::runtimes::peer::Peer;

const MESSAGES: usize = 20_000;
const CAPACITY: usize = 1_000;
const JOBS: usize = 100;

/// 1000 times concurrently: two tasks, one of which spawned the other, exchange two values.
pub(super) fn ping_pong<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(PINGS, || {
        peer.run(async {
            let (done, all_done) = oneshot::channel();
            let shared = Arc::new((AtomicUsize::new(PINGS), std::sync::Mutex::new(Some(done))));
            let began = Instant::now();
            for _ in 0..PINGS {
                let shared = shared.clone();
                P::detach(P::spawn(async move {
                    let (ping, pinged) = oneshot::channel();
                    let (pong, ponged) = oneshot::channel();
                    P::detach(P::spawn(async move {
                        pinged.await.expect("the other sends");
                        pong.send(()).expect("the other waits");
                    }));
                    ping.send(()).expect("the other waits");
                    ponged.await.expect("the other sends");
                    // ORDERING: AcqRel; the last one comes after all others.
                    if shared.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                        let done = shared.1.lock().expect("no thread panics").take();
                        done.expect("only the last takes it").send(()).expect("a receiver waits");
                    }
                }));
            }
            all_done.await.expect("the last task notifies this one");
            began.elapsed()
        })
    })
}

fn messages<P: Peer>(meter: &Meter, producers: usize) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(MESSAGES, || {
        peer.run(async move {
            let (sender, mut receiver) = mpsc::channel(CAPACITY);
            let began = Instant::now();
            for _ in 0..producers {
                let sender = sender.clone();
                P::detach(P::spawn(async move {
                    for message in 0..MESSAGES / producers {
                        sender.send(message).await.expect("the receiver lives");
                    }
                }));
            }
            drop(sender);
            while receiver.recv().await.is_some() {}
            began.elapsed()
        })
    })
}

/// One task sends to another through a bounded channel.
pub(super) fn mpsc_1<P: Peer>(meter: &Meter) -> Vec<f64> {
    messages::<P>(meter, 1)
}

/// The same with four senders.
pub(super) fn mpsc_4<P: Peer>(meter: &Meter) -> Vec<f64> {
    messages::<P>(meter, 4)
}

/// A task hands an empty job to a thread for blocking work, and waits for it; one at a time.
pub(super) fn blocking<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(JOBS, || {
        peer.run(async {
            let began = Instant::now();
            for _ in 0..JOBS {
                P::unblock(|| {}).await;
            }
            began.elapsed()
        })
    })
}
