//! A runtime with a seed: the seed determines the order of polls, and finds and replays races.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use volt::time::{Instant, advance, sleep, sleep_until};
use volt::{Builder, Placement, Runtime};

use crate::watchdog::{alone_with, watched};

mod isolation;
mod net;
mod races;

fn runtime(seed: u64) -> Runtime {
    Builder::new_current_thread().seed(seed).build().unwrap()
}

/// The actions of the tasks of a run, in their order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    fn note(&self, number: u32) {
        self.0.lock().unwrap().push(number);
    }

    fn read(&self) -> Vec<u32> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs a program that uses most of what may affect the order: spawns, yields, channels, locks,
/// timers with equal deadlines, `select!`, blocking closures. Returns what it did, and the
/// fingerprint.
fn run_mixed(seed: u64) -> (Vec<u32>, u64) {
    let (runtime, log) = (runtime(seed), Log::default());
    runtime.block_on(async {
        let lock = Arc::new(volt::sync::Mutex::new(()));
        let at = Instant::now() + Duration::from_secs(1);
        let (sender, mut receiver) = volt::sync::mpsc::channel(2);
        let tasks: Vec<_> = (0..6)
            .map(|number| {
                let (log, lock, sender) = (log.clone(), lock.clone(), sender.clone());
                volt::spawn(async move {
                    log.note(number);
                    volt::task::yield_now().await;
                    drop(lock.lock().await);
                    log.note(10 + number);
                    sleep_until(at).await;
                    log.note(20 + number);
                    let blocking = volt::task::spawn_blocking({
                        let log = log.clone();
                        move || log.note(30 + number)
                    });
                    sender.send(number).await.unwrap();
                    blocking.await.unwrap();
                    volt::select! {
                        () = async {} => log.note(40 + number),
                        () = async {} => log.note(50 + number),
                        () = async {} => log.note(60 + number),
                    }
                })
            })
            .collect();
        drop(sender);
        while let Some(number) = receiver.recv().await {
            log.note(70 + number);
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    (log.read(), runtime.handle().schedule_fingerprint().unwrap())
}

#[test]
fn the_same_seed_polls_in_the_same_order() {
    watched(|| {
        for seed in 0..50 {
            assert_eq!(run_mixed(seed), run_mixed(seed), "seed {seed}");
        }
    });
}

#[test]
fn each_seed_polls_in_another_order() {
    watched(|| {
        let runs: Vec<_> = (0..100).map(run_mixed).collect();
        let orders: BTreeSet<_> = runs.iter().map(|(order, _)| order).collect();
        let fingerprints: BTreeSet<_> = runs.iter().map(|(_, fingerprint)| fingerprint).collect();
        assert_eq!((orders.len(), fingerprints.len()), (100, 100));
    });
}

/// Hash maps, addresses and ids of tasks differ between two programs.
#[test]
fn another_program_polls_in_the_same_order() {
    let text = |(order, fingerprint): (Vec<u32>, u64)| format!("order {order:?}, schedule {fingerprint:016x}");
    let output = alone_with(&[], || {
        // Takes ids and addresses that this program does not take.
        let _runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        eprintln!("{}", text(run_mixed(11)));
    });
    if let Some(output) = output {
        assert!(output.contains(&text(run_mixed(11))), "{output}");
    }
}

#[test]
fn a_busy_program_around_it_does_not_change_the_order() {
    watched(|| {
        let expected = run_mixed(5);
        let busy = Builder::new_multi_thread().worker_threads(2).control_socket(false).build().unwrap();
        let spinning: Vec<_> = (0..4)
            .map(|_| {
                busy.spawn(async {
                    loop {
                        volt::spawn(async {}).await.unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            assert_eq!(run_mixed(5), expected);
        }
        spinning.iter().for_each(|task| task.abort());
    });
}

#[test]
fn select_begins_with_each_branch_under_some_seed() {
    watched(|| {
        let first = |seed| {
            runtime(seed).block_on(async {
                volt::select! {
                    () = async {} => 0,
                    () = async {} => 1,
                    () = async {} => 2,
                }
            })
        };
        assert_eq!((0..50).map(first).collect::<BTreeSet<_>>(), BTreeSet::from([0, 1, 2]));
        let biased = |seed| {
            runtime(seed).block_on(async {
                volt::select! { biased; () = async {} => 0, () = async {} => 1 }
            })
        };
        assert!((0..50).all(|seed| biased(seed) == 0));
        let otherwise = runtime(0).block_on(async {
            volt::select! { Some(()) = async { None } => 0, else => 1 }
        });
        assert_eq!(otherwise, 1);
    });
}

#[test]
fn tasks_that_never_rest_do_not_starve_others() {
    watched(|| {
        for seed in 0..100 {
            runtime(seed).block_on(async {
                let spinning: Vec<_> = (0..3)
                    .map(|_| {
                        volt::spawn(async {
                            loop {
                                volt::task::yield_now().await;
                            }
                        })
                    })
                    .collect();
                volt::spawn(async { volt::task::yield_now().await }).await.unwrap();
                spinning.iter().for_each(|task| task.abort());
            });
        }
    });
}

#[test]
fn the_clock_advances_only_when_all_tasks_wait() {
    watched(|| {
        for seed in 0..20 {
            runtime(seed).block_on(async {
                let began = Instant::now();
                let sleeper = volt::spawn(sleep(Duration::from_secs(3600)));
                for _ in 0..100 {
                    volt::task::yield_now().await;
                }
                assert_eq!(began.elapsed(), Duration::ZERO);
                sleeper.await.unwrap();
                assert_eq!(began.elapsed(), Duration::from_secs(3600));
                advance(Duration::from_secs(1)).await;
                assert_eq!(began.elapsed(), Duration::from_secs(3601));
            });
        }
    });
}

#[test]
fn more_tasks_than_the_ring_holds_are_all_polled() {
    watched(|| {
        let log = Log::default();
        runtime(1).block_on(async {
            let tasks: Vec<_> = (0..2_000)
                .map(|number| {
                    let log = log.clone();
                    volt::spawn(async move { log.note(number) })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let mut numbers = log.read();
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..2_000));
    });
}

#[test]
fn tasks_continue_in_the_next_block_on() {
    watched(|| {
        let (runtime, log) = (runtime(3), Log::default());
        let outside = runtime.spawn({
            let log = log.clone();
            async move { log.note(1) }
        });
        let inside = runtime.spawn({
            let log = log.clone();
            async move {
                sleep(Duration::from_secs(1)).await;
                log.note(2);
            }
        });
        // Ends while the second task sleeps.
        runtime.block_on(async { sleep(Duration::from_millis(1)).await });
        runtime.block_on(async { tokio::join!(outside, inside) }).0.unwrap();
        assert_eq!(log.read(), [1, 2]);
    });
}

/// Counts the futures that are dropped.
struct Counted(Arc<std::sync::atomic::AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_shutdown_drops_ready_and_waiting_tasks() {
    watched(|| {
        let (runtime, dropped) = (runtime(3), Arc::default());
        runtime.block_on(async {
            for number in 0..10 {
                let counted = Counted(Arc::clone(&dropped));
                volt::spawn(async move {
                    let _counted = counted;
                    if number % 2 == 0 {
                        sleep(Duration::from_secs(1)).await;
                    }
                    std::future::pending::<()>().await;
                });
            }
        });
        drop(runtime);
        assert_eq!(dropped.load(std::sync::atomic::Ordering::Relaxed), 10);
    });
}

#[test]
fn a_seeded_runtime_runs_tasks_under_every_placement() {
    watched(|| {
        for placement in [Placement::Global, Placement::TwoChoices, Placement::LeastLoaded] {
            let runtime = Builder::new_current_thread().placement(placement).seed(1).build().unwrap();
            let task = runtime.spawn(async { 7 });
            assert_eq!(runtime.block_on(task).unwrap(), 7, "{placement:?}");
        }
    });
}
