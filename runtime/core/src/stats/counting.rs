//! Whether anything is recorded: always, but in the programs that the bench `observe` builds to see
//! what recording costs.
//!
//! Who sets it: `--cfg volt_unobserved` in `RUSTFLAGS` takes out all that is written into cells,
//! the flight recorder, who woke a task, the names and spans of tasks, and each reading of the
//! clock whose value is wanted for them alone, or would otherwise be taken once a tick, as by a
//! scheduler that counts nothing. With `--cfg volt_unobserved="clock_kept"` besides, the clock is
//! read as ever, and only the writing is out.
//!
//! Invariant: *Never by accident*: it is no feature, so nothing that depends on Volt can turn it
//! on, and a build with the flag fails unless the bench's own variable is set as well. What is left
//! is no runtime to work with: snapshots are empty, and a worker's present poll is unknown, so that
//! its LIFO slot is never stolen, the sentinel sees nobody stuck, and placement takes every worker
//! for idle.
//!
//! Stays in: what the scheduler itself decides by (the tuner, the lengths of queues), the registry
//! and the counts of tasks, which shutdown needs, counts of what comes from outside, and those of
//! driver, timers and blocking threads, which no poll passes.

use crate::clock;

/// Whether cells are written.
pub(crate) const IS_ON: bool = !cfg!(volt_unobserved);
/// Whether the clock is read for them.
const IS_TIMED: bool = IS_ON || cfg!(volt_unobserved = "clock_kept");

const _: () = assert!(
    IS_ON || option_env!("VOLT_BENCH_OBSERVE").is_some(),
    "volt_unobserved is for the bench `observe` alone: cargo bench -p volt-runtime --bench observe"
);

/// Now, for what is only recorded.
#[inline]
pub(crate) fn now_ns() -> u64 {
    now_ns_after(0)
}

/// Now, after a poll that began at `last_ns`. The scheduler takes this reading too: since it is
/// there, checks by time cost nothing more.
#[inline]
pub(crate) fn now_ns_after(last_ns: u64) -> u64 {
    if IS_TIMED { clock::now_ns() } else { last_ns }
}

/// Now, at the begin of a tick, if no poll reads the clock.
#[inline]
pub(crate) fn now_ns_of_tick() -> Option<u64> {
    (!IS_TIMED).then(clock::now_ns)
}
