//! Measures what it costs to search for work, to wake a worker and to place a task, by the number
//! of workers. The workers have no threads, so the figures are the computation alone, with all data
//! in the cache of one processor.
//!
//! `cargo test --release -p volt-core --lib cost:: -- --nocapture --test-threads=1` runs it within
//! seconds. Each figure is the least of several runs.
//!
//! On two virtual x86-64 processors with nothing else running, in ns:
//!
//! | workers | search, others parked | all awake | check before a sleep | wake-up | two choices | least loaded, idle | all busy |
//! |---|---|---|---|---|---|---|---|
//! | 4 | 58 | 58 | 7 | 20 | 21 | 8 | 18 |
//! | 8 | 91 | 89 | 13 | 20 | 21 | 8 | 25 |
//! | 16 | 150 | 151 | 25 | 20 | | | |
//! | 32 | 290 | 296 | 96 | 20 | 25 | 10 | 158 |
//! | 64 | 593 | 596 | 290 | 20 | 29 | 10 | 368 |
//!
//! The global placement takes 0.3 ns. A search costs 9 to 15 ns per worker, parked or not. A round
//! trip of a task from outside took 8 µs (median), with 4 workers and with 64. So a search of 64
//! workers costs less than a tenth of a round trip.
//!
//! Rejected: skipping parked workers in a search. A failed search of 64 workers takes 0.6 µs before
//! a sleep of 8 µs or more, and the tasks in a parked worker's inbox would have to be found in
//! another way.

use std::hint::black_box;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::Worker;
use crate::builder::Builder;
use crate::config::Placement;
use crate::scheduler::core::Core;
use crate::scheduler::placement::Placer;
use crate::scheduler::remote::{Remote, slot};
use crate::scheduler::shared::{Shared, without_threads};
use crate::scheduler::staff::Staff;
use crate::task::cell::{Nowhere, new_task};
use crate::task::header::Notified;
use crate::task::id::Id;

const RUNS: usize = 15;
const TIMES: u32 = if cfg!(debug_assertions) { 200 } else { 10_000 };
const WORKERS: [usize; 5] = [4, 8, 16, 32, 64];

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
    (1 + awake..workers).for_each(|worker| shared.idle.begin_park(worker, false));
    let worker = Worker::new(shared.clone(), 0, cores.remove(0));
    (shared, worker, cores)
}

#[test]
fn the_cost_of_a_search_by_parked_workers() {
    println!("workers  search, all others parked  2 awake  all awake  check before a sleep  wake-up  (ns)");
    for workers in WORKERS {
        let search_ns = |awake| {
            let (_shared, worker, _cores) = worker(workers, awake);
            let mut core = worker.core.borrow_mut();
            least_ns(|| assert!(worker.steal(&mut core).is_none()))
        };
        let (parked_ns, few_ns, awake_ns) = (search_ns(0), search_ns(2), search_ns(workers - 1));
        let (shared, _worker, _cores) = worker(workers, 0);
        let check_ns = least_ns(|| assert!(!shared.has_work_for(0)));
        let wake_ns = least_ns(|| {
            assert!(shared.wake_one());
            // Worker 1 parks again.
            assert!(shared.remotes[1].parker.take_token() && !shared.idle.retract(1));
            shared.idle.begin_park(1, true);
        });
        println!("{workers:>7}  {parked_ns:>25.0}  {few_ns:>7.0}  {awake_ns:>9.0}  {check_ns:>19.0}  {wake_ns:>7.0}");
    }
}

fn task() -> Notified {
    new_task(async {}, Nowhere, Id::next(), Location::caller(), None).0
}

#[test]
fn a_placement_is_decided_whether_idle_or_busy() {
    println!("workers  placement    all idle  all busy  (ns)");
    for workers in [4, 8, 32, 64] {
        for placement in [Placement::Global, Placement::TwoChoices, Placement::LeastLoaded] {
            let builder = Builder::new_multi_thread();
            let (remotes, mut cores): (Vec<Arc<Remote>>, Vec<Core>) =
                (0..workers).map(|index| slot(builder.config(), index, 1)).unzip();
            let (placer, staff) = (Placer::new(placement), Staff::new(workers, 0));
            let choose_ns = || least_ns(|| _ = black_box(placer.choose(&remotes, &staff)));
            let idle_ns = choose_ns();
            cores.iter_mut().for_each(|core| core.ring.push(task()).unwrap());
            let busy_ns = choose_ns();
            let placement = format!("{placement:?}");
            println!("{workers:>7}  {placement:<11}  {idle_ns:>8.1}  {busy_ns:>8.1}");
        }
    }
}

/// From a spawn outside the workers to the task's poll and back, with real threads.
#[test]
fn a_task_from_outside_wakes_one_of_64_workers() {
    println!("workers  round trip, least and median  (µs)");
    for workers in [4, 64] {
        let builder = Builder::new_multi_thread().worker_threads(workers).control_socket(false);
        let runtime = builder.sentinel_interval(None).build().unwrap();
        let mut took: Vec<Duration> = (0..200)
            .map(|_| {
                std::thread::sleep(Duration::from_micros(500));
                let began = Instant::now();
                runtime.block_on(runtime.spawn(async {})).unwrap();
                began.elapsed()
            })
            .collect();
        took.sort_unstable();
        let us = |took: Duration| took.as_secs_f64() * 1e6;
        println!("{workers:>7}  {:>7.0}  {:>7.0}", us(took[0]), us(took[took.len() / 2]));
    }
}

/// An owner puts a task into its LIFO slot and takes it back, as at each wake-up. Meanwhile another
/// thread does to the same worker what thieves and wakers do. Runs in which that thread was not
/// scheduled do not count.
#[test]
fn an_owner_works_beside_thieves_and_wakers() {
    let (remote, _core) = slot(Builder::new_multi_thread().config(), 0, 1);
    let mut task = Some(task());
    let mut turn = || {
        assert!(remote.lifo.put(task.take().unwrap()).is_none());
        task = remote.lifo.take();
    };
    let alone_ns = least_ns(&mut turn);
    let is_over = AtomicBool::new(false);
    // ORDERING: Relaxed, here and below; only a statistic.
    let given = || remote.tasks_given.load(Ordering::Relaxed);
    let beside_ns = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                remote.tasks_given.fetch_add(1, Ordering::Relaxed);
                let _unparked = remote.parker.unpark();
                black_box(remote.ring.len());
            }
        });
        let mut run = || {
            let (before, began) = (given(), Instant::now());
            (0..TIMES).for_each(|_| turn());
            let ns = began.elapsed().as_nanos() as f64 / f64::from(TIMES);
            (given() - before >= u64::from(TIMES / 100)).then_some(ns)
        };
        let least_ns = (0..20 * RUNS).filter_map(|_| run()).fold(f64::INFINITY, f64::min);
        is_over.store(true, Ordering::Relaxed);
        least_ns
    });
    println!("put and take: {alone_ns:.1} ns alone, {beside_ns:.1} ns beside; Remote: {} bytes", size_of::<Remote>());
}
