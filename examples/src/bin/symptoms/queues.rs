//! Tasks that wait although somebody could run them.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use volt::Builder;

use crate::scene::{End, Scene, compute};

/// A piece of work: of a crowd, and of a pair that plays ping-pong.
const SHORT_POLL: Duration = Duration::from_micros(200);
const PING_PONG_POLL: Duration = Duration::from_micros(20);
/// Tasks that share a worker.
const CROWD: usize = 64;
/// Tasks that wait beside a pair.
const BYSTANDERS: usize = 16;
/// Polls from the LIFO slot, of 128 a tick.
const HIGH_CAP: u32 = 120;
/// How long a task blocks its thread: most of it is long, whenever a snapshot is taken.
const BLOCKS_FOR: Duration = Duration::from_secs(1);
/// Between two tasks from outside.
const PING_INTERVAL: Duration = Duration::from_millis(1);

/// No other worker takes what a worker has, and the sentinel does not take it away from one that is
/// stuck.
pub(crate) fn with_tasks_that_stay(settings: Builder, is_ill: bool) -> Builder {
    if is_ill { settings.enable_stealing(false).sentinel_interval(None) } else { settings }
}

/// A crowd at one worker, the other has nothing.
pub(crate) fn backlog(scene: &Scene) {
    scene.crowd(CROWD, SHORT_POLL);
}

/// A crowd at one worker, the other has a little from outside.
pub(crate) fn imbalance(scene: &mut Scene) {
    scene.crowd(CROWD, SHORT_POLL);
    scene.outside(|runtime| {
        drop(runtime.spawn(async { compute(SHORT_POLL) }));
        thread::sleep(PING_INTERVAL);
    });
}

/// A worker that has tasks of its own checks the global queue every 4 ms, and takes one task each
/// time.
pub(crate) fn seldom_checking(settings: Builder, is_ill: bool) -> Builder {
    if is_ill {
        settings.target_global_queue_latency(Duration::from_millis(4)).global_queue_batch_bounds(1, 1)
    } else {
        settings
    }
}

/// Work of their own for all workers, and more from outside than a task every 4 ms for each.
pub(crate) fn global_starved(scene: &mut Scene) {
    scene.crowd(BYSTANDERS, SHORT_POLL);
    scene.outside(|runtime| {
        drop(runtime.spawn(async {}));
        thread::sleep(PING_INTERVAL);
    });
}

/// A task sleeps in its thread, with another in the slot.
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

/// How many polls of a tick may come from the slot.
pub(crate) fn with_a_high_cap(settings: Builder, is_ill: bool) -> Builder {
    if is_ill { settings.max_lifo_polls_per_tick(HIGH_CAP) } else { settings }
}

/// Pairs that wake each other, and others beside them.
pub(crate) fn lifo_monopoly(scene: &Scene) {
    scene.crowd(BYSTANDERS, PING_PONG_POLL);
    let end = scene.end_flag();
    drop(scene.runtime.spawn(async move {
        for _ in 0..crate::WORKERS {
            let sides = [Arc::new(Side::default()), Arc::new(Side::default())];
            for side in 0..2 {
                drop(volt::spawn(ping_pong(sides[side].clone(), sides[1 - side].clone(), end.clone())));
            }
        }
    }));
}

/// One of two that wake each other.
#[derive(Default)]
struct Side(Mutex<Option<Waker>>);

/// Computes a little, wakes the other, and waits until it is woken.
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
