//! A log that blocks whoever writes into it stops neither healing nor the end of a runtime. A binary of its own, since it listens to the whole
//! process.

mod watchdog;

use std::sync::mpsc;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use watchdog::{builder, watched};

/// Whether the log blocks, and how many wait in it.
static LOG: Mutex<(bool, usize)> = Mutex::new((false, 0));
static CHANGED: Condvar = Condvar::new();

struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "volt::incident"
    }

    fn event(&self, _event: &Event<'_>) {
        let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        log.1 += 1;
        CHANGED.notify_all();
        while log.0 {
            log = CHANGED.wait(log).unwrap_or_else(PoisonError::into_inner);
        }
        log.1 -= 1;
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn set_blocked(is_blocked: bool) {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).0 = is_blocked;
    CHANGED.notify_all();
}

fn wait_until_somebody_waits_in_the_log() {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    while log.1 == 0 {
        log = CHANGED.wait(log).unwrap_or_else(PoisonError::into_inner);
    }
}

#[test]
fn a_log_that_blocks_stops_neither_healing_nor_the_end() {
    tracing::subscriber::set_global_default(Log).unwrap();
    for has_stacks in [false, true] {
        watched(|| {
            set_blocked(true);
            let runtime = builder(1)
                .sentinel_interval(Some(Duration::from_millis(10)))
                .incident_after(Some(Duration::from_millis(10)))
                .incident_stacks(has_stacks)
                .build()
                .unwrap();
            let block = || {
                let (open, is_open) = mpsc::channel::<()>();
                (open, runtime.spawn(async move { _ = is_open.recv() }))
            };
            let (open, blocker) = block();
            wait_until_somebody_waits_in_the_log();
            drop(open);
            runtime.block_on(blocker).unwrap();
            // And again: the one worker is stuck, so a spare has to come for this.
            let (open, blocker) = block();
            assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
            drop(open);
            runtime.block_on(blocker).unwrap();
            let began = Instant::now();
            runtime.shutdown_timeout(Duration::from_millis(500));
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
            set_blocked(false);
        });
    }
}
