//! A worker that is stuck in a poll strands nothing: neither its queued tasks, nor timers, nor
//! sockets.
//!
//! Each blocker here waits until what it would strand has completed. Without the sentinel it would
//! wait forever.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::watchdog::{alone, builder, watched};
use volt::Runtime;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};

/// Builds a runtime without the park time-out and with the sentinel.
fn runtime(workers: usize) -> Runtime {
    builder(workers).sentinel_interval(Some(Duration::from_millis(10))).build().unwrap()
}

fn wait_for_all_parked(runtime: &Runtime) {
    loop {
        let snapshot = runtime.handle().snapshot();
        if snapshot.parked_count() as usize == snapshot.workers.len() {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn timers_fire_while_the_worker_that_sat_in_the_driver_blocks() {
    for workers in [2, 4] {
        watched(|| {
            let runtime = runtime(workers);
            let (rang, has_rung) = mpsc::channel();
            let timer = runtime.spawn(async move {
                volt::time::sleep(Duration::from_millis(30)).await;
                rang.send(()).unwrap();
            });
            // Woken by the driver, so that it blocks the worker that was in the driver.
            let blocker = runtime.spawn(async move {
                volt::time::sleep(Duration::from_millis(5)).await;
                has_rung.recv().unwrap();
            });
            runtime.block_on(timer).unwrap();
            runtime.block_on(blocker).unwrap();
        });
    }
}

#[test]
fn sockets_are_served_while_the_driver_worker_is_blocked() {
    watched(|| {
        let runtime = runtime(2);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (served, is_served) = mpsc::channel();
        let echo = runtime.spawn(async move {
            let (mut stream, _peer) = listener.accept().await.unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            stream.write_all(&byte).await.unwrap();
            served.send(()).unwrap();
        });
        let blocker = runtime.spawn(async move {
            volt::time::sleep(Duration::from_millis(5)).await;
            is_served.recv().unwrap();
        });
        let mut client = runtime.block_on(TcpStream::connect(address)).unwrap();
        wait_for_block(&runtime);
        runtime.block_on(client.write_all(b"x")).unwrap();
        runtime.block_on(echo).unwrap();
        runtime.block_on(blocker).unwrap();
    });
}

/// Waits until a poll has lasted longer than any that only computes.
fn wait_for_block(runtime: &Runtime) {
    while runtime.handle().snapshot().longest_in_flight().is_none_or(|(_, poll)| poll.for_ns < 20_000_000) {
        std::thread::yield_now();
    }
}

#[test]
fn the_lifo_slot_and_ring_of_a_stuck_worker_are_taken_over() {
    for children in [1, 2, 10] {
        watched(|| {
            let runtime = runtime(2);
            wait_for_all_parked(&runtime);
            let (started, has_started) = mpsc::channel();
            let parent = runtime.spawn(async move {
                for child in 0..children {
                    let started = started.clone();
                    volt::spawn(async move { started.send(child).unwrap() });
                }
                let mut seen: Vec<usize> = (0..children).map(|_| has_started.recv().unwrap()).collect();
                seen.sort_unstable();
                seen
            });
            assert_eq!(runtime.block_on(parent).unwrap(), (0..children).collect::<Vec<_>>());
        });
    }
}

#[test]
fn the_sentinel_sleeps_while_all_workers_do() {
    watched(|| {
        let runtime = runtime(2);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let checks = || {
            wait_for_all_parked(&runtime);
            runtime.handle().snapshot().sentinel.checks
        };
        // It makes some more checks after the last worker has parked. Waits until there was none
        // for a while.
        let rest = Duration::from_millis(300);
        let (mut settled, mut since) = (checks(), Instant::now());
        while since.elapsed() < rest {
            std::thread::sleep(Duration::from_millis(1));
            if checks() != settled {
                (settled, since) = (checks(), Instant::now());
            }
        }
        assert_eq!(checks(), settled);
    });
}

#[test]
fn an_announced_block_costs_no_more_checks_than_busy_workers() {
    watched(|| {
        let runtime = runtime(2);
        let (open, is_open) = mpsc::channel::<()>();
        let blocker = runtime.spawn(async move { volt::task::block_in_place(|| assert!(is_open.recv().is_err())) });
        let checks = || runtime.handle().snapshot().sentinel.checks;
        // 30 checks; with one per millisecond 300, except when the machine delays it.
        let (rest, most) = (Duration::from_millis(300), 60);
        let mut quiet = 0;
        while quiet < 5 {
            let before = checks();
            std::thread::sleep(rest);
            quiet = if checks() - before <= most { quiet + 1 } else { 0 };
        }
        drop(open);
        runtime.block_on(blocker).unwrap();
    });
}

#[test]
fn a_stuck_worker_ends_after_shutdown_timeout_once_released() {
    watched(|| {
        let runtime = runtime(2);
        let (open, is_open) = mpsc::channel::<()>();
        let (entered, has_entered) = mpsc::channel();
        runtime.spawn(async move {
            entered.send(()).unwrap();
            let _closed = is_open.recv();
        });
        has_entered.recv().unwrap();
        let handle = runtime.handle().clone();
        runtime.shutdown_timeout(Duration::from_millis(20));
        drop(open);
        while handle.snapshot().workers.iter().any(|worker| worker.phase != volt::telemetry::Phase::Stopped) {
            std::thread::yield_now();
        }
    });
}

/// Returns the processor time of this program's thread with that name, and how often it went to
/// sleep.
#[cfg(target_os = "linux")]
fn thread_times(name: &str) -> (Duration, u64) {
    let of = |folder: std::path::PathBuf| {
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
        if read("comm")?.trim_end() != name {
            return None;
        }
        let ran_ns = read("schedstat")?.split(' ').next()?.parse().ok()?;
        let status = read("status")?;
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((Duration::from_nanos(ran_ns), sleeps.trim().parse().ok()?))
    };
    loop {
        let mut threads = std::fs::read_dir("/proc/self/task").unwrap();
        // A thread has its name once it has begun.
        if let Some(found) = threads.find_map(|thread| of(thread.ok()?.path())) {
            return found;
        }
    }
}

/// Returns how many threads of this program have that name.
#[cfg(target_os = "linux")]
fn threads(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Every runtime of the program has a poll that blocks, and one thread detects them all.
#[test]
fn one_sentinel_detects_stuck_polls_in_all_runtimes() {
    const RUNTIMES: usize = 8;
    watched(|| {
        let runtimes: Vec<_> = (0..RUNTIMES).map(|_| runtime(1)).collect();
        let blocked: Vec<_> = runtimes
            .iter()
            .map(|runtime| {
                let (served, is_served) = mpsc::channel();
                let blocker = runtime.spawn(async move {
                    // It is queued behind this poll, on the only worker.
                    volt::spawn(async move { served.send(()).unwrap() });
                    is_served.recv().unwrap();
                });
                (runtime, blocker)
            })
            .collect();
        for (runtime, blocker) in blocked {
            runtime.block_on(blocker).unwrap();
            assert!(runtime.handle().snapshot().sentinel.replacements > 0);
        }
        // The thread of an earlier test may be about to end.
        #[cfg(target_os = "linux")]
        while threads("volt-sentinel") != 1 {
            std::thread::yield_now();
        }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_sentinel_that_cannot_be_started_fails_the_build() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    // Alone: the limit is one of the program, and no sentinel may run already.
    alone(|| {
        watched(|| {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix("kB"));
            let used = size.unwrap().trim().parse::<u64>().unwrap() * 1024;
            let before = getrlimit(Resource::As);
            // Not enough for the stack of a thread.
            let limit = Rlimit { current: Some(used + (1 << 20)), ..before };
            setrlimit(Resource::As, limit).unwrap();
            let built = volt::Builder::new_current_thread().control_socket(false).build();
            setrlimit(Resource::As, before).unwrap();
            let error = built.unwrap_err().to_string();
            assert!(error.contains("thread volt-sentinel cannot be started"), "{error}");
        });
    });
}

#[test]
fn runtimes_that_come_and_go_leave_the_others_watched() {
    watched(|| {
        let stays = runtime(1);
        for _ in 0..50 {
            drop(runtime(1));
            let (served, is_served) = mpsc::channel();
            let blocker = stays.spawn(async move {
                volt::spawn(async move { served.send(()).unwrap() });
                is_served.recv().unwrap();
            });
            stays.block_on(blocker).unwrap();
        }
    });
}

/// Prints the cost: `cargo test --release -p volt-runtime --test scheduler sentinel:: --
/// --nocapture`. It is not asserted, because the time of a check depends on what else the machine
/// does.
#[test]
#[cfg(target_os = "linux")]
fn the_sentinel_checks_at_intervals_when_busy_and_never_idle() {
    const BUSY_FOR: Duration = Duration::from_secs(2);
    const RESTS_FOR: Duration = Duration::from_secs(2);
    const INTERVAL: Duration = Duration::from_millis(10);
    // The interval while a poll is long, which it is if the machine preempts the worker in it.
    const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
    // Alone: the thread also checks the runtimes of other tests.
    alone(|| {
        watched(|| {
            let began = Instant::now();
            let runtime = builder(2).sentinel_interval(Some(INTERVAL)).build().unwrap();
            let of_sentinel = || thread_times("volt-sentinel");
            let (before, _) = of_sentinel();
            let busy: Vec<_> = (0..4)
                .map(|_| {
                    runtime.spawn(async move {
                        while began.elapsed() < BUSY_FOR {
                            volt::task::yield_now().await;
                        }
                    })
                })
                .collect();
            busy.into_iter().for_each(|task| runtime.block_on(task).unwrap());
            let checks = runtime.handle().snapshot().sentinel.checks;
            let elapsed = began.elapsed();
            let took = of_sentinel().0 - before;
            println!("the sentinel took {took:?} in {checks} checks, in {elapsed:?}");
            assert!(checks > 0, "the sentinel does not run");
            let checks_max = elapsed.as_nanos() / SHORTEST_INTERVAL.as_nanos() + 1;
            assert!(u128::from(checks) <= checks_max, "{checks} checks in {elapsed:?}");

            let state = || (of_sentinel(), runtime.handle().snapshot().sentinel.checks);
            let (mut settled, mut since) = (state(), Instant::now());
            while since.elapsed() < RESTS_FOR {
                std::thread::sleep(Duration::from_millis(100));
                let now = state();
                if now != settled {
                    (settled, since) = (now, Instant::now());
                }
            }
            println!("and woke up 0 times in {RESTS_FOR:?} at rest");
        })
    });
}
