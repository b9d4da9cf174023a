//! Locks that a task holds for long while others wait.

use volt::sync::{Notify, RwLock, oneshot};
use volt::telemetry::waits::MAX_HELD_LOCKS;

use super::*;

/// The tasks that wait for each lock.
const WAITING: u64 = 3;

/// Takes snapshots until they report a lock that is held for long.
fn held(runtime: &Runtime) -> Finding {
    loop {
        let findings = runtime.handle().snapshot().findings.unwrap();
        if let Some(finding) = findings.into_iter().find(|finding| finding.rule == Rule::LockHeld) {
            return finding;
        }
        std::thread::yield_now();
    }
}

/// Spawns a task that calls `acquire`, which locks at this line, and waits for a value. Others wait
/// for the lock. Checks that the finding names both.
fn is_reported<G, A>(acquire: impl Fn() -> A, line: u32, kind: &str)
where
    A: Future<Output = G> + Send + 'static,
    G: Send + 'static,
{
    let runtime = builder(2).build().unwrap();
    let (release, released) = oneshot::channel::<()>();
    let locked = Arc::new(Notify::new());
    let (first, locks) = (acquire(), locked.clone());
    let holder = async move {
        let _guard = first.await;
        locks.notify_one();
        drop(released.await);
    };
    drop(volt::task::Builder::new().name("settlement").spawn_on(holder, runtime.handle()));
    runtime.block_on(locked.notified());
    for _ in 0..WAITING {
        let waits = acquire();
        drop(runtime.spawn(async move { drop(waits.await) }));
    }
    let finding = held(&runtime);
    assert_eq!((finding.severity, finding.tasks.len()), (Severity::Warning, 1), "{finding:#?}");
    assert_eq!(finding.tasks[0].name.as_deref(), Some("settlement"), "{finding:#?}");
    assert!(finding.title.contains(kind) && finding.title.contains("3 others wait"), "{finding:#?}");
    assert!(finding.locations[0].at().contains(&at(line)), "{line}: {finding:#?}");
    assert!(text(&finding).contains("the holder awaits: a value at "), "{finding:#?}");
    release.send(()).unwrap();
    while runtime.handle().snapshot().tasks.alive > 0 {}
    assert_eq!(runtime.handle().snapshot().held_locks, Some(Vec::new()));
}

#[test]
fn a_lock_held_across_a_long_await_is_reported() {
    watched(|| {
        let (lock, permit) = (Arc::new(Mutex::new(())), Arc::new(Semaphore::new(1)));
        let prices = Arc::new(RwLock::new(()));
        is_reported(|| lock.clone().lock_owned(), line!(), "a lock");
        is_reported(|| permit.clone().acquire_owned(), line!(), "a semaphore's permit");
        is_reported(|| prices.clone().write_owned(), line!(), "a lock");
    });
}

/// The last of the queue waits for seconds, and each of them has the lock for a moment.
#[test]
fn a_long_queue_for_a_lock_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let lock = lock.clone();
                runtime.spawn(async move {
                    loop {
                        let _guard = lock.lock().await;
                        volt::time::sleep(Duration::from_millis(20)).await;
                    }
                })
            })
            .collect();
        let began = Instant::now();
        while began.elapsed() < OBSERVED {
            assert_eq!(runtime.handle().snapshot().held_locks, Some(Vec::new()));
        }
        tasks.iter().for_each(|task| task.abort());
    });
}

#[test]
fn old_deadlocks_hide_no_lock_that_is_held_for_long() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        for _ in 0..MAX_HELD_LOCKS {
            let lock = Mutex::new(());
            drop(runtime.spawn(async move {
                let _held = lock.lock().await;
                drop(lock.lock().await);
            }));
        }
        while runtime.handle().snapshot().deadlocks.unwrap().len() < MAX_HELD_LOCKS {
            std::thread::yield_now();
        }
        let (release, released) = oneshot::channel::<()>();
        let (lock, locked) = (Arc::new(Mutex::new(())), Arc::new(Notify::new()));
        let (held, locks) = (lock.clone(), locked.clone());
        let holder = runtime.spawn(async move {
            let _guard = held.lock().await;
            locks.notify_one();
            drop(released.await);
        });
        runtime.block_on(locked.notified());
        drop(runtime.spawn(async move { drop(lock.lock().await) }));
        let held_locks = loop {
            let held_locks = runtime.handle().snapshot().held_locks.unwrap();
            if !held_locks.is_empty() {
                break held_locks;
            }
            std::thread::yield_now();
        };
        assert_eq!((held_locks.len(), held_locks[0].task), (1, holder.id().as_u64()), "{held_locks:#?}");
        release.send(()).unwrap();
    });
}

/// The second reader has its permit, and no budget left, when the writer begins to wait.
#[test]
fn a_reader_that_has_released_is_not_the_holder() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        let lock = Arc::new(RwLock::new(()));
        let (second, writes) = (lock.clone(), lock.clone());
        let first = runtime.spawn(async move {
            let held = lock.read().await;
            volt::spawn(async move {
                spend_all().await;
                let _held = second.read().await;
                std::future::pending::<()>().await;
            });
            volt::task::yield_now().await;
            volt::spawn(async move { drop(writes.write().await) });
            volt::task::yield_now().await;
            drop(held);
        });
        runtime.block_on(first).unwrap();
        let began = Instant::now();
        while began.elapsed() < OBSERVED {
            assert_eq!(runtime.handle().snapshot().held_locks, Some(Vec::new()));
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_lock_of_a_deadlock_is_not_reported_twice() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        deadlock(&runtime);
        found(&runtime);
        let long_ns = 1_500_000_000;
        loop {
            let snapshot = runtime.handle().snapshot();
            assert_eq!(snapshot.held_locks, Some(Vec::new()));
            if snapshot.deadlocks.iter().flatten().any(|deadlock| deadlock.for_ns > long_ns) {
                break;
            }
        }
    });
}
