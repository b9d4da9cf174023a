//! Spare workers: threads that go on duty in addition to a worker that is stuck, or that has
//! announced that it will block.
//!
//! Each spare has a slot with its own queues. While a spare is off duty its core is stored here,
//! and its thread, if it has one, sleeps on the slot's parker. `staff` describes the handshake; its
//! steps are named here where they are taken.
//!
//! An ordinary case: the sentinel calls spare 4 for the first time, which starts its thread. The
//! thread takes the core and runs tasks until the stuck worker is back. It puts the core back and
//! sleeps. If another worker is stuck within `SPARE_KEEP_ALIVE`, the same thread is woken.
//!
//! The thread that calls a spare and the spare's own thread write the state here. A spare's thread
//! takes its core when it goes on duty, and puts it back before the slot may be called again. So
//! the core is always there when a spare is called, and no thread waits long for the lock.
//!
//! Bound: `max_spare_workers` threads. A spare that has slept for `SPARE_KEEP_ALIVE` ends its
//! thread.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle as JoinThread;

use super::core::Core;

mod run;

/// The spares of a runtime: see the module documentation.
pub(crate) struct Spares {
    /// The cores of slots that are off duty; the first one belongs to the first spare.
    cores: Mutex<Vec<Option<Core>>>,
    threads: Mutex<Vec<JoinThread<()>>>,
    calls: AtomicU64,
    /// How many of these calls are over: their spares are off duty again.
    returns: AtomicU64,
    failures: AtomicU64,
}

/// The counts of spares that a snapshot reports.
pub(crate) struct Counts {
    /// How often a spare went on duty.
    pub(crate) calls: u64,
    /// How often no thread could be started for a spare.
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

    /// Returns the counts. A spare counts as on duty from its thread's first step on. `staff`
    /// counts it as present from its call on, and, if no thread can be started, until the call is
    /// undone.
    pub(crate) fn counts(&self) -> Counts {
        // ORDERING: Acquire, pairs with the Release in `run_spare`: a thread that sees a return
        // sees the call before it, so `calls` is never less than `returns`. Relaxed for the others;
        // only statistics.
        let returns = self.returns.load(Ordering::Acquire);
        let calls = self.calls.load(Ordering::Relaxed);
        let failures = self.failures.load(Ordering::Relaxed);
        Counts { calls, failures, on_duty: calls - returns }
    }

    /// Takes the threads that were started so far, to be joined.
    pub(crate) fn take_threads(&self) -> Vec<JoinThread<()>> {
        mem::take(&mut *lock(&self.threads))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
