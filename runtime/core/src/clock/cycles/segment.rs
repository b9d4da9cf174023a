//! A segment of the clock, which is a line through a reading of both clocks, and its slot of three
//! words.
//!
//! For one millisecond, a segment converts the processor's cycle counter into nanoseconds, by a
//! start and a rate. If the counter cannot be trusted, the segment refers to the system clock
//! instead. A reader gets the segment from one of two slots, whose words it loads separately.
//! `cycles` has the terms, and the protocol that uses these functions.

use std::cell::Cell;

use volt_shim::{AtomicU64, Ordering, const_new};

use super::source::Source;

/// Length of a segment, ns. It bounds the error that a fault can cause. A renewal takes some 100
/// ns.
#[cfg(not(loom))]
pub(super) const SEGMENT_NS: u64 = 1_000_000;
/// Short, so that a model leaves a segment after a few readings.
#[cfg(loom)]
pub(super) const SEGMENT_NS: u64 = 32;
/// Tolerance in cycles: a counter that is behind the segment's begin by no more than this yields
/// the begin.
pub(super) const SLACK_CYCLES: u64 = 1 << 15;
/// Fractional bits of a rate. A rate and a segment's length in cycles have 32 bits each, so that
/// their product fits 64.
pub(super) const RATE_BITS: u32 = 24;
/// How often both clocks are read, at most, to find two readings close together.
pub(super) const READINGS: usize = if cfg!(loom) { 1 } else { 5 };
/// Two readings are close together if they take at most this many cycles.
pub(super) const NARROW_CYCLES: u64 = 256;
/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// How the clock is read for the duration of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Counter {
        begin_cycles: u64,
        begin_ns: u64,
        /// ns per cycle, times 2^24.
        rate: u32,
        /// Length of the segment, cycles.
        cycles: u32,
    },
    /// From the system clock, but never less than `floor_ns`, the bound at which the segments
    /// before it ended.
    System { floor_ns: u64, until_ns: u64 },
}

impl Segment {
    /// Creates a segment of the counter that starts at the moment of `now`, but not before
    /// `from_ns`. `None` if the rate allows no such line.
    pub(super) fn of_counter(now: Reading, from_ns: u64, rate: u64) -> Option<Self> {
        let begin_ns = now.ns.max(from_ns);
        let cycles = u32::try_from((SEGMENT_NS << RATE_BITS) / rate).ok()?;
        // If it starts ahead of the system clock, it runs slower, so that both meet at the end.
        let ahead_ns = (begin_ns - now.ns).min(SEGMENT_NS / 2);
        let rate = u32::try_from(rate * (SEGMENT_NS - ahead_ns) / SEGMENT_NS).ok()?;
        Some(Self::Counter { begin_cycles: now.cycles, begin_ns, rate, cycles })
    }

    /// Returns an upper bound of the times that the segment yields.
    pub(super) fn end_ns(self) -> u64 {
        match self {
            Self::Counter { begin_ns, rate, cycles, .. } => begin_ns + line(u64::from(cycles), u64::from(rate)),
            Self::System { until_ns, .. } => until_ns,
        }
    }

    /// Returns the present time; `None` if the segment does not apply now.
    pub(super) fn show(self, source: &impl Source) -> Option<u64> {
        match self {
            Self::Counter { begin_cycles, begin_ns, rate, cycles } => {
                let now_cycles = source.cycles();
                let since = now_cycles.wrapping_sub(begin_cycles);
                // The counter of another processor may be slightly behind the counter at which the
                // segment begins.
                let is_at_begin = || begin_cycles.wrapping_sub(now_cycles) <= SLACK_CYCLES;
                if since < u64::from(cycles) {
                    Some(begin_ns + line(since, u64::from(rate)))
                } else {
                    is_at_begin().then_some(begin_ns)
                }
            }
            Self::System { floor_ns, until_ns } => {
                let now_ns = source.system_ns();
                (now_ns < until_ns).then_some(now_ns.max(floor_ns))
            }
        }
    }
}

/// Returns how far a line has advanced after `cycles`. Both arguments are less than 2^32.
#[inline]
pub(super) fn line(cycles: u64, rate: u64) -> u64 {
    (cycles * rate) >> RATE_BITS
}

/// Readings of both clocks, taken within `width` cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) cycles: u64,
    pub(super) ns: u64,
    pub(super) width: u64,
}

impl Reading {
    /// Reads both clocks several times and returns the pair that took the least time.
    pub(super) fn take(source: &impl Source) -> Self {
        let mut best = Self { cycles: 0, ns: 0, width: NEVER };
        for _ in 0..READINGS {
            let (before, ns, after) = (source.cycles(), source.system_ns(), source.cycles());
            let width = after.wrapping_sub(before);
            if width < best.width {
                best = Self { cycles: before.wrapping_add(width / 2), ns, width };
            }
            if width <= NARROW_CYCLES {
                break;
            }
        }
        best
    }
}

/// A thread's copy of a segment and of its generation, and the latest time that the thread has
/// returned. A segment of the system clock, like none at all, is kept as one without length, which
/// is over.
pub(crate) struct Kept {
    pub(super) generation: Cell<u64>,
    pub(super) begin_cycles: Cell<u64>,
    pub(super) begin_ns: Cell<u64>,
    pub(super) rate: Cell<u64>,
    /// Length, cycles.
    pub(super) cycles: Cell<u64>,
    shown_ns: Cell<u64>,
}

impl Kept {
    pub(crate) const fn new() -> Self {
        Self {
            generation: Cell::new(NEVER),
            begin_cycles: Cell::new(0),
            begin_ns: Cell::new(0),
            rate: Cell::new(0),
            cycles: Cell::new(0),
            shown_ns: Cell::new(0),
        }
    }

    pub(super) fn keep(&self, generation: u64, [begin_cycles, begin_ns, pace]: [u64; 3]) {
        self.generation.set(generation);
        self.begin_cycles.set(begin_cycles);
        self.begin_ns.set(begin_ns);
        self.rate.set(pace >> 32);
        self.cycles.set(u64::from(pace as u32));
    }

    /// Returns a time that this thread has read, or the time that it returned before if that is
    /// later (*Per thread*).
    #[inline]
    pub(super) fn show(&self, read_ns: u64) -> u64 {
        let shown_ns = read_ns.max(self.shown_ns.get());
        self.shown_ns.set(shown_ns);
        shown_ns
    }
}

/// A segment as three words. The high half of `pace` is the rate and its low half the length. If
/// `pace` is 0, the segment reads the system clock; the first word is then `until_ns` and the
/// second `floor_ns`.
///
/// All are zero at first, which is a segment of the system clock that the first reading renews.
pub(super) struct Slot {
    pub(super) begin_cycles: AtomicU64,
    pub(super) begin_ns: AtomicU64,
    pub(super) pace: AtomicU64,
}

impl Slot {
    const_new! {
        pub(super) fn new() -> Self {
            Self { begin_cycles: AtomicU64::new(0), begin_ns: AtomicU64::new(0), pace: AtomicU64::new(0) }
        }
    }

    #[inline]
    pub(super) fn words(&self) -> [u64; 3] {
        // ORDERING: Acquire, each; pairs with the Release in `write`. A thread that reads a word of
        // a later generation also sees the store to `current` before it: its own generation is over
        // (*Whole*).
        let read = |cell: &AtomicU64| cell.load(Ordering::Acquire);
        [read(&self.begin_cycles), read(&self.begin_ns), read(&self.pace)]
    }

    pub(super) fn read(&self) -> Segment {
        let [begin_cycles, begin_ns, pace] = self.words();
        match pace {
            0 => Segment::System { until_ns: begin_cycles, floor_ns: begin_ns },
            _ => Segment::Counter { begin_cycles, begin_ns, rate: (pace >> 32) as u32, cycles: pace as u32 },
        }
    }

    /// Renew (4), the slot.
    pub(super) fn write(&self, segment: Segment) {
        let words = match segment {
            Segment::Counter { begin_cycles, begin_ns, rate, cycles } => {
                [begin_cycles, begin_ns, u64::from(rate) << 32 | u64::from(cycles)]
            }
            Segment::System { floor_ns, until_ns } => [until_ns, floor_ns, 0],
        };
        for (cell, word) in [&self.begin_cycles, &self.begin_ns, &self.pace].into_iter().zip(words) {
            // ORDERING: Release; pairs with the Acquire in `words`. Before this store, `current`
            // moved on from the generation that had this slot.
            cell.store(word, Ordering::Release);
        }
    }
}
