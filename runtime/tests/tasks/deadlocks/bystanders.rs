//! Many deadlocks, and others that wait for their locks.

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
        let (limit, ends) = (Arc::new(Semaphore::new(1)), Arc::new(volt::sync::Notify::new()));
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
