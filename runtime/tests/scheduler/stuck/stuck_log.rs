//! A log that blocks or panics when it is written to prevents neither the replacement of stuck
//! workers nor the end of a runtime, nor later log lines. Each test runs in a separate program,
//! since it receives the log of the whole program.

use std::fmt::Debug;
use std::sync::mpsc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::watchdog::{alone, builder, watched};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use volt::Runtime;

static LOG: Mutex<State> = Mutex::new(State { blocks: false, panics: false, waiting: 0, reported: 0, times: 0 });
static CHANGED: Condvar = Condvar::new();

struct State {
    /// Its effect on a thread that writes to it.
    blocks: bool,
    panics: bool,
    /// How many threads wait in it, and how often it was written to.
    waiting: usize,
    reported: usize,
    /// The sum of its fields `times`.
    times: u64,
}

fn state() -> MutexGuard<'static, State> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_error = *metadata.level() == Level::ERROR && metadata.target() == "volt";
        metadata.is_event() && (is_error || metadata.target() == "volt::incident")
    }

    fn event(&self, event: &Event<'_>) {
        struct Times(u64);
        impl Visit for Times {
            fn record_u64(&mut self, field: &Field, value: u64) {
                self.0 += if field.name() == "times" { value } else { 0 };
            }
            fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
        }
        let mut times = Times(0);
        event.record(&mut times);
        let mut log = state();
        log.reported += 1;
        log.times += times.0;
        log.waiting += 1;
        CHANGED.notify_all();
        while log.blocks {
            log = CHANGED.wait(log).unwrap_or_else(PoisonError::into_inner);
        }
        log.waiting -= 1;
        let panics = log.panics;
        drop(log);
        assert!(!panics, "a log that panics, on purpose");
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn set_blocked(blocks: bool) {
    state().blocks = blocks;
    CHANGED.notify_all();
}

fn wait_until(is_so: impl Fn(&State) -> bool) {
    let mut log = state();
    while !is_so(&log) {
        log = CHANGED.wait(log).unwrap_or_else(PoisonError::into_inner);
    }
}

fn runtime(has_stacks: bool) -> Runtime {
    let builder = builder(1).sentinel_interval(Some(Duration::from_millis(10)));
    builder.incident_after(Some(Duration::from_millis(10))).incident_stacks(has_stacks).build().unwrap()
}

#[test]
fn a_blocking_or_panicking_logger_delays_no_spare_or_shutdown() {
    alone(|| {
        tracing::subscriber::set_global_default(Log).unwrap();
        for has_stacks in [false, true] {
            watched(|| {
                set_blocked(true);
                let runtime = runtime(has_stacks);
                let block = || {
                    let (open, is_open) = mpsc::channel::<()>();
                    (open, runtime.spawn(async move { _ = is_open.recv() }))
                };
                let (open, blocker) = block();
                wait_until(|log| log.waiting > 0);
                drop(open);
                runtime.block_on(blocker).unwrap();
                // And again: the one worker is stuck, so a spare has to come for this.
                let (open, blocker) = block();
                assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
                drop(open);
                runtime.block_on(blocker).unwrap();
                runtime.shutdown_timeout(Duration::from_millis(500));
                assert!(state().waiting > 0, "the log blocks until after the shutdown");
                set_blocked(false);
            });
        }
        watched(|| {
            state().panics = true;
            let (runtime, before) = (runtime(true), state().reported);
            // Each has a different spawn location: of one location, only one per second is logged.
            let (open, is_open) = mpsc::channel::<()>();
            let first = runtime.spawn(async move { _ = is_open.recv() });
            wait_until(|log| log.reported > before);
            drop(open);
            runtime.block_on(first).unwrap();
            let (open, is_open) = mpsc::channel::<()>();
            let second = runtime.spawn(async move { _ = is_open.recv() });
            wait_until(|log| log.reported > before + 1);
            drop(open);
            runtime.block_on(second).unwrap();
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn neither_sentinel_nor_worker_logs_a_failed_thread_start() {
    alone(|| {
        tracing::subscriber::set_global_default(Log).unwrap();
        watched(|| {
            set_blocked(true);
            let runtime = builder(1)
                .sentinel_interval(Some(Duration::from_millis(10)))
                .incident_after(None)
                .thread_stack_size(512 << 20)
                .build()
                .unwrap();
            runtime.block_on(runtime.spawn(async {})).unwrap();
            // Room for the thread that logs, not for a worker's stack. The size may be read while a
            // thread that starts has 128 MB more for a moment, because of how glibc lays out its
            // heap.
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
            let size_kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
            let limit = |current| rustix::process::Rlimit { current, maximum: None };
            let set = |limit| rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
            set(limit(Some(size_kib * 1024 + (192 << 20))));
            let (open, is_open) = mpsc::channel::<()>();
            let blocker = runtime.spawn(async move { _ = is_open.recv() });
            wait_until(|log| log.waiting > 0);
            // Now there is room again, and the log still blocks: a spare comes.
            set(limit(None));
            assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
            drop(open);
            runtime.block_on(blocker).unwrap();
            set_blocked(false);
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn failed_blocking_jobs_are_reported_when_idle_and_at_shutdown() {
    alone(|| {
        tracing::subscriber::set_global_default(Log).unwrap();
        watched(|| {
            let runtime = builder(1)
                .sentinel_interval(Some(Duration::from_millis(1)))
                .thread_stack_size(512 << 20)
                .build()
                .unwrap();
            runtime.block_on(runtime.spawn(async {})).unwrap();
            let checks = || runtime.handle().snapshot().sentinel.checks;
            // The sentinel has suspended its checks when the count no longer rises.
            while {
                let before = checks();
                std::thread::sleep(Duration::from_millis(100));
                checks() > before
            } {}
            // Room for the thread that reports, not for one of the pool's.
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
            let size_kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
            let limit = rustix::process::Rlimit { current: Some(size_kib * 1024 + (192 << 20)), maximum: None };
            rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
            let fail = || assert!(runtime.block_on(runtime.spawn_blocking(|| ())).unwrap_err().is_cancelled());
            fail();
            wait_until(|log| log.times == 1);
            // A moment after the last report.
            (0..2).for_each(|_| fail());
            drop(runtime);
            // The failures since the last report.
            wait_until(|log| log.times == 3);
        });
    });
}
