//! What a task has cost so far, and what it has suffered: its polls, how long they took, the
//! longest, and how long it waited for them.
//!
//! Shape: 16 bytes in the task's header, the width of one class of blocks, so that a parked task
//! stays below 128. What it waits for stands there too (`awaits`). `begun` is written when a poll
//! begins, `took` when it has ended and the task is about to wait or to be enqueued again: the
//! numbers of a task that ends go with it.
//!
//! Who writes: the task's runner (*One runner* of `state`), by Relaxed load and store. Who reads:
//! whoever lists the tasks, on its own thread.
//!
//! Invariant: *they stay at their largest*: no number begins anew. 4.2 billion polls, 19 hours of
//! delay and 13 days of busy time are the largest; whoever reaches them is known by then.
//!
//! Rejected: a count of wake-ups by what woke the task: 8 bytes and a store a wake-up, for what the
//! last wake-up (in the header already), the chain of `why` and the table of spawn locations tell.
//! The last worker: with stealing it says little of a task that waits, and of one that is
//! polled the worker says it.

use std::sync::atomic::{AtomicU64, Ordering};

use volt_telemetry::histogram::{bounds_of, unbounded_bucket_of};
use volt_telemetry::tasks::LONGEST_FROM_NS;

use super::awaits::Note;
use crate::stats::counting;

/// `delay` counts in units of two to this power ns, 16 µs.
const DELAY_UNIT_BITS: u32 = 14;
const DELAY_MASK: u64 = (1 << DELAY_UNIT_BITS) - 1;
/// `busy` counts in units of two to this power ns, a microsecond.
const BUSY_UNIT_BITS: u32 = 10;
const BUSY_MASK: u64 = (1 << BUSY_UNIT_BITS) - 1;
/// Bits of `took` that hold the longest poll: the number of its bucket.
const LONGEST_BITS: u32 = 10;
const LONGEST_MASK: u64 = (1 << LONGEST_BITS) - 1;
/// The bucket of the longest time whose bounds can be told.
const LONGEST_MAX: u64 = unbounded_bucket_of(i64::MAX as u64) as u64;
const BUSY_SHIFT: u32 = LONGEST_BITS + Note::BITS;
const BUSY_FULL: u64 = u64::MAX >> BUSY_SHIFT;
/// Bits of `begun` that hold the delay.
const DELAY_BITS: u32 = 32;
const DELAY_FULL: u64 = (1 << DELAY_BITS) - 1;
const ONE_POLL: u64 = 1 << DELAY_BITS;
const _: () = assert!((unbounded_bucket_of(u64::MAX) as u64) <= LONGEST_MASK);

/// See the header of this file.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// `| polls that have begun 32 | delay from each wake-up to its poll, the sum 32 |`
    begun: AtomicU64,
    /// `| busy, the sum 40 | bucket of the longest 10 | what it waits for since the last 14 |` of
    /// the polls that have ended.
    took: AtomicU64,
}

/// What is in an [`Account`]. Read by others than the runner, its numbers may be of two polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) polls: u64,
    /// To 16 µs.
    pub(crate) delay_ns: u64,
    /// To a microsecond.
    pub(crate) busy_ns: u64,
    /// To a sixteenth: it took that long at least. 0: none took `LONGEST_FROM_NS`.
    pub(crate) longest_ns: u64,
}

impl Account {
    /// A poll begins at `now_ns`, `delay_ns` after the wake-up.
    #[inline]
    pub(crate) fn begin(&self, delay_ns: u64, now_ns: u64) {
        if !counting::IS_ON {
            return;
        }
        // Rounded up or down by what the clock happens to show behind the unit: so the sum of many
        // short delays is right too.
        let units = delay_ns.wrapping_add(now_ns & DELAY_MASK) >> DELAY_UNIT_BITS;
        // ORDERING: Relaxed, both; single-writer cell: the runner's, and the queue orders one
        // runner behind the other.
        let before = self.begun.load(Ordering::Relaxed);
        let after = before.wrapping_add(ONE_POLL + units);
        let has_room = after > before && after as u32 >= before as u32 && units < ONE_POLL;
        self.begun.store(if has_room { after } else { Self::at_largest(before, units) }, Ordering::Relaxed);
    }

    /// What comes after `before` when one of its halves is full.
    #[cold]
    fn at_largest(before: u64, units: u64) -> u64 {
        let polls = (before >> DELAY_BITS).saturating_add(1).min(DELAY_FULL);
        let delay = (before & DELAY_FULL).saturating_add(units).min(DELAY_FULL);
        polls << DELAY_BITS | delay
    }

    /// The poll has ended at `now_ns` and took so long; the task is to wait for that.
    #[inline]
    pub(crate) fn end(&self, took_ns: u64, now_ns: u64, awaits: Note) {
        if !counting::IS_ON {
            return;
        }
        // ORDERING: Relaxed, both; as in `begin`.
        let took = self.took.load(Ordering::Relaxed);
        // Rounded as the delay is.
        let units = took_ns.saturating_add(now_ns & BUSY_MASK) >> BUSY_UNIT_BITS;
        let busy = (took >> BUSY_SHIFT).saturating_add(units).min(BUSY_FULL);
        let mut longest = took >> Note::BITS & LONGEST_MASK;
        // Most polls are short, and the longest of these tells nobody anything: they are spared the
        // search for a bucket.
        if took_ns >= LONGEST_FROM_NS {
            longest = longest.max(unbounded_bucket_of(took_ns) as u64);
        }
        self.took.store(busy << BUSY_SHIFT | longest << Note::BITS | awaits.to_bits(), Ordering::Relaxed);
    }

    /// What it noted down in its last poll that it waits for.
    pub(super) fn awaits(&self) -> Note {
        // ORDERING: Relaxed; single-writer cell.
        Note::from_bits(self.took.load(Ordering::Relaxed))
    }

    pub(crate) fn read(&self) -> Balance {
        // ORDERING: Relaxed, all; single-writer cells, each by itself.
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
        // A clock that shows anything behind the unit, as clocks do.
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
    fn numbers_stay_at_their_largest() {
        let account = Account { begun: AtomicU64::new(u64::MAX - ONE_POLL - 5), ..Account::default() };
        for _ in 0..2 {
            account.begin(u64::MAX / 2, 0);
            account.end(u64::MAX, 0, Note::NOTHING);
        }
        let Balance { polls, delay_ns, busy_ns, longest_ns } = account.read();
        assert_eq!((polls, busy_ns), (u64::from(u32::MAX), BUSY_FULL << BUSY_UNIT_BITS));
        assert!(delay_ns > 19 * 3_600_000_000_000 && longest_ns > i64::MAX as u64 / 16 * 15);
    }
}
