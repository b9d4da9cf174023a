//! A million polls of mixed work, with everything counted twice. `cargo bench -p volt-runtime
//! --bench stress` does a hundred million, and `.ci/tsan` runs this under ThreadSanitizer.

#[path = "../../benches/stress/mix.rs"]
mod mix;

use crate::watchdog;
use std::time::Duration;

use mix::{Done, Mix};
use volt::Placement;

/// Polls of each runtime. Fewer in the gate's sample under ThreadSanitizer (`.ci/tsan`).
const POLLS: u64 = if cfg!(volt_sample) { 30_000 } else { 120_000 };

#[test]
fn a_million_polls_of_everything_lose_nothing_and_end_at_rest() {
    let mut all = Done::default();
    for (round, workers) in [1, 2, 3, 4, 8, 66].into_iter().cycle().take(9).enumerate() {
        let mix = Mix {
            workers,
            outsiders: 1 + round as u64 % 2,
            placement: [Placement::Global, Placement::TwoChoices, Placement::LeastLoaded][round / 3],
            park_timeout: (round % 4 == 0).then_some(Duration::from_millis(100)),
            local_queue_capacity: [256, 8][round % 2],
            polls: POLLS,
            stretches: 2,
            crowd: 500,
            seed: round as u64,
        };
        watchdog::watched(|| all.add(&mix::run(&mix, |_| (), || ())));
    }
    assert!(all.polls >= 9 * POLLS, "{all:?}");
    // Every kind of work occurred.
    for (what, count) in [
        ("cancelled", all.cancelled),
        ("panicked", all.panicked),
        ("blocking", all.blocking),
        ("timers", all.timers),
        ("steals", all.steals),
        ("overflows", all.overflows),
        ("parks", all.parks),
    ] {
        assert!(count > 0, "no {what} in {all:?}");
    }
}
