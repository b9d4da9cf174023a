//! Tests of the cells of a worker: polls in flight, the time in each phase, and concurrent readers.

use super::*;
use crate::task::cell::{Nowhere, new_task};
use crate::task::header::Header;
use crate::task::id::Id;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use volt_telemetry::histogram::BUCKETS;

const ROUNDS: u64 = if cfg!(miri) { 50 } else { 50_000 };

fn read(cells: &WorkerCells, floor_ns: &mut [u64; PHASES.len()]) -> Worker {
    cells.read(0, crate::clock::now_ns(), floor_ns, |poll, _| poll)
}

/// Calls `f` with a header of a task that is never run.
fn with_header(f: impl FnOnce(&Header)) {
    let here = Location::caller();
    let (task, _join) = new_task(async {}, Nowhere, Id::next(), here, None);
    f(task.header());
}

#[test]
fn a_poll_is_in_flight_until_it_ends_and_is_counted_once() {
    with_header(|task| {
        let (cells, mut floor_ns) = (WorkerCells::new(), [0; PHASES.len()]);
        assert_eq!(read(&cells, &mut floor_ns).in_flight, None);
        cells.begin_poll(task, crate::clock::now_ns());
        let during = read(&cells, &mut floor_ns);
        assert_eq!((during.polls, during.poll_time.count()), (1, 0));
        let poll = during.in_flight.expect("it has begun");
        assert_eq!(poll.task_id, task.id.as_u64());
        assert!(poll.spawned_at.contains("cells/tests.rs"), "{}", poll.spawned_at);
        cells.end_poll();
        cells.count_poll(Polled { location: Location::caller(), took_ns: 1_000, has_woken_itself: false });
        let after = read(&cells, &mut floor_ns);
        assert_eq!((after.polls, after.poll_time.count(), after.in_flight), (1, 1, None));
        assert_eq!(after.poll_time.sum_ns(), 1_000);
    });
}

#[test]
fn a_request_to_a_finished_poll_does_not_reach_the_next() {
    with_header(|task| {
        let cells = WorkerCells::new();
        cells.begin_poll(task, 1);
        let first = cells.poll_seq();
        assert!(cells.in_flight_of(first, 2).is_some() && cells.culprit_of(first).is_some());
        cells.end_poll();
        cells.begin_poll(task, 3);
        assert!(cells.in_flight(4).is_some());
        assert!(cells.in_flight_of(first, 4).is_none() && cells.culprit_of(first).is_none());
    });
}

#[test]
fn budget_left_and_lifo_polls_are_derived_from_counts() {
    with_header(|task| {
        let (cells, mut floor_ns) = (WorkerCells::new(), [0; PHASES.len()]);
        let mut reported = |cells| {
            let worker = read(cells, &mut floor_ns);
            (worker.budget_left, worker.lifo_polls_this_tick)
        };
        cells.renew_budget(128);
        assert_eq!(reported(&cells), (128, 0));
        let location = cells.begin_poll(task, 0);
        cells.lifo_hits.add(1);
        assert_eq!(reported(&cells), (127, 1), "a poll is spent when it begins");
        cells.end_poll();
        cells.count_poll(Polled { location, took_ns: 1, has_woken_itself: true });
        assert_eq!(reported(&cells), (127, 1));
        cells.renew_budget(128);
        cells.renew_lifo_polls();
        assert_eq!(reported(&cells), (128, 0));
    });
}

#[test]
fn values_above_the_last_bucket_are_counted_in_it() {
    let cells = HistogramCells::default();
    [1 << 39, 1 << 50, u64::MAX >> 1].into_iter().for_each(|ns| cells.record(ns));
    let histogram = cells.read();
    assert_eq!((histogram.count(), histogram.counts()[BUCKETS - 1]), (3, 2));
}

#[test]
fn the_phases_add_up_to_the_time_that_went_by() {
    let (cells, mut floor_ns) = (WorkerCells::new(), [0; PHASES.len()]);
    for (step, phase) in PHASES.into_iter().enumerate() {
        cells.enter_phase(phase, 100 * step as u64);
    }
    cells.stop(500);
    let worker = read(&cells, &mut floor_ns);
    let times_ns = [worker.busy_ns, worker.searching_ns, worker.parked_ns, worker.driver_ns, worker.maintenance_ns];
    assert_eq!(times_ns, [100; PHASES.len()]);
    assert_eq!(worker.phase, Phase::Stopped);
}

#[test]
fn a_concurrent_reader_gets_consistent_worker_counters() {
    with_header(|task| {
        let (cells, is_over) = (Arc::new(WorkerCells::new()), Arc::new(AtomicBool::new(false)));
        let began_ns = crate::clock::now_ns();
        cells.enter_phase(Phase::Busy, began_ns);
        let reader = thread::spawn({
            let (cells, is_over) = (cells.clone(), is_over.clone());
            let (id, mut polls) = (task.id.as_u64(), 0);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    if let Some((_, _, times_ns)) = cells.times() {
                        let life_ns = crate::clock::now_ns() - began_ns;
                        let reported_ns: u64 = times_ns.iter().sum();
                        assert!(reported_ns <= life_ns, "{reported_ns} of {life_ns}");
                    }
                    let worker = cells.read(0, crate::clock::now_ns(), &mut [0; PHASES.len()], |poll, _| poll);
                    assert!(worker.polls >= polls, "a counter only grows");
                    polls = worker.polls;
                    assert!(worker.in_flight.is_none_or(|poll| poll.task_id == id));
                }
            }
        });
        for round in 0..ROUNDS {
            cells.begin_poll(task, crate::clock::now_ns());
            cells.end_poll();
            cells.count_poll(Polled { location: Location::caller(), took_ns: round, has_woken_itself: false });
            cells.enter_phase(PHASES[round as usize % PHASES.len()], crate::clock::now_ns());
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn ends_are_counted_by_kind() {
    let cells = WorkerCells::new();
    [Ended::Completed, Ended::Completed, Ended::Panicked].into_iter().for_each(|ended| cells.count_end(ended));
    assert_eq!(cells.ended(), [2, 0, 1]);
}
