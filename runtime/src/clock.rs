//! Monotonic time of this process, in nanoseconds since its first reading.
//!
//! One origin for the whole process, so that times taken by different threads and runtimes compare.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Now, in ns since the process first asked.
#[inline]
pub(crate) fn now_ns() -> u64 {
    ns_of(Instant::now())
}

/// `at` on this clock; 0 if it lies before the first reading, `u64::MAX` (584 years) if it lies too far ahead.
#[inline]
pub(crate) fn ns_of(at: Instant) -> u64 {
    saturating_ns(at.saturating_duration_since(origin()))
}

/// A duration as nanoseconds, `u64::MAX` if it is longer than 584 years.
#[inline]
pub(crate) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A number that differs from one start of a process to the next, for random sequences.
pub(crate) fn wall_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(now_ns())
}
