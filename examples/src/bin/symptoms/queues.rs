//! Symptoms of tasks that wait although a worker could run them.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use volt::Builder;

use crate::scene::{End, Scene, WORKERS, compute};

/// The length of a poll: in a crowd, and in a pair of tasks that wake each other.
const SHORT_POLL: Duration = Duration::from_micros(200);
const PING_PONG_POLL: Duration = Duration::from_micros(20);
/// The number of tasks that share a worker.
const CROWD: usize = 64;
/// The number of tasks that wait next to a pair.
const BYSTANDERS: usize = 16;
/// The maximum number of polls from the LIFO slot, of 128 per tick.
const HIGH_CAP: u32 = 120;
/// How long a task blocks its thread. At most times when a snapshot is taken, the poll has lasted
/// long.
const BLOCKS_FOR: Duration = Duration::from_secs(1);
/// Time between two tasks from outside.
const PING_INTERVAL: Duration = Duration::from_millis(1);

/// Disables stealing, and the sentinel, which would otherwise take tasks from a stuck worker.
pub(crate) fn with_tasks_that_stay(settings: Builder, has_symptom: bool) -> Builder {
    if has_symptom { settings.enable_stealing(false).sentinel_interval(None) } else { settings }
}

/// One worker has many tasks, and the other has none.
pub(crate) fn backlog(scene: &Scene) {
    scene.crowd(CROWD, SHORT_POLL);
}

/// One worker has many tasks, and the other has a few from outside.
pub(crate) fn imbalance(scene: &mut Scene) {
    scene.crowd(CROWD, SHORT_POLL);
    scene.outside(|runtime| {
        drop(runtime.spawn(async { compute(SHORT_POLL) }));
        thread::sleep(PING_INTERVAL);
    });
}

/// A worker with local tasks checks the global queue every 4 ms, and takes one task each time.
pub(crate) fn seldom_checking(settings: Builder, has_symptom: bool) -> Builder {
    if has_symptom {
        settings.target_global_queue_latency(Duration::from_millis(4)).global_queue_batch_bounds(1, 1)
    } else {
        settings
    }
}

/// All workers have local tasks, and more tasks arrive from outside than one every 4 ms for each.
pub(crate) fn global_starved(scene: &mut Scene) {
    scene.crowd(BYSTANDERS, SHORT_POLL);
    scene.outside(|runtime| {
        drop(runtime.spawn(async {}));
        thread::sleep(PING_INTERVAL);
    });
}

/// A task sleeps in its thread while another waits in the LIFO slot.
pub(crate) fn lifo_held(scene: &Scene) {
    let end = scene.end_flag();
    drop(scene.runtime.spawn(async move {
        while !end.has_come() {
            drop(volt::spawn(async {}));
            thread::sleep(BLOCKS_FOR);
            volt::task::yield_now().await;
        }
    }));
}

/// Sets how many polls per tick may come from the LIFO slot.
pub(crate) fn with_a_high_cap(settings: Builder, has_symptom: bool) -> Builder {
    if has_symptom { settings.max_lifo_polls_per_tick(HIGH_CAP) } else { settings }
}

/// Pairs of tasks that wake each other, and other tasks next to them.
pub(crate) fn lifo_monopoly(scene: &Scene) {
    scene.crowd(BYSTANDERS, PING_PONG_POLL);
    let end = scene.end_flag();
    drop(scene.runtime.spawn(async move {
        for _ in 0..WORKERS {
            let sides = [Arc::new(Side::default()), Arc::new(Side::default())];
            for side in 0..2 {
                drop(volt::spawn(ping_pong(sides[side].clone(), sides[1 - side].clone(), end.clone())));
            }
        }
    }));
}

/// One of two tasks that wake each other.
#[derive(Default)]
struct Side(Mutex<Option<Waker>>);

/// Computes briefly, wakes the other task, and waits to be woken.
fn ping_pong(own: Arc<Side>, other: Arc<Side>, end: End) -> impl Future<Output = ()> {
    poll_fn(move |context| {
        if end.has_come() {
            return Poll::Ready(());
        }
        *own.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        compute(PING_PONG_POLL);
        let other = other.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = other {
            waker.wake();
        }
        Poll::Pending
    })
}
