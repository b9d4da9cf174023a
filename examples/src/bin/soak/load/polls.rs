//! Polls that block their worker: the tasks queued behind them are not lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volt::Handle;

use crate::part::{Part, pause};
use crate::random::Random;

const BLOCKED_MAX: Duration = Duration::from_millis(60);
const PAUSE_MAX: Duration = Duration::from_secs(2);

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    for seed in 0..2 {
        drop(runtime.spawn(blocks(part.clone(), seed)));
    }
}

/// Sleeps or computes in a poll, behind a child in the same worker's LIFO slot.
async fn blocks(part: Arc<Part>, seed: u64) {
    let mut random = Random::new(seed);
    while !part.is_over() {
        let child = volt::spawn(async { 7 });
        let time = BLOCKED_MAX.mul_f64(random.ratio());
        if random.below(2) == 0 {
            std::thread::sleep(time);
        } else {
            let begun = Instant::now();
            while begun.elapsed() < time {
                std::hint::spin_loop();
            }
        }
        part.verify(child.await.is_ok_and(|number| number == 7), "a child is lost");
        pause(&mut random, PAUSE_MAX).await;
    }
}
