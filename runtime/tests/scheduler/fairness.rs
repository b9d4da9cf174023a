//! How long a task from outside waits while every worker is busy with tasks that wake themselves.
//!
//! Counted in polls of those tasks, not in time. A machine that is busy with other work, or lends
//! its processors out, makes everything late, but it does not change the order in which a worker
//! does things. `cargo bench -p volt-runtime --bench fairness` measures the times.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::watchdog::{builder, watched};
use volt::Placement::{Global, LeastLoaded, TwoChoices};
use volt::{Placement, Runtime};

/// Tasks submitted, one after the other.
const SAMPLES: usize = 200;
/// Maximum time between two checks of the global queue, plus one poll.
const TARGET: Duration = Duration::from_micros(3);

thread_local! {
    /// The index of this thread's worker, from the number at the end of the thread's name.
    static WORKER: usize = {
        let thread = std::thread::current();
        thread.name().and_then(|name| name.rsplit('-').next()?.parse().ok()).expect("this runs on a worker")
    };
}

/// Tasks that wake themselves.
struct Hogs {
    /// Polls of these tasks that have begun, by worker.
    polls: Arc<[AtomicU64]>,
    stop: Arc<AtomicBool>,
}

impl Hogs {
    /// Starts enough of them, at least two per worker, that no worker ever finds its queue empty.
    fn start(runtime: &Runtime, workers: usize, count: usize, poll_time: Duration) -> Self {
        let hogs = Self { polls: (0..workers).map(|_| AtomicU64::new(0)).collect(), stop: Arc::default() };
        let (started, have_started) = mpsc::channel::<()>();
        for _ in 0..count {
            let (polls, stop, mut started) = (hogs.polls.clone(), hogs.stop.clone(), Some(started.clone()));
            runtime.spawn(poll_fn(move |cx| {
                polls[WORKER.with(|worker| *worker)].fetch_add(1, Ordering::SeqCst);
                drop(started.take());
                let began = Instant::now();
                while began.elapsed() < poll_time {
                    std::hint::spin_loop();
                }
                if stop.load(Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }));
        }
        drop(started);
        // Each was polled once, so that none is still in the global queue.
        have_started.recv().unwrap_err();
        hogs
    }

    fn begun(&self) -> Vec<u64> {
        self.polls.iter().map(|polls| polls.load(Ordering::SeqCst)).collect()
    }

    /// Returns the number of polls of these tasks for which a task from outside waits, of those
    /// that begin after it was submitted. Counts only the worker that then polls it, since the
    /// kernel may give the other one the processor meanwhile for any length of time.
    fn polls_before_a_task_from_outside(&self, runtime: &Runtime) -> u64 {
        let polls = self.polls.clone();
        let task = runtime.spawn(async move {
            let worker = WORKER.with(|worker| *worker);
            (worker, polls[worker].load(Ordering::SeqCst))
        });
        // Read afterwards: now it is in the queue.
        let handed_in = self.begun();
        let (worker, polled) = runtime.block_on(task).unwrap();
        polled.saturating_sub(handed_in[worker])
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Returns the number of polls for which a task in the global queue may wait, without the poll in
/// flight when it is submitted.
fn polls_in_the_global_queue(poll_time: Duration) -> u64 {
    // There is one poll between two checks in any case, and the clocks may differ by one more.
    (TARGET.as_nanos() / poll_time.as_nanos()).max(1) as u64 + 1
}

/// Checks that no task from outside waits for more polls than `limit` returns for the number of
/// other tasks and the length of their polls.
fn assert_waits(placement: Placement, limit: impl Fn(u64, Duration) -> u64) {
    for workers in [1, 2] {
        for micros in [1, 10, 100, 1_000] {
            watched(|| {
                let poll_time = Duration::from_micros(micros);
                let runtime = builder(workers).placement(placement).build().unwrap();
                let hogs = Hogs::start(&runtime, workers, 2 * workers, poll_time);
                let limit = limit(2 * workers as u64, poll_time);
                let waited = (0..SAMPLES).map(|_| hogs.polls_before_a_task_from_outside(&runtime));
                let most = waited.max().unwrap_or_default();
                assert!(most <= limit, "{most} polls of {micros} us, {workers} workers, {placement:?}: {limit}");
            });
        }
    }
}

#[test]
fn a_task_from_outside_waits_3_us_and_two_polls_at_most() {
    assert_waits(Global, |_others, poll_time| polls_in_the_global_queue(poll_time));
}

#[test]
fn a_task_placed_at_a_worker_waits_for_each_other_once() {
    for placement in [TwoChoices, LeastLoaded] {
        // To the ring's tail, behind all other tasks if they are all there; or to the global queue,
        // if every worker is stuck.
        assert_waits(placement, |others, poll_time| polls_in_the_global_queue(poll_time).max(others + 1));
    }
}

#[test]
fn no_task_is_forgotten_among_tasks_that_never_rest() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let hogs = Hogs::start(&runtime, 2, 128, Duration::from_micros(1));
        // More than one check fetches, so that they also wait for each other.
        let tasks: Vec<_> = (0..1_000).map(|n| runtime.spawn(async move { n })).collect();
        let sum: usize = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
        assert_eq!(sum, 999 * 1_000 / 2);
        drop(hogs);
    });
}
