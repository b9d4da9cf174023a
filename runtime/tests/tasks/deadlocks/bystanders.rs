//! Many deadlocks, others that wait for their locks, and permits that no task holds any more.

use volt::sync::Notify;
use volt::telemetry::waits::MAX_DEADLOCKS;

use super::*;

/// Spawns a task that locks a mutex twice. Returns the mutex.
fn twice(runtime: &Runtime) -> Arc<Mutex<()>> {
    let lock = Arc::new(Mutex::new(()));
    let own = lock.clone();
    drop(runtime.spawn(async move {
        let _held = own.lock().await;
        drop(own.lock().await);
    }));
    lock
}

#[test]
fn of_more_deadlocks_than_fit_the_same_ones_are_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let _locks: Vec<_> = (0..20 * MAX_DEADLOCKS).map(|_| twice(&runtime)).collect();
        let mut deadlocks = Vec::new();
        while deadlocks.len() < MAX_DEADLOCKS {
            deadlocks = runtime.handle().snapshot().deadlocks.unwrap();
            std::thread::yield_now();
        }
        let tasks =
            |deadlocks: &[Deadlock]| deadlocks.iter().map(|deadlock| deadlock.links[0].task).collect::<Vec<_>>();
        for _ in 0..20 {
            assert_eq!(tasks(&runtime.handle().snapshot().deadlocks.unwrap()), tasks(&deadlocks));
        }
    });
}

/// It is not known of a thread whether it is about to get the lock.
#[test]
fn a_thread_that_also_waits_hides_no_deadlock() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        let lock = twice(&runtime);
        // Otherwise the thread may lock first, and not wait.
        while lock.try_lock().is_ok() {
            std::thread::yield_now();
        }
        let thread = std::thread::spawn(move || drop(lock.blocking_lock()));
        let finding = loop {
            if let [finding] = &findings(&runtime)[..]
                && finding.severity == Severity::Warning
            {
                break finding.clone();
            }
            std::thread::yield_now();
        };
        assert_eq!(finding.tasks.len(), 1, "{finding:#?}");
        drop(runtime);
        thread.join().unwrap();
    });
}

/// Each job releases the permit that the loop has acquired for it.
#[test]
fn a_loop_that_passes_owned_permits_on_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (limit, ends) = (Arc::new(Semaphore::new(1)), Arc::new(Notify::new()));
        let ended = ends.clone();
        let jobs = runtime.spawn(async move {
            for _ in 0..2 {
                let permit = limit.clone().acquire_owned().await.unwrap();
                let ended = ended.clone();
                volt::spawn(async move {
                    ended.notified().await;
                    drop(permit);
                });
            }
        });
        assert_eq!(reported(&runtime), []);
        ends.notify_one();
        runtime.block_on(jobs).unwrap();
        ends.notify_one();
    });
}

/// Spawns a task that acquires the only permit, and forgets or releases it while another task waits
/// for `wanted` permits. Then it awaits the other task. Checks that no cycle is reported, and that
/// the wait ends with a new permit.
fn is_no_deadlock(wanted: u32, is_forgotten: bool) {
    let runtime = builder(1).build().unwrap();
    let tokens = Arc::new(Semaphore::new(1));
    let own = tokens.clone();
    let first = runtime.spawn(async move {
        let token = own.acquire().await.unwrap();
        let begins = Arc::new(Notify::new());
        let (next, begun) = (own.clone(), begins.clone());
        let second = volt::spawn(async move {
            begun.notify_one();
            drop(next.acquire_many(wanted).await.unwrap());
        });
        // There is only one worker, so the other task waits when this one continues.
        begins.notified().await;
        if is_forgotten {
            token.forget();
        } else {
            drop(token);
        }
        second.await.unwrap();
    });
    assert_eq!(reported(&runtime), []);
    assert_eq!(runtime.handle().snapshot().held_locks, Some(Vec::new()));
    tokens.add_permits(1);
    runtime.block_on(first).unwrap();
}

#[test]
fn a_forgotten_permit_is_not_held_by_its_task() {
    watched(|| is_no_deadlock(1, true));
}

#[test]
fn a_released_permit_is_not_held_while_several_are_awaited() {
    watched(|| is_no_deadlock(2, false));
}
