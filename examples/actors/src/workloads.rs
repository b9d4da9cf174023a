//! The workloads, with the same source for all libraries. Each starts a runtime, checks at the end
//! that everything happened, and returns one value for each of its rows: the median over its
//! batches.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::memory;
use crate::peer::{Order, Peer};
use crate::quantile::quantile;
use crate::tally::{ARRIVED, BEGUN, ENDED, SUM, TOKENS};

/// The minimum number of batches in a round, however long one takes.
const MIN_BATCHES: usize = 2;

const SPAWNS: usize = 10_000;
const PING_PONG: u64 = 20_000;
const PAIRS: usize = 100;
const PAIRS_EACH: u64 = 400;
const RING: usize = 10_000;
const LAPS: u64 = 3;
const SENDERS: usize = 1_000;
const BURST: u64 = 50;

/// The settings of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    pub(crate) workers: usize,
    /// How long a round counts batches.
    pub(crate) time: Duration,
    /// Instead of the time: exactly this many batches, without a warm-up.
    pub(crate) batches: Option<usize>,
    /// The number of idle processes, to measure the memory per process.
    pub(crate) idle: usize,
}

impl Meter {
    /// Repeats a batch, which returns its values, and returns their medians.
    fn medians<const N: usize>(&self, mut batch: impl FnMut() -> [f64; N]) -> Vec<f64> {
        let mut results: Vec<[f64; N]> = Vec::new();
        match self.batches {
            Some(batches) => results.extend((0..batches).map(|_| batch())),
            None => {
                batch();
                let began = Instant::now();
                while results.len() < MIN_BATCHES || began.elapsed() < self.time {
                    results.push(batch());
                }
            }
        }
        let median = |row| quantile(&mut results.iter().map(|result| result[row]).collect::<Vec<_>>(), 0.5);
        (0..N).map(median).collect()
    }
}

fn ns_each(began: Instant, count: u64) -> f64 {
    began.elapsed().as_nanos() as f64 / count as f64
}

/// Starts processes and waits until all have begun; then stops them, and waits until all have
/// ended.
pub(crate) fn spawn<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.medians(|| {
        BEGUN.arm(SPAWNS);
        let began = Instant::now();
        let idle = peer.idle(SPAWNS);
        BEGUN.wait();
        let spawn = ns_each(began, SPAWNS as u64);
        ENDED.arm(SPAWNS);
        let began = Instant::now();
        peer.end_idle(idle);
        ENDED.wait();
        [spawn, ns_each(began, SPAWNS as u64)]
    })
}

/// Two nodes and one token between them.
pub(crate) fn ping_pong<P: Peer>(meter: &Meter) -> Vec<f64> {
    circles::<P>(meter, 1, 2, PING_PONG)
}

/// Many such pairs at the same time.
pub(crate) fn pairs<P: Peer>(meter: &Meter) -> Vec<f64> {
    circles::<P>(meter, PAIRS, 2, PAIRS_EACH)
}

/// Ten thousand nodes and one token.
pub(crate) fn ring<P: Peer>(meter: &Meter) -> Vec<f64> {
    circles::<P>(meter, 1, RING, RING as u64 * LAPS)
}

/// One token makes `hops` hops in each circle of nodes.
fn circles<P: Peer>(meter: &Meter, circles: usize, nodes_each: usize, hops: u64) -> Vec<f64> {
    let peer = P::start(meter.workers);
    let nodes = begin_nodes(&peer, circles * nodes_each);
    let orders = nodes.chunks(nodes_each).flat_map(|circle| {
        let next = circle.iter().cycle().skip(1);
        circle.iter().zip(next).map(|(node, next)| (node.clone(), Order::Next(next.clone())))
    });
    peer.send_orders(orders.collect());
    let mut batches = 0;
    let medians = meter.medians(|| {
        batches += 1;
        ARRIVED.arm(circles);
        // The node that receives 0 has made the last hop; the benchmark makes the first.
        let tokens = nodes.iter().step_by(nodes_each).map(|first| (first.clone(), Order::Token(hops - 1)));
        let tokens = tokens.collect();
        let began = Instant::now();
        peer.send_orders(tokens);
        ARRIVED.wait();
        [ns_each(began, hops * circles as u64)]
    });
    end_nodes(&peer, nodes);
    // ORDERING: Relaxed; this thread has waited for `ENDED`.
    assert_eq!(TOKENS.load(Ordering::Relaxed), batches * hops * circles as u64, "every hop was made");
    medians
}

/// A thousand nodes send to one.
pub(crate) fn fan_in<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    let sink = begin_nodes(&peer, 1);
    let senders = begin_nodes(&peer, SENDERS);
    peer.send_orders(senders.iter().map(|sender| (sender.clone(), Order::Next(sink[0].clone()))).collect());
    let tokens = SENDERS as u64 * BURST;
    let mut batches = 0;
    let medians = meter.medians(|| {
        batches += 1;
        ARRIVED.arm(1);
        peer.send_orders(vec![(sink[0].clone(), Order::Expect(tokens))]);
        let bursts = senders.iter().map(|sender| (sender.clone(), Order::Burst(BURST))).collect();
        let began = Instant::now();
        peer.send_orders(bursts);
        ARRIVED.wait();
        [ns_each(began, tokens)]
    });
    end_nodes(&peer, senders.into_iter().chain(sink).collect());
    // ORDERING: Relaxed; this thread has waited for `ENDED`.
    assert_eq!(TOKENS.load(Ordering::Relaxed), batches * tokens, "every message arrived");
    // ORDERING: Relaxed, as above.
    assert_eq!(SUM.load(Ordering::Relaxed), batches * tokens * (BURST + 1) / 2, "and was the one that was sent");
    medians
}

/// Memory per process of a million processes that have begun and wait, measured in a separate
/// program.
pub(crate) fn idle<P: Peer>(meter: &Meter) -> Vec<f64> {
    vec![memory::measure(P::NAME, meter.workers, meter.idle)]
}

fn begin_nodes<P: Peer>(peer: &P, count: usize) -> Vec<P::Node> {
    BEGUN.arm(count);
    let nodes = peer.nodes(count);
    BEGUN.wait();
    // ORDERING: Relaxed; no node of an earlier workload is alive.
    TOKENS.store(0, Ordering::Relaxed);
    // ORDERING: Relaxed, as above.
    SUM.store(0, Ordering::Relaxed);
    nodes
}

fn end_nodes<P: Peer>(peer: &P, nodes: Vec<P::Node>) {
    ENDED.arm(nodes.len());
    peer.end_nodes(nodes);
    ENDED.wait();
}
