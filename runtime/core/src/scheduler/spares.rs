//! Spare workers: threads that run tasks in addition to a worker that is stuck, or that has
//! announced that it will block.
//!
//! Each spare has a slot with its own queues. While a spare is inactive its core is stored here,
//! and its thread, if it has one, sleeps on the slot's parker. `slots` describes the handshake; its
//! steps are named in `worker/spare`, where they are taken.
//!
//! An ordinary case: the sentinel calls spare 4 for the first time, which starts its thread. The
//! thread takes the core and runs tasks until the stuck worker is back. It puts the core back and
//! sleeps. If another worker is stuck within `SPARE_KEEP_ALIVE`, the same thread is woken.
//!
//! The thread that calls a spare and the spare's own thread write the state here. A spare's thread
//! takes its core when it becomes active, and puts it back before the slot may be called again. So
//! the core is always there when a spare is called, and no thread waits long for the lock.
//!
//! Bound: `max_spare_workers` threads. A spare that has slept for `SPARE_KEEP_ALIVE` ends its
//! thread.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle as JoinThread;

use super::core::Core;

/// The spares of a runtime: see the module documentation.
pub(crate) struct Spares {
    /// The cores of inactive slots; the first one belongs to the first spare.
    pub(super) cores: Mutex<Vec<Option<Core>>>,
    pub(super) threads: Mutex<Vec<JoinThread<()>>>,
    pub(super) calls: AtomicU64,
    /// How many of these calls are over: their spares are inactive again.
    pub(super) returns: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// The counts of spares that a snapshot reports.
pub(crate) struct Counts {
    /// How often a spare became active.
    pub(crate) calls: u64,
    /// How often no thread could be started for a spare.
    pub(crate) failures: u64,
    /// Spares that work now: their threads have begun.
    pub(crate) active: u64,
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

    /// Returns the counts. A spare counts as active from its thread's first step on. `slots` counts
    /// it as present from its call on, and, if no thread can be started, until the call is undone.
    pub(crate) fn counts(&self) -> Counts {
        // ORDERING: Acquire, pairs with the Release in `run_spare`: a thread that sees a return
        // sees the call before it, so `calls` is never less than `returns`. Relaxed for the others;
        // only statistics.
        let returns = self.returns.load(Ordering::Acquire);
        let calls = self.calls.load(Ordering::Relaxed);
        let failures = self.failures.load(Ordering::Relaxed);
        Counts { calls, failures, active: calls - returns }
    }

    /// Takes the threads that were started so far, to be joined.
    pub(crate) fn take_threads(&self) -> Vec<JoinThread<()>> {
        mem::take(&mut *lock(&self.threads))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
