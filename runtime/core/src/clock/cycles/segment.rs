//! A segment of the clock: a line through a reading of both clocks, and its slot of three words.

use volt_shim::{AtomicU64, Ordering, const_new};

use super::source::Source;

/// Length of a segment, ns: what a fault can make the clock wrong by. A renewal takes some 100 ns.
#[cfg(not(loom))]
pub(super) const SEGMENT_NS: u64 = 1_000_000;
/// So that a model leaves a segment by a few readings.
#[cfg(loom)]
pub(super) const SEGMENT_NS: u64 = 32;
/// The same in cycles: so far before its begin a segment shows its begin.
pub(super) const SLACK_CYCLES: u64 = 1 << 15;
/// Fractional bits of a rate. A rate and the cycles of a segment have 32 bits each, so that their
/// product has 64.
pub(super) const RATE_BITS: u32 = 24;
/// How often both clocks are read, at most, to find a pair close together.
pub(super) const READINGS: usize = if cfg!(loom) { 1 } else { 5 };
/// Cycles that a pair close together takes, at most.
pub(super) const NARROW_CYCLES: u64 = 256;
/// "Never" as a time.
pub(super) const NEVER: u64 = u64::MAX;

/// How the clock is read for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Counter {
        begin_cycles: u64,
        begin_ns: u64,
        /// ns a cycle, times 2^24.
        rate: u32,
        /// Its length.
        cycles: u32,
    },
    /// As the system clock, but not behind `floor_ns`, before which the segments before it ended.
    System { floor_ns: u64, until_ns: u64 },
}

impl Segment {
    /// From the moment of `now` on, but not behind `from_ns`; `None` if there is no such line.
    pub(super) fn of_counter(now: Reading, from_ns: u64, rate: u64) -> Option<Self> {
        let begin_ns = now.ns.max(from_ns);
        let cycles = u32::try_from((SEGMENT_NS << RATE_BITS) / rate).ok()?;
        // Ahead of the system clock: slower, so that both meet at the end.
        let ahead_ns = (begin_ns - now.ns).min(SEGMENT_NS / 2);
        let rate = u32::try_from(rate * (SEGMENT_NS - ahead_ns) / SEGMENT_NS).ok()?;
        Some(Self::Counter { begin_cycles: now.cycles, begin_ns, rate, cycles })
    }

    /// What it shows last, at most.
    pub(super) fn end_ns(self) -> u64 {
        match self {
            Self::Counter { begin_ns, rate, cycles, .. } => begin_ns + line(u64::from(cycles), u64::from(rate)),
            Self::System { until_ns, .. } => until_ns,
        }
    }

    /// What it shows now; `None` = it does not hold now.
    pub(super) fn show(self, source: &impl Source) -> Option<u64> {
        match self {
            Self::Counter { begin_cycles, begin_ns, rate, cycles } => {
                let now_cycles = source.cycles();
                let since = now_cycles.wrapping_sub(begin_cycles);
                // A counter of another processor may be a little behind the one that began the
                // segment.
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

/// How far a line has gone after so many cycles; less than 2^32, both of them.
#[inline]
pub(super) fn line(cycles: u64, rate: u64) -> u64 {
    (cycles * rate) >> RATE_BITS
}

/// Both clocks at one moment, within `width` cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) cycles: u64,
    pub(super) ns: u64,
    pub(super) width: u64,
}

impl Reading {
    /// The reading in which the least time passed between the two.
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

/// A segment as three words. `pace` holds the rate in its high half and the length in its low one;
/// 0 = the system clock, and then the first word is `until_ns` and the second `floor_ns`.
///
/// All are zero at first: the system clock, until the first reading renews that.
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
        // ORDERING: Acquire, each; pairs with the Release in `write`. Whoever reads a word of a
        // later generation sees what came before it: that its own generation is over (*Whole*).
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
            // ORDERING: Release; pairs with the Acquire in `words`: before it `current` went on
            // from the generation that had this slot.
            cell.store(word, Ordering::Release);
        }
    }
}
