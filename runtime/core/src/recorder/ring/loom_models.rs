//! loom models of the flight recorder's ring, and of the ring with one step done wrong.
//!
//! Each model is generic over [`Steps`]. [`AsBuilt`] takes every step from the ring itself. Each
//! fault replaces one step by an incorrect one, which its name describes, and the model must detect
//! it. In a ring of 2 slots only one record is certain to be whole, so every push after the first
//! may cost the reader a record.
//!
//! WHOLE and ONCE, IN ORDER are one assertion: most faults violate both, each in some orders.

use loom::thread;
use volt_explore::{breaks, holds};

use super::*;

/// Returns record `n`, in which each word follows from `n`.
fn record(n: u64) -> Record {
    Record::from_words([n + 1; WORDS])
}

/// The message of the assertion about the records of a copy.
const AS_PUSHED: &str = "WHOLE; ONCE, IN ORDER";
/// The message of the assertion about the number of records. It fails if a writer reads an old
/// `head` of the former one, and pushes in place of its last record.
const ALL: &str = "ALL: each record was given or counted";

/// The steps that a fault can replace.
trait Steps: 'static {
    fn claim(ring: &Arc<Ring>) -> Option<RingWriter> {
        Ring::claim(ring)
    }

    fn release(writer: RingWriter) {
        drop(writer);
    }

    fn push(writer: &RingWriter, record: Record) {
        writer.push(record);
    }

    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        reader.copy_once(records, 0)
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// Checks that the records of a copy are whole, in order, and continue where the last copy ended.
fn check(records: &[Record], copied: Copied, next: &mut u64) {
    assert_eq!(records.len(), copied.count);
    *next += copied.lost;
    for found in records {
        assert_eq!(*found, record(*next), "{AS_PUSHED}");
        *next += 1;
    }
}

/// A writer pushes `pushes` records. A reader copies twice meanwhile, and once afterwards.
fn writer_and_reader<S: Steps>(capacity: usize, pushes: u64) {
    let ring = Ring::new(capacity);
    let mut reader = RingReader::from_oldest(&ring);
    let writer = Ring::claim(&ring).unwrap();
    let writer = thread::spawn(move || (0..pushes).for_each(|n| S::push(&writer, record(n))));
    let reader = thread::spawn(move || {
        let mut next = 0;
        for _ in 0..2 {
            let mut records = Vec::new();
            let copied = S::copy(&mut reader, &mut records);
            check(&records, copied, &mut next);
        }
        (reader, next)
    });
    writer.join().unwrap();
    let (mut reader, mut next) = reader.join().unwrap();
    let mut records = Vec::new();
    let copied = S::copy(&mut reader, &mut records);
    check(&records, copied, &mut next);
    assert_eq!(next, pushes, "{ALL}");
}

#[test]
fn loom_a_reader_gives_whole_records_once_and_counts_the_rest() {
    holds(None, || writer_and_reader::<AsBuilt>(2, 3));
}

#[test]
fn loom_a_reader_of_a_larger_ring_gives_whole_records_once() {
    holds(Some(2), || writer_and_reader::<AsBuilt>(4, 6));
}

/// A writer releases its ring, and another thread claims it. A reader copies afterwards.
fn next_writer<S: Steps>() {
    let ring = Ring::new(4);
    let mut reader = RingReader::from_oldest(&ring);
    let first = Ring::claim(&ring).unwrap();
    let heir = ring.clone();
    let first = thread::spawn(move || {
        first.push(record(0));
        S::release(first);
    });
    let second = thread::spawn(move || {
        let writer = S::claim(&heir);
        writer.iter().for_each(|writer| writer.push(record(1)));
        writer.is_some()
    });
    first.join().unwrap();
    let expected = 1 + u64::from(second.join().unwrap());
    let (mut records, mut next) = (Vec::new(), 0);
    let copied = reader.copy_once(&mut records, 0);
    check(&records, copied, &mut next);
    assert_eq!(next, expected, "{ALL}");
}

#[test]
fn loom_the_next_writer_goes_on_where_the_last_stopped() {
    holds(None, next_writer::<AsBuilt>);
}

/// Two threads claim a free ring.
fn claimants<S: Steps>() {
    let ring = Ring::new(2);
    let claim = |ring: Arc<Ring>| thread::spawn(move || S::claim(&ring));
    let claims = [claim(ring.clone()), claim(ring)];
    let writers = claims.map(|thread| thread.join().unwrap());
    assert_eq!(writers.iter().flatten().count(), 1, "ONE-WRITER");
}

#[test]
fn loom_of_two_threads_that_claim_a_ring_one_gets_it() {
    holds(None, claimants::<AsBuilt>);
}

/// Fault: Push without (1).
struct PushesWithoutTheFence;

impl Steps for PushesWithoutTheFence {
    fn push(writer: &RingWriter, record: Record) {
        let head = writer.ring.head().load(Ordering::Relaxed);
        let slot = writer.ring.slot(head).unwrap();
        slot.iter().zip(record.words()).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        writer.ring.head().store(head + 1, Ordering::Release);
    }
}

#[test]
fn loom_a_push_without_the_fence_is_found() {
    breaks(AS_PUSHED, None, || writer_and_reader::<PushesWithoutTheFence>(2, 3));
}

/// Fault: Push with a `head` that publishes nothing.
struct PublishesRelaxed;

impl Steps for PublishesRelaxed {
    fn push(writer: &RingWriter, record: Record) {
        let head = writer.ring.head().load(Ordering::Relaxed);
        let slot = writer.ring.slot(head).unwrap();
        fence(Ordering::Release);
        slot.iter().zip(record.words()).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        writer.ring.head().store(head + 1, Ordering::Relaxed);
    }
}

#[test]
fn loom_a_head_that_publishes_nothing_is_found() {
    breaks(AS_PUSHED, None, || writer_and_reader::<PublishesRelaxed>(2, 3));
}

/// Fault: Push that increments `head` before the words are stored.
struct PublishesFirst;

impl Steps for PublishesFirst {
    fn push(writer: &RingWriter, record: Record) {
        let head = writer.ring.head().load(Ordering::Relaxed);
        let slot = writer.ring.slot(head).unwrap();
        writer.ring.head().store(head + 1, Ordering::Release);
        fence(Ordering::Release);
        slot.iter().zip(record.words()).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
    }
}

#[test]
fn loom_a_head_before_the_words_is_found() {
    breaks(AS_PUSHED, None, || writer_and_reader::<PublishesFirst>(2, 3));
}

/// What a fault changes in a copy.
struct Copying {
    /// Copy (3).
    has_fence: bool,
    /// [`first_whole`] at Copy (5).
    whole: fn(u64, usize) -> u64,
    /// Whether the records that Copy (5) discards are counted as lost.
    counts_discarded: bool,
}

impl Copying {
    const AS_BUILT: Self = Self { has_fence: true, whole: first_whole, counts_discarded: true };
}

/// The steps of [`RingReader::copy_once`], with one of them changed.
fn copy_with(reader: &mut RingReader, records: &mut Vec<Record>, copying: Copying) -> Copied {
    let capacity = reader.ring.capacity();
    let head = reader.ring.head().load(Ordering::Acquire);
    let first = reader.next.max(first_whole(head, capacity));
    records.extend((first..head).map(|number| reader.ring.load(number)));
    if copying.has_fence {
        fence(Ordering::Acquire);
    }
    let head_after = reader.ring.head().load(Ordering::Relaxed);
    let whole = first.max((copying.whole)(head_after, capacity)).min(head);
    records.drain(..(whole - first) as usize);
    let counted_to = if copying.counts_discarded { whole } else { first };
    let lost = counted_to - reader.next;
    reader.next = head;
    Copied { count: (head - whole) as usize, lost }
}

/// Fault: Copy without (3).
struct CopiesWithoutTheFence;

impl Steps for CopiesWithoutTheFence {
    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        copy_with(reader, records, Copying { has_fence: false, ..Copying::AS_BUILT })
    }
}

#[test]
fn loom_a_copy_without_the_fence_is_found() {
    breaks(AS_PUSHED, None, || writer_and_reader::<CopiesWithoutTheFence>(2, 3));
}

/// Fault: Copy without (3) to (5): trusts what it has read.
struct NeverChecksAgain;

impl Steps for NeverChecksAgain {
    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        let ring = reader.ring.clone();
        let head = ring.head().load(Ordering::Acquire);
        let first = reader.next.max(first_whole(head, ring.capacity()));
        records.extend((first..head).map(|number| ring.load(number)));
        let lost = first - reader.next;
        reader.next = head;
        Copied { count: records.len(), lost }
    }
}

#[test]
fn loom_a_copy_that_never_checks_again_is_found() {
    breaks(AS_PUSHED, None, || writer_and_reader::<NeverChecksAgain>(2, 3));
}

/// Fault: Copy (5) that takes the record whose slot is being written for whole.
struct OneTooMany;

impl Steps for OneTooMany {
    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        let whole = |head: u64, capacity: usize| head.saturating_sub(capacity as u64);
        copy_with(reader, records, Copying { whole, ..Copying::AS_BUILT })
    }
}

#[test]
fn loom_a_record_that_is_being_overwritten_is_found() {
    breaks(AS_PUSHED, None, || writer_and_reader::<OneTooMany>(2, 3));
}

/// Fault: Copy (5) that does not count what it discards.
struct ForgetsTheDiscarded;

impl Steps for ForgetsTheDiscarded {
    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        copy_with(reader, records, Copying { counts_discarded: false, ..Copying::AS_BUILT })
    }
}

#[test]
fn loom_discarded_records_that_are_not_counted_are_found() {
    breaks(AS_PUSHED, None, || writer_and_reader::<ForgetsTheDiscarded>(2, 3));
}

fn writer_of(ring: &Arc<Ring>) -> RingWriter {
    RingWriter { ring: ring.clone(), on_one_thread: PhantomData }
}

/// Fault: Claim by a load and a store.
struct ClaimsInTwoSteps;

impl Steps for ClaimsInTwoSteps {
    fn claim(ring: &Arc<Ring>) -> Option<RingWriter> {
        if ring.is_claimed.load(Ordering::Acquire) {
            return None;
        }
        ring.is_claimed.store(true, Ordering::Relaxed);
        Some(writer_of(ring))
    }
}

#[test]
fn loom_a_claim_that_is_not_one_step_is_found() {
    breaks("ONE-WRITER", None, claimants::<ClaimsInTwoSteps>);
}

/// Fault: Claim that does not acquire the former writer's `head`.
struct ClaimsRelaxed;

impl Steps for ClaimsRelaxed {
    fn claim(ring: &Arc<Ring>) -> Option<RingWriter> {
        let was_claimed = ring.is_claimed.swap(true, Ordering::Relaxed);
        (!was_claimed).then(|| writer_of(ring))
    }
}

#[test]
fn loom_a_claim_that_does_not_acquire_is_found() {
    breaks(ALL, None, next_writer::<ClaimsRelaxed>);
}

/// Fault: Release that publishes nothing.
struct ReleasesRelaxed;

impl Steps for ReleasesRelaxed {
    fn release(writer: RingWriter) {
        // The drop stores it once more. A claim may come in between.
        writer.ring.is_claimed.store(false, Ordering::Relaxed);
    }
}

#[test]
fn loom_a_release_that_publishes_nothing_is_found() {
    breaks(ALL, None, next_writer::<ReleasesRelaxed>);
}
