//! How long a task from outside waits while every worker is busy with tasks that wake themselves.
//!
//! Counted in polls of those, not in time: a machine that is busy with other things, or lends its
//! processors out, makes everything late, but it does not change the order in which a worker does
//! things. `cargo bench -p volt-runtime --bench fairness` gives the times.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::watchdog::{builder, watched};
use volt::Placement::{Global, LeastLoaded, TwoChoices};
use volt::{Placement, Runtime};

/// Tasks handed in, one after the other.
const SAMPLES: usize = 200;
/// What passes at most between two checks of the global queue, but for one poll.
const TARGET: Duration = Duration::from_micros(3);

thread_local! {
    /// Which worker this thread is, by the number at the end of its name.
    static WORKER: usize = {
        let thread = std::thread::current();
        thread.name().and_then(|name| name.rsplit('-').next()?.parse().ok()).expect("this runs on a worker")
    };
}

/// Tasks that wake themselves.
struct Hogs {
    /// Polls of these that have begun, by worker.
    polls: Arc<[AtomicU64]>,
    stop: Arc<AtomicBool>,
}

impl Hogs {
    /// Enough of them, two for each worker or more, that none ever finds its queue empty.
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
        // Each has had a poll, so that none is still in the global queue.
        have_started.recv().unwrap_err();
        hogs
    }

    fn begun(&self) -> Vec<u64> {
        self.polls.iter().map(|polls| polls.load(Ordering::SeqCst)).collect()
    }

    /// Polls of these that a task from outside waits for, of those that begin after it was handed
    /// in: of the worker that comes to poll it, since the other may have been given the
    /// processor meanwhile for as long as the kernel likes.
    fn polls_before_a_task_from_outside(&self, runtime: &Runtime) -> u64 {
        let polls = self.polls.clone();
        let task = runtime.spawn(async move {
            let worker = WORKER.with(|worker| *worker);
            (worker, polls[worker].load(Ordering::SeqCst))
        });
        // Afterwards: now it is in the queue.
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

/// Polls of others that a task may wait for, the one that is going on when it comes not included.
fn limit(placement: Placement, workers: usize, poll_time: Duration) -> u64 {
    // One poll lies between two checks in any case; the clocks may differ by one more.
    let by_time = (TARGET.as_nanos() / poll_time.as_nanos()).max(1) as u64 + 1;
    match placement {
        Global => by_time,
        // To the ring's tail, behind all hogs if they are all there; or to the global queue, if
        // every worker is stuck.
        _ => by_time.max(2 * workers as u64 + 1),
    }
}

#[test]
fn a_task_from_outside_waits_3_us_and_two_polls_at_most() {
    for placement in [Global, TwoChoices, LeastLoaded] {
        for workers in [1, 2] {
            for micros in [1, 10, 100, 1_000] {
                watched(|| {
                    let poll_time = Duration::from_micros(micros);
                    let runtime = builder(workers).placement(placement).build().unwrap();
                    let hogs = Hogs::start(&runtime, workers, 2 * workers, poll_time);
                    let limit = limit(placement, workers, poll_time);
                    let waited = (0..SAMPLES).map(|_| hogs.polls_before_a_task_from_outside(&runtime));
                    let most = waited.max().unwrap_or_default();
                    assert!(most <= limit, "{most} polls of {micros} us, {workers} workers, {placement:?}: {limit}");
                });
            }
        }
    }
}

#[test]
fn no_task_is_forgotten_among_tasks_that_never_rest() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let hogs = Hogs::start(&runtime, 2, 128, Duration::from_micros(1));
        // More than one check brings, so that they also wait for each other.
        let tasks: Vec<_> = (0..1_000).map(|n| runtime.spawn(async move { n })).collect();
        let sum: usize = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
        assert_eq!(sum, 999 * 1_000 / 2);
        drop(hogs);
    });
}
