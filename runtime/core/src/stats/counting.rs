//! Whether counters and events are written. They always are, except in the programs that the
//! benchmark `observe` builds to measure the cost of writing them.
//!
//! `--cfg volt_unobserved` in `RUSTFLAGS` removes all writes to cells and to the flight recorder,
//! the record of which task woke which, and the names and spans of tasks. It also removes each
//! reading of the clock that only serves these, or that a scheduler without counters would do only
//! once per tick. With `--cfg volt_unobserved="clock_kept"` in addition, the clock is read as
//! usual, and only the writes are removed.
//!
//! Invariant: *Never by accident*: it is not a feature, so no crate that depends on Volt can enable
//! it. A build with the flag fails unless the benchmark's own variable is set as well. The result
//! is not a usable runtime. Snapshots are empty, and a worker's present poll is unknown. So its
//! LIFO slot is never stolen, the sentinel detects no stuck poll, and placement treats every worker
//! as idle.
//!
//! Not removed:
//! * the values by which the scheduler itself decides: the tuner, the lengths of queues;
//! * the registry and the counts of tasks, which shutdown needs;
//! * the counts of submissions from outside, and those of the driver, the timers and the blocking
//!   threads, which are not part of a poll.

use crate::clock;

/// Whether cells are written.
pub(crate) const IS_ON: bool = !cfg!(volt_unobserved);
/// Whether the clock is read for them.
const IS_TIMED: bool = IS_ON || cfg!(volt_unobserved = "clock_kept");

const _: () = assert!(
    IS_ON || option_env!("VOLT_BENCH_OBSERVE").is_some(),
    "volt_unobserved is for the bench `observe` alone: cargo bench -p volt-runtime --bench observe"
);

/// Returns the present time, for values that are only recorded.
#[inline]
pub(crate) fn now_ns() -> u64 {
    now_ns_after(0)
}

/// Returns the present time as [`now_ns`] does, or `None` if that takes longer than usual.
#[inline]
pub(crate) fn try_now_ns() -> Option<u64> {
    if IS_TIMED { clock::try_now_ns() } else { Some(0) }
}

/// Returns the present time, after a poll that began at `last_ns`. The scheduler uses this reading
/// too, so its checks by time cost nothing more.
#[inline]
pub(crate) fn now_ns_after(last_ns: u64) -> u64 {
    if IS_TIMED { clock::now_ns() } else { last_ns }
}

/// Returns the present time at the begin of a tick, if no poll reads the clock.
#[inline]
pub(crate) fn now_ns_of_tick() -> Option<u64> {
    (!IS_TIMED).then(clock::now_ns)
}
