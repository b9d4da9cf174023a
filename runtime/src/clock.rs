//! Monotonic time of this process, in nanoseconds since its first reading.
//!
//! One origin for the whole process, so that times taken by different threads and runtimes compare. Read from the processor's cycle
//! counter where that can be trusted, and within microseconds of `Instant`: see `cycles`.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::cycles::Counter;

static COUNTER: Counter = Counter::new();

fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

fn instant_ns() -> u64 {
    saturating_ns(Instant::now().saturating_duration_since(origin()))
}

/// Now, in ns since the process first asked.
#[inline]
pub(crate) fn now_ns() -> u64 {
    #[cfg(test)]
    if let Some(now_ns) = simulated::now_ns() {
        return now_ns;
    }
    COUNTER.now_ns(instant_ns)
}

/// Holds the clock to `Instant`; to be called now and then by whoever comes by. One load as a rule.
#[inline]
pub(crate) fn tend(now_ns: u64) {
    #[cfg(test)]
    if simulated::now_ns().is_some() {
        return;
    }
    COUNTER.tend(now_ns, instant_ns);
}

/// The system's clock and this one, at one moment: `Instant` costs three times what the other does, so it is read once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Both {
    pub(crate) now: Instant,
    now_ns: u64,
}

impl Both {
    pub(crate) fn read() -> Self {
        Self { now: Instant::now(), now_ns: now_ns() }
    }

    /// What this clock said.
    pub(crate) fn now_ns(self) -> u64 {
        self.now_ns
    }

    /// So much later; an instant that there is not is the last that there is.
    pub(crate) fn later(self, by: Duration) -> Self {
        let now_ns = self.now_ns.saturating_add(saturating_ns(by));
        self.now.checked_add(by).map_or(self, |now| Self { now, now_ns })
    }

    /// `at` on this clock; 0 if it lies before the first reading, `u64::MAX` (584 years) if it lies too far ahead.
    pub(crate) fn ns_of(self, at: Instant) -> u64 {
        match at.checked_duration_since(self.now) {
            Some(ahead) => self.now_ns.saturating_add(saturating_ns(ahead)),
            None => self.now_ns.saturating_sub(saturating_ns(self.now.duration_since(at))),
        }
    }
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

/// A clock that a test moves on: that of the thread that has set it, and of no other.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;

    thread_local! {
        static NOW_NS: Cell<Option<u64>> = const { Cell::new(None) };
    }

    pub(super) fn now_ns() -> Option<u64> {
        NOW_NS.try_with(Cell::get).ok().flatten()
    }

    /// `None` = real time again.
    pub(crate) fn set(now_ns: Option<u64>) {
        NOW_NS.set(now_ns);
    }
}
