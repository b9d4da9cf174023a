//! The process's clock, read from the processor's cycle counter where that can be trusted.
//!
//! Terms. The *counter* is the processor's cycle counter (`rdtsc`); reading it costs a third of
//! `Instant::now`, and the clock is read at each poll. The *system clock* is `Instant`, in ns; it
//! is the authority. A *segment* says how the clock is read for the next millisecond: from the
//! counter, as the straight line that starts at `begin_ns` at `begin_cycles`, or from the system
//! clock.
//!
//! An ordinary case. A worker reads the clock. The counter lies inside the present segment, so the
//! time is `begin_ns + (cycles − begin_cycles) · rate`. A moment later another worker reads a value
//! behind the segment's end. It takes the writer's lock, reads both clocks, sees that the counter
//! still does what it did, and publishes the next segment, which starts at the system clock's time.
//!
//! The race. A reader may hold a segment while another thread publishes the next one, even the
//! next but one, into the same slot. And between the two threads, none may see time go backwards.
//!
//! Shape. Two slots, used in turn; the low bit of `current`, the generation, names the one in use.
//! Written under the writer's lock, which is only ever tried; read by everybody, by loads.
//!
//! Read, by any thread:
//! 1. load the generation, and its slot;
//! 2. read the counter;
//! 3. inside the segment, and the generation is still the same: done;
//! 4. else, if nobody has the lock: take it and renew. If somebody has it: the segment's end.
//!
//! Renew, under the lock:
//! 1. read both clocks, as close together as can be;
//! 2. examine: since the last measurement the counter went as far as the rate says. The tolerance
//!    is 1/512, four times what an NTP daemon may slew a clock by. Measure the rate anew over the
//!    last 10 ms or more, so that the clock follows a slew;
//! 3. make the next segment. It does not begin before the end of the former one (*Ordered*). If
//!    that is ahead of the system clock, it runs slower, so that both meet at its end;
//! 4. write it to the other slot, then publish the generation.
//!
//! A fault. The counter may step back (a suspended machine, a checkpoint restored), jump ahead (a
//! virtual machine on another host), stop, or lose the kernel's trust. A step back or ahead leaves
//! the segment, so the next reader finds it at Read (3). A counter that stops leaves nothing; only
//! the system clock can tell, so `tend` compares the two. Who calls it goes by events, not by this
//! clock: each turn of the driver, each park, every few ticks of a worker (`TEND_TICKS`), each
//! check of the sentinel. After a fault the system clock is read; the counter is measured anew, and
//! used again unless it fails the measurement or has failed [`MAX_FAULTS`] times. A counter that
//! the kernel does not trust is not used again. Each fault is counted and reported.
//!
//! Invariants.
//! *Ordered*: a segment shows no time behind its end, and the next one none before that end. So
//! threads that read different segments agree, whatever the counter did between them.
//! *Whole*: nobody uses a mixture of two segments: whoever reads a word of the generation after
//! next sees at Read (3) that its own is over.
//! *Near*: within a microsecond of the system clock, while the counter does what it did; after a
//! fault, within two milliseconds as soon as it is found.
//! *Never waits*: no reader waits for another thread. A writer that loses its processor between two
//! instructions holds the clock at the end of the segment until it goes on, as the kernel lets it.
//!
//! Bounds. Within one segment the clock is as monotone as the counter: two processors may differ by
//! what their counters do, and by how far they reorder the reading, some tens of ns. A counter that
//! steps back by less than the segment's age shows up to a millisecond again, until the segment
//! ends.
//!
//! Trusted: on x86-64, if the processor says that the counter runs at one speed in all its states,
//! and if the kernel itself keeps time by it, which it does only after it has compared the counters
//! of all processors.
//!
//! Rejected: `quanta`, which calibrates once, for up to 200 ms of the program's start, and then
//! drifts by whatever the error was. A line for seconds instead of a segment for a millisecond: it
//! has to be corrected under its readers, and a fault is shown for as long as it holds. A seqlock
//! of one slot: readers would wait for a writer that lost its processor. The greatest time shown,
//! in a word that all threads write: exact, and a shared cache line at each poll.

use crate::shim::{AtomicU8, AtomicU64, Ordering, const_new};

#[cfg(all(test, loom))]
#[path = "cycles_loom.rs"]
mod loom_models;
#[cfg(all(test, not(loom)))]
#[path = "cycles_tests.rs"]
mod tests;

/// Length of a segment, ns: what a fault can make the clock wrong by. A renewal takes some 100 ns.
#[cfg(not(loom))]
const SEGMENT_NS: u64 = 1_000_000;
/// So that a model leaves a segment by a few readings.
#[cfg(loom)]
const SEGMENT_NS: u64 = 32;
/// How long a rate is measured, at least: so that the error of two readings is some millionths.
const MEASURE_NS: u64 = 10_000_000;
/// How many times as long as the two readings took, at least: so that this holds for slow readings.
const MEASURE_WIDTHS: u64 = 1 << 16;
/// The part of the time by which the counter may be off since the last measurement, as a divisor.
const TOLERANCE: u64 = 512;
/// What it may be off by in any case, ns: interrupts, and counters that differ.
const SLACK_NS: u64 = 10_000;
/// The same in cycles: so far before its begin a segment shows its begin.
const SLACK_CYCLES: u64 = 1 << 15;
/// Fractional bits of a rate. A rate and the cycles of a segment have 32 bits each, so that their
/// product has 64.
const RATE_BITS: u32 = 24;
/// Rates that a counter can have: 4 MHz to 4 THz.
const RATES: std::ops::RangeInclusive<u64> = 1 << 12..=u32::MAX as u64;
/// How often both clocks are read, at most, to find a pair close together.
const READINGS: usize = if cfg!(loom) { 1 } else { 5 };
/// Cycles that a pair close together takes, at most.
const NARROW_CYCLES: u64 = 256;
/// When the kernel is asked first whether it trusts the counter; short programs never ask.
const ASK_AFTER_NS: u64 = 10_000_000;
/// How long after an answer it is asked again.
const ASK_EVERY_NS: u64 = 10_000_000_000;
/// The fault after so many is the counter's last.
pub(crate) const MAX_FAULTS: u64 = 8;
/// "Never" as a time.
const NEVER: u64 = u64::MAX;
/// "Nobody" in `writer`.
const NOBODY: u64 = 0;

/// What the clock is made from.
pub(crate) trait Source {
    /// The processor's cycle counter.
    fn cycles(&self) -> u64;
    /// The system clock, ns.
    fn system_ns(&self) -> u64;
    /// Whether the counter runs at one speed, alike on all processors, as far as the kernel knows.
    fn is_trusted(&self) -> bool;
    /// How often this process was forked: a lock that was held before a fork is held by nobody.
    fn forks(&self) -> u32;
}

/// What was wrong with the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    SteppedBack = 1,
    /// It stopped, or ran slower.
    FellBehind,
    RanAhead,
    /// The kernel keeps time by another one, or does not say.
    Distrusted,
    /// It has no speed that a counter can have.
    Unusable,
}

impl Fault {
    const ALL: [Self; 5] = [Self::SteppedBack, Self::FellBehind, Self::RanAhead, Self::Distrusted, Self::Unusable];

    /// For the log.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::SteppedBack => "the counter stepped back",
            Self::FellBehind => "the counter stopped, or fell behind the system clock",
            Self::RanAhead => "the counter jumped ahead of the system clock",
            Self::Distrusted => "the kernel no longer keeps time by the counter",
            Self::Unusable => "the counter stands still, or has no speed that a counter can have",
        }
    }
}

/// Whether the counter may be used. Written under the lock, but for what the kernel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Trust {
    /// The kernel was not asked yet.
    Unknown,
    Granted,
    /// It was granted, and the kernel takes it back. At the next renewal that is a fault.
    Withdrawn,
    /// For good.
    Denied,
}

/// How the clock is read for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
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
    fn of_counter(now: Reading, from_ns: u64, rate: u64) -> Option<Self> {
        let begin_ns = now.ns.max(from_ns);
        let cycles = u32::try_from((SEGMENT_NS << RATE_BITS) / rate).ok()?;
        // Ahead of the system clock: slower, so that both meet at the end.
        let ahead_ns = (begin_ns - now.ns).min(SEGMENT_NS / 2);
        let rate = u32::try_from(rate * (SEGMENT_NS - ahead_ns) / SEGMENT_NS).ok()?;
        Some(Self::Counter { begin_cycles: now.cycles, begin_ns, rate, cycles })
    }

    /// What it shows last, at most.
    fn end_ns(self) -> u64 {
        match self {
            Self::Counter { begin_ns, rate, cycles, .. } => begin_ns + line(u64::from(cycles), u64::from(rate)),
            Self::System { until_ns, .. } => until_ns,
        }
    }

    /// What it shows now; `None` = it does not hold now.
    fn show(self, source: &impl Source) -> Option<u64> {
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
fn line(cycles: u64, rate: u64) -> u64 {
    (cycles * rate) >> RATE_BITS
}

/// Both clocks at one moment, within `width` cycles.
#[derive(Clone, Copy, Debug)]
struct Reading {
    cycles: u64,
    ns: u64,
    width: u64,
}

impl Reading {
    /// The reading in which the least time passed between the two.
    fn take(source: &impl Source) -> Self {
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
struct Slot {
    begin_cycles: AtomicU64,
    begin_ns: AtomicU64,
    pace: AtomicU64,
}

impl Slot {
    const_new! {
        fn new() -> Self {
            Self { begin_cycles: AtomicU64::new(0), begin_ns: AtomicU64::new(0), pace: AtomicU64::new(0) }
        }
    }

    #[inline]
    fn words(&self) -> [u64; 3] {
        // ORDERING: Acquire, each; pairs with the Release in `write`. Whoever reads a word of a
        // later generation sees what came before it: that its own generation is over (*Whole*).
        let read = |cell: &AtomicU64| cell.load(Ordering::Acquire);
        [read(&self.begin_cycles), read(&self.begin_ns), read(&self.pace)]
    }

    fn read(&self) -> Segment {
        let [begin_cycles, begin_ns, pace] = self.words();
        match pace {
            0 => Segment::System { until_ns: begin_cycles, floor_ns: begin_ns },
            _ => Segment::Counter { begin_cycles, begin_ns, rate: (pace >> 32) as u32, cycles: pace as u32 },
        }
    }

    /// Renew (4), the slot.
    fn write(&self, segment: Segment) {
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

/// See the header of this file.
#[repr(C, align(64))]
pub(crate) struct Clock<S> {
    /// The generation.
    current: AtomicU64,
    slots: [Slot; 2],
    /// The lock: who writes, as the number of forks before it + 1.
    writer: AtomicU64,
    /// Under the lock: the reading that the rate is measured from; a width of `NEVER` = none.
    measured_cycles: AtomicU64,
    measured_ns: AtomicU64,
    measured_width: AtomicU64,
    /// Under the lock: ns a cycle, times 2^24, as last measured; 0 = it was not measured yet.
    rate: AtomicU64,
    trust: AtomicU8,
    /// When the kernel is to be asked, on the system clock.
    ask_at_ns: AtomicU64,
    faults: AtomicU64,
    last_fault: AtomicU8,
    source: S,
}

impl<S: Source> Clock<S> {
    const_new! {
        pub(crate) fn new(source: S) -> Self {
            Self {
                current: AtomicU64::new(0),
                slots: [Slot::new(), Slot::new()],
                writer: AtomicU64::new(NOBODY),
                measured_cycles: AtomicU64::new(0),
                measured_ns: AtomicU64::new(0),
                measured_width: AtomicU64::new(NEVER),
                rate: AtomicU64::new(0),
                trust: AtomicU8::new(Trust::Unknown as u8),
                ask_at_ns: AtomicU64::new(ASK_AFTER_NS),
                faults: AtomicU64::new(0),
                last_fault: AtomicU8::new(0),
                source,
            }
        }
    }

    /// Now, ns.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        // Read (1)
        // ORDERING: Acquire; pairs with the Release in `publish`, which publishes the slot.
        let generation = self.current.load(Ordering::Acquire);
        let [begin_cycles, begin_ns, pace] = self.slot(generation).words();
        if pace != 0 {
            // Read (2)
            let since = self.source.cycles().wrapping_sub(begin_cycles);
            // Read (3)
            // ORDERING: Relaxed; after the Acquires in `words`, see there.
            if since < u64::from(pace as u32) && self.current.load(Ordering::Relaxed) == generation {
                return begin_ns + line(since, pace >> 32);
            }
        }
        self.now_ns_outside()
    }

    /// The same with the cases that are rare: another generation, the system clock, a segment that
    /// is over.
    #[cold]
    #[inline(never)]
    fn now_ns_outside(&self) -> u64 {
        // Each further round is another thread's publication, of which there is one a millisecond,
        // and `MAX_FAULTS` more.
        loop {
            // Read (1)
            // ORDERING: Acquire; as in `now_ns`.
            let generation = self.current.load(Ordering::Acquire);
            let segment = self.slot(generation).read();
            // Read (2)
            let shown_ns = segment.show(&self.source);
            // Read (3)
            if !self.is_current(generation) {
                continue;
            }
            if let Some(shown_ns) = shown_ns {
                return shown_ns;
            }
            // Read (4)
            match self.write() {
                None => return segment.end_ns(),
                Some(writer) if self.is_current(generation) => return writer.renew(generation),
                Some(_has_renewed) => {}
            }
        }
    }

    /// Compares both clocks, and asks the kernel from time to time whether it trusts the counter.
    /// Returns now, ns.
    ///
    /// To be called by whoever comes by, at events that do not hang on this clock.
    pub(crate) fn tend(&self) -> u64 {
        let (shown_ns, system_ns) = (self.now_ns(), self.source.system_ns());
        // ORDERING: Relaxed; only the value counts.
        if system_ns >= self.ask_at_ns.load(Ordering::Relaxed) {
            self.ask(system_ns);
        }
        if system_ns.saturating_sub(shown_ns) <= SEGMENT_NS {
            return shown_ns;
        }
        // This thread lost its processor between the two, or the counter stands still.
        if let Some(writer) = self.write() {
            writer.suspect();
        }
        self.now_ns()
    }

    /// Asks the kernel whether it trusts the counter. What it says holds from the next renewal on.
    #[cold]
    fn ask(&self, system_ns: u64) {
        // ORDERING: Relaxed; two threads that both ask get the same answer.
        self.ask_at_ns.store(system_ns.saturating_add(ASK_EVERY_NS), Ordering::Relaxed);
        let (from, to) = match (self.trust(), self.source.is_trusted()) {
            (Trust::Unknown, true) => (Trust::Unknown, Trust::Granted),
            (Trust::Unknown, false) => (Trust::Unknown, Trust::Denied),
            (Trust::Granted, false) => (Trust::Granted, Trust::Withdrawn),
            (Trust::Granted, true) => return,
            (Trust::Withdrawn | Trust::Denied, _) => {
                // ORDERING: Relaxed; only the value counts.
                self.ask_at_ns.store(NEVER, Ordering::Relaxed);
                return;
            }
        };
        // ORDERING: Relaxed, both; only the value counts. It fails if a renewal has denied it
        // meanwhile, for good.
        let _ = self.trust.compare_exchange(from as u8, to as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the clock is read from the counter now.
    pub(crate) fn is_fast(&self) -> bool {
        // ORDERING: Acquire; as in `now_ns`. Told to people: a generation too old is none too few.
        matches!(self.slot(self.current.load(Ordering::Acquire)).read(), Segment::Counter { .. })
    }

    /// How often something was wrong with the counter while it was used, or measured to be used.
    #[inline]
    pub(crate) fn faults(&self) -> u64 {
        // ORDERING: Relaxed; only counted.
        self.faults.load(Ordering::Relaxed)
    }

    /// What was wrong last, and whether that was the end of it.
    pub(crate) fn last_fault(&self) -> Option<(Fault, bool)> {
        // ORDERING: Relaxed; told to people.
        let last = self.last_fault.load(Ordering::Relaxed);
        let fault = Fault::ALL.into_iter().find(|fault| *fault as u8 == last)?;
        Some((fault, self.trust() == Trust::Denied))
    }

    /// Has the kernel asked at the next occasion.
    #[cfg(test)]
    pub(crate) fn ask_again(&self) {
        // ORDERING: Relaxed; only the value counts.
        self.ask_at_ns.store(0, Ordering::Relaxed);
    }

    #[inline]
    fn slot(&self, generation: u64) -> &Slot {
        &self.slots[generation as usize & 1]
    }

    /// Read (3), the generation.
    fn is_current(&self, generation: u64) -> bool {
        // ORDERING: Relaxed; after the Acquires in `words`, see there.
        self.current.load(Ordering::Relaxed) == generation
    }

    fn trust(&self) -> Trust {
        // ORDERING: Relaxed; only the value counts.
        let trust = self.trust.load(Ordering::Relaxed);
        let all = [Trust::Unknown, Trust::Granted, Trust::Withdrawn];
        all.into_iter().find(|known| *known as u8 == trust).unwrap_or(Trust::Denied)
    }

    /// The writer's lock, unless another thread of this process has it.
    fn write(&self) -> Option<Writer<'_, S>> {
        let this = u64::from(self.source.forks()) + 1;
        // ORDERING: Relaxed; the exchange decides.
        let holder = self.writer.load(Ordering::Relaxed);
        // A holder from before a fork stayed behind in the parent.
        let is_free = holder != this;
        // ORDERING: Acquire; pairs with the Release in `drop`, which publishes what was written
        // under the lock. Relaxed if another thread was first.
        let is_mine = || self.writer.compare_exchange(holder, this, Ordering::Acquire, Ordering::Relaxed).is_ok();
        (is_free && is_mine()).then(|| Writer(self))
    }
}

/// Whoever may renew.
struct Writer<'c, S: Source>(&'c Clock<S>);

impl<S: Source> Writer<'_, S> {
    /// Publishes the segment after `generation`, which is over. Returns now, ns.
    fn renew(&self, generation: u64) -> u64 {
        // Renew (1)
        let now = Reading::take(&self.0.source);
        // Renew (2)
        self.examine(now);
        // Renew (3)
        let next = self.next(self.0.slot(generation).read(), now);
        // Renew (4)
        self.publish(generation, next);
        match next {
            Segment::Counter { begin_ns, .. } => begin_ns,
            Segment::System { floor_ns, .. } => now.ns.max(floor_ns),
        }
    }

    /// The clock seems to stand still: ends the segment early if the counter is at fault.
    fn suspect(&self) {
        // ORDERING: Relaxed; written under the lock.
        let generation = self.0.current.load(Ordering::Relaxed);
        let now = Reading::take(&self.0.source);
        if self.examine(now) {
            self.publish(generation, self.next(self.0.slot(generation).read(), now));
        }
    }

    /// Renew (2). Whether the counter is at fault, and that was noted.
    fn examine(&self, now: Reading) -> bool {
        let clock = self.0;
        // ORDERING: Relaxed, here and below; written under the lock.
        let (rate, trust) = (clock.rate.load(Ordering::Relaxed), clock.trust());
        if matches!(trust, Trust::Unknown | Trust::Denied) {
            return false;
        }
        let (cycles, ns, width) = self.since_measured(now);
        if trust == Trust::Withdrawn {
            self.note(Fault::Distrusted, now);
            return true;
        }
        if rate != 0 {
            let expected_ns = (i128::from(cycles) * i128::from(rate)) >> RATE_BITS;
            let width_ns = (u128::from(width) * u128::from(rate)) >> RATE_BITS;
            let tolerance_ns = i128::from(SLACK_NS + ns / TOLERANCE).saturating_add_unsigned(width_ns);
            let ahead_ns = expected_ns - i128::from(ns);
            if ahead_ns.abs() > tolerance_ns {
                let behind = if cycles < 0 { Fault::SteppedBack } else { Fault::FellBehind };
                self.note(if ahead_ns > 0 { Fault::RanAhead } else { behind }, now);
                return true;
            }
        }
        let has_begin = self.measured_width() != NEVER;
        if rate == 0 && cycles < 0 && has_begin {
            self.note(Fault::SteppedBack, now);
            return true;
        }
        if ns >= MEASURE_NS && cycles.unsigned_abs() >= width.saturating_mul(MEASURE_WIDTHS) {
            let measured = u64::try_from(cycles).ok().filter(|cycles| *cycles > 0);
            let rate = measured.map(|cycles| (u128::from(ns) << RATE_BITS) / u128::from(cycles));
            match rate.and_then(|rate| u64::try_from(rate).ok()).filter(|rate| RATES.contains(rate)) {
                Some(rate) => clock.rate.store(rate, Ordering::Relaxed),
                None => {
                    self.note(Fault::Unusable, now);
                    return true;
                }
            }
            self.measure_from(now);
        } else if now.width < self.measured_width() / 2 {
            // The reading that it is measured from was slow.
            self.measure_from(now);
        }
        false
    }

    /// Renew (3).
    fn next(&self, former: Segment, now: Reading) -> Segment {
        let clock = self.0;
        // ORDERING: Relaxed; written under the lock.
        let (rate, trust) = (clock.rate.load(Ordering::Relaxed), clock.trust());
        let of_counter = || Segment::of_counter(now, former.end_ns(), rate);
        if rate != 0
            && trust == Trust::Granted
            && let Some(segment) = of_counter()
        {
            return segment;
        }
        let floor_ns = match former {
            Segment::Counter { .. } => former.end_ns(),
            // The system clock goes on.
            Segment::System { floor_ns, .. } => floor_ns,
        };
        let until_ns = if trust == Trust::Denied { NEVER } else { now.ns.saturating_add(MEASURE_NS) };
        Segment::System { floor_ns, until_ns }
    }

    /// Renew (4).
    fn publish(&self, generation: u64, segment: Segment) {
        let next = generation.wrapping_add(1);
        self.0.slot(next).write(segment);
        // ORDERING: Release; pairs with the Acquire in Read (1), publishes the slot.
        self.0.current.store(next, Ordering::Release);
    }

    /// The counter is at fault: it is measured anew from now on, or was used for the last time.
    fn note(&self, fault: Fault, now: Reading) {
        let clock = self.0;
        // ORDERING: Relaxed, all; written under the lock, and told to people.
        let faults = clock.faults.load(Ordering::Relaxed) + 1;
        clock.rate.store(0, Ordering::Relaxed);
        self.measure_from(now);
        let is_last = matches!(fault, Fault::Distrusted | Fault::Unusable) || faults > MAX_FAULTS;
        if is_last {
            clock.trust.store(Trust::Denied as u8, Ordering::Relaxed);
        }
        // What made the counter wrong may have changed the kernel's mind.
        clock.ask_at_ns.store(if is_last { NEVER } else { now.ns }, Ordering::Relaxed);
        clock.last_fault.store(fault as u8, Ordering::Relaxed);
        // ORDERING: Release; pairs with nothing that decides: whoever sees the count sees the fault
        // soon.
        clock.faults.store(faults, Ordering::Release);
    }

    fn measured_width(&self) -> u64 {
        // ORDERING: Relaxed; written under the lock.
        self.0.measured_width.load(Ordering::Relaxed)
    }

    /// Cycles and ns since the reading that the rate is measured from, and how many cycles both
    /// readings took.
    fn since_measured(&self, now: Reading) -> (i64, u64, u64) {
        // ORDERING: Relaxed, both; written under the lock.
        let cycles = now.cycles.wrapping_sub(self.0.measured_cycles.load(Ordering::Relaxed));
        let ns = now.ns.saturating_sub(self.0.measured_ns.load(Ordering::Relaxed));
        (cycles.cast_signed(), ns, self.measured_width().saturating_add(now.width))
    }

    fn measure_from(&self, now: Reading) {
        // ORDERING: Relaxed, all; written under the lock.
        self.0.measured_cycles.store(now.cycles, Ordering::Relaxed);
        self.0.measured_ns.store(now.ns, Ordering::Relaxed);
        self.0.measured_width.store(now.width, Ordering::Relaxed);
    }
}

impl<S: Source> Drop for Writer<'_, S> {
    fn drop(&mut self) {
        // ORDERING: Release; pairs with the Acquire in `write`.
        self.0.writer.store(NOBODY, Ordering::Release);
    }
}

/// The processor's cycle counter; 0 where there is none that the clock could use.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The processor's cycle counter; 0 where there is none that the clock could use.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn cycles() -> u64 {
    0
}

/// Whether the counter runs at one speed, alike on all processors, as far as the kernel knows.
pub(crate) fn is_trustworthy() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
    {
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        let leaf = core::arch::x86_64::__cpuid(0x8000_0000);
        let is_invariant =
            leaf.eax >= POWER_MANAGEMENT && core::arch::x86_64::__cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0;
        let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        is_invariant && source.is_ok_and(|source| source.trim() == "tsc")
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
    false
}
