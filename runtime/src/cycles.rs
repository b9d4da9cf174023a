//! The processor's cycle counter as a clock: a third of the price of `Instant::now`, where it can be trusted.
//!
//! Shape: a [`Scale`] says how many ns a cycle lasts and where the two clocks met last; `ns = base_ns + (cycles − base_cycles) · rate`.
//! Scales stand in a few slots that are used in turn; an index says which one holds. Who writes: whoever calls [`Counter::tend`] when it is time
//! and gets the lock, a worker between two ticks as a rule. Who reads: everybody, by four loads.
//!
//! Trusted: on x86-64, if the processor says that the counter runs at one speed in all its states, and if the kernel itself keeps time by it,
//! which it does only after it has compared the counters of all processors. Else, and until the first scale is made, `Instant` is read.
//!
//! Protocol of `tend`, at growing distances (20 ms after the start, then 1 s, then every 10 s):
//! 1. read both clocks as close together as can be;
//! 2. the rate is what went by since the start on the one, divided by the other: the longer the program runs the better it is;
//! 3. behind `Instant`: go to it at once. Ahead of it: run slower until the next time, since nothing may go backwards;
//! 4. further off than [`SUSPECT_NS`] (the machine was suspended, or moved): go back to `Instant` for good.
//!
//! Invariants: *Never backwards* on one thread; and between threads by no more than the counters of two processors differ.
//! *Near*: within microseconds of `Instant`.
//!
//! Rejected: the `quanta` crate, which calibrates once, for up to 200 ms of the program's start, and then drifts by whatever the error was.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// First calibration: long enough for a rate to a few millionths.
const FIRST_AFTER_NS: u64 = 20_000_000;
/// Second one.
const SECOND_AFTER_NS: u64 = 1_000_000_000;
/// All others.
const EVERY_NS: u64 = 10_000_000_000;
/// Further off than this the counter is not what it was.
const SUSPECT_NS: u64 = 1_000_000;
/// Slots for scales. A reader would have to sleep inside four loads through seven calibrations, 70 s, to read a mixture of two.
const SLOTS: usize = 8;
/// Fractional bits of a rate.
const RATE_BITS: u32 = 32;
/// How often the two clocks are read to find a pair close together.
const READINGS: usize = 5;

/// How cycles become ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scale {
    base_cycles: u64,
    base_ns: u64,
    /// ns a cycle, times 2^32.
    rate: u64,
}

impl Scale {
    #[inline]
    fn ns(self, cycles: u64) -> u64 {
        // A counter of another processor may be a few cycles behind the one that made the scale.
        let since = u128::from(cycles.saturating_sub(self.base_cycles));
        self.base_ns + ((since * u128::from(self.rate)) >> RATE_BITS) as u64
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Pair {
    cycles: u64,
    ns: u64,
}

/// What a calibration decides.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Use(Scale),
    /// The counter cannot be trusted any more.
    Leave,
}

/// The scale that follows from the two clocks at the start and now, and from the one in use so far. `next_ns` is how long it has to hold.
fn calibrate(start: Pair, now: Pair, present: Option<Scale>, next_ns: u64) -> Verdict {
    let (cycles, ns) = (now.cycles.saturating_sub(start.cycles), now.ns.saturating_sub(start.ns));
    if cycles == 0 || ns == 0 {
        return Verdict::Leave;
    }
    let Ok(rate) = u64::try_from((u128::from(ns) << RATE_BITS) / u128::from(cycles)) else { return Verdict::Leave };
    let told_ns = present.map_or(now.ns, |scale| scale.ns(now.cycles));
    // A rate that is off by a millionth is fine, however long nobody looked.
    let quiet_ns = present.map_or(0, |scale| now.ns.saturating_sub(scale.base_ns));
    if told_ns.abs_diff(now.ns) > SUSPECT_NS + quiet_ns / 1_000_000 {
        return Verdict::Leave;
    }
    // Ahead: slower, so that both meet at the next calibration.
    let ahead_ns = told_ns.saturating_sub(now.ns).min(next_ns / 2);
    let slower = (u128::from(rate) * u128::from(next_ns - ahead_ns) / u128::from(next_ns)) as u64;
    Verdict::Use(Scale { base_cycles: now.cycles, base_ns: told_ns.max(now.ns), rate: slower })
}

/// See the header of this file.
pub(crate) struct Counter {
    /// Which slot holds; `SLOTS` = none, read `Instant`.
    current: AtomicUsize,
    slots: [Slot; SLOTS],
    /// When to calibrate next.
    next_ns: AtomicU64,
    is_trusted: AtomicBool,
    start: Mutex<Option<Pair>>,
    /// What `Instant` is ahead by where the counter was left behind ahead of it.
    lead_ns: AtomicU64,
}

struct Slot {
    base_cycles: AtomicU64,
    base_ns: AtomicU64,
    rate: AtomicU64,
}

impl Slot {
    const fn new() -> Self {
        Self { base_cycles: AtomicU64::new(0), base_ns: AtomicU64::new(0), rate: AtomicU64::new(0) }
    }

    #[inline]
    fn read(&self) -> Scale {
        // ORDERING: Relaxed; published by the Release of `current`, whose Acquire came before.
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        Scale { base_cycles: read(&self.base_cycles), base_ns: read(&self.base_ns), rate: read(&self.rate) }
    }

    fn write(&self, scale: Scale) {
        // ORDERING: Relaxed; published by the Release of `current`.
        self.base_cycles.store(scale.base_cycles, Ordering::Relaxed);
        // ORDERING: Relaxed; as above.
        self.base_ns.store(scale.base_ns, Ordering::Relaxed);
        // ORDERING: Relaxed; as above.
        self.rate.store(scale.rate, Ordering::Relaxed);
    }
}

impl Counter {
    pub(crate) const fn new() -> Self {
        Self {
            current: AtomicUsize::new(SLOTS),
            slots: [const { Slot::new() }; SLOTS],
            next_ns: AtomicU64::new(FIRST_AFTER_NS),
            is_trusted: AtomicBool::new(true),
            start: Mutex::new(None),
            lead_ns: AtomicU64::new(0),
        }
    }

    /// Now in ns, from the counter, or from `instant_ns` where the counter is not (yet, or any more) to be used.
    #[inline]
    pub(crate) fn now_ns(&self, instant_ns: impl FnOnce() -> u64) -> u64 {
        // ORDERING: Acquire; pairs with the Release in `tend`, which publishes the slot.
        match self.slots.get(self.current.load(Ordering::Acquire)) {
            Some(slot) => slot.read().ns(cycles()),
            // ORDERING: Relaxed; written once, before `current` says that no slot holds.
            None => instant_ns() + self.lead_ns.load(Ordering::Relaxed),
        }
    }

    /// Calibrates if it is time. One load if it is not.
    #[inline]
    pub(crate) fn tend(&self, now_ns: u64, instant_ns: impl Fn() -> u64) {
        // ORDERING: Relaxed; a hint when to take the lock.
        if now_ns >= self.next_ns.load(Ordering::Relaxed) {
            self.calibrate(instant_ns);
        }
    }

    #[cold]
    fn calibrate(&self, instant_ns: impl Fn() -> u64) {
        // Somebody else is at it.
        let Ok(mut start) = self.start.try_lock() else { return };
        // ORDERING: Relaxed, here and below; written under the lock only.
        if !self.is_trusted.load(Ordering::Relaxed) || !is_trustworthy() {
            self.next_ns.store(u64::MAX, Ordering::Relaxed);
            return;
        }
        let now = pair(&instant_ns);
        let Some(start) = *start else {
            *start = Some(now);
            self.next_ns.store(now.ns + FIRST_AFTER_NS, Ordering::Relaxed);
            return;
        };
        let current = self.current.load(Ordering::Relaxed);
        let present = self.slots.get(current).map(Slot::read);
        let distance_ns = if now.ns - start.ns < SECOND_AFTER_NS { SECOND_AFTER_NS } else { EVERY_NS };
        match calibrate(start, now, present, distance_ns) {
            Verdict::Use(scale) => {
                let next = (current + 1) % SLOTS;
                self.slots[next].write(scale);
                // ORDERING: Release; pairs with the Acquire in `now_ns`, publishes the slot.
                self.current.store(next, Ordering::Release);
                self.next_ns.store(now.ns + distance_ns, Ordering::Relaxed);
            }
            Verdict::Leave => {
                let told_ns = present.map_or(now.ns, |scale| scale.ns(now.cycles));
                self.lead_ns.store(told_ns.saturating_sub(now.ns), Ordering::Relaxed);
                self.is_trusted.store(false, Ordering::Relaxed);
                self.next_ns.store(u64::MAX, Ordering::Relaxed);
                // ORDERING: Release; pairs with the Acquire in `now_ns`, publishes the lead.
                self.current.store(SLOTS, Ordering::Release);
            }
        }
    }
}

/// Both clocks, from the reading in which the least time passed between them.
fn pair(instant_ns: &impl Fn() -> u64) -> Pair {
    let readings = (0..READINGS).map(|_| {
        let (before, ns, after) = (cycles(), instant_ns(), cycles());
        (after.saturating_sub(before), Pair { cycles: before + after.saturating_sub(before) / 2, ns })
    });
    readings.min_by_key(|(width, _)| *width).map_or(Pair { cycles: 0, ns: 0 }, |(_, pair)| pair)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(crate) fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn cycles() -> u64 {
    0
}

/// Whether the counter runs at one speed, alike on all processors.
fn is_trustworthy() -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 2.5 GHz.
    fn at(ns: u64) -> Pair {
        Pair { cycles: 1_000 + ns / 2 * 5, ns }
    }

    fn used(verdict: Verdict) -> Scale {
        match verdict {
            Verdict::Use(scale) => scale,
            Verdict::Leave => panic!("the counter is fine"),
        }
    }

    #[test]
    fn a_scale_gives_back_what_it_was_made_from() {
        let scale = used(calibrate(at(0), at(20_000_000), None, SECOND_AFTER_NS));
        for ns in [20_000_000, 20_000_100, 1_000_000_000, 3_600_000_000_000] {
            let told = scale.ns(at(ns).cycles);
            assert!(told.abs_diff(ns) <= 1 + ns / 1_000_000_000, "{ns} is told as {told}");
        }
    }

    #[test]
    fn behind_goes_to_the_truth_at_once_and_ahead_meets_it_at_the_next_calibration() {
        let (start, now) = (at(0), at(1_000_000_000));
        let off = |by: i64| Scale {
            base_cycles: now.cycles,
            base_ns: now.ns.saturating_add_signed(by),
            rate: used(calibrate(start, now, None, EVERY_NS)).rate,
        };
        let behind = used(calibrate(start, now, Some(off(-5_000)), EVERY_NS));
        assert_eq!(behind.base_ns, now.ns);

        let ahead = used(calibrate(start, now, Some(off(5_000)), EVERY_NS));
        assert_eq!(ahead.base_ns, now.ns + 5_000, "not backwards");
        let later = at(now.ns + EVERY_NS);
        assert!(ahead.ns(later.cycles).abs_diff(later.ns) < 50);
    }

    #[test]
    fn a_counter_that_jumped_or_stopped_is_left() {
        let scale = used(calibrate(at(0), at(1_000_000_000), None, EVERY_NS));
        let jumped = Pair { cycles: at(5_000_000_000).cycles, ns: 2_000_000_000 };
        assert_eq!(calibrate(at(0), jumped, Some(scale), EVERY_NS), Verdict::Leave);
        let stopped = Pair { cycles: at(0).cycles, ns: 2_000_000_000 };
        assert_eq!(calibrate(at(0), stopped, Some(scale), EVERY_NS), Verdict::Leave);
    }

    #[test]
    fn time_goes_on_from_where_a_counter_that_is_left_had_come() {
        if !is_trustworthy() {
            return;
        }
        let counter = Counter::new();
        let scale = Scale { base_cycles: 0, base_ns: u64::MAX / 4, rate: 0 };
        counter.slots[0].write(scale);
        counter.current.store(0, Ordering::Release);
        *counter.start.lock().unwrap() = Some(Pair { cycles: 0, ns: 0 });
        let told_ns = counter.now_ns(|| 7);
        counter.calibrate(|| 7);
        assert!(counter.now_ns(|| 8) >= told_ns);
        assert_eq!(counter.slots.get(counter.current.load(Ordering::Acquire)).map(Slot::read), None);
    }

    #[test]
    fn the_counter_keeps_to_the_systems_clock_and_never_goes_backwards() {
        let (counter, origin) = (Counter::new(), std::time::Instant::now());
        let instant_ns = || origin.elapsed().as_nanos() as u64;
        let (mut before, mut worst_ns) = (0, 0);
        while instant_ns() < if cfg!(miri) { 1_000_000 } else { 100_000_000 } {
            let now_ns = counter.now_ns(instant_ns);
            assert!(now_ns >= before, "{now_ns} after {before}");
            before = now_ns;
            counter.tend(now_ns, instant_ns);
            let (early, told, late) = (instant_ns(), counter.now_ns(instant_ns), instant_ns());
            // Only where nothing came between the readings.
            if late - early < 2_000 {
                worst_ns = worst_ns.max(told.abs_diff(early + (late - early) / 2));
            }
            before = before.max(told);
        }
        assert!(worst_ns < 20_000, "{worst_ns} ns away from the system's clock");
    }
}
