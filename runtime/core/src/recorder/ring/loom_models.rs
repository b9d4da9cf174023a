//! loom models of the flight recorder's ring, and of the ring with one step done wrong.
//!
//! Each model is generic over [`Steps`]. [`AsBuilt`] takes every step from the ring itself. Each
//! fault replaces one step by an incorrect one, which its name describes, and the model must detect
//! it. In a ring of 2 slots only one record is certain to be whole, so every push after the first
//! may cost the reader a record.

use loom::thread;
use volt_explore::{breaks, holds};

use super::*;

/// Returns record `n`, in which each word follows from `n`.
fn record(n: u64) -> Record {
    Record::from_words([n + 1; WORDS])
}

/// The steps that a fault can replace.
trait Steps: 'static {
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
        assert_eq!(*found, record(*next), "WHOLE; ONCE, IN ORDER");
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
    assert_eq!(next, pushes, "each record was given or counted");
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
#[test]
fn loom_the_next_writer_goes_on_where_the_last_stopped() {
    holds(None, || {
        let ring = Ring::new(4);
        let mut reader = RingReader::from_oldest(&ring);
        let first = Ring::claim(&ring).unwrap();
        let heir = ring.clone();
        let first = thread::spawn(move || first.push(record(0)));
        let second = thread::spawn(move || {
            let writer = Ring::claim(&heir);
            writer.iter().for_each(|writer| writer.push(record(1)));
            writer.is_some()
        });
        first.join().unwrap();
        let expected = 1 + u64::from(second.join().unwrap());
        let (mut records, mut next) = (Vec::new(), 0);
        let copied = reader.copy_once(&mut records, 0);
        check(&records, copied, &mut next);
        assert_eq!(next, expected);
    });
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
    breaks("WHOLE", None, || writer_and_reader::<PushesWithoutTheFence>(2, 3));
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
    breaks("WHOLE", None, || writer_and_reader::<PublishesRelaxed>(2, 3));
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
    breaks("WHOLE", None, || writer_and_reader::<PublishesFirst>(2, 3));
}

/// The parts of a copy with what a fault changes: the fence of (3), and which record (5) takes for
/// whole at a given `head`.
fn copy_with(
    reader: &mut RingReader,
    records: &mut Vec<Record>,
    has_fence: bool,
    whole: impl Fn(u64, u64) -> u64,
) -> Copied {
    let capacity = reader.ring.capacity() as u64;
    let head = reader.ring.head().load(Ordering::Acquire);
    let first = reader.next.max(whole(head, capacity));
    records.extend((first..head).map(|number| reader.ring.load(number)));
    if has_fence {
        fence(Ordering::Acquire);
    }
    let whole = first.max(whole(reader.ring.head().load(Ordering::Relaxed), capacity)).min(head);
    records.drain(..(whole - first) as usize);
    let lost = whole - reader.next;
    reader.next = head;
    Copied { count: (head - whole) as usize, lost }
}

/// Fault: Copy without (3).
struct CopiesWithoutTheFence;

impl Steps for CopiesWithoutTheFence {
    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        copy_with(reader, records, false, |head, capacity| (head + 1).saturating_sub(capacity))
    }
}

#[test]
fn loom_a_copy_without_the_fence_is_found() {
    breaks("WHOLE", None, || writer_and_reader::<CopiesWithoutTheFence>(2, 3));
}

/// Fault: Copy without (3) to (5): trusts what it has read.
struct NeverChecksAgain;

impl Steps for NeverChecksAgain {
    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        let ring = reader.ring.clone();
        let capacity = ring.capacity() as u64;
        let head = ring.head().load(Ordering::Acquire);
        let first = reader.next.max((head + 1).saturating_sub(capacity));
        records.extend((first..head).map(|number| ring.load(number)));
        let lost = first - reader.next;
        reader.next = head;
        Copied { count: records.len(), lost }
    }
}

#[test]
fn loom_a_copy_that_never_checks_again_is_found() {
    breaks("WHOLE", None, || writer_and_reader::<NeverChecksAgain>(2, 3));
}

/// Fault: Copy (5) that takes the record whose slot is being written for whole.
struct OneTooMany;

impl Steps for OneTooMany {
    fn copy(reader: &mut RingReader, records: &mut Vec<Record>) -> Copied {
        copy_with(reader, records, true, |head, capacity| head.saturating_sub(capacity))
    }
}

#[test]
fn loom_a_record_that_is_being_overwritten_is_found() {
    breaks("WHOLE", None, || writer_and_reader::<OneTooMany>(2, 3));
}

/// Fault: Claim by a load and a store, so that two threads get the ring.
#[test]
fn loom_a_claim_that_is_not_one_step_is_found() {
    breaks("two writers", None, || {
        let ring = Ring::new(2);
        let claim = |ring: Arc<Ring>| {
            thread::spawn(move || {
                let is_free = !ring.is_claimed.load(Ordering::Acquire);
                if is_free {
                    ring.is_claimed.store(true, Ordering::Relaxed);
                }
                is_free
            })
        };
        let claims = [claim(ring.clone()), claim(ring)];
        let got = claims.map(|thread| thread.join().unwrap());
        assert!(got != [true, true], "two writers");
    });
}
