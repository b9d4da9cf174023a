//! Measures what it costs to search for work, to wake a worker and to place a task, by the number
//! of workers. The workers have no threads, so the figures are the computation alone, with all data
//! in the cache of one processor. The last column is a real runtime: the median round trip of a
//! task from outside.
//!
//! `.ci/measure search` runs it within seconds and writes its table into
//! `runtime/benches/RESULTS.md`. It is a test, since it calls functions that the crate does not
//! export. `cargo test` skips it, because it checks nothing. Each figure but the last column is the
//! least of several runs.
//!
//! Rejected: skipping parked workers in a search. A failed search costs less than a tenth of the
//! sleep that follows it, even with 64 workers, and the tasks in a parked worker's inbox would have
//! to be found in another way.

use std::hint::black_box;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::Worker;
use crate::builder::Builder;
use crate::config::Placement;
use crate::scheduler::core::Core;
use crate::scheduler::placement::Placer;
use crate::scheduler::remote::{Remote, slot};
use crate::scheduler::shared::{Shared, without_threads};
use crate::scheduler::slots::WorkerSlots;
use crate::stats::placed::Placed;
use crate::task::cell::{Nowhere, new_task};
use crate::task::header::Notified;
use crate::task::id::Id;

const RUNS: usize = 15;
const TIMES: u32 = 10_000;
const WORKERS: [usize; 5] = [4, 8, 16, 32, 64];
const ROUND_TRIPS: usize = 200;

/// Returns the ns per call of `f`, in the quickest of several runs.
fn least_ns(mut f: impl FnMut()) -> f64 {
    let run = || {
        let began = Instant::now();
        (0..TIMES).for_each(|_| f());
        began.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    std::iter::repeat_with(run).take(RUNS).fold(f64::INFINITY, f64::min)
}

/// Creates worker 0 of `workers`; of the others, all but `awake` are parked.
fn worker(workers: usize, awake: usize) -> (Arc<Shared>, Worker, Vec<Core>) {
    let (shared, mut cores) = without_threads(workers);
    let shared = Arc::new(shared);
    (1 + awake..workers).for_each(|worker| shared.workers.idle.begin_park(worker, false));
    let worker = Worker::new(shared.clone(), 0, cores.remove(0));
    (shared, worker, cores)
}

/// Returns the costs of a search while all others are parked and while all are awake, of a check
/// before a sleep, and of a wake-up, ns.
fn search_ns(workers: usize) -> [f64; 4] {
    let search_ns = |awake| {
        let (_shared, worker, _cores) = worker(workers, awake);
        let mut core = worker.core.borrow_mut();
        least_ns(|| assert!(worker.steal(&mut core).is_none()))
    };
    let (parked_ns, awake_ns) = (search_ns(0), search_ns(workers - 1));
    let (shared, _worker, _cores) = worker(workers, 0);
    let check_ns = least_ns(|| assert!(!shared.workers.has_work_for(0)));
    let wake_ns = least_ns(|| {
        assert!(shared.workers.wake_one());
        // Worker 1 parks again.
        assert!(shared.workers.remotes[1].parker.take_token() && !shared.workers.idle.retract(1));
        shared.workers.idle.begin_park(1, true);
    });
    [parked_ns, awake_ns, check_ns, wake_ns]
}

fn task() -> Notified {
    new_task(async {}, Nowhere, Id::next(), Location::caller(), None).0
}

/// Returns the cost of a decision while all workers are idle, and while all are busy, ns.
fn placement_ns(workers: usize, placement: Placement) -> [f64; 2] {
    let builder = Builder::new_multi_thread();
    let (remotes, mut cores): (Vec<Arc<Remote>>, Vec<Core>) =
        (0..workers).map(|index| slot(builder.config(), Placed::on_heap(Box::default()), index, 1)).unzip();
    let (placer, slots) = (Placer::new(placement), WorkerSlots::new(workers, 0));
    let choose_ns = || least_ns(|| _ = black_box(placer.choose(&remotes, &slots)));
    let idle_ns = choose_ns();
    cores.iter_mut().for_each(|core| core.ring.push(task()).unwrap());
    [idle_ns, choose_ns()]
}

/// Returns the median time from a spawn outside the workers to the task's poll and back, with real
/// threads, µs.
fn round_trip_us(workers: usize) -> f64 {
    let builder = Builder::new_multi_thread().worker_threads(workers).control_socket(false);
    let runtime = builder.sentinel_interval(None).build().unwrap();
    let mut took: Vec<Duration> = (0..ROUND_TRIPS)
        .map(|_| {
            // Until all workers are parked again.
            std::thread::sleep(Duration::from_micros(500));
            let began = Instant::now();
            runtime.block_on(runtime.spawn(async {})).unwrap();
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    took[took.len() / 2].as_secs_f64() * 1e6
}

#[test]
#[ignore = "measures and checks nothing: .ci/measure search"]
fn the_costs_of_search_wake_up_and_placement_are_printed() {
    let columns = [
        "search, others parked",
        "all awake",
        "check before a sleep",
        "wake-up",
        "`Global`",
        "`TwoChoices`, idle",
        "`TwoChoices`, busy",
        "`LeastLoaded`, idle",
        "`LeastLoaded`, busy",
        "round trip, µs",
    ];
    println!("\n\n| workers | {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len() + 1));
    for workers in WORKERS {
        let [global_ns, _] = placement_ns(workers, Placement::Global);
        let [two_ns, two_busy_ns] = placement_ns(workers, Placement::TwoChoices);
        let [least_ns, least_busy_ns] = placement_ns(workers, Placement::LeastLoaded);
        let search = search_ns(workers).map(|ns| format!("{ns:.0}")).join(" | ");
        let placement = [two_ns, two_busy_ns, least_ns, least_busy_ns].map(|ns| format!("{ns:.0}")).join(" | ");
        let round_trip_us = round_trip_us(workers);
        println!("| {workers} | {search} | {global_ns:.1} | {placement} | {round_trip_us:.0} |");
    }
    println!();
}
