//! The writer of a clock: the thread that has the lock measures the counter and publishes the next
//! segment. This is the protocol *Renew* of `cycles`, which has the terms, too.
//!
//! No thread is responsible for the clock. A thread that reads the time and finds the segment over
//! becomes the writer, once a millisecond or less. It compares the counter with the system clock.
//! If the counter has stepped, stopped or changed its speed, that is a *fault*: the next segments
//! use the system clock until the counter was measured anew, or for good after too many faults.

use volt_shim::Ordering;

use super::segment::{NEVER, RATE_BITS, Reading, SEGMENT_NS, Segment};
use super::source::Source;
use super::{Clock, Fault, Trust, UNLOCKED};

/// How often an overtaken writer tries to publish a segment that yields times.
const LATE_TRIES: usize = if cfg!(loom) { 1 } else { 4 };
/// Minimum time over which a rate is measured, so that the error of the two readings is a few
/// millionths.
const MEASURE_NS: u64 = 10_000_000;
/// The same as a multiple of the width of both readings, so that it also holds for slow readings.
const MEASURE_WIDTHS: u64 = 1 << 16;
/// Permitted deviation of the counter since the last measurement: the elapsed time divided by this.
const TOLERANCE: u64 = 512;
/// Deviation that is always permitted, ns: for interrupts, and for counters that differ.
const SLACK_NS: u64 = 10_000;
/// Plausible rates of a counter: 4 MHz to 4 THz.
const RATES: std::ops::RangeInclusive<u64> = 1 << 12..=u32::MAX as u64;
/// Maximum number of faults that have not expired. After one more, the counter is not used again.
pub(super) const MAX_FAULTS: u64 = 8;
/// Interval at which one of these faults expires, ns: ten minutes.
pub(super) const FAULT_EXPIRY_NS: u64 = 600_000_000_000;

impl<S: Source> Clock<S> {
    /// Takes the writer's lock, unless another thread of this program has it.
    pub(super) fn write(&self) -> Option<Writer<'_, S>> {
        let this = u64::from(self.source.forks()) + 1;
        // ORDERING: Relaxed; the exchange decides.
        let holder = self.writer.load(Ordering::Relaxed);
        // A holder from before a fork exists only in the parent.
        let is_free = holder != this;
        // ORDERING: Acquire; pairs with the Release in `drop`, which publishes what was written
        // under the lock. Relaxed on failure: another thread was first.
        let is_mine = || self.writer.compare_exchange(holder, this, Ordering::Acquire, Ordering::Relaxed).is_ok();
        (is_free && is_mine()).then(|| Writer(self))
    }
}

/// The writer's lock, taken: the right to renew.
pub(super) struct Writer<'c, S: Source>(pub(super) &'c Clock<S>);

impl<S: Source> Writer<'_, S> {
    /// Publishes the segment after `generation`, which is over. Returns the present time, ns.
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
            // Other threads have returned later times than the reading of Renew (1).
            Segment::System { floor_ns, .. } => self.0.source.system_ns().max(floor_ns),
        }
    }

    /// Called when the clock seems to stand still. Ends the segment early if the counter has a
    /// fault.
    pub(super) fn suspect(&self) {
        // ORDERING: Relaxed; written under the lock.
        let generation = self.0.current.load(Ordering::Relaxed);
        let now = Reading::take(&self.0.source);
        if self.examine(now) {
            let _published = self.publish(generation, self.next(self.0.slot(generation).read(), now));
        }
    }

    /// Renew (2). Returns whether the counter has a fault, which is then recorded.
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
            // The reading that the rate is measured from took long: start from this better one.
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
            // The system clock continues without a gap.
            Segment::System { floor_ns, .. } => floor_ns,
        };
        let until_ns = if trust == Trust::Denied { NEVER } else { now.ns.saturating_add(MEASURE_NS) };
        Segment::System { floor_ns, until_ns }
    }

    /// Renew (4) and (5). Returns the segment that was published.
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
            // ORDERING: as above. Overtaking adds two to the generation, so the next one names the
            // other slot, however many readers have overtaken. A reader that overtook after
            // `until_ns` was computed may have returned a later time.
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
        // A segment that is long over: it yields no time, and its readers overtake.
        let over = Segment::System { floor_ns, until_ns: floor_ns };
        clock.slot(next).write(over);
        // ORDERING: Release; as above.
        clock.current.fetch_add(1, Ordering::Release);
        over
    }

    /// Records a fault. The counter is measured anew from now on, or is not used again.
    fn note(&self, fault: Fault, now: Reading) {
        let clock = self.0;
        // ORDERING: Relaxed, all; written under the lock, and read for reports.
        let faults = clock.faults.load(Ordering::Relaxed) + 1;
        let faults_at_ns = clock.faults_at_ns.load(Ordering::Relaxed);
        let expired = now.ns.saturating_sub(faults_at_ns) / FAULT_EXPIRY_NS;
        let kept = clock.strikes.load(Ordering::Relaxed).saturating_sub(expired);
        let strikes = kept + 1;
        clock.strikes.store(strikes, Ordering::Relaxed);
        // The time that has passed toward the next expiry is kept.
        let faults_at_ns = if kept == 0 { now.ns } else { faults_at_ns + expired * FAULT_EXPIRY_NS };
        clock.faults_at_ns.store(faults_at_ns, Ordering::Relaxed);
        clock.rate.store(0, Ordering::Relaxed);
        self.measure_from(now);
        let is_last = matches!(fault, Fault::Distrusted | Fault::Unusable) || strikes > MAX_FAULTS;
        if is_last {
            clock.trust.store(Trust::Denied as u8, Ordering::Relaxed);
        }
        // The event that caused the fault may also have changed whether the kernel trusts the
        // counter.
        clock.query_at_ns.store(if is_last { NEVER } else { now.ns }, Ordering::Relaxed);
        clock.last_fault.store(fault as u8, Ordering::Relaxed);
        // ORDERING: Release; no load relies on it. A thread that sees the new count may still read
        // the former fault, which only makes its report wrong.
        clock.faults.store(faults, Ordering::Release);
    }

    fn measured_width(&self) -> u64 {
        // ORDERING: Relaxed; written under the lock.
        self.0.measured_width.load(Ordering::Relaxed)
    }

    /// Returns the cycles and the ns since the reading that the rate is measured from, and the
    /// total width of both readings in cycles.
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
        self.0.writer.store(UNLOCKED, Ordering::Release);
    }
}
