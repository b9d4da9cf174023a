//! `LocalOrder::Lifo`: the newest first, and nothing starves, nothing is lost, and nothing waits behind a poll that lasts.
//!
//! ORDERING: Relaxed throughout: counts and flags that publish nothing; what a test reads at its end, a join has ordered.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::watchdog::{builder, watched};
use volt::task::yield_now;
use volt::{Builder, LocalOrder, Runtime};

/// Polls newest first in a row, and the older one's: a round.
const ROUND: u64 = 8 + 1;

fn lifo(workers: usize) -> Builder {
    builder(workers).local_order(LocalOrder::Lifo)
}

/// What tasks write down, in the order in which they run.
type Log = Arc<Mutex<Vec<u64>>>;

/// Starts `count` tasks from one poll of a task, on one worker, and says in which order they ran.
fn order_of(runtime: &Runtime, count: u64) -> Vec<u64> {
    let log = Log::default();
    let spawner = runtime.spawn({
        let log = log.clone();
        async move {
            let tasks: Vec<_> = (0..count)
                .map(|n| {
                    let log = log.clone();
                    volt::spawn(async move { log.lock().unwrap().push(n) })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
    runtime.block_on(spawner).unwrap();
    std::mem::take(&mut log.lock().unwrap())
}

#[test]
fn the_newest_runs_first_with_and_without_the_slot() {
    watched(|| {
        for slot in [0, 3] {
            let runtime = lifo(1).max_lifo_polls_per_tick(slot).build().unwrap();
            // The spawner takes a turn too, as soon as the first that it waits for has run.
            assert_eq!(order_of(&runtime, 7), [6, 5, 4, 3, 2, 1, 0]);
            // By default the slot's runs first, then the others as they came.
            let default = builder(1).max_lifo_polls_per_tick(slot).build().unwrap();
            assert_ne!(order_of(&default, 7), [6, 5, 4, 3, 2, 1, 0]);
        }
    });
}

#[test]
fn after_eight_of_the_newest_the_oldest_has_its_turn() {
    watched(|| {
        let order = order_of(&lifo(1).build().unwrap(), 20);
        assert_eq!(order[..10], [19, 18, 17, 16, 15, 14, 13, 12, 0, 11], "{order:?}");
    });
}

/// Starts the next, and ends, until it is stopped.
fn link(stop: Arc<AtomicBool>, links: Arc<AtomicU64>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        links.fetch_add(1, Ordering::Relaxed);
        if !stop.load(Ordering::Relaxed) {
            volt::spawn(link(stop, links));
        }
    })
}

#[test]
fn tasks_that_spawn_tasks_for_ever_starve_none_that_is_older() {
    watched(|| {
        const OLDER: u64 = 20;
        let runtime = lifo(1).build().unwrap();
        let (stop, links) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let spawner = runtime.spawn({
            let (stop, links) = (stop.clone(), links.clone());
            async move {
                let older: Vec<_> = (0..OLDER)
                    .map(|_| {
                        let links = links.clone();
                        volt::spawn(async move { links.load(Ordering::Relaxed) })
                    })
                    .collect();
                volt::spawn(link(stop, links));
                let mut waited = Vec::new();
                for task in older {
                    waited.push(task.await.unwrap());
                }
                waited
            }
        });
        let waited = runtime.block_on(spawner).unwrap();
        stop.store(true, Ordering::Relaxed);
        for (before, links) in (0..).zip(&waited) {
            assert!(*links <= 2 * (before + 1) * ROUND, "{before} before it, and {links} that are newer: {waited:?}");
        }
    });
}

#[test]
fn who_yields_to_two_tasks_that_wake_each_other_for_ever_has_its_turn() {
    watched(|| {
        let runtime = lifo(1).build().unwrap();
        let hops = Arc::new(AtomicU64::new(0));
        // Whose turn it is, and who waits for it.
        let turn = Arc::new(Mutex::new((0, [const { None::<Waker> }; 2])));
        let players: Vec<_> = (0..2)
            .map(|me| {
                let (turn, hops) = (turn.clone(), hops.clone());
                runtime.spawn(poll_fn(move |cx| {
                    let mut turn = turn.lock().unwrap();
                    turn.1[me] = Some(cx.waker().clone());
                    if turn.0 == me {
                        hops.fetch_add(1, Ordering::Relaxed);
                        turn.0 = 1 - me;
                        turn.1[1 - me].take().into_iter().for_each(Waker::wake);
                    }
                    Poll::<()>::Pending
                }))
            })
            .collect();
        while hops.load(Ordering::Relaxed) < 1_000 {
            std::thread::yield_now();
        }
        let most = runtime.spawn({
            let hops = hops.clone();
            async move {
                let mut most = 0;
                for _ in 0..200 {
                    let before = hops.load(Ordering::Relaxed);
                    yield_now().await;
                    most = most.max(hops.load(Ordering::Relaxed) - before);
                }
                most
            }
        });
        let most = runtime.block_on(most).unwrap();
        assert!((1..=2 * ROUND).contains(&most), "{most} hops before a task that had yielded was polled again");
        players.iter().for_each(|player| player.abort());
    });
}

#[test]
fn who_yields_lets_what_is_older_run_first() {
    watched(|| {
        let runtime = lifo(1).build().unwrap();
        let log = Log::default();
        let note = |log: &Log, n| log.lock().unwrap().push(n);
        let task = runtime.spawn({
            let log = log.clone();
            async move {
                let others = [1, 2].map(|n| {
                    let log = log.clone();
                    volt::spawn(async move { note(&log, n) })
                });
                yield_now().await;
                note(&log, 3);
                for other in others {
                    other.await.unwrap();
                }
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(*log.lock().unwrap(), [2, 1, 3]);
    });
}

#[test]
fn every_task_is_run_once_under_stealing_and_overflow_and_all_is_at_rest_afterwards() {
    for workers in [1, 2, 4] {
        for capacity in [2, 16, 256] {
            watched(|| {
                let runtime = lifo(workers).local_queue_capacity(capacity).build().unwrap();
                let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..5_000).map(|_| AtomicUsize::new(0)).collect());
                let spawner = runtime.spawn({
                    let runs = runs.clone();
                    async move {
                        let tasks: Vec<_> = (0..runs.len())
                            .map(|n| {
                                let runs = runs.clone();
                                volt::spawn(async move {
                                    yield_now().await;
                                    runs[n].fetch_add(1, Ordering::Relaxed);
                                })
                            })
                            .collect();
                        for task in tasks {
                            task.await.unwrap();
                        }
                    }
                });
                runtime.block_on(spawner).unwrap();
                assert!(runs.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                // The spawner's end is counted after its handle has told of it.
                let mut snapshot = runtime.handle().snapshot();
                while snapshot.tasks.alive > 0 {
                    snapshot = runtime.handle().snapshot();
                }
                let sum = |count: fn(&volt::telemetry::Worker) -> u64| snapshot.workers.iter().map(count).sum::<u64>();
                assert!(sum(|worker| worker.overflows) > 0, "5,000 do not fit");
                assert_eq!(sum(|worker| worker.tasks_stolen), sum(|worker| worker.tasks_given));
                let queued = snapshot.workers.iter().map(|worker| worker.ring_len + worker.batch_len).sum::<u32>();
                assert_eq!((queued, snapshot.tasks.completed), (0, 5_001));
            });
        }
    }
}

/// Starts tasks from a poll that goes on until all but the newest of them have run. Returns how many were queued at the worker meanwhile.
async fn wait_in_a_poll(children: u32) -> u32 {
    let (sends, ran) = mpsc::channel();
    for _ in 0..children {
        let sends = sends.clone();
        volt::spawn(async move { sends.send(()).unwrap() });
    }
    let queued = volt::Handle::current().snapshot().workers[0].ring_len;
    (1..children).for_each(|_| ran.recv().unwrap());
    queued
}

#[test]
fn what_is_behind_a_poll_that_lasts_is_taken_by_another_worker() {
    watched(|| {
        let runtime = lifo(2).build().unwrap();
        (0..50).for_each(|_| _ = runtime.block_on(runtime.spawn(wait_in_a_poll(20))).unwrap());
        let given: u64 = runtime.handle().snapshot().workers.iter().map(|worker| worker.tasks_given).sum();
        assert!(given >= 50 * 19, "{given}");
    });
}

#[test]
fn what_is_behind_a_poll_that_blocks_the_only_worker_is_rescued() {
    watched(|| {
        let runtime = lifo(1).sentinel_interval(Some(Duration::from_millis(10))).build().unwrap();
        let queued = runtime.block_on(runtime.spawn(wait_in_a_poll(20))).unwrap();
        assert_eq!(queued, 19, "the stack is part of what the worker holds; the newest is in its slot");
        assert!(runtime.handle().snapshot().sentinel.tasks_rescued >= 19);
    });
}

#[test]
fn what_waits_at_a_shutdown_is_cancelled() {
    watched(|| {
        let runtime = lifo(1).build().unwrap();
        let handles = Arc::new(Mutex::new(Vec::new()));
        let spawner = runtime.spawn({
            let handles = handles.clone();
            async move {
                // Never comes to an end by themselves, and are queued most of the time.
                let spin = || async {
                    loop {
                        yield_now().await;
                        volt::spawn(async {}).await.unwrap();
                    }
                };
                handles.lock().unwrap().extend((0..50).map(|_| volt::spawn(spin())));
            }
        });
        runtime.block_on(spawner).unwrap();
        drop(runtime);
        for handle in handles.lock().unwrap().drain(..) {
            let handle: volt::task::JoinHandle<()> = handle;
            assert!(handle.is_finished());
        }
    });
}
