//! Tasks that wait for each other are found with their lines, and tasks that look like it are not.

use std::future::poll_fn;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use volt::Runtime;
use volt::sync::{Mutex, MutexGuard, OwnedMutexGuard, Semaphore};
use volt::telemetry::finding::{Finding, Severity};
use volt::telemetry::rule::Rule;
use volt::telemetry::waits::Deadlock;

use crate::watchdog::{builder, watched};

mod bystanders;
mod channels;
mod held;
mod joins;
mod rw_lock;

/// For how long a test observes a program that must not be reported: more than twice as long as it
/// takes to report a deadlock that is certain.
const OBSERVED: Duration = Duration::from_millis(2500);

/// Returns the line in the caller's file, as in a finding.
#[track_caller]
fn at(line: u32) -> String {
    format!("{}:{line}:", Location::caller().file())
}

fn findings(runtime: &Runtime) -> Vec<Finding> {
    let findings = runtime.handle().snapshot().findings.unwrap();
    findings.into_iter().filter(|finding| finding.rule == Rule::Deadlock).collect()
}

/// Takes snapshots until they report one deadlock.
fn found(runtime: &Runtime) -> Finding {
    loop {
        if let [finding] = &findings(runtime)[..] {
            return finding.clone();
        }
        std::thread::yield_now();
    }
}

/// Takes snapshots for a while. Returns the cycles that they reported, certain or not.
fn reported(runtime: &Runtime) -> Vec<Deadlock> {
    let began = Instant::now();
    let mut reported = Vec::new();
    while began.elapsed() < OBSERVED {
        let snapshot = runtime.handle().snapshot();
        reported.extend(snapshot.deadlocks.unwrap());
        assert!(snapshot.findings.unwrap().iter().all(|finding| finding.rule != Rule::Deadlock));
        std::thread::yield_now();
    }
    reported
}

fn text(finding: &Finding) -> String {
    let evidence: Vec<_> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    evidence.join("\n")
}

/// Spends what is left of the budget in this poll.
async fn spend_all() {
    poll_fn(|cx| {
        while pin!(volt::task::consume_budget()).poll(cx).is_ready() {}
        Poll::Ready(())
    })
    .await;
}

/// Locks `first`, lets the other task do the same with its own, and locks `second`.
async fn crossed(first: &Mutex<()>, second: &Mutex<()>, met: &volt::sync::Barrier) {
    let _first = first.lock().await;
    met.wait().await;
    drop(second.lock().await);
}
const FIRST: u32 = line!() - 4;
const SECOND: u32 = line!() - 3;

/// Spawns two tasks that wait for each other. Returns the lines of the spawns.
fn deadlock(runtime: &Runtime) -> [u32; 2] {
    let (locks, met) = (Arc::new([Mutex::new(()), Mutex::new(())]), Arc::new(volt::sync::Barrier::new(2)));
    let (others, other_met) = (locks.clone(), met.clone());
    drop(runtime.spawn(async move { crossed(&locks[0], &locks[1], &met).await }));
    drop(runtime.spawn(async move { crossed(&others[1], &others[0], &other_met).await }));
    [line!() - 2, line!() - 1]
}

#[test]
fn two_tasks_that_lock_in_opposite_order_are_found() {
    watched(|| {
        for workers in [1, 2] {
            let runtime = builder(workers).build().unwrap();
            let spawned = deadlock(&runtime);
            let finding = found(&runtime);
            assert_eq!(finding.severity, Severity::Critical, "{finding:#?}");
            assert_eq!(finding.tasks.len(), 2);
            let text = text(&finding);
            for line in spawned.into_iter().chain([FIRST, SECOND]) {
                assert!(text.contains(&at(line)), "{line}: {text}");
            }
            let places: Vec<_> = finding.locations.iter().map(|place| place.at()).collect();
            assert!(places[0].contains(&at(SECOND)), "{places:?}");
            assert_eq!(text.matches(&at(SECOND)).count(), 2, "both wait there: {text}");
            assert!(spawned.iter().all(|line| places.iter().any(|place| place.contains(&at(*line)))), "{places:?}");
        }
    });
}

/// The other task begins to wait while the first one has the lock, and no budget left.
#[test]
fn a_lock_that_was_acquired_without_budget_is_found() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        drop(runtime.spawn(async {
            let lock = Arc::new(Mutex::new(()));
            let waits = lock.clone();
            let other = volt::spawn(async move { drop(waits.lock().await) });
            spend_all().await;
            let _held = lock.lock().await;
            other.await.unwrap();
        }));
        let finding = found(&runtime);
        assert_eq!((finding.severity, finding.tasks.len()), (Severity::Critical, 2), "{finding:#?}");
    });
}

#[test]
fn a_task_that_locks_twice_is_found() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        let line = line!() + 3;
        let lock = Mutex::new(());
        drop(runtime.spawn(async move {
            let _held = lock.lock().await;
            drop(lock.lock().await);
        }));
        let finding = found(&runtime);
        assert_eq!((finding.severity, finding.tasks.len()), (Severity::Critical, 1), "{finding:#?}");
        assert!(finding.title.contains("holds itself") && finding.title.contains(&at(line + 1)), "{finding:#?}");
        assert!(text(&finding).contains(&at(line)), "{finding:#?}");
    });
}

#[test]
fn a_deadlock_through_the_guard_of_a_component_is_found() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let lock = Arc::new(Mutex::new((1, 2)));
        let held = runtime.block_on(lock.clone().lock_owned());
        let line = line!() + 4;
        drop(runtime.spawn({
            let lock = lock.clone();
            async move {
                let _part = MutexGuard::map(lock.lock().await, |pair| &mut pair.0);
                drop(lock.lock().await);
            }
        }));
        let waits = || runtime.block_on(runtime.spawn(async {})).is_ok();
        while lock.try_lock().is_ok() || !waits() {}
        drop(held);
        let finding = found(&runtime);
        assert_eq!(finding.severity, Severity::Critical, "{finding:#?}");
        assert!(text(&finding).contains(&at(line)) && text(&finding).contains(&at(line + 1)), "{finding:#?}");
    });
}

#[test]
fn a_cycle_through_a_semaphore_of_one_permit_is_found() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (lock, permit) = (Arc::new(Mutex::new(())), Arc::new(Semaphore::new(1)));
        let (others, met) = ((lock.clone(), permit.clone()), Arc::new(volt::sync::Barrier::new(2)));
        let other_met = met.clone();
        let line = line!() + 2;
        drop(runtime.spawn(async move {
            let _permit = permit.acquire().await.unwrap();
            met.wait().await;
            drop(lock.lock().await);
        }));
        drop(runtime.spawn(async move {
            let _guard = others.0.lock().await;
            other_met.wait().await;
            drop(others.1.acquire().await);
        }));
        let finding = found(&runtime);
        assert_eq!(finding.severity, Severity::Critical, "{finding:#?}");
        assert!(text(&finding).contains("awaits a semaphore's permit at "), "{finding:#?}");
        assert!(text(&finding).contains(&at(line)), "{finding:#?}");
    });
}

#[test]
fn a_child_that_awaits_its_parents_lock_is_found() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let line = line!() + 3;
        let child = lock.clone();
        drop(runtime.spawn(async move {
            let _held = lock.lock().await;
            let child = volt::spawn(async move {
                drop(child.lock().await);
            });
            child.await.unwrap();
        }));
        let finding = found(&runtime);
        assert_eq!((finding.severity, finding.tasks.len()), (Severity::Critical, 2), "{finding:#?}");
        for line in [line - 1, line, line + 1, line + 2] {
            assert!(text(&finding).contains(&at(line)), "{line}: {finding:#?}");
        }
    });
}

#[test]
fn a_child_that_works_while_others_await_a_lock_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let (waits, begins) = (lock.clone(), Arc::new(volt::sync::Notify::new()));
        let begun = begins.clone();
        let working = |done: volt::sync::oneshot::Receiver<()>| async move { drop(done.await) };
        let (release, done) = volt::sync::oneshot::channel();
        drop(runtime.spawn(async move {
            let _held = lock.lock().await;
            begins.notify_one();
            volt::spawn(working(done)).await.unwrap();
        }));
        drop(runtime.spawn(async move {
            begun.notified().await;
            drop(waits.lock().await);
        }));
        assert_eq!(reported(&runtime), []);
        release.send(()).unwrap();
        while runtime.handle().snapshot().tasks.alive > 0 {}
    });
}

#[test]
fn a_semaphore_that_is_a_signal_has_no_holder() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let signal = Arc::new(Semaphore::new(1));
        let (forgets, adds) = (signal.clone(), signal.clone());
        drop(runtime.spawn(async move {
            forgets.acquire().await.unwrap().forget();
            // Until the next permit is added.
            drop(forgets.acquire().await);
        }));
        assert_eq!(reported(&runtime), []);
        adds.add_permits(1);
        while runtime.handle().snapshot().tasks.alive > 0 {}
    });
}

#[test]
fn a_lock_that_is_handed_on_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let locks = Arc::new([Mutex::new(0_u64), Mutex::new(0)]);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let locks = locks.clone();
                runtime.spawn(async move {
                    loop {
                        let mut first = locks[0].lock().await;
                        let mut second = locks[1].lock().await;
                        (*first, *second) = (*first + 1, *second + 1);
                        // Each task is soon the owner of one lock and a waiter of the other.
                        drop(first);
                        volt::task::yield_now().await;
                        drop(second);
                    }
                })
            })
            .collect();
        assert_eq!(reported(&runtime), []);
        tasks.iter().for_each(|task| task.abort());
    });
}

#[test]
fn tasks_that_meet_only_for_a_moment_are_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
        for order in [[0, 1], [1, 0]] {
            let locks = locks.clone();
            drop(runtime.spawn(async move {
                loop {
                    let _first = locks[order[0]].lock().await;
                    volt::task::yield_now().await;
                    // Until then, each waits for the other.
                    let timeout = Duration::from_millis(20);
                    drop(volt::time::timeout(timeout, locks[order[1]].lock()).await);
                }
            }));
        }
        assert_eq!(reported(&runtime), []);
    });
}

/// A probable deadlock is reported after 2 s.
#[test]
fn attempts_to_lock_for_a_second_are_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (locks, met) = (Arc::new([Mutex::new(()), Mutex::new(())]), Arc::new(volt::sync::Barrier::new(2)));
        for order in [[0, 1], [1, 0]] {
            let (locks, met) = (locks.clone(), met.clone());
            drop(runtime.spawn(async move {
                loop {
                    let _first = locks[order[0]].lock().await;
                    met.wait().await;
                    let timeout = Duration::from_secs(1);
                    drop(volt::time::timeout(timeout, locks[order[1]].lock()).await);
                }
            }));
        }
        let cycles = reported(&runtime);
        assert!(!cycles.is_empty() && cycles.iter().all(|cycle| !cycle.is_certain), "{cycles:#?}");
    });
}

#[test]
fn a_cycle_that_a_time_out_will_end_is_not_certain() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (locks, met) = (Arc::new([Mutex::new(()), Mutex::new(())]), Arc::new(volt::sync::Barrier::new(2)));
        for order in [[0, 1], [1, 0]] {
            let (locks, met) = (locks.clone(), met.clone());
            drop(runtime.spawn(async move {
                let crossed = crossed(&locks[order[0]], &locks[order[1]], &met);
                volt::time::timeout(Duration::from_secs(3600), crossed).await.unwrap();
            }));
        }
        let finding = found(&runtime);
        assert_eq!((finding.severity, finding.tasks.len()), (Severity::Warning, 2), "{finding:#?}");
    });
}

#[test]
fn a_guard_that_may_be_elsewhere_is_not_certain() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (first, second) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
        let (sender, receiver) = volt::sync::oneshot::channel::<OwnedMutexGuard<()>>();
        let (one, other) = (first.clone(), second.clone());
        let begins = Arc::new(volt::sync::Notify::new());
        let begun = begins.clone();
        drop(runtime.spawn(async move {
            // Acquired here, and held elsewhere.
            sender.send(one.lock_owned().await).unwrap();
            begun.notified().await;
            drop(other.lock().await);
        }));
        // Before the other task may lock it.
        let guard = runtime.block_on(receiver).unwrap();
        drop(runtime.spawn(async move {
            let _held = second.lock().await;
            begins.notify_one();
            drop(first.lock().await);
        }));
        let finding = found(&runtime);
        assert_eq!((finding.severity, finding.tasks.len()), (Severity::Warning, 2), "{finding:#?}");
        drop(guard);
        while runtime.handle().snapshot().tasks.alive > 0 {}
    });
}

#[test]
fn an_abort_ends_a_deadlock() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let other = lock.clone();
        let task = runtime.spawn(async move {
            let _held = lock.lock().await;
            drop(lock.lock().await);
        });
        found(&runtime);
        task.abort();
        drop(runtime.block_on(other.lock_owned()));
        assert_eq!(runtime.handle().snapshot().deadlocks, Some(Vec::new()));
    });
}
