//! The writer of a clock: it renews the segment, and measures the counter. Protocol *Renew* of
//! `cycles`.

use volt_shim::Ordering;

use super::segment::{NEVER, RATE_BITS, Reading, SEGMENT_NS, Segment};
use super::source::Source;
use super::{Clock, Fault, NOBODY, Trust};

/// How often a writer that was overtaken tries to publish a segment that shows something.
const LATE_TRIES: usize = if cfg!(loom) { 1 } else { 4 };
/// How long a rate is measured, at least: so that the error of two readings is some millionths.
const MEASURE_NS: u64 = 10_000_000;
/// How many times as long as the two readings took, at least: so that this holds for slow readings.
const MEASURE_WIDTHS: u64 = 1 << 16;
/// The part of the time by which the counter may be off since the last measurement, as a divisor.
const TOLERANCE: u64 = 512;
/// What it may be off by in any case, ns: interrupts, and counters that differ.
const SLACK_NS: u64 = 10_000;
/// Rates that a counter can have: 4 MHz to 4 THz.
const RATES: std::ops::RangeInclusive<u64> = 1 << 12..=u32::MAX as u64;
/// The fault after so many that are not forgiven is the counter's last.
pub(super) const MAX_FAULTS: u64 = 8;
/// One of these faults is forgiven every so often, ns: ten minutes.
pub(super) const FORGIVE_NS: u64 = 600_000_000_000;

impl<S: Source> Clock<S> {
    /// The writer's lock, unless another thread of this process has it.
    pub(super) fn write(&self) -> Option<Writer<'_, S>> {
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
pub(super) struct Writer<'c, S: Source>(pub(super) &'c Clock<S>);

impl<S: Source> Writer<'_, S> {
    /// Publishes the segment after `generation`, which is over. Returns now, ns.
    pub(super) fn renew(&self, generation: u64) -> u64 {
        // Renew (1)
        let now = Reading::take(&self.0.source);
        // Renew (2)
        self.examine(now);
        // Renew (3)
        let next = self.next(self.0.slot(generation).read(), now);
        // Renew (4), (5)
        let published = self.publish(generation, next);
        match published {
            Segment::Counter { begin_ns, .. } => begin_ns,
            Segment::System { floor_ns, .. } if published == next => now.ns.max(floor_ns),
            // Others have shown later times than the reading of Renew (1).
            Segment::System { floor_ns, .. } => self.0.source.system_ns().max(floor_ns),
        }
    }

    /// The clock seems to stand still: ends the segment early if the counter is at fault.
    pub(super) fn suspect(&self) {
        // ORDERING: Relaxed; written under the lock.
        let generation = self.0.current.load(Ordering::Relaxed);
        let now = Reading::take(&self.0.source);
        if self.examine(now) {
            let _published = self.publish(generation, self.next(self.0.slot(generation).read(), now));
        }
    }

    /// Renew (2). Whether the counter is at fault, and that was noted.
    pub(super) fn examine(&self, now: Reading) -> bool {
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
    pub(super) fn next(&self, former: Segment, now: Reading) -> Segment {
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

    /// Renew (4) and (5). Returns what was published.
    pub(super) fn publish(&self, generation: u64, segment: Segment) -> Segment {
        let clock = self.0;
        let next = generation.wrapping_add(1);
        // Renew (4)
        clock.slot(next).write(segment);
        // ORDERING: Release; pairs with the Acquire in Read (1), publishes the slot. Relaxed if the
        // writer was overtaken: nothing is read through the generation.
        let exchanged = clock.current.compare_exchange(generation, next, Ordering::Release, Ordering::Relaxed);
        if exchanged.is_ok() {
            return segment;
        }
        // Renew (5)
        let floor_ns = clock.slot(generation).read().end_ns();
        let mut overtaken = exchanged.unwrap_or_else(|current| current);
        for _ in 0..LATE_TRIES {
            let until_ns = clock.source.system_ns().saturating_add(SEGMENT_NS);
            let of_system = Segment::System { floor_ns, until_ns };
            clock.slot(next).write(of_system);
            // ORDERING: as above. Those who overtake go on by two, so this names the other slot
            // however many of them there are. Who overtook since `until_ns` was read may have shown
            // more.
            let exchanged = clock.current.compare_exchange(
                overtaken,
                overtaken.wrapping_add(1),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return of_system,
                Err(current) => overtaken = current,
            }
        }
        // A segment that is long over: it shows nothing, and its readers overtake.
        let over = Segment::System { floor_ns, until_ns: floor_ns };
        clock.slot(next).write(over);
        // ORDERING: Release; as above.
        clock.current.fetch_add(1, Ordering::Release);
        over
    }

    /// The counter is at fault: it is measured anew from now on, or was used for the last time.
    fn note(&self, fault: Fault, now: Reading) {
        let clock = self.0;
        // ORDERING: Relaxed, all; written under the lock, and told to people.
        let faults = clock.faults.load(Ordering::Relaxed) + 1;
        let struck_at_ns = clock.struck_at_ns.load(Ordering::Relaxed);
        let forgiven = now.ns.saturating_sub(struck_at_ns) / FORGIVE_NS;
        let kept = clock.strikes.load(Ordering::Relaxed).saturating_sub(forgiven);
        let strikes = kept + 1;
        clock.strikes.store(strikes, Ordering::Relaxed);
        // Of the time to the next forgiveness what has passed stays passed.
        let struck_at_ns = if kept == 0 { now.ns } else { struck_at_ns + forgiven * FORGIVE_NS };
        clock.struck_at_ns.store(struck_at_ns, Ordering::Relaxed);
        clock.rate.store(0, Ordering::Relaxed);
        self.measure_from(now);
        let is_last = matches!(fault, Fault::Distrusted | Fault::Unusable) || strikes > MAX_FAULTS;
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
