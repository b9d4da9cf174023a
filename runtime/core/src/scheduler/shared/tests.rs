//! Tests of wake-ups of batches and at a shutdown, of the park time-out as a safety net, and of the
//! room for new tasks.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use volt_diagnosis::doctor::rule::examine;
use volt_telemetry::Snapshot;
use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::rule::Rule;

use super::{Shared, without_threads};
use crate::builder::Builder;
use crate::config::Placement;
use crate::runtime::Runtime;
use crate::scheduler::lease::Lease;
use crate::task::cell::new_task;
use crate::task::id::Id;
use crate::task::join::JoinHandle;

#[test]
fn a_batch_wakes_a_worker_for_each_task_and_no_more() {
    // Without time-outs, which unpark a worker between the check and the wake-up.
    let builder = crate::builder::Builder::new_multi_thread().worker_threads(8).park_timeout(None);
    let runtime = builder.sentinel_interval(None).build().unwrap();
    let shared = runtime.handle().shared();
    for tasks in [1, 2, 5, 8] {
        while !(shared.workers.idle.parked_count() == 8 && shared.workers.idle.searching() == 0) {
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(shared.workers.wake_for_batch(tasks), tasks);
    }
}

#[test]
fn a_shutdown_wakes_each_worker_once_though_they_park_again() {
    const WORKERS: usize = 256;
    let (shared, _cores) = without_threads(WORKERS);
    (0..WORKERS).for_each(|worker| shared.workers.idle.begin_park(worker, false));
    let (wakes, is_ready, is_over) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let count_wakes = |worker: usize| {
        let is_woken = shared.workers.remotes[worker].parker.take_token();
        // ORDERING: SeqCst, here and below; the test's own switches and counts, on which no claim
        // about order depends.
        wakes.fetch_add(usize::from(is_woken), Ordering::SeqCst);
        is_woken
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            is_ready.store(true, Ordering::SeqCst);
            // Up to a limit, so that a shutdown that wakes workers repeatedly ends too.
            while !is_over.load(Ordering::SeqCst) && wakes.load(Ordering::SeqCst) < 20 * WORKERS {
                for worker in 0..WORKERS {
                    if count_wakes(worker) {
                        shared.workers.idle.begin_park(worker, true);
                    }
                }
            }
        });
        while !is_ready.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        shared.workers.wake_all();
        is_over.store(true, Ordering::SeqCst);
    });
    (0..WORKERS).for_each(|worker| _ = count_wakes(worker));
    assert_eq!(wakes.load(Ordering::SeqCst), WORKERS);
}

/// The time between two snapshots for the doctor.
const SNAPSHOTS_APART: Duration = Duration::from_millis(200);

/// Creates a runtime with one worker, which is parked.
fn parked(placement: Placement, park_timeout: Option<Duration>) -> Runtime {
    let builder = Builder::new_multi_thread().worker_threads(1).placement(placement).sentinel_interval(None);
    let builder = match park_timeout {
        Some(timeout) => builder.park_timeout(Some(timeout)).max_park_timeout(timeout),
        None => builder.park_timeout(None),
    };
    let runtime = builder.control_socket(false).build().unwrap();
    while runtime.handle().shared().workers.idle.parked_count() == 0 {
        thread::yield_now();
    }
    runtime
}

/// Submits a task as a faulty protocol would: Submit (1) only, with a submission time long ago.
fn submit_without_wake_up(shared: &Arc<Shared>) -> JoinHandle<()> {
    let (task, join) = new_task(async {}, Lease::of(shared), Id::next(), Location::caller(), None);
    let chosen = shared.workers.place();
    assert_eq!(chosen.is_some(), shared.config.placement != Placement::Global);
    let arrivals = &shared.workers.intake.arrivals[chosen.map_or(0, |worker| worker + 1)];
    let queue = chosen.map_or(&shared.workers.injector, |worker| &shared.workers.remotes[worker].inbox);
    assert!(queue.push_new(task, 0, || arrivals.add_one()).is_ok());
    join
}

/// Returns the doctor's finding of a lost wake-up; `before` is the previous snapshot.
fn lost_wakeup(shared: &Shared, before: &Snapshot) -> Option<Finding> {
    examine(before, &shared.snapshot()).into_iter().find(|finding| finding.rule == Rule::LostWakeup)
}

#[test]
fn the_park_timeout_rescues_and_reports_a_lost_wakeup() {
    for placement in [Placement::Global, Placement::LeastLoaded] {
        let runtime = parked(placement, Some(Duration::from_millis(200)));
        let shared = runtime.handle().shared();
        let before = shared.snapshot();
        assert!(lost_wakeup(shared, &before).is_none());
        let join = submit_without_wake_up(shared);
        runtime.block_on(join).unwrap();
        assert_eq!(shared.workers.remotes[0].cells.lost_wakeup_rescues.get(), 1, "{placement:?}");
        // Not a synchronisation: two snapshots that are closer together do not show the task that
        // came between them.
        thread::sleep(SNAPSHOTS_APART);
        let finding = lost_wakeup(shared, &before).expect("the doctor names it");
        assert_eq!(finding.severity, Severity::Critical, "{finding:?}");
    }
}

#[test]
fn the_doctor_reports_a_lost_wakeup_without_a_park_timeout() {
    let runtime = parked(Placement::Global, None);
    let shared = runtime.handle().shared();
    let join = submit_without_wake_up(shared);
    let (mut before, began) = (shared.snapshot(), Instant::now());
    let finding = loop {
        thread::sleep(SNAPSHOTS_APART);
        if let Some(finding) = lost_wakeup(shared, &before) {
            break finding;
        }
        before = shared.snapshot();
        assert!(began.elapsed() < Duration::from_secs(60), "the doctor reports no finding");
    };
    assert!(finding.severity == Severity::Critical && finding.title.contains("all workers are parked"), "{finding:?}");
    assert!(shared.workers.wake_one());
    runtime.block_on(join).unwrap();
}

#[test]
fn room_that_one_sender_has_found_is_not_found_again() {
    let runtime =
        crate::builder::Builder::new_multi_thread().worker_threads(1).global_queue_capacity(2).build().unwrap();
    let shared = runtime.handle().shared();
    let (first, second) = (shared.find_room(), shared.find_room());
    assert!(first.is_some() && second.is_some());
    assert!(shared.find_room().is_none());
    drop(first);
    assert!(shared.find_room().is_some(), "a sender that found no room keeps none");
}
