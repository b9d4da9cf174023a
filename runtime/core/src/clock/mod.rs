//! Monotonic time of this program, in nanoseconds since its first reading.
//!
//! The scheduler reads it at each poll; timers, telemetry and the recorder use it too. There is one
//! origin for the whole program, so that times taken by different threads and runtimes can be
//! compared. It is read from the processor's cycle counter where that can be trusted, and stays
//! within a microsecond of `Instant`: see `cycles`.

use std::time::{Duration, Instant};

use volt_stacks::fork::{self, Computed};

use self::cycles::segment::Kept;
use self::cycles::source::{self, Source};
use self::cycles::{Clock, Fault};

pub(crate) mod cycles;
#[cfg(test)]
mod tests;

static CLOCK: Clock<Machine> = Clock::new(Machine);

thread_local! {
    /// The segment of the clock that this thread read last, and the time. Needs no destructor, so
    /// it can be used until the thread has exited.
    static KEPT: Kept = const { Kept::new() };
}

/// This machine's counter and system clock, or a counter that a test has injected.
struct Machine;

impl Source for Machine {
    #[inline]
    fn cycles(&self) -> u64 {
        #[cfg(test)]
        if let Some(cycles) = injected::cycles() {
            return cycles;
        }
        source::cycles()
    }

    fn system_ns(&self) -> u64 {
        instant_ns()
    }

    fn is_trusted(&self) -> bool {
        #[cfg(test)]
        if let Some(is_trusted) = injected::is_trusted() {
            return is_trusted;
        }
        source::is_trustworthy()
    }

    fn forks(&self) -> u32 {
        fork::count()
    }
}

fn instant_ns() -> u64 {
    static ORIGIN: Computed<Instant> = Computed::new();
    let origin = *ORIGIN.get_or_compute(Instant::now);
    saturating_ns(Instant::now().saturating_duration_since(origin))
}

/// Returns the present time, in ns since the program's first reading.
#[inline]
pub(crate) fn now_ns() -> u64 {
    #[cfg(test)]
    if let Some(now_ns) = simulated::now_ns() {
        return now_ns;
    }
    KEPT.with(|kept| CLOCK.now_ns_by(kept))
}

/// Returns the present time as [`now_ns`] does, or `None` if that takes longer than usual.
#[inline]
pub(crate) fn try_now_ns() -> Option<u64> {
    #[cfg(test)]
    if let Some(now_ns) = simulated::now_ns() {
        return Some(now_ns);
    }
    KEPT.with(|kept| CLOCK.now_ns_of(kept))
}

/// Returns the present time, after a comparison with `Instant`. The comparison costs one reading of
/// `Instant`.
///
/// Threads call it at events that do not depend on this clock: see `cycles`.
pub(crate) fn check() -> u64 {
    #[cfg(test)]
    if let Some(now_ns) = simulated::now_ns() {
        return now_ns;
    }
    KEPT.with(|kept| CLOCK.check_by(kept))
}

/// Returns how often the cycle counter has failed since the program started.
#[inline]
pub(crate) fn faults() -> u64 {
    CLOCK.faults()
}

/// Returns the last fault of the counter, and whether the clock then stopped using the counter.
pub(crate) fn last_fault() -> Option<(Fault, bool)> {
    CLOCK.last_fault()
}

/// Returns the figures for telemetry.
pub(crate) fn telemetry() -> volt_telemetry::Clock {
    volt_telemetry::Clock { is_fast: CLOCK.is_fast(), faults: CLOCK.faults() }
}

/// The system's clock and this one, at one moment. Taken together so that `Instant`, which costs
/// three times as much to read, is read only once.
#[derive(Clone, Copy, Debug)]
pub struct Both {
    pub now: Instant,
    now_ns: u64,
}

impl Both {
    pub(crate) fn read() -> Self {
        Self { now: Instant::now(), now_ns: now_ns() }
    }

    /// Returns the reading of this clock.
    pub(crate) fn now_ns(self) -> u64 {
        self.now_ns
    }

    /// Returns the moment `by` later; the same moment if `Instant` cannot represent that one.
    #[inline]
    pub(crate) fn later(self, by: Duration) -> Self {
        let now_ns = self.now_ns.saturating_add(saturating_ns(by));
        self.now.checked_add(by).map_or(self, |now| Self { now, now_ns })
    }

    /// Returns the time of `at` on this clock: 0 if it is before the first reading, `u64::MAX` (584
    /// years) if it is too far ahead.
    pub(crate) fn ns_of(self, at: Instant) -> u64 {
        match at.checked_duration_since(self.now) {
            Some(ahead) => self.now_ns.saturating_add(saturating_ns(ahead)),
            None => self.now_ns.saturating_sub(saturating_ns(self.now.duration_since(at))),
        }
    }
}

/// Returns a duration in nanoseconds, `u64::MAX` if it is longer than 584 years.
#[inline]
pub(crate) fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a number that differs from one start of the program to the next, as a seed for random
/// sequences.
pub(crate) fn wall_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(now_ns())
}

/// A clock that a test advances. It applies to the thread that set it and to no other.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;

    thread_local! {
        static NOW_NS: Cell<Option<u64>> = const { Cell::new(None) };
    }

    pub(super) fn now_ns() -> Option<u64> {
        NOW_NS.try_with(Cell::get).ok().flatten()
    }

    /// Sets the time of this thread; `None` returns to real time.
    pub(crate) fn set(now_ns: Option<u64>) {
        NOW_NS.set(now_ns);
    }
}

/// A cycle counter that a test injects and makes wrong. It applies to the whole program, so such a
/// test runs in a child process.
#[cfg(test)]
pub(crate) mod injected {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::instant_ns;

    static IS_IN: AtomicBool = AtomicBool::new(false);
    static COUNTER: Mutex<Counter> =
        Mutex::new(Counter { is_trusted: true, from_ns: 0, from_cycles: 0, cycles_per_ms: 0 });

    /// A straight line through a moment on the system clock.
    struct Counter {
        is_trusted: bool,
        from_ns: u64,
        from_cycles: u64,
        cycles_per_ms: u64,
    }

    impl Counter {
        fn at(&self, ns: u64) -> u64 {
            let since = u128::from(ns.saturating_sub(self.from_ns)) * u128::from(self.cycles_per_ms);
            self.from_cycles.wrapping_add((since / 1_000_000) as u64)
        }
    }

    /// A change of the counter, from now on.
    #[derive(Clone, Copy, Debug)]
    pub(crate) enum CounterFault {
        /// It is injected: it runs at 2.5 GHz, and the kernel trusts it.
        PutIn,
        /// It steps ahead by this many cycles, or back if the number is negative.
        Step(i64),
        /// It changes its speed; at 0 it stops.
        CyclesPerMs(u64),
        Distrust,
    }

    /// The speed of a counter of 2.5 GHz.
    pub(crate) const CYCLES_PER_MS: u64 = 2_500_000;

    pub(crate) fn inject(fault: CounterFault) {
        let mut counter = COUNTER.lock().unwrap();
        let now_ns = instant_ns();
        (counter.from_cycles, counter.from_ns) = (counter.at(now_ns), now_ns);
        match fault {
            CounterFault::PutIn => {
                counter.from_cycles = 1 << 60;
                counter.cycles_per_ms = CYCLES_PER_MS;
            }
            CounterFault::Step(by) => counter.from_cycles = counter.from_cycles.wrapping_add_signed(by),
            CounterFault::CyclesPerMs(cycles_per_ms) => counter.cycles_per_ms = cycles_per_ms,
            CounterFault::Distrust => counter.is_trusted = false,
        }
        // ORDERING: Release; pairs with the Acquire in `with`.
        IS_IN.store(true, Ordering::Release);
    }

    /// Runs `f` under the lock, so that no reading from before a step is returned after it.
    fn with<T>(f: impl FnOnce(&Counter) -> T) -> Option<T> {
        // ORDERING: Acquire; pairs with the Release in `inject`.
        IS_IN.load(Ordering::Acquire).then(|| f(&COUNTER.lock().unwrap()))
    }

    pub(super) fn cycles() -> Option<u64> {
        with(|counter| counter.at(instant_ns()))
    }

    pub(super) fn is_trusted() -> Option<bool> {
        with(|counter| counter.is_trusted)
    }
}
