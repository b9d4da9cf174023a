//! Tests of the clock of a real runtime, on a counter that a test injects and makes wrong. Each
//! test runs in a child process, since there is one clock per program.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use std::{env, thread};

use super::injected::{CYCLES_PER_MS, CounterFault, inject};
use super::*;
use crate::builder::Builder;
use crate::driver::spin::spin_until;
use crate::failures::log::Log;
use crate::runtime::Runtime;

/// Set in such a child process.
const IN_CHILD: &str = "VOLT_CLOCK_TEST";
/// Maximum time for any step, on a machine that is busy with other work.
const TIMEOUT: Duration = Duration::from_secs(60);
const HOURS: i64 = 5 * 3_600_000 * CYCLES_PER_MS as i64;

/// Runs `test` in a child process, with an injected counter.
fn with_counter(test: impl FnOnce()) {
    if env::var_os(IN_CHILD).is_some() {
        inject(CounterFault::PutIn);
        test();
        return;
    }
    let name = thread::current().name().expect("the test harness names its threads").to_owned();
    let child = Command::new(env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    let output = [child.stdout, child.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

/// Waits until `holds`, without reading the clock under test.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "{what}: never, at {} ns by the clock", now_ns());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the deviation of the clock from the system's, by the reading that took the least time.
fn error_ns() -> u64 {
    let reading = || {
        let (before, shown, after) = (instant_ns(), now_ns(), instant_ns());
        (after - before, shown.abs_diff(before + (after - before) / 2))
    };
    (0..20).map(|_| reading()).min().unwrap().1
}

fn runtime(workers: usize, sentinel: Option<Duration>) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).sentinel_interval(sentinel).build().unwrap()
}

/// Threads that read the clock all the time, and detect whether it goes back behind a time that any
/// of them has returned.
struct Readers {
    is_over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Readers {
    fn start() -> Self {
        let (is_over, shown) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let read = |_| {
            let (is_over, shown) = (is_over.clone(), shown.clone());
            thread::spawn(move || {
                let mut back_ns = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let before_ns = shown.fetch_max(0, Ordering::AcqRel);
                    let now_ns = now_ns();
                    shown.fetch_max(now_ns, Ordering::AcqRel);
                    back_ns = back_ns.max(before_ns.saturating_sub(now_ns));
                    thread::yield_now();
                }
                back_ns
            })
        };
        let threads = (0..2).map(read).collect();
        Self { is_over, threads }
    }

    /// Returns by how much it went back.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    }
}

/// Checks that a runtime that works and sleeps continues through `fault`, that its timers fire, and
/// that the clock returns to the system's. After that the counter is used again if `recovers`.
fn survives(fault: impl FnOnce(), text: &str, recovers: bool) {
    let log = Arc::new(Mutex::new(String::new()));
    let logged = log.clone();
    tracing::subscriber::set_global_default(Log::new(move |text| *logged.lock().unwrap() += &text)).unwrap();
    let runtime = runtime(2, Some(Duration::from_millis(10)));
    // One worker is always busy, so that it never has to park.
    let busy = runtime.spawn(async {
        loop {
            crate::task::control::yield_now::yield_now().await;
        }
    });
    let snapshot = || runtime.handle().snapshot().clock.unwrap();
    wait_until("the counter is used", || snapshot().is_fast);
    assert_eq!(snapshot().faults, 0, "{:?}", last_fault());
    let readers = Readers::start();
    runtime.block_on(async { crate::sleep::sleep(Duration::from_millis(5)).await });

    fault();
    let sleeping = runtime.spawn(async {
        let began = Instant::now();
        crate::sleep::sleep(Duration::from_millis(50)).await;
        began.elapsed()
    });
    wait_until("a timer fires", || sleeping.is_finished());
    let slept = runtime.block_on(sleeping).unwrap();
    assert!(slept >= Duration::from_millis(50), "early, after {slept:?}");
    wait_until("the clock comes back to the system's", || error_ns() < 20_000);
    wait_until("the fault is counted", || snapshot().faults > 0);
    wait_until("the counter is used, or not", || snapshot().is_fast == recovers);
    wait_until("it is reported", || log.lock().unwrap().contains(text));
    assert_eq!(readers.end(), 0, "ns that the clock went back");
    busy.abort();
}

#[test]
fn a_counter_that_steps_back_by_hours_is_survived() {
    with_counter(|| survives(|| inject(CounterFault::Step(-HOURS)), "stepped back", true));
}

#[test]
fn a_counter_that_jumps_ahead_by_hours_is_survived() {
    with_counter(|| survives(|| inject(CounterFault::Step(HOURS)), "jumped ahead", true));
}

#[test]
fn a_counter_that_stops_is_survived() {
    with_counter(|| survives(|| inject(CounterFault::CyclesPerMs(0)), "stands still", false));
}

#[test]
fn a_counter_that_runs_at_half_its_speed_is_survived() {
    with_counter(|| survives(|| inject(CounterFault::CyclesPerMs(CYCLES_PER_MS / 2)), "fell behind", true));
}

#[test]
fn a_counter_that_loses_the_kernels_trust_is_survived() {
    let distrust = || {
        inject(CounterFault::Distrust);
        // Immediately, instead of in ten seconds.
        CLOCK.query_again();
    };
    with_counter(|| survives(distrust, "no longer keeps time", false));
}

/// A stopped clock must not keep a busy worker from its other duties, even if no other worker can
/// help.
#[test]
fn a_worker_that_never_rests_finds_that_the_counter_stopped() {
    with_counter(|| {
        let runtime = runtime(1, None);
        let _busy = runtime.spawn(async {
            loop {
                crate::task::control::yield_now::yield_now().await;
            }
        });
        wait_until("the counter is used", || runtime.handle().snapshot().clock.unwrap().is_fast);
        inject(CounterFault::CyclesPerMs(0));
        let sleeping = runtime.spawn(async { crate::sleep::sleep(Duration::from_millis(5)).await });
        wait_until("a timer fires", || sleeping.is_finished());
        assert!(faults() > 0);
    });
}

/// Without a sentinel, the worker that detects the fault runs the log's code.
#[test]
fn a_log_that_blocks_on_a_clock_fault_stops_no_timer() {
    with_counter(|| {
        // Dropped last: its workers end once the log is free.
        let runtime = runtime(2, None);
        let (free, is_free) = mpsc::channel::<()>();
        let (is_free, is_blocked) = (Mutex::new(is_free), Arc::new(AtomicBool::new(false)));
        let blocked = is_blocked.clone();
        let log = Log::new(move |_| {
            blocked.store(true, Ordering::Release);
            let _freed = is_free.lock().unwrap().recv();
        });
        tracing::subscriber::set_global_default(log).unwrap();
        let _ticks = runtime.spawn(async {
            loop {
                crate::sleep::sleep(Duration::from_millis(1)).await;
            }
        });
        wait_until("the counter is used", || telemetry().is_fast);
        inject(CounterFault::Step(-HOURS));
        wait_until("the log blocks", || is_blocked.load(Ordering::Acquire));
        for _ in 0..3 {
            let sleeping = runtime.spawn(async { crate::sleep::sleep(Duration::from_millis(5)).await });
            wait_until("a timer fires", || sleeping.is_finished());
        }
        drop(free);
    });
}

#[test]
fn a_slew_of_500_ppm_is_followed_without_a_fault() {
    with_counter(|| {
        let runtime = runtime(1, None);
        let checked = runtime.spawn(async {
            loop {
                crate::sleep::sleep(Duration::from_millis(1)).await;
            }
        });
        wait_until("the counter is used", || telemetry().is_fast);
        for cycles_per_ms in [CYCLES_PER_MS + CYCLES_PER_MS / 2000, CYCLES_PER_MS - CYCLES_PER_MS / 2000] {
            inject(CounterFault::CyclesPerMs(cycles_per_ms));
            let began = Instant::now();
            wait_until("the clock follows", || began.elapsed() > Duration::from_millis(50) && error_ns() < 20_000);
        }
        assert_eq!((faults(), telemetry().is_fast), (0, true), "{:?}", last_fault());
        checked.abort();
    });
}

#[test]
fn a_spin_ends_even_if_the_clock_stops() {
    with_counter(|| {
        let began = Instant::now();
        while !telemetry().is_fast {
            check();
            assert!(began.elapsed() < TIMEOUT, "the counter is never used");
        }
        inject(CounterFault::CyclesPerMs(0));
        let shown_ns = now_ns();
        assert!(!spin_until(1_000, 1, || false) && !spin_until(40_000, 16, || false));
        assert_eq!(now_ns(), shown_ns, "the clock went on, the test tests nothing");
    });
}
