//! The account of a task: the number of its polls, their total and longest duration, and the total
//! delay between wake-ups and polls. Task lists and `volt-console` report it.
//!
//! Shape: 16 bytes in the task's header, the width of one class of blocks, so that a waiting task
//! stays below 128 bytes. They also contain what the task waits for (`awaits`). `begun` is written
//! at the beginning of a poll. `took` is written at its end if the task will wait or be enqueued
//! again; the account of a task that ends is discarded.
//!
//! Writers: the task's runner (*One runner* of `state`), by Relaxed loads and stores. Readers:
//! a thread that lists tasks.
//!
//! Invariants:
//! * *Saturation*: a number that reaches its maximum stays there. The maxima are 4.2 billion polls,
//!   19 hours of delay and 13 days of busy time.
//! * *Own polls*: a poll for a dump changes nothing. It may poll fewer operations than the task's
//!   last poll, such as those of a `FuturesUnordered`, which are still what the task waits for. It
//!   begins at [`TRACED_AT_NS`], so that no other poll has to be checked for it.
//!
//! Rejected: a count of wake-ups by cause. It needs 8 bytes and a store per wake-up, and adds
//! little to the last wake-up (in the header), the chain of `why` and the table of spawn locations.
//! Also rejected: the last worker. With stealing it is of little use for a waiting task, and a
//! running task is shown with its worker.

use std::sync::atomic::{AtomicU64, Ordering};

use volt_telemetry::histogram::{bounds_of, unbounded_bucket_of};
use volt_telemetry::tasks::LONGEST_FROM_NS;

use super::awaits::Note;
use crate::stats::counting;

/// The beginning of a poll for a dump, in place of a time. The clock needs centuries to come near
/// it, so the time that such a poll seems to take is longer than that of any other poll.
pub(crate) const TRACED_AT_NS: u64 = 1 << 63;
/// The clock stays below this.
const CLOCK_MAX_NS: u64 = 1 << 62;
/// `delay` counts in units of 2^14 ns, 16 µs.
const DELAY_UNIT_BITS: u32 = 14;
const DELAY_MASK: u64 = (1 << DELAY_UNIT_BITS) - 1;
/// `busy` counts in units of 2^10 ns, about a microsecond.
const BUSY_UNIT_BITS: u32 = 10;
const BUSY_MASK: u64 = (1 << BUSY_UNIT_BITS) - 1;
/// The bits of `took` for the longest poll, as the number of a histogram bucket.
const LONGEST_BITS: u32 = 10;
const LONGEST_MASK: u64 = (1 << LONGEST_BITS) - 1;
/// The largest bucket whose bounds can be represented.
const LONGEST_MAX: u64 = unbounded_bucket_of(i64::MAX as u64) as u64;
const BUSY_SHIFT: u32 = LONGEST_BITS + Note::BITS;
const BUSY_FULL: u64 = u64::MAX >> BUSY_SHIFT;
/// The bits of `begun` for the delay.
const DELAY_BITS: u32 = 32;
const DELAY_FULL: u64 = (1 << DELAY_BITS) - 1;
const ONE_POLL: u64 = 1 << DELAY_BITS;
/// The highest bits of both halves of `begun`. If one is set before an addition, or in the units to
/// be added, the sum may have no room. In that case the addition checks exactly.
const NEARLY_FULL: u64 = 1 << (u64::BITS - 1) | 1 << (DELAY_BITS - 1);
const _: () = assert!((unbounded_bucket_of(u64::MAX) as u64) <= LONGEST_MASK);

/// The account of a task. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// `| polls that have begun 32 | total delay from wake-up to poll 32 |`
    begun: AtomicU64,
    /// `| total busy time 40 | bucket of the longest poll 10 | what the task waits for 14 |`, of
    /// the polls that have ended.
    took: AtomicU64,
}

/// The contents of an [`Account`]. If it is read while the task runs, its numbers may come from two
/// different polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) polls: u64,
    /// Precision: 16 µs.
    pub(crate) delay_ns: u64,
    /// Precision: a microsecond.
    pub(crate) busy_ns: u64,
    /// The lower bound of the longest poll, at most a sixteenth below it. 0: no poll took
    /// `LONGEST_FROM_NS`.
    pub(crate) longest_ns: u64,
}

impl Account {
    /// Records that a poll begins at `now_ns`, `delay_ns` after the wake-up.
    #[inline]
    pub(crate) fn begin(&self, delay_ns: u64, now_ns: u64) {
        if !counting::IS_ON {
            return;
        }
        // The low bits of the clock serve as a random rounding. So the total of many short delays
        // is right, too.
        let units = delay_ns.wrapping_add(now_ns & DELAY_MASK) >> DELAY_UNIT_BITS;
        // ORDERING: Relaxed, both: single-writer cell. Only the runner writes, and the queue orders
        // successive runners.
        let before = self.begun.load(Ordering::Relaxed);
        // Checked before the addition: a half that is full wraps to a value with a clear bit.
        let has_room = (before & NEARLY_FULL) | units >> (DELAY_BITS - 1) == 0;
        let after = if has_room { before + ONE_POLL + units } else { Self::at_largest(before, units) };
        self.begun.store(after, Ordering::Relaxed);
    }

    /// Returns the value after `before` if one of its halves is near its maximum, or at it.
    #[cold]
    fn at_largest(before: u64, units: u64) -> u64 {
        let polls = (before >> DELAY_BITS).saturating_add(1).min(DELAY_FULL);
        let delay = (before & DELAY_FULL).saturating_add(units).min(DELAY_FULL);
        polls << DELAY_BITS | delay
    }

    /// Records that the poll ended at `now_ns` and took `took_ns`, and what the task waits for.
    /// `took_ns` is the difference of two readings of the clock, which wraps around.
    #[inline]
    pub(crate) fn end(&self, took_ns: u64, now_ns: u64, awaits: Note) {
        if !counting::IS_ON {
            return;
        }
        // Rounded like the delay.
        let rest_ns = now_ns & BUSY_MASK;
        // ORDERING: Relaxed, both: as in `begin`.
        let took = self.took.load(Ordering::Relaxed);
        // Most polls are short, and the longest of them is of no interest.
        let after = if took_ns < LONGEST_FROM_NS && took <= u64::MAX / 2 {
            took + ((took_ns + rest_ns) >> BUSY_UNIT_BITS << BUSY_SHIFT)
        } else if let Some(after) = Self::after_long(took, took_ns, rest_ns) {
            after
        } else {
            return;
        };
        self.took.store(after & !Note::MASK | awaits.to_bits(), Ordering::Relaxed);
    }

    /// Returns the value after `took` if the poll may be the longest, or if the busy time is near
    /// its maximum. `None` after a poll for a dump.
    #[cold]
    fn after_long(took: u64, took_ns: u64, rest_ns: u64) -> Option<u64> {
        if took_ns.wrapping_add(TRACED_AT_NS) < CLOCK_MAX_NS {
            return None;
        }
        // The clock may go back by a little.
        let took_ns = if took_ns < TRACED_AT_NS { took_ns } else { 0 };
        let units = took_ns.saturating_add(rest_ns) >> BUSY_UNIT_BITS;
        let busy = (took >> BUSY_SHIFT).saturating_add(units).min(BUSY_FULL);
        let mut longest = took >> Note::BITS & LONGEST_MASK;
        if took_ns >= LONGEST_FROM_NS {
            longest = longest.max(unbounded_bucket_of(took_ns) as u64);
        }
        Some(busy << BUSY_SHIFT | longest << Note::BITS)
    }

    /// Returns the note of what the task waits for, as recorded in its last own poll.
    pub(crate) fn awaits(&self) -> Note {
        // ORDERING: Relaxed: single-writer cell.
        Note::from_bits(self.took.load(Ordering::Relaxed))
    }

    pub(crate) fn read(&self) -> Balance {
        // ORDERING: Relaxed, all: single-writer cells, each read independently.
        let (begun, took) = (self.begun.load(Ordering::Relaxed), self.took.load(Ordering::Relaxed));
        Balance {
            polls: begun >> DELAY_BITS,
            delay_ns: (begun & DELAY_FULL) << DELAY_UNIT_BITS,
            busy_ns: took >> BUSY_SHIFT << BUSY_UNIT_BITS,
            longest_ns: bounds_of((took >> Note::BITS & LONGEST_MASK).min(LONGEST_MAX) as usize).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_add_up_and_the_longest_stays() {
        let account = Account::default();
        for (delay_ns, took_ns) in [(0, 500), (1 << 20, 3_000_000), (0, 100)] {
            account.begin(delay_ns, 0);
            account.end(took_ns, 0, Note::NOTHING);
        }
        let Balance { polls, delay_ns, busy_ns, longest_ns } = account.read();
        assert_eq!((polls, delay_ns, busy_ns), (3, 1 << 20, 3_000_000 >> BUSY_UNIT_BITS << BUSY_UNIT_BITS));
        assert!((3_000_000 * 15 / 16..=3_000_000).contains(&longest_ns), "{longest_ns}");
        let short = Account::default();
        short.end(LONGEST_FROM_NS - 1, 0, Note::NOTHING);
        assert_eq!(short.read().longest_ns, 0);
    }

    #[test]
    fn times_shorter_than_the_unit_are_right_in_the_sum() {
        const POLLS: u64 = if cfg!(miri) { 1_000 } else { 100_000 };
        let account = Account::default();
        // A clock with arbitrary low bits, as real clocks have.
        for poll in 0..POLLS {
            let now_ns = poll.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            account.begin(1_000, now_ns);
            account.end(100, now_ns, Note::NOTHING);
        }
        let Balance { delay_ns, busy_ns, .. } = account.read();
        let is_near = |sum_ns: u64, each_ns| sum_ns.abs_diff(POLLS * each_ns) < POLLS * each_ns / 20;
        assert!(is_near(delay_ns, 1_000), "{delay_ns} of {POLLS} times 1 µs");
        assert!(is_near(busy_ns, 100), "{busy_ns} of {POLLS} times 100 ns");
    }

    #[test]
    fn polls_and_delay_saturate() {
        const FULL: u64 = u32::MAX as u64;
        for (polls, delay) in [(FULL, 0), (0, FULL), (FULL, FULL), (FULL - 1, FULL - 1)] {
            for units in [0, 1, FULL] {
                let account = Account { begun: AtomicU64::new(polls << DELAY_BITS | delay), ..Account::default() };
                account.begin(units << DELAY_UNIT_BITS, 0);
                let Balance { polls: counted, delay_ns, .. } = account.read();
                let expected = ((polls + 1).min(FULL), (delay + units).min(FULL) << DELAY_UNIT_BITS);
                assert_eq!((counted, delay_ns), expected, "{units} units after {polls} polls and {delay}");
            }
        }
    }

    #[test]
    fn a_poll_for_a_dump_leaves_the_account_as_it_is() {
        let (account, awaits) = (Account::default(), Note::from_bits(5));
        account.end(30_000, 0, awaits);
        let before = account.read();
        for now_ns in [0, 1, LONGEST_FROM_NS, 1 << 50, CLOCK_MAX_NS - 1] {
            account.end(now_ns.wrapping_sub(TRACED_AT_NS), now_ns, Note::NOTHING);
        }
        assert_eq!((account.read(), account.awaits()), (before, awaits));
        account.end(5_u64.wrapping_sub(9), 5, Note::NOTHING);
        assert_eq!((account.read(), account.awaits()), (before, Note::NOTHING), "the clock went back");
    }

    #[test]
    fn all_numbers_saturate() {
        let account = Account { begun: AtomicU64::new(u64::MAX - ONE_POLL - 5), ..Account::default() };
        for _ in 0..2 {
            account.begin(u64::MAX / 2, 0);
            account.end(TRACED_AT_NS - 1, 0, Note::NOTHING);
        }
        let Balance { polls, delay_ns, busy_ns, longest_ns } = account.read();
        assert_eq!((polls, busy_ns), (u64::from(u32::MAX), BUSY_FULL << BUSY_UNIT_BITS));
        assert!(delay_ns > 19 * 3_600_000_000_000 && longest_ns > i64::MAX as u64 / 16 * 15);
    }
}
