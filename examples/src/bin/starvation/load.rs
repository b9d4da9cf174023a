//! The load of the measurement, which is the same on every runtime.

use std::future::Future;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::arguments::Block;

/// How long a task blocks, and how long it then waits without blocking its worker.
const BLOCKS_FOR: Duration = Duration::from_millis(300);
const RESTS_FOR: Duration = Duration::from_millis(100);
/// Time between two pings.
const PING_INTERVAL: Duration = Duration::from_millis(1);
/// How long the measurement waits at the end for outstanding pings.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The settings of the load.
pub(crate) struct Load {
    pub(crate) block: Block,
    pub(crate) workers: usize,
    pub(crate) lasts: Duration,
}

/// A runtime that is measured. The handle is used from outside, the functions inside its tasks.
pub(crate) trait Peer: Clone + Send + Sync + 'static {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
    fn spawn_inside(task: impl Future<Output = ()> + Send + 'static);
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
}

/// How long tasks waited.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Vec<Duration>>);

impl Waits {
    fn add(&self, wait: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
    }

    /// Returns the waits so far, sorted.
    fn sorted(&self) -> Vec<Duration> {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        waits.sort_unstable();
        waits
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// The measured delays.
pub(crate) struct Felt {
    /// The number of pings that were sent.
    pub(crate) sent: usize,
    /// The time from the spawn of a ping to its poll, sorted; without pings that were never polled.
    pub(crate) pings: Vec<Duration>,
    /// The same for the children.
    pub(crate) children: Vec<Duration>,
}

/// Runs the load, for slightly longer than `load.lasts`.
pub(crate) fn run<P: Peer>(peer: &P, load: &Load) -> Felt {
    let (pings, children) = (Arc::new(Waits::default()), Arc::new(Waits::default()));
    let is_over = Arc::new(AtomicBool::new(false));
    let blockers = if load.block == Block::None { 0 } else { load.workers };
    for _ in 0..blockers {
        peer.spawn(blocker::<P>(load.block, children.clone(), is_over.clone()));
    }
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < load.lasts {
        let (pings, at) = (pings.clone(), Instant::now());
        peer.spawn(async move { pings.add(at.elapsed()) });
        sent += 1;
        thread::sleep(PING_INTERVAL);
    }
    is_over.store(true, Ordering::Relaxed);
    let ended = Instant::now();
    while pings.len() < sent && ended.elapsed() < TIMEOUT {
        thread::sleep(PING_INTERVAL);
    }
    Felt { sent, pings: pings.sorted(), children: children.sorted() }
}

/// Blocks its worker repeatedly, each time with a spawned child that could run in the meantime.
async fn blocker<P: Peer>(block: Block, children: Arc<Waits>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let (children, at) = (children.clone(), Instant::now());
        P::spawn_inside(async move { children.add(at.elapsed()) });
        match block {
            Block::Sleep => thread::sleep(BLOCKS_FOR),
            Block::Mutex => wait_for_a_lock(),
            Block::Spin => compute(),
            Block::None => {}
        }
        P::sleep(RESTS_FOR).await;
    }
}

/// Waits for a lock that a thread holds while it sleeps.
fn wait_for_a_lock() {
    let lock = Arc::new(Mutex::new(()));
    let (held, is_held) = std::sync::mpsc::channel();
    let holder = thread::spawn({
        let lock = lock.clone();
        move || {
            let _guard = lock.lock();
            // The send fails only if the receiver was dropped; then the sleep delays no task.
            let _sent = held.send(());
            thread::sleep(BLOCKS_FOR);
        }
    });
    if is_held.recv().is_ok() {
        drop(lock.lock());
    }
    // The thread exits by itself.
    drop(holder);
}

fn compute() {
    let (began, mut sum) = (Instant::now(), 0_u64);
    while began.elapsed() < BLOCKS_FOR {
        for n in 0..10_000_u64 {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(n));
        }
    }
}
