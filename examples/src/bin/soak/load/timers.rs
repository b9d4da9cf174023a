//! Timers of many durations: none fires early, whatever happens to the program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volt::Handle;
use volt::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::part::Part;
use crate::random::Random;

const SLEEPERS: u64 = 100;
const SLEEP_MAX_MS: u64 = 400;
const TICK: Duration = Duration::from_millis(20);

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    for sleeper in 0..SLEEPERS {
        drop(runtime.spawn(sleeps(part.clone(), sleeper)));
    }
    drop(runtime.spawn(ticks(part.clone())));
}

async fn sleeps(part: Arc<Part>, seed: u64) {
    let mut random = Random::new(seed);
    while !part.is_over() {
        let time = Duration::from_millis(random.below(SLEEP_MAX_MS));
        let begun = Instant::now();
        if random.below(8) == 0 {
            // Cancelled while it waits.
            let outcome = timeout(time, sleep(Duration::from_secs(3_600))).await;
            part.verify(outcome.is_err(), "an hour is over");
        } else {
            sleep(time).await;
        }
        let slept = begun.elapsed();
        part.verify(slept >= time, format_args!("a timer of {time:?} fired after {slept:?}"));
    }
}

async fn ticks(part: Arc<Part>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = ticks.tick().await;
    while !part.is_over() {
        let tick = ticks.tick().await;
        part.verify(tick > last, "an interval ticked twice for one time");
        last = tick;
    }
}
