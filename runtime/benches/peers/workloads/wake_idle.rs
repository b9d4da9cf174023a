//! The time from a wake, by an outside thread while every worker sleeps, to the poll.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::wake::Slot;
use crate::meter::Meter;
use crate::quantile::quantile;
use crate::runtimes::peer::Peer;

/// Time from a poll to the next wake: the workers are asleep by then.
const PAUSE: Duration = Duration::from_millis(1);
/// The same if the waking thread keeps its processor busy, and therefore must not wait longer than
/// its time slice.
const BUSY_PAUSE: Duration = Duration::from_micros(300);
/// Wakes per round.
const WAKES: usize = 200;
const QUICK_WAKES: usize = 60;
/// In `Idler::polled_at_ns`: not polled yet.
const NOT_YET: u64 = 0;

struct Idler {
    slot: Slot,
    origin: Instant,
    polled_at_ns: AtomicU64,
}

impl Idler {
    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    async fn wake_each(self: Arc<Self>, wakes: usize) {
        for _ in 0..wakes {
            self.slot.take().await;
            // ORDERING: Release; pairs with the Acquire in `polled_at_ns`: the waking thread
            // continues after it.
            self.polled_at_ns.store(self.now_ns(), Ordering::Release);
        }
    }

    fn polled_at_ns(&self) -> Option<u64> {
        // ORDERING: Acquire; pairs with `wake_each`.
        Some(self.polled_at_ns.load(Ordering::Acquire)).filter(|at_ns| *at_ns != NOT_YET)
    }
}

/// Returns the delays of a round, µs. `wait` lets the given time pass.
fn delays_us<P: Peer>(meter: &Meter, pause: Duration, wait: fn(Duration)) -> Vec<f64> {
    let peer = P::start(meter.workers);
    let idler =
        Arc::new(Idler { slot: Slot::default(), origin: Instant::now(), polled_at_ns: AtomicU64::new(NOT_YET) });
    let wakes = meter.samples(WAKES, QUICK_WAKES);
    let task = peer.spawn_from_outside(idler.clone().wake_each(wakes));
    let delays = (0..wakes)
        .map(|_| {
            wait(pause);
            // ORDERING: Relaxed; the slot's token publishes it.
            idler.polled_at_ns.store(NOT_YET, Ordering::Relaxed);
            let woken_at_ns = idler.now_ns();
            idler.slot.give();
            loop {
                wait(pause);
                if let Some(polled_at_ns) = idler.polled_at_ns() {
                    return polled_at_ns.saturating_sub(woken_at_ns) as f64 / 1e3;
                }
            }
        })
        .collect();
    peer.block_on(P::join(task));
    delays
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        spin_loop();
    }
}

/// The waking thread then sleeps.
pub(super) fn then_asleep<P: Peer>(meter: &Meter) -> Vec<f64> {
    let mut delays = delays_us::<P>(meter, PAUSE, thread::sleep);
    vec![quantile(&mut delays, 0.5), quantile(&mut delays, 0.99)]
}

/// The waking thread keeps its processor busy.
pub(super) fn then_busy<P: Peer>(meter: &Meter) -> Vec<f64> {
    let mut delays = delays_us::<P>(meter, BUSY_PAUSE, spin);
    [0.5, 0.9, 0.99].map(|share| quantile(&mut delays, share)).to_vec()
}
