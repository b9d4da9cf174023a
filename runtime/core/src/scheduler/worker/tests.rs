//! Tests of a worker's loop: the order of local tasks and batches, and wake-ups of other workers.

use crate::scheduler::worker::current;
use std::panic::Location;
use std::task::{Wake, Waker};

use super::*;
use crate::scheduler::shared::without_threads;

/// The documented cost of batches: see `Builder::global_queue_batch_bounds`.
#[test]
fn a_local_task_waits_for_one_batch_at_most() {
    let (shared, mut cores) = without_threads(1);
    let shared = Arc::new(shared);
    let most = shared.config.max_global_queue_batch;
    (0..4 * most).for_each(|_| drop(shared.spawn(async {}, None, Location::caller())));
    let worker = Worker::new(shared.clone(), 0, cores.remove(0));
    current::run_as(&worker, || {
        let mut longest = 0;
        for _ in 0..3 {
            let local = shared.spawn(async {}, None, Location::caller());
            let mut before = 0;
            while let Some(task) = worker.next_task() {
                let is_local = task.header().id == local.id();
                task.cancel_now();
                if is_local {
                    break;
                }
                before += 1;
            }
            assert!(local.is_finished(), "it was found");
            longest = longest.max(before);
        }
        // A batch is what one fetch returns.
        assert!((2..=most).contains(&longest), "{longest} tasks of the global queue came first");
        while let Some(task) = worker.next_task() {
            task.cancel_now();
        }
    });
}

#[test]
fn workers_are_woken_for_tasks_that_a_foreign_waker_spawns() {
    const WORKERS: usize = 4;
    struct Starts(Arc<Shared>);
    impl Wake for Starts {
        fn wake(self: Arc<Self>) {
            (0..10).for_each(|_| drop(self.0.spawn(async {}, None, Location::caller())));
        }
    }
    let (shared, mut cores) = without_threads(WORKERS);
    let shared = Arc::new(shared);
    (1..WORKERS).for_each(|worker| shared.workers.idle.begin_park(worker, false));
    let worker = Worker::new(shared.clone(), 0, cores.remove(0));
    current::run_as(&worker, || {
        worker.core.borrow_mut().wakers.push(Waker::from(Arc::new(Starts(shared.clone()))));
        worker.wake_collected();
        assert_eq!(shared.workers.idle.parked_count(), 0, "ten tasks are enough for all");
        assert_eq!(worker.cells().wakes_sent.get(), WORKERS as u64 - 1);
        let tasks: Vec<_> = std::iter::from_fn(|| worker.core.borrow_mut().ring.pop()).collect();
        assert_eq!(tasks.len(), 10);
        tasks.into_iter().for_each(Notified::cancel_now);
    });
}

#[test]
fn a_taken_driver_is_checked_once_per_interval() {
    let (shared, mut cores) = without_threads(2);
    let shared = Arc::new(shared);
    let worker = Worker::new(shared.clone(), 0, cores.remove(0));
    current::run_as(&worker, || {
        let sleeper = shared.workers.driver.try_turn(1).expect("no thread has the turn");
        let mut tick = worker.begin_tick();
        let now_ns = shared.workers.driver.last_turn_ns() + 10 * tick.driver_interval_ns;
        worker.now_ns.set(now_ns);
        worker.poll_driver_in(&mut tick);
        assert_eq!(worker.driver_at_ns.get(), now_ns + tick.driver_interval_ns);
        drop(sleeper);
        worker.poll_driver_in(&mut tick);
        assert_eq!(worker.driver_at_ns.get(), shared.workers.driver.last_turn_ns() + tick.driver_interval_ns);
    });
}

#[test]
fn a_task_can_request_that_the_driver_is_polled_after_its_poll() {
    let (shared, mut cores) = without_threads(1);
    let shared = Arc::new(shared);
    let worker = Worker::new(shared.clone(), 0, cores.remove(0));
    current::run_as(&worker, || {
        let mut tick = worker.begin_tick();
        let polled_at_ns = shared.workers.driver.last_turn_ns();
        let interval_ns = shared.config.driver_interval_ns;
        assert!(interval_ns < tick.driver_interval_ns);
        // An interval has passed, but not as many as within a tick.
        worker.now_ns.set(polled_at_ns + interval_ns);
        assert!(worker.now_ns.get() < worker.driver_at_ns.get());
        worker.request_driver();
        assert!(worker.now_ns.get() >= worker.driver_at_ns.get(), "`poll_in` polls it");
        worker.poll_driver_in(&mut tick);
        let again_ns = shared.workers.driver.last_turn_ns();
        assert!(again_ns > polled_at_ns, "the driver was polled");
        assert_eq!(worker.driver_at_ns.get(), again_ns + tick.driver_interval_ns);
    });
}
