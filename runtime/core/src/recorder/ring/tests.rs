//! Tests of the recorder's ring: what readers get, what they miss, and the change of writers.

use std::sync::atomic::AtomicBool;
use std::thread;

use volt_telemetry::recording::event::Event;

use super::*;

const ROUNDS: u64 = if cfg!(miri) { 200 } else { 2_000_000 };

/// Returns record `n`, in which each word follows from `n`.
fn record(n: u64) -> Record {
    Record::from_words([n, n.wrapping_mul(3), !n])
}

fn numbers(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.at_ns()).collect()
}

#[test]
fn pushed_records_are_copied_once_and_in_order() {
    let ring = Ring::new(8);
    let (writer, mut reader) = (Ring::claim(&ring).unwrap(), RingReader::from_now(&ring));
    let mut records = Vec::new();
    assert_eq!(reader.copy_into(&mut records), Copied::default());
    (0..5).for_each(|n| writer.push(record(n)));
    assert_eq!(reader.copy_into(&mut records), Copied { count: 5, lost: 0 });
    writer.push(record(5));
    assert_eq!(reader.copy_into(&mut records), Copied { count: 1, lost: 0 });
    assert_eq!(numbers(&records), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_oldest_is_overwritten_and_counted_by_its_reader() {
    let ring = Ring::new(8);
    let writer = Ring::claim(&ring).unwrap();
    let mut slow = RingReader::from_oldest(&ring);
    (0..20).for_each(|n| writer.push(record(n)));
    let mut late = RingReader::from_oldest(&ring);
    let mut records = Vec::new();
    assert_eq!(slow.copy_into(&mut records), Copied { count: 7, lost: 13 });
    assert_eq!(numbers(&records), (13..20).collect::<Vec<_>>());
    records.clear();
    assert_eq!(late.copy_into(&mut records), Copied { count: 7, lost: 0 }, "a later reader has missed nothing");
    assert_eq!(RingReader::from_now(&ring).copy_into(&mut records), Copied::default());
    assert_eq!(RingReader::from_start(&ring).copy_into(&mut records), Copied { count: 7, lost: 13 });
}

#[test]
fn a_ring_has_one_writer_and_the_next_continues_in_place() {
    let ring = Ring::new(8);
    let mut reader = RingReader::from_oldest(&ring);
    let writer = Ring::claim(&ring).unwrap();
    assert!(Ring::claim(&ring).is_none(), "ONE-WRITER");
    writer.push(record(0));
    drop(writer);
    Ring::claim(&ring).unwrap().push(record(1));
    let mut records = Vec::new();
    reader.copy_into(&mut records);
    assert_eq!(numbers(&records), [0, 1]);
}

#[test]
fn a_capacity_is_a_power_of_two() {
    assert_eq!([0, 2, 3, 32, 33].map(|wish| Ring::new(wish).capacity()), [2, 2, 4, 32, 64]);
}

#[test]
fn a_reader_gets_complete_ordered_records_from_a_fast_writer() {
    let ring = Ring::new(64);
    let is_over = Arc::new(AtomicBool::new(false));
    let reader = thread::spawn({
        let (mut reader, is_over) = (RingReader::from_oldest(&ring), is_over.clone());
        move || {
            let (mut records, mut next, mut lost) = (Vec::new(), 0, 0);
            loop {
                let was_over = is_over.load(Ordering::Acquire);
                records.clear();
                let copied = reader.copy_into(&mut records);
                assert_eq!(copied.count, records.len());
                lost += copied.lost;
                next += copied.lost;
                for found in &records {
                    assert_eq!(*found, record(next), "WHOLE; ONCE, IN ORDER");
                    next += 1;
                }
                if was_over {
                    return (next, lost);
                }
                thread::yield_now();
            }
        }
    });
    let writer = Ring::claim(&ring).unwrap();
    (0..ROUNDS).for_each(|n| writer.push(record(n)));
    is_over.store(true, Ordering::Release);
    let (seen, lost) = reader.join().unwrap();
    assert_eq!(seen, ROUNDS, "{lost} of them lost");
}

#[test]
fn events_come_back_through_a_ring() {
    let ring = Ring::new(4);
    Ring::claim(&ring).unwrap().push(Record::new(5, Event::Steal { victim: 1, count: 2 }));
    let mut records = Vec::new();
    RingReader::from_oldest(&ring).copy_into(&mut records);
    assert_eq!(records[0].event(), Event::Steal { victim: 1, count: 2 });
}
