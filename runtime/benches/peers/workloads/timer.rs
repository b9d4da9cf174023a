//! Sleeps: their cost, and how late they are.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::meter::{Meter, cpu_time};
use crate::quantile::quantile;
use crate::runtimes::peer::Peer;

const SLEEPS: usize = 100_000;
const QUICK_SLEEPS: usize = 30_000;
const TIMED_SLEEPS: usize = 10_000;
/// Maximum length of a sleep; the minimum is 1 ms.
const LONGEST: Duration = Duration::from_millis(100);
/// Timers created and dropped per batch.
const CANCELLED: usize = 2_000;
const FAR: Duration = Duration::from_secs(60);

/// Returns the same times for every runtime, spread evenly from 1 to 100 ms, in no order.
fn time_of(index: usize) -> Duration {
    // Multiplication by the golden ratio spreads consecutive numbers evenly and far from each
    // other.
    let share = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let span_ns = (LONGEST - Duration::from_millis(1)).as_nanos() as u64;
    Duration::from_millis(1) + Duration::from_nanos((span_ns * share) >> 24)
}

/// Runs `count` tasks that sleep. Returns how late each was, µs, and the processor time of one, ns.
fn sleeps<P: Peer>(meter: &Meter, count: usize) -> (Vec<f64>, f64) {
    let peer = P::start(meter.workers);
    let before = cpu_time();
    let late_us = peer.run(async move {
        let tasks: Vec<_> = (0..count)
            .map(|index| {
                P::spawn(async move {
                    let time = time_of(index);
                    let deadline = Instant::now() + time;
                    P::sleep(time).await;
                    deadline.elapsed().as_nanos() as f64 / 1e3
                })
            })
            .collect();
        let mut late_us = Vec::with_capacity(count);
        for task in tasks {
            late_us.push(P::join(task).await);
        }
        late_us
    });
    let took = cpu_time() - before;
    (late_us, took.as_nanos() as f64 / count as f64)
}

/// 100,000 tasks sleep 1 to 100 ms: processor time for each, spawn and join included. Elapsed time
/// would only be that of the sleeps.
pub(super) fn timers<P: Peer>(meter: &Meter) -> Vec<f64> {
    let count = if meter.is_quick { QUICK_SLEEPS } else { SLEEPS };
    vec![sleeps::<P>(meter, count).1]
}

/// How late 10,000 of them are, and their cost.
pub(super) fn lateness<P: Peer>(meter: &Meter) -> Vec<f64> {
    let (mut late_us, cpu_ns) = sleeps::<P>(meter, TIMED_SLEEPS);
    vec![quantile(&mut late_us, 0.5), quantile(&mut late_us, 0.99), cpu_ns / 1e3]
}

/// A task arms a timer and drops it, as an unused time-out does.
pub(super) fn create_cancel<P: Peer>(meter: &Meter) -> Vec<f64> {
    let peer = P::start(meter.workers);
    meter.cost_ns(CANCELLED, || {
        peer.run(async {
            let began = Instant::now();
            for _ in 0..CANCELLED {
                let mut sleep = pin!(P::sleep(FAR));
                let is_over = poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx).is_ready())).await;
                assert!(!is_over, "a timer has to wait for its time");
            }
            began.elapsed()
        })
    })
}
