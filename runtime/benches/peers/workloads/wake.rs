//! Waking tasks: by themselves, by each other, and from outside.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use super::latch::Latch;
use super::sizes::{ALONE_TIMES, BATON_HOPS, CROWD, CROWD_TIMES};
use crate::meter::Meter;
use crate::runtimes::peer::Peer;

/// Hops of each baton if there are many.
const BATON_HOPS_OF_MANY: usize = 200;
const PAIRS: usize = 100;
const RING: usize = 1_000;
const RING_TOKENS: usize = 16;
const RING_LAPS: usize = 2;
const STORM: usize = 512;
/// Storms per batch, if a task makes them.
const STORMS: usize = 10;

/// A place where a task waits for tokens: the same on every runtime, and only a counter and a
/// waker.
#[derive(Default)]
pub(super) struct Slot {
    tokens: AtomicUsize,
    waker: AtomicWaker,
}

impl Slot {
    pub(super) fn give(&self) {
        // ORDERING: Release; pairs with the Acquire in `try_take`.
        self.tokens.fetch_add(1, Ordering::Release);
        self.waker.wake();
    }

    fn try_take(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `give`. Only the waiting task takes tokens.
        let is_there = self.tokens.load(Ordering::Acquire) > 0;
        if is_there {
            // ORDERING: Relaxed; the load above was the Acquire.
            self.tokens.fetch_sub(1, Ordering::Relaxed);
        }
        is_there
    }

    pub(super) async fn take(&self) {
        poll_fn(|cx| {
            if self.try_take() {
                return Poll::Ready(());
            }
            self.waker.register(cx.waker());
            // A token may have come in between.
            if self.try_take() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Runs `count` tasks made by `task` from inside the runtime. Returns the time until all had ended.
async fn timed<P: Peer, F>(count: usize, task: impl Fn(usize) -> F) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    let began = Instant::now();
    let tasks: Vec<_> = (0..count).map(|index| P::spawn(task(index))).collect();
    for task in tasks {
        P::join(task).await;
    }
    began.elapsed()
}

/// 100 tasks yield 1000 times each, by each runtime's own function.
pub(super) fn yield_now<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(CROWD * CROWD_TIMES, || {
        peer.run(timed::<P, _>(CROWD, |_| async {
            for _ in 0..CROWD_TIMES {
                P::yield_now().await;
            }
        }))
    })
}

/// Wakes itself and returns Pending, `times` times.
async fn wake_self(times: usize) {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn wake_selves<P: Peer>(meter: &Meter, tasks: usize, times: usize) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(tasks * times, || peer.run(timed::<P, _>(tasks, move |_| wake_self(times))))
}

/// The same by `wake_by_ref` and `Pending`.
pub(super) fn wake_100x1000<P: Peer>(meter: &Meter) -> Vec<f64> {
    wake_selves::<P>(meter, CROWD, CROWD_TIMES)
}

/// The same with one task alone.
pub(super) fn wake_1x100000<P: Peer>(meter: &Meter) -> Vec<f64> {
    wake_selves::<P>(meter, 1, ALONE_TIMES)
}

fn batons<P: Peer>(meter: &Meter, pairs: usize, hops: usize) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(pairs * 2 * hops, || {
        let slots: Arc<[Slot]> = (0..pairs * 2).map(|_| Slot::default()).collect();
        peer.run(timed::<P, _>(pairs * 2, move |index| {
            let slots = slots.clone();
            async move {
                let (mine, other) = (&slots[index], &slots[index ^ 1]);
                if index.is_multiple_of(2) {
                    mine.give();
                }
                for _ in 0..hops {
                    mine.take().await;
                    other.give();
                }
            }
        }))
    })
}

/// Two tasks wake each other in turns. An operation is one wake and the poll that it causes.
pub(super) fn baton_1<P: Peer>(meter: &Meter) -> Vec<f64> {
    batons::<P>(meter, 1, BATON_HOPS)
}

/// The same with 100 pairs.
pub(super) fn baton_100<P: Peer>(meter: &Meter) -> Vec<f64> {
    batons::<P>(meter, PAIRS, BATON_HOPS_OF_MANY)
}

/// 16 tokens circulate among 1000 tasks.
pub(super) fn ring<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(RING * RING_TOKENS * RING_LAPS, || {
        let slots: Arc<[Slot]> = (0..RING).map(|_| Slot::default()).collect();
        (0..RING_TOKENS).for_each(|token| slots[token * RING / RING_TOKENS].give());
        peer.run(timed::<P, _>(RING, move |index| {
            let slots = slots.clone();
            async move {
                // All tasks get their share: a task that lacks a token waits for the one before it,
                // which then lacks one too, and so on around the ring.
                for _ in 0..RING_TOKENS * RING_LAPS {
                    slots[index].take().await;
                    slots[(index + 1) % RING].give();
                }
            }
        }))
    })
}

/// Tasks that are all woken together, and notify when all have run.
struct Storm {
    slots: Box<[Slot]>,
    left: AtomicUsize,
    all_woken: Slot,
    latch: Latch,
    is_over: AtomicBool,
}

impl Storm {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: (0..STORM).map(|_| Slot::default()).collect(),
            left: AtomicUsize::new(0),
            all_woken: Slot::default(),
            latch: Latch::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    async fn be_woken(self: Arc<Self>, index: usize, from_outside: bool) {
        loop {
            self.slots[index].take().await;
            // ORDERING: Relaxed; the slot's token publishes it.
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if from_outside {
                self.latch.count_down();
            // ORDERING: AcqRel; the last one comes after all others.
            } else if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.all_woken.give();
            }
        }
    }

    fn wake_all(&self) {
        self.slots.iter().for_each(Slot::give);
    }

    fn end<P: Peer>(&self, peer: &P, tasks: Vec<P::Join<()>>) {
        // ORDERING: Relaxed; the slots' tokens publish it.
        self.is_over.store(true, Ordering::Relaxed);
        self.wake_all();
        peer.block_on(async {
            for task in tasks {
                P::join(task).await;
            }
        });
    }
}

/// An outside thread wakes 512 tasks, and waits until all have run.
pub(super) fn wake_storm_outside<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    let storm = Storm::new();
    let tasks: Vec<_> = (0..STORM).map(|index| peer.spawn_from_outside(storm.clone().be_woken(index, true))).collect();
    let costs = meter.cost_ns(STORM, || {
        storm.latch.reset(STORM);
        let began = Instant::now();
        storm.wake_all();
        storm.latch.wait();
        began.elapsed()
    });
    storm.end(&peer, tasks);
    costs
}

/// The same, with a task that wakes them.
pub(super) fn wake_storm_task<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    let storm = Storm::new();
    let tasks: Vec<_> = (0..STORM).map(|index| peer.spawn_from_outside(storm.clone().be_woken(index, false))).collect();
    let costs = meter.cost_ns(STORM * STORMS, || {
        let storm = storm.clone();
        peer.run(async move {
            let began = Instant::now();
            for _ in 0..STORMS {
                // ORDERING: Relaxed; the slots' tokens publish it.
                storm.left.store(STORM, Ordering::Relaxed);
                storm.wake_all();
                storm.all_woken.take().await;
            }
            began.elapsed()
        })
    });
    storm.end(&peer, tasks);
    costs
}
