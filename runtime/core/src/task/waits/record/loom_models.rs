//! loom models of a record. A dump that reads it while its permits are released and others are
//! acquired sees one of the two acquisitions, or none, but never words of both. The acquisitions
//! differ in the task and the time; their other words are equal.
//!
//! The record is the shipped one. Steps, with the numbers of the parent module:
//!
//! 1. Acquire: the thread of the page writes two acquisitions, the second one if it finds that the
//!    record is free again. Both are of the same semaphore, so *what* is the same.
//! 2. Release: another thread, to which the first permits were moved, clears the record.
//! 3. Read: a third thread.
//!
//! Each twin has one incorrect step, and must fail with the message of the assertion that it
//! breaks.

use std::panic::Location;

use loom::sync::Arc;
use loom::thread;
use volt_explore::{breaks, holds};

use super::{Acquisition, Record};

const SEMAPHORE: u64 = 5;
const MIXED: &str = "the words of a copy are of one acquisition";

/// The steps of the protocol.
trait Steps {
    fn acquire(record: &Record, task: u64) {
        record.fill(SEMAPHORE, 1, task, task, Location::caller());
    }

    fn read(record: &Record) -> Option<Acquisition> {
        record.read()
    }
}

struct AsBuilt;
impl Steps for AsBuilt {}

fn model<S: Steps>() {
    let record = Arc::new(Record::new());
    S::acquire(&record, 1);
    let (moved, dumped) = (record.clone(), record.clone());
    let owner = thread::spawn(move || moved.clear());
    let reader = thread::spawn(move || {
        if let Some(copy) = S::read(&dumped) {
            assert_eq!((copy.semaphore, copy.permits), (SEMAPHORE, 1));
            assert_eq!(copy.task, copy.since_ns, "{MIXED}");
        }
    });
    if record.is_free() {
        S::acquire(&record, 2);
    }
    owner.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn loom_a_copy_of_a_record_is_of_one_acquisition() {
    holds(None, model::<AsBuilt>);
}

#[test]
fn loom_twin_reading_once_mixes_acquisitions() {
    struct ReadsOnce;
    impl Steps for ReadsOnce {
        fn read(record: &Record) -> Option<Acquisition> {
            Record::acquisition(record.words())
        }
    }
    breaks(MIXED, None, model::<ReadsOnce>);
}

#[test]
fn loom_twin_filling_without_the_fence_mixes_acquisitions() {
    struct FillsUnfenced;
    impl Steps for FillsUnfenced {
        fn acquire(record: &Record, task: u64) {
            record.fill_unfenced(SEMAPHORE, 1, task, task, Location::caller());
        }
    }
    breaks(MIXED, None, model::<FillsUnfenced>);
}

#[test]
fn loom_twin_reading_without_the_fence_mixes_acquisitions() {
    struct ReadsUnfenced;
    impl Steps for ReadsUnfenced {
        fn read(record: &Record) -> Option<Acquisition> {
            let words = record.words();
            if record.words() == words { Record::acquisition(words) } else { None }
        }
    }
    breaks(MIXED, None, model::<ReadsUnfenced>);
}
