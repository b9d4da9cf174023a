//! Spare workers: threads that go on duty beside a worker that is stuck, or that has said that it
//! will block.
//!
//! Shape: a slot for each, with queues of its own. While a spare is off duty its core lies here,
//! and its thread, if it has one, sleeps on the slot's parker. The handshake stands in `staff`; its
//! steps are named here where they are taken.
//!
//! Who writes: whoever calls a spare, and the spare's own thread. A core is taken by the thread
//! that is on duty with it, and laid back by it before the slot may be called again: so it is there
//! for whoever is called, and the lock is never waited for.
//!
//! Bound: `max_spare_workers` threads. One that has slept for `SPARE_KEEP_ALIVE` ends.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle as JoinThread;

use super::core::Core;

mod run;

/// See the header of this file.
pub(crate) struct Spares {
    /// Of slots that are off duty; the first is that of the first spare.
    cores: Mutex<Vec<Option<Core>>>,
    threads: Mutex<Vec<JoinThread<()>>>,
    calls: AtomicU64,
    /// Of these calls, those whose spare has gone off duty again.
    returns: AtomicU64,
    failures: AtomicU64,
}

/// What a person reads of the spares.
pub(crate) struct Counts {
    /// Times that a spare went on duty.
    pub(crate) calls: u64,
    /// Times that no thread could be started for one.
    pub(crate) failures: u64,
    /// Spares that work now: their threads have begun.
    pub(crate) on_duty: u64,
}

impl Spares {
    pub(crate) fn new(cores: Vec<Core>) -> Self {
        Self {
            cores: Mutex::new(cores.into_iter().map(Some).collect()),
            threads: Mutex::default(),
            calls: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// A spare counts as on duty from its thread's first step on, not from its call: `staff` has
    /// it as present between the two, and for that long even if no thread can be started.
    pub(crate) fn counts(&self) -> Counts {
        // ORDERING: Acquire, pairs with the Release in `run_spare`: whoever sees a return sees the
        // call before it, so `calls` is never the smaller. Relaxed for the others; only counted.
        let returns = self.returns.load(Ordering::Acquire);
        let calls = self.calls.load(Ordering::Relaxed);
        let failures = self.failures.load(Ordering::Relaxed);
        Counts { calls, failures, on_duty: calls - returns }
    }

    /// The threads that were started so far, to be joined.
    pub(crate) fn take_threads(&self) -> Vec<JoinThread<()>> {
        mem::take(&mut *lock(&self.threads))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
