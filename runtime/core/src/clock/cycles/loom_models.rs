//! loom models of the clock's segments, with threads that read and renew it and a counter that
//! steps back; and the same with one step done wrong.
//!
//! Both clocks of the machine are one word that each reading increments, so that a later reading in
//! any order returns a greater value. Steps of the counter are a second word. Segments are so short
//! that a thread that loses its processor for a moment finds the next segment, or the one after
//! that.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::Arc;

use super::segment::Reading;
use super::writer::Writer;
use super::*;

/// The time that passes until the counter is measured: long enough for `MEASURE_WIDTHS`.
const LONG_NS: u64 = 1 << 30;

struct Machine {
    ns: AtomicU64,
    /// How far the counter has stepped back, or ahead as a value that wraps around.
    back: AtomicU64,
}

impl Machine {
    fn pass(&self, ns: u64) -> u64 {
        // ORDERING: Relaxed, as below. A clock returns the latest value, and orders nothing.
        self.ns.fetch_add(ns, Ordering::Relaxed) + ns
    }
}

impl Source for Arc<Machine> {
    fn cycles(&self) -> u64 {
        let back = self.back.fetch_add(0, Ordering::Relaxed);
        self.pass(1).wrapping_sub(back)
    }

    fn system_ns(&self) -> u64 {
        self.pass(1)
    }

    fn is_trusted(&self) -> bool {
        true
    }

    fn forks(&self) -> u32 {
        0
    }
}

type Subject = Clock<Arc<Machine>>;

loom::thread_local! {
    /// The segment that a thread has kept.
    static KEPT: Kept = Kept::new();
}

/// The steps that a fault can replace.
trait Steps {
    fn now_ns(clock: &Subject) -> u64 {
        clock.now_ns()
    }

    /// [`Writer::renew`], by a thread that finds the segment over.
    fn renew(writer: &Writer<'_, Arc<Machine>>, generation: u64) {
        writer.renew(generation);
    }

    /// [`Writer::publish`], by a writer that may be late.
    fn publish(writer: &Writer<'_, Arc<Machine>>, generation: u64, segment: Segment) {
        let _published = writer.publish(generation, segment);
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// Threads that keep the segment that they read last.
struct Keeps;

impl Steps for Keeps {
    fn now_ns(clock: &Subject) -> u64 {
        KEPT.with(|kept| clock.now_ns_by(kept))
    }
}

struct World {
    machine: Arc<Machine>,
    clock: Subject,
    /// The latest time that any thread has returned.
    shown_ns: AtomicU64,
}

impl World {
    /// Creates a clock whose counter is in use and whose segment has just begun.
    fn new() -> Arc<Self> {
        let machine = Arc::new(Machine { ns: AtomicU64::new(0), back: AtomicU64::new(0) });
        let clock = Clock::new(machine.clone());
        machine.pass(LONG_NS);
        clock.check();
        for _ in 0..2 {
            machine.pass(LONG_NS);
            clock.now_ns();
        }
        assert!(clock.is_fast());
        let shown_ns = AtomicU64::new(clock.now_ns());
        Arc::new(Self { machine, clock, shown_ns })
    }

    fn read<S: Steps>(&self) {
        let before_ns = self.shown_ns.fetch_add(0, Ordering::AcqRel);
        let now_ns = S::now_ns(&self.clock);
        assert!(now_ns >= before_ns, "BACKWARDS: {now_ns} after {before_ns}");
        self.shown_ns.fetch_max(now_ns, Ordering::AcqRel);
    }

    /// Lets time pass, and renews the clock if its segment is over and no other thread renews it.
    fn renew<S: Steps>(&self, after_ns: u64) {
        self.machine.pass(after_ns);
        if let Some(writer) = self.clock.write() {
            let generation = self.clock.current.load(Ordering::Relaxed);
            if self.clock.slot(generation).read().show(&self.machine).is_none() {
                S::renew(&writer, generation);
            }
        }
    }
}

/// A thread reads twice while another renews the clock twice, and so writes the slot that the first
/// one may still be reading.
fn reader_and_writer<S: Steps>() -> impl Fn() + Send + Sync + 'static {
    || {
        let world = World::new();
        let reader = thread::spawn({
            let world = world.clone();
            move || (0..2).for_each(|_| world.read::<S>())
        });
        for _ in 0..2 {
            world.renew::<S>(2 * SEGMENT_NS);
            world.read::<S>();
        }
        reader.join().unwrap();
    }
}

#[test]
fn loom_a_reader_beside_renewals_sees_whole_segments() {
    holds(None, reader_and_writer::<AsBuilt>());
}

#[test]
fn loom_a_reader_that_keeps_its_segment_sees_whole_segments() {
    holds(Some(2), reader_and_writer::<Keeps>());
}

/// Two threads, each of which reads again when its segment is over, and so renews the clock.
fn threads_that_all_renew<S: Steps>() {
    let world = World::new();
    let readers = (0..2).map(|_| {
        let world = world.clone();
        thread::spawn(move || {
            (0..2).for_each(|_| {
                world.read::<S>();
                world.machine.pass(SEGMENT_NS);
            });
        })
    });
    let readers: Vec<_> = readers.collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn loom_threads_that_all_renew_never_go_back() {
    holds(Some(2), threads_that_all_renew::<AsBuilt>);
}

/// Two threads read twice. In between, the counter steps back by more than a segment.
fn counter_that_steps_back<S: Steps>() {
    let world = World::new();
    let readers = (0..2).map(|index| {
        let world = world.clone();
        thread::spawn(move || {
            world.read::<S>();
            if index == 0 {
                world.machine.back.fetch_add(LONG_NS, Ordering::Relaxed);
            }
            world.read::<S>();
        })
    });
    let readers: Vec<_> = readers.collect();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    world.read::<S>();
    assert_eq!((world.clock.faults(), world.clock.is_fast()), (1, false), "found, once");
}

#[test]
fn loom_a_counter_that_steps_back_takes_no_reader_back() {
    holds(Some(2), counter_that_steps_back::<AsBuilt>);
}

/// Fault: Read (4) without the lock. Two writers overwrite each other's segment, and both note a
/// fault of the counter.
struct RenewsUnlocked;

impl Steps for RenewsUnlocked {
    fn now_ns(clock: &Subject) -> u64 {
        loop {
            let generation = clock.current.load(Ordering::Acquire);
            let shown_ns = clock.slot(generation).read().show(&clock.source);
            if clock.is_current(generation) {
                return shown_ns.unwrap_or_else(|| Writer(clock).renew(generation));
            }
        }
    }
}

#[test]
fn loom_threads_that_renew_without_the_lock_are_found() {
    breaks("BACKWARDS", None, threads_that_all_renew::<RenewsUnlocked>);
}

#[test]
fn loom_a_fault_that_two_writers_note_is_found() {
    breaks("found, once", Some(2), counter_that_steps_back::<RenewsUnlocked>);
}

/// Fault: Read without (3), the generation.
struct DoesNotCheckAgain;

impl Steps for DoesNotCheckAgain {
    fn now_ns(clock: &Subject) -> u64 {
        let generation = clock.current.load(Ordering::Acquire);
        let [begin_cycles, begin_ns, pace] = clock.slot(generation).words();
        let since = clock.source.cycles().wrapping_sub(begin_cycles);
        if since < u64::from(pace as u32) { begin_ns + line(since, pace >> 32) } else { clock.now_ns_outside() }
    }
}

#[test]
fn loom_a_reader_that_does_not_check_again_is_found() {
    breaks("BACKWARDS", None, reader_and_writer::<DoesNotCheckAgain>());
}

/// Fault: Read (3) of a kept segment without the generation.
struct KeepsForGood;

impl Steps for KeepsForGood {
    fn now_ns(clock: &Subject) -> u64 {
        KEPT.with(|kept| {
            let since = clock.source.cycles().wrapping_sub(kept.begin_cycles.get());
            let is_inside = since < kept.cycles.get();
            if is_inside {
                kept.show(kept.begin_ns.get() + line(since, kept.rate.get()))
            } else {
                clock.now_ns_anew(kept)
            }
        })
    }
}

#[test]
fn loom_a_kept_segment_that_is_used_for_good_is_found() {
    breaks("BACKWARDS", Some(2), reader_and_writer::<KeepsForGood>());
}

/// Fault: Read with words that order nothing.
struct ReadsRelaxed;

impl Steps for ReadsRelaxed {
    fn now_ns(clock: &Subject) -> u64 {
        let generation = clock.current.load(Ordering::Acquire);
        let slot = clock.slot(generation);
        let [begin_cycles, begin_ns, pace] =
            [&slot.begin_cycles, &slot.begin_ns, &slot.pace].map(|cell| cell.load(Ordering::Relaxed));
        let since = clock.source.cycles().wrapping_sub(begin_cycles);
        let is_inside = since < u64::from(pace as u32);
        if is_inside && clock.is_current(generation) {
            begin_ns + line(since, pace >> 32)
        } else {
            clock.now_ns_outside()
        }
    }
}

#[test]
fn loom_a_slot_that_is_read_relaxed_is_found() {
    breaks("BACKWARDS", None, reader_and_writer::<ReadsRelaxed>());
}

/// Fault: Renew (4) with the generation before the slot.
struct PublishesFirst;

impl Steps for PublishesFirst {
    fn renew(writer: &Writer<'_, Arc<Machine>>, generation: u64) {
        let clock = writer.0;
        let now = Reading::take(&clock.source);
        let segment = writer.next(clock.slot(generation).read(), now);
        clock.current.store(generation + 1, Ordering::Release);
        clock.slot(generation + 1).write(segment);
    }
}

#[test]
fn loom_a_generation_before_its_slot_is_found() {
    breaks("BACKWARDS", None, reader_and_writer::<PublishesFirst>());
}

/// Fault: Renew (4) into the slot that is being read.
struct WritesInPlace;

impl Steps for WritesInPlace {
    fn renew(writer: &Writer<'_, Arc<Machine>>, generation: u64) {
        let clock = writer.0;
        let now = Reading::take(&clock.source);
        let segment = writer.next(clock.slot(generation).read(), now);
        clock.slot(generation).write(segment);
    }
}

#[test]
fn loom_a_segment_written_over_the_present_one_is_found() {
    breaks("BACKWARDS", None, reader_and_writer::<WritesInPlace>());
}

/// Fault: Renew (3) at the system clock's time, although the former segment has returned a later
/// one.
struct ForgetsTheEnd;

impl Steps for ForgetsTheEnd {
    fn renew(writer: &Writer<'_, Arc<Machine>>, generation: u64) {
        let now = Reading::take(&writer.0.source);
        let rate = writer.0.rate.load(Ordering::Relaxed);
        let _published = writer.publish(generation, Segment::of_counter(now, 0, rate).unwrap());
    }
}

/// The counter jumps ahead, by less than a fault, and so does the clock. The segment that follows
/// is still ahead.
fn counter_that_jumps<S: Steps>() {
    let world = World::new();
    let reader = thread::spawn({
        let world = world.clone();
        move || (0..2).for_each(|_| world.read::<S>())
    });
    world.machine.back.fetch_sub(SEGMENT_NS * 5 / 8, Ordering::Relaxed);
    world.read::<S>();
    world.renew::<S>(SEGMENT_NS / 4);
    world.read::<S>();
    reader.join().unwrap();
}

#[test]
fn loom_a_counter_that_jumps_leaves_the_segments_in_order() {
    holds(None, counter_that_jumps::<AsBuilt>);
}

#[test]
fn loom_a_segment_that_forgets_the_last_ones_end_is_found() {
    breaks("BACKWARDS", None, counter_that_jumps::<ForgetsTheEnd>);
}

/// A writer loses its processor while it has the lock, for longer than readers wait, between its
/// reading of the clocks and its publication.
fn reader_and_late_writer<S: Steps>() -> impl Fn() + Send + Sync + 'static {
    || {
        let world = World::new();
        world.machine.pass(SEGMENT_NS);
        let writer = world.clock.write().expect("no other thread writes");
        let generation = world.clock.current.load(Ordering::Relaxed);
        let now = Reading::take(&world.machine);
        let segment = writer.next(world.clock.slot(generation).read(), now);
        world.machine.pass(OVERTAKE_AFTER_NS);
        let reader = thread::spawn({
            let world = world.clone();
            move || {
                let before_ns = world.machine.pass(1);
                world.read::<S>();
                let shown_ns = world.shown_ns.fetch_add(0, Ordering::AcqRel);
                assert!(shown_ns + OVERTAKE_AFTER_NS >= before_ns, "FROZEN: {shown_ns} at {before_ns}");
                // Long enough for the writer's segment of Renew (5) to end, and too short for an
                // overtaking: readers still return the end of that segment.
                world.machine.pass(SEGMENT_NS + OVERTAKE_AFTER_NS / 2);
                world.read::<S>();
            }
        });
        S::publish(&writer, generation, segment);
        world.read::<S>();
        drop(writer);
        world.read::<S>();
        reader.join().unwrap();
    }
}

#[test]
fn loom_a_late_writer_is_overtaken_and_takes_no_reader_back() {
    holds(None, reader_and_late_writer::<AsBuilt>());
}

/// Fault: Renew (4) with a store. Its segment is published although it began before times that
/// readers have returned.
struct PublishesLate;

impl Steps for PublishesLate {
    fn publish(writer: &Writer<'_, Arc<Machine>>, generation: u64, segment: Segment) {
        writer.0.slot(generation + 1).write(segment);
        writer.0.current.store(generation + 1, Ordering::Release);
    }
}

#[test]
fn loom_a_late_publication_is_found() {
    breaks("BACKWARDS", None, reader_and_late_writer::<PublishesLate>());
}

/// Fault: Renew (5) without a compare-exchange. The segment is published although a reader has
/// returned more than its end since it was made.
struct RaisesByOne;

impl Steps for RaisesByOne {
    fn publish(writer: &Writer<'_, Arc<Machine>>, generation: u64, segment: Segment) {
        let clock = writer.0;
        clock.slot(generation + 1).write(segment);
        let exchanged =
            clock.current.compare_exchange(generation, generation + 1, Ordering::Release, Ordering::Relaxed);
        if exchanged.is_err() {
            let floor_ns = clock.slot(generation).read().end_ns();
            let until_ns = clock.source.system_ns() + SEGMENT_NS;
            clock.slot(generation + 1).write(Segment::System { floor_ns, until_ns });
            clock.current.fetch_add(1, Ordering::Release);
        }
    }
}

#[test]
fn loom_a_segment_published_after_an_overtake_is_found() {
    breaks("BACKWARDS", None, reader_and_late_writer::<RaisesByOne>());
}

/// Fault: Overtake without (2).
struct OvertakesWithoutTwo;

impl Steps for OvertakesWithoutTwo {
    fn now_ns(clock: &Subject) -> u64 {
        let generation = clock.current.load(Ordering::Acquire);
        let segment = clock.slot(generation).read();
        let system_ns = clock.source.system_ns();
        let is_over = segment.show(&clock.source).is_none() && clock.is_current(generation);
        if is_over && clock.write().is_none() && system_ns > segment.end_ns() + OVERTAKE_AFTER_NS {
            return system_ns;
        }
        clock.now_ns()
    }
}

#[test]
fn loom_a_reader_that_overtakes_unseen_is_found() {
    breaks("BACKWARDS", Some(2), reader_and_late_writer::<OvertakesWithoutTwo>());
}

/// Fault: Read (4) without Overtake.
struct WaitsForTheWriter;

impl Steps for WaitsForTheWriter {
    fn now_ns(clock: &Subject) -> u64 {
        let generation = clock.current.load(Ordering::Acquire);
        let segment = clock.slot(generation).read();
        let is_over = segment.show(&clock.source).is_none() && clock.is_current(generation);
        if is_over && clock.write().is_none() { segment.end_ns() } else { clock.now_ns() }
    }
}

#[test]
fn loom_a_reader_that_waits_for_the_writer_is_found() {
    breaks("FROZEN", None, reader_and_late_writer::<WaitsForTheWriter>());
}
