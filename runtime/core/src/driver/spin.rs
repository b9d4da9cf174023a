//! Spinning: whether a thread with nothing to do stays awake for a moment and checks its park word
//! before it sleeps.
//!
//! Workers, threads in `block_on` and threads of the blocking pool use it. To wake a thread whose
//! processor is halted costs the waking thread a system call of some 4 µs. With a hypervisor, the
//! thread runs again only after 20 µs or more. Two threads that hand work to each other both pay
//! that at every turn, unless the waiting one is still awake. So a thread stays awake for a moment
//! if its earlier waits suggest that something will come within that moment.
//!
//! Each thread has its own [`Habit`], which only that thread reads and writes.
//!
//! 1. A sleep that another thread ended within [`SHORT_NS`] is a reason to spin before the next
//!    one; `needed` of them in a row suffice. A longer sleep resets the count. So an idle runtime
//!    never spins, and neither does one that wakes up now and then.
//! 2. A spin that something ended early confirms the habit. A spin has failed if nothing ended it.
//!    It has also failed if spins take, on average, as long as a sleep costs. After a failure,
//!    twice as many short sleeps are needed for the next spin as for the last, at most
//!    [`MOST_NEEDED`]. So a thread whose spins all fail spins before one in that many short sleeps.
//! 3. At most as many threads of the program spin at a time as it has processors, and none if it
//!    has only one: a spinning thread would keep the thread that it waits for from running. On a
//!    machine whose processors are all taken by other programs, spins fail, and (2) ends them.
//!
//! The callers do the wait itself, and ensure that no wake-up is lost meanwhile:
//! `Parker::has_token`, `blocking::pool`.
//!
//! Rejected:
//! * A fixed number of checks before every sleep, as other schedulers do. A blocking job, a spawn
//!   from outside and a wake-up after a sleep then take 1.3 to 1.6 times as long
//!   (`benches/options/RESULTS.md`). An idle runtime would also use processor time at each timer.
//! * A mean of the sleeps' lengths: one long sleep hides fifty short ones, or the other way round.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use volt_shim::CachePadded;
use volt_stacks::fork;

use crate::clock;
use crate::config::ParkSpin;

/// A sleep of at most this length could have been a spin. It is the time that two threads need to
/// wake each other, halted processors included, with a margin.
const SHORT_NS: u64 = 100_000;
/// Spins that last longer than this on average cost more processor time than the sleeps that they
/// save.
const COSTLY_NS: u64 = 12_000;
/// Short sleeps in a row before a first spin.
const LEAST_NEEDED: u32 = 2;
/// The same after many spins that failed.
const MOST_NEEDED: u32 = 1024;
/// Checks of the condition between two readings of the clock.
const CHECKS_PER_READING: u64 = 16;
/// The newest spin's share of the average, as a divisor.
const SHARE: u64 = 4;

impl ParkSpin {
    /// Returns the approximate length of a spin, ns.
    pub(crate) fn lasts_ns(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Adaptive { at_most } => clock::saturating_ns(at_most),
        }
    }
}

/// The history of one thread's waits.
#[derive(Debug)]
pub(crate) struct Habit {
    /// Short sleeps since the last long one or the last spin that failed.
    streak: u32,
    /// How many of them are needed to spin.
    needed: u32,
    /// Average length of a spin, ns.
    average_ns: u64,
}

impl Habit {
    pub(crate) const fn new() -> Self {
        Self { streak: 0, needed: LEAST_NEEDED, average_ns: 0 }
    }

    /// Returns whether a spin is worthwhile.
    #[inline]
    pub(crate) fn is_worth(&self, spin: ParkSpin) -> bool {
        match spin {
            ParkSpin::Off => false,
            ParkSpin::Adaptive { .. } => self.streak >= self.needed,
        }
    }

    /// Spins until `has_come`, or until the limit. Returns whether it has come; `None`: spinning is
    /// off, or too many other threads spin.
    pub(crate) fn spin(&mut self, spin: ParkSpin, has_come: impl Fn() -> bool) -> Option<bool> {
        match spin {
            ParkSpin::Off => None,
            ParkSpin::Adaptive { at_most } => self.spin_for(clock::saturating_ns(at_most), has_come),
        }
    }

    fn spin_for(&mut self, limit_ns: u64, has_come: impl Fn() -> bool) -> Option<bool> {
        let _permit = SPINNING.permit(fork::count(), processors())?;
        let began_ns = clock::now_ns();
        let has_come = spin_until(limit_ns, CHECKS_PER_READING, has_come);
        self.note_spin(clock::now_ns().saturating_sub(began_ns), has_come);
        Some(has_come)
    }

    fn note_spin(&mut self, took_ns: u64, has_come: bool) {
        self.average_ns = self.average_ns - self.average_ns / SHARE + took_ns / SHARE;
        if has_come && self.average_ns <= COSTLY_NS {
            self.needed = (self.needed / 2).max(LEAST_NEEDED);
        } else {
            *self = Self { streak: 0, needed: (2 * self.needed).min(MOST_NEEDED), average_ns: 0 };
        }
    }

    /// Records a sleep of `slept_ns` without a successful spin before it. `has_come`: it was ended
    /// by something that a spin would have detected.
    pub(crate) fn note_sleep(&mut self, slept_ns: u64, has_come: bool) {
        self.streak = if has_come && slept_ns <= SHORT_NS { self.streak.saturating_add(1) } else { 0 };
    }
}

/// Stays awake until `has_come`, at most for `limit_ns`. Returns whether it has come.
///
/// Reads the clock once per `checks_per_reading` checks. A check takes longer than a nanosecond, so
/// the number of checks is bounded too, in case the clock stands still.
pub(crate) fn spin_until(limit_ns: u64, checks_per_reading: u64, has_come: impl Fn() -> bool) -> bool {
    let began_ns = clock::now_ns();
    for check in 1..=limit_ns {
        if has_come() {
            return true;
        }
        spin_loop();
        if check % checks_per_reading == 0 && clock::now_ns().saturating_sub(began_ns) >= limit_ns {
            break;
        }
    }
    false
}

/// `| forks 32 | spinning threads 32 |`, counted in a program that was forked this many times. In a
/// forked child, the number is of threads that exist only in the parent, and is ignored.
struct Spinning(CachePadded<AtomicU64>);

static SPINNING: Spinning = Spinning(CachePadded(AtomicU64::new(0)));

/// The right of one thread to spin, in the program with this number of forks.
struct Permit<'s> {
    spinning: &'s Spinning,
    forks: u32,
}

impl Spinning {
    /// Counts one more spinning thread, unless there are as many as processors.
    fn permit(&self, forks: u32, processors: usize) -> Option<Permit<'_>> {
        let one_more = |word: u64| {
            let spinning = if (word >> 32) as u32 == forks { word as u32 } else { 0 };
            let may = processors > 1 && (spinning as usize) < processors;
            may.then_some(u64::from(forks) << 32 | u64::from(spinning + 1))
        };
        // ORDERING: Relaxed, both; only the number counts.
        let word = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        word.ok().map(|_| Permit { spinning: self, forks })
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let one_less = |word: u64| ((word >> 32) as u32 == self.forks).then(|| word - 1);
        // ORDERING: Relaxed, both; only the number counts. In a forked child that counts anew, this
        // thread is not included.
        let _is_counted = self.spinning.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }
}

/// Returns the number of processors that the program may use, as of the first call.
fn processors() -> usize {
    /// 0 = not known yet. No `OnceLock`: in a child that was forked while a thread reads the
    /// number, it would never be initialized.
    static PROCESSORS: AtomicUsize = AtomicUsize::new(0);
    // ORDERING: Relaxed, both; only the number counts. Threads may read it at the same time.
    let known = PROCESSORS.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let read = thread::available_parallelism().map_or(1, |processors| processors.get());
    PROCESSORS.store(read, Ordering::Relaxed);
    read
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT_NS: u64 = 40_000;
    const SPIN: ParkSpin = ParkSpin::Adaptive { at_most: Duration::from_nanos(LIMIT_NS) };

    /// Returns a habit after this many short sleeps.
    fn used_to(short_sleeps: u32) -> Habit {
        let mut habit = Habit::new();
        (0..short_sleeps).for_each(|_| habit.note_sleep(SHORT_NS, true));
        habit
    }

    #[test]
    fn only_short_sleeps_in_a_row_make_a_thread_spin() {
        assert!(!Habit::new().is_worth(SPIN));
        assert!(!used_to(LEAST_NEEDED - 1).is_worth(SPIN));
        assert!(used_to(LEAST_NEEDED).is_worth(SPIN));
        assert!(!used_to(LEAST_NEEDED).is_worth(ParkSpin::Off), "it is switched off");
        for (slept_ns, has_come) in [(SHORT_NS + 1, true), (0, false)] {
            let mut habit = used_to(MOST_NEEDED);
            habit.note_sleep(slept_ns, has_come);
            assert!(!habit.is_worth(SPIN), "{slept_ns} {has_come}");
        }
    }

    #[test]
    fn useless_spins_become_rare_and_useful_ones_return() {
        let mut habit = Habit::new();
        let mut spins = 0;
        for _ in 0..100_000 {
            habit.note_sleep(SHORT_NS, true);
            if habit.is_worth(SPIN) {
                habit.note_spin(LIMIT_NS, false);
                spins += 1;
            }
        }
        assert!(spins < 100_000 / MOST_NEEDED + MOST_NEEDED.ilog2(), "{spins} spins in vain");
        assert!(habit.needed == MOST_NEEDED);
        for _ in 0..MOST_NEEDED {
            habit.note_sleep(SHORT_NS, true);
        }
        for _ in 0..MOST_NEEDED.ilog2() {
            assert!(habit.is_worth(SPIN));
            habit.note_spin(1_000, true);
        }
        assert_eq!(habit.needed, LEAST_NEEDED);
    }

    #[test]
    fn spins_that_last_as_long_as_sleeps_are_abandoned() {
        let mut habit = used_to(LEAST_NEEDED);
        let mut spins = 0;
        while habit.is_worth(SPIN) {
            habit.note_spin(2 * COSTLY_NS, true);
            spins += 1;
            assert!(spins < 10, "never given up");
        }
        assert!(spins > 1, "the first one is long until both sides spin");
    }

    #[test]
    fn a_spin_ends_with_an_event_or_at_its_limit() {
        if processors() == 1 {
            return;
        }
        // Other threads of this program may spin too, and then this one may not. How long it took
        // is not checked here: on a busy machine even a spin that ends at its first check may take
        // too long.
        let spun = || used_to(LEAST_NEEDED).spin(SPIN, || true);
        assert_eq!(std::iter::repeat_with(spun).find_map(|has_come| has_come), Some(true));
        let mut habit = used_to(LEAST_NEEDED);
        while habit.is_worth(SPIN) {
            assert_ne!(habit.spin(ParkSpin::Adaptive { at_most: Duration::from_nanos(1) }, || false), Some(true));
        }
    }

    #[test]
    fn spinning_threads_are_limited_to_the_processors_per_program() {
        let spinning = Spinning(CachePadded(AtomicU64::new(0)));
        let all_of = |forks| Vec::from_iter(std::iter::from_fn(|| spinning.permit(forks, 3)).take(9));
        let parents = all_of(0);
        assert_eq!(parents.len(), 3);
        let childs = all_of(1);
        assert_eq!(childs.len(), 3, "those of the parent stayed behind");
        drop(parents);
        assert!(spinning.permit(1, 3).is_none(), "they were not among the child's");
        drop(childs);
        assert!(spinning.permit(1, 3).is_some());
        assert!(spinning.permit(1, 1).is_none(), "on one processor nobody spins");
    }
}
