//! Tests of the clock on a counter and a system clock that a test controls.

use std::cell::Cell;

use super::segment::Reading;
use super::writer::{FAULT_EXPIRY_NS, MAX_FAULTS};
use super::*;

const MS: u64 = 1_000_000;
const HOURS: u64 = 5 * 3_600_000 * MS;

/// A counter that runs at 2.5 GHz until a test changes it.
struct Fake {
    ns: Cell<u64>,
    cycles: Cell<u64>,
    cycles_per_us: Cell<u64>,
    is_trusted: Cell<bool>,
    forks: Cell<u32>,
    questions: Cell<u32>,
}

impl Source for &Fake {
    fn cycles(&self) -> u64 {
        self.cycles.get()
    }

    fn system_ns(&self) -> u64 {
        self.ns.get()
    }

    fn is_trusted(&self) -> bool {
        self.questions.set(self.questions.get() + 1);
        self.is_trusted.get()
    }

    fn forks(&self) -> u32 {
        self.forks.get()
    }
}

impl Fake {
    fn new() -> Self {
        Self {
            ns: Cell::new(0),
            cycles: Cell::new(1_000),
            cycles_per_us: Cell::new(2_500),
            is_trusted: Cell::new(true),
            forks: Cell::new(0),
            questions: Cell::new(0),
        }
    }

    fn pass(&self, us: u64) {
        self.ns.set(self.ns.get() + us * 1_000);
        self.cycles.set(self.cycles.get().wrapping_add(us * self.cycles_per_us.get()));
    }
}

/// A clock, and the latest time that it has returned.
struct Bench<'f> {
    fake: &'f Fake,
    clock: Clock<&'f Fake>,
    shown_ns: Cell<u64>,
}

impl<'f> Bench<'f> {
    fn new(fake: &'f Fake) -> Self {
        Self { fake, clock: Clock::new(fake), shown_ns: Cell::new(0) }
    }

    /// Creates a bench whose clock uses the counter.
    fn fast(fake: &'f Fake) -> Self {
        let bench = Self::new(fake);
        bench.pass(30 * MS);
        assert!(bench.clock.is_fast(), "{:?}", bench.clock.last_fault());
        bench
    }

    /// Reads the clock, and checks that it does not go back.
    fn now_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        assert!(now_ns >= self.shown_ns.get(), "{now_ns} after {}", self.shown_ns.get());
        self.shown_ns.set(now_ns);
        now_ns
    }

    /// Lets time pass. The clock is read every 10 µs and checked every 100 µs.
    fn pass(&self, ns: u64) {
        for step in 1..=ns / 10_000 {
            self.fake.pass(10);
            self.now_ns();
            if step % 10 == 0 {
                self.clock.check();
            }
        }
    }

    fn error_ns(&self) -> u64 {
        self.now_ns().abs_diff(self.fake.ns.get())
    }

    fn fault(&self) -> Option<Fault> {
        self.clock.last_fault().map(|(fault, _)| fault)
    }
}

#[test]
fn the_counter_is_used_once_it_is_trusted_and_measured() {
    let fake = Fake::new();
    let bench = Bench::new(&fake);
    bench.pass(9 * MS);
    assert_eq!((bench.clock.is_fast(), fake.questions.get()), (false, 0), "a short program never queries it");
    bench.pass(30 * MS);
    assert!(bench.clock.is_fast());
    bench.pass(100 * MS);
    assert!(bench.error_ns() < 100, "{}", bench.error_ns());
    assert_eq!((bench.clock.faults(), fake.questions.get()), (0, 1));
}

#[test]
fn a_counter_that_is_never_trusted_is_no_fault() {
    let fake = Fake::new();
    fake.is_trusted.set(false);
    let bench = Bench::new(&fake);
    bench.pass(50 * MS);
    fake.ns.set(fake.ns.get() + HOURS);
    bench.pass(10 * MS);
    assert_eq!((bench.clock.is_fast(), bench.clock.faults(), bench.error_ns()), (false, 0, 0));
    assert!(fake.questions.get() <= 2, "the clock does not stop reading the system's clock");
}

#[test]
fn a_clock_that_was_not_read_for_hours_is_exact() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    fake.pass(HOURS / 1_000);
    assert!(bench.error_ns() < 100);
    assert_eq!(bench.clock.faults(), 0);
}

#[test]
fn a_step_back_shows_no_earlier_time_and_is_measured_anew() {
    for back in [2 * MS, 20 * MS, HOURS] {
        let fake = Fake::new();
        let bench = Bench::fast(&fake);
        fake.cycles.set(fake.cycles.get().wrapping_sub(back / 2 * 5));
        bench.pass(2 * MS);
        // A long step leads to before the last measurement. A shorter one may lead to after it: the
        // counter is then only behind.
        let faults = if back > 15 * MS { &[Fault::SteppedBack][..] } else { &[Fault::SteppedBack, Fault::FellBehind] };
        assert!(bench.fault().is_some_and(|fault| faults.contains(&fault)), "{back}: {:?}", bench.fault());
        assert_eq!((bench.clock.faults(), bench.clock.is_fast()), (1, false), "{back}");
        assert!(bench.error_ns() < 100, "{back}");
        bench.pass(30 * MS);
        assert!(bench.clock.is_fast() && bench.error_ns() < 100, "{back}");
    }
}

/// Reads the clock as one thread does, and checks that it does not go back.
struct OneThread<'b> {
    bench: &'b Bench<'b>,
    kept: Kept,
    shown_ns: u64,
}

impl<'b> OneThread<'b> {
    fn of(bench: &'b Bench<'b>) -> Self {
        Self { bench, kept: Kept::new(), shown_ns: 0 }
    }

    fn read(&mut self) -> u64 {
        let now_ns = self.bench.clock.now_ns_by(&self.kept);
        let checked_ns = self.bench.clock.check_by(&self.kept);
        assert!(self.shown_ns <= now_ns && now_ns <= checked_ns, "{now_ns}, {checked_ns} after {}", self.shown_ns);
        self.shown_ns = checked_ns;
        now_ns
    }
}

#[test]
fn a_step_back_inside_a_segment_takes_no_thread_back() {
    // At every age of a segment.
    for (back_us, age_us) in [1, 20, 300, 900].into_iter().flat_map(|back| (0..100).map(move |age| (back, 10 * age))) {
        let fake = Fake::new();
        let bench = Bench::fast(&fake);
        let mut thread = OneThread::of(&bench);
        bench.pass(age_us * 1_000);
        thread.read();
        fake.cycles.set(fake.cycles.get() - back_us * 2_500);
        for _ in 0..300 {
            let now_ns = thread.read();
            assert!(now_ns.abs_diff(fake.ns.get()) <= SEGMENT_NS, "{now_ns} at {}", fake.ns.get());
            fake.pass(10);
        }
        // A step that is too short for a fault is measured as a part of the rate.
        assert!(thread.read().abs_diff(fake.ns.get()) < 10_000, "{back_us} {age_us}");
    }
}

#[test]
fn a_thread_that_moves_between_processors_is_not_taken_back() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    let mut thread = OneThread::of(&bench);
    for behind in [0, 100, 2_000].into_iter().cycle().take(10_000) {
        let cycles = fake.cycles.replace(fake.cycles.get() - behind);
        thread.read();
        fake.cycles.set(cycles);
        // By a prime number, so that the thread moves at every age of a segment.
        fake.pass(if behind == 0 { 7 } else { 0 });
    }
    assert_eq!((bench.clock.faults(), bench.clock.is_fast()), (0, true), "{:?}", bench.fault());
}

#[test]
fn a_jump_ahead_shows_a_millisecond_of_it_at_most() {
    // At every age of a segment, since a short jump may stay inside it.
    for (ahead, age_us) in
        [MS / 3, 2 * MS, HOURS].into_iter().flat_map(|ahead| (0..100).map(move |age| (ahead, 10 * age)))
    {
        let fake = Fake::new();
        let bench = Bench::fast(&fake);
        bench.pass(age_us * 1_000);
        fake.cycles.set(fake.cycles.get() + ahead / 2 * 5);
        assert!(bench.now_ns() <= fake.ns.get() + SEGMENT_NS, "{ahead}");
        bench.pass(3 * MS);
        assert_eq!((bench.fault(), bench.clock.is_fast()), (Some(Fault::RanAhead), false), "{ahead}");
        assert!(bench.error_ns() < 100, "{ahead}");
        bench.pass(30 * MS);
        assert!(bench.clock.is_fast() && bench.error_ns() < 100, "{ahead}");
    }
}

#[test]
fn a_stopped_counter_is_found_by_a_check_and_not_used_again() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    fake.cycles_per_us.set(0);
    bench.pass(3 * MS);
    assert_eq!(bench.clock.last_fault(), Some((Fault::FellBehind, false)));
    assert!(bench.error_ns() < 100);
    bench.pass(30 * MS);
    assert_eq!(bench.clock.last_fault(), Some((Fault::Unusable, true)));
    assert_eq!(bench.error_ns(), 0);
    fake.cycles_per_us.set(2_500);
    bench.pass(50 * MS);
    assert!(!bench.clock.is_fast());
}

#[test]
fn another_speed_is_a_fault_and_a_slew_is_followed() {
    for (cycles_per_us, is_fault) in [(1_250, true), (5_000, true), (2_450, true), (2_501, false), (2_499, false)] {
        let fake = Fake::new();
        let bench = Bench::fast(&fake);
        fake.cycles_per_us.set(cycles_per_us);
        for _ in 0..100 {
            bench.pass(MS);
            assert!(is_fault || bench.error_ns() < 1_000, "{cycles_per_us}");
        }
        // Also if no thread reads the clock for a second.
        fake.cycles_per_us.set(if is_fault { cycles_per_us } else { 5_000 - cycles_per_us });
        fake.pass(1_000_000);
        assert!(is_fault || bench.error_ns() < 100, "{cycles_per_us}");
        bench.pass(30 * MS);
        assert_eq!(bench.clock.faults() > 0, is_fault, "{cycles_per_us}");
        assert!(bench.clock.is_fast() && bench.error_ns() < 100, "{cycles_per_us}");
    }
}

#[test]
fn a_counter_that_the_kernel_distrusts_is_not_used_again() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    fake.is_trusted.set(false);
    bench.pass(QUERY_EVERY_NS + 2 * MS);
    assert_eq!(bench.clock.last_fault(), Some((Fault::Distrusted, true)));
    fake.is_trusted.set(true);
    bench.pass(2 * QUERY_EVERY_NS);
    assert_eq!((bench.clock.is_fast(), bench.clock.faults(), bench.error_ns()), (false, 1, 0));
}

#[test]
fn a_counter_that_fails_repeatedly_is_disabled() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    for fault in 1..=MAX_FAULTS + 1 {
        fake.pass(FAULT_EXPIRY_NS / 20_000);
        fake.cycles.set(fake.cycles.get() + HOURS);
        bench.pass(30 * MS);
        assert_eq!((bench.clock.faults(), bench.clock.is_fast()), (fault, fault <= MAX_FAULTS));
    }
    assert_eq!((bench.clock.last_fault(), bench.error_ns()), (Some((Fault::RanAhead, true)), 0));
}

#[test]
fn a_counter_that_fails_now_and_then_is_kept() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    for fault in 1..=5 * MAX_FAULTS {
        // The time that has passed toward the next expiry is not lost by a fault.
        fake.pass(FAULT_EXPIRY_NS / 1_000 - 1_000_000);
        fake.cycles.set(fake.cycles.get() + HOURS);
        bench.pass(30 * MS);
        assert_eq!((bench.clock.faults(), bench.clock.is_fast()), (fault, true));
    }
}

#[test]
fn processors_that_differ_a_little_are_no_fault() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    // By how many cycles the processor's counter is behind, and the largest error of the clock, ns.
    for (behind, behind_ns) in [0, 2_000].into_iter().zip([1, 801]).cycle().take(10_000) {
        // Both processors read at the same time, at every age of a segment.
        fake.pass(if behind == 0 { 7 } else { 0 });
        let cycles = fake.cycles.replace(fake.cycles.get() - behind);
        let shown_ns = bench.clock.now_ns();
        assert!(shown_ns.abs_diff(fake.ns.get()) <= behind_ns, "{shown_ns} at {}", fake.ns.get());
        fake.cycles.set(cycles);
    }
    assert_eq!((bench.clock.faults(), bench.clock.is_fast()), (0, true), "{:?}", bench.fault());
}

#[test]
fn while_another_thread_renews_the_end_of_the_segment_is_shown() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    let end_ns = bench.clock.slot(bench.clock.current.load(Ordering::Relaxed)).read().end_ns();
    let writer = bench.clock.write().unwrap();
    assert!(bench.clock.write().is_none());
    fake.pass((end_ns + OVERTAKE_AFTER_NS - fake.ns.get()) / 1_000);
    assert_eq!((bench.now_ns(), bench.now_ns()), (end_ns, end_ns));
    drop(writer);
    assert!(bench.error_ns() < 100);
}

#[test]
fn a_writer_that_lost_its_processor_does_not_stop_the_clock() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    let generation = bench.clock.current.load(Ordering::Relaxed);
    let writer = bench.clock.write().unwrap();
    fake.pass(2_000);
    // The writer has read both clocks, and continues after half a second.
    let now = Reading::take(&bench.clock.source);
    let next = writer.next(bench.clock.slot(generation).read(), now);
    bench.pass(10 * MS);
    for _ in 0..50 {
        fake.pass(10_000);
        assert_eq!(bench.error_ns(), 0);
    }
    let published = writer.publish(generation, next);
    assert!(matches!(published, Segment::System { .. }), "others have shown later times: {published:?}");
    drop(writer);
    assert_eq!(bench.error_ns(), 0);
    bench.pass(5 * MS);
    assert!(bench.clock.is_fast() && bench.error_ns() < 100);
    assert_eq!(bench.clock.faults(), 0, "{:?}", bench.fault());
}

#[test]
fn a_lock_that_was_held_before_a_fork_keeps_no_child_out() {
    let fake = Fake::new();
    let bench = Bench::fast(&fake);
    std::mem::forget(bench.clock.write().unwrap());
    fake.forks.set(1);
    bench.pass(5 * MS);
    assert!(bench.error_ns() < 100);
}
