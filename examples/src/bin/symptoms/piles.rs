//! Symptoms of tasks and jobs that pile up.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::scene::Scene;

/// The number of blocking threads, for a pool that is full soon.
pub(crate) const BLOCKING_THREADS: usize = 2;
/// The number of jobs: enough for the longest run.
const JOBS: usize = 20_000;
/// How long a job takes.
const JOB: Duration = Duration::from_millis(100);
/// The number of tasks that intentionally live as long as the program.
const RESIDENTS: usize = 2_000;
/// Time between two spawns of the leak.
const SPAWN_INTERVAL: Duration = Duration::from_millis(1);
/// The number of tasks spawned each time.
const SPAWNED: usize = 5;
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(86_400);
/// The number of tasks that are never woken.
const FORGOTTEN: usize = 3;
/// How long a task works while it has the first of two locks.
const TRANSFER: Duration = Duration::from_millis(5);
/// The tasks that lock the ledger again and again.
const TELLERS: usize = 4;

/// More jobs than the pool can finish, or one for each thread.
pub(crate) fn blocking_pool_saturated(scene: &Scene) {
    let jobs = if scene.has_symptom { JOBS } else { BLOCKING_THREADS };
    for _ in 0..jobs {
        let (end, has_symptom) = (scene.end_flag(), scene.has_symptom);
        drop(scene.runtime.spawn_blocking(move || {
            loop {
                if end.has_come() {
                    return;
                }
                thread::sleep(JOB);
                if has_symptom {
                    return;
                }
            }
        }));
    }
}

/// Thousands of tasks every second that stay, or that complete, next to thousands that stay
/// intentionally.
pub(crate) fn task_leak(scene: &mut Scene) {
    for _ in 0..RESIDENTS {
        drop(scene.runtime.spawn(async { volt::time::sleep(FOR_EVER).await }));
    }
    let lives_for = if scene.has_symptom { FOR_EVER } else { SPAWN_INTERVAL };
    scene.outside(move |runtime| {
        for _ in 0..SPAWNED {
            drop(runtime.spawn(async move { volt::time::sleep(lives_for).await }));
        }
        thread::sleep(SPAWN_INTERVAL);
    });
}

/// Futures that wait, and drop the only waker that could wake them.
pub(crate) fn lost_waker(scene: &Scene) {
    static KEPT: Mutex<Vec<Waker>> = Mutex::new(Vec::new());
    let has_symptom = scene.has_symptom;
    for _ in 0..FORGOTTEN {
        drop(scene.runtime.spawn(poll_fn(move |context| {
            if !has_symptom {
                KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(context.waker().clone());
            }
            Poll::<()>::Pending
        })));
    }
}

/// Two tasks that transfer between two accounts, in opposite directions. Each first locks the
/// account that it takes from, or both lock them in the same order.
pub(crate) fn deadlock(scene: &Scene) {
    let accounts = Arc::new([volt::sync::Mutex::new(0_i64), volt::sync::Mutex::new(0)]);
    for (name, from, to) in [("settlement", 0, 1), ("pricing", 1, 0)] {
        let accounts = accounts.clone();
        let [first, second] = if scene.has_symptom { [from, to] } else { [0, 1] };
        let transfers = async move {
            loop {
                let mut one = accounts[first].lock().await;
                volt::time::sleep(TRANSFER).await;
                let mut other = accounts[second].lock().await;
                *one -= 1;
                *other += 1;
            }
        };
        drop(volt::task::Builder::new().name(name).spawn_on(transfers, &scene.runtime));
    }
}

/// A task that locks a ledger and then waits for a bank, or drops the guard before it waits, and
/// tasks that also lock the ledger.
pub(crate) fn lock_held(scene: &Scene) {
    let ledger = Arc::new(volt::sync::Mutex::new(0_u64));
    let (settled, has_symptom) = (ledger.clone(), scene.has_symptom);
    let settlement = async move {
        let mut guard = settled.lock().await;
        *guard += 1;
        if !has_symptom {
            drop(guard);
            volt::time::sleep(FOR_EVER).await;
            return;
        }
        volt::time::sleep(FOR_EVER).await;
        *guard += 1;
    };
    drop(volt::task::Builder::new().name("settlement").spawn_on(settlement, &scene.runtime));
    for _ in 0..TELLERS {
        let ledger = ledger.clone();
        drop(scene.runtime.spawn(async move {
            loop {
                volt::time::sleep(TRANSFER).await;
                *ledger.lock().await += 1;
            }
        }));
    }
}
