//! Spare workers: threads that run tasks in addition to a worker that is stuck, or that has
//! announced that it will block.
//!
//! Each spare has a slot with its own queues. Its *core* is the state that only one thread at a
//! time may use, as for any worker (`core`). While a spare is *inactive* its core is stored here,
//! and its thread, if it has one, sleeps on the slot's parker. To *call* a spare is to make it
//! active. `slots` describes that handshake; its steps are named in `worker/spare`, where they are
//! taken.
//!
//! An ordinary case: the sentinel calls spare 4 for the first time, which starts its thread. The
//! thread takes the core and runs tasks until the stuck worker is back. It puts the core back and
//! sleeps. If another worker is stuck within `SPARE_KEEP_ALIVE`, the same thread is woken.
//!
//! The race: a spare becomes inactive, and is called again at the same moment, perhaps with a new
//! thread, because its old one has slept for `SPARE_KEEP_ALIVE` and ends. The new thread must find
//! the core, and only one of the two threads may take it. So the spare's thread puts the core back
//! before the slot may be called (Leave (4)), and it ends only if it changes the slot from OFF to
//! NO_THREAD before a caller does. The loom models of `slots` have the second race.
//!
//! Protocol, by the thread of a spare:
//! 1. it was called: take the core out of `cores`, and count the call;
//! 2. run as a worker until it leaves, which empties its queues;
//! 3. count the return, and put the core back;
//! 4. only then make the slot callable, Leave (4);
//! 5. check whether the runtime ends, and sleep until a token comes: Leave (5). Then continue with
//!    (1).
//!
//! A shutdown calls the inactive spares whose threads sleep, so that they end. It publishes the
//! end, executes a fence (in its first claim), and then searches for spares to call. A spare takes
//! (4), executes a fence, and then takes (5). So at least one of them sees the other.
//!
//! Invariants:
//! * *Core in place*: whenever a slot may be called, its core is in `cores`. So the thread of a
//!   spare that was called finds it, and no thread waits long for the lock.
//! * *One thread per slot*: a thread is started only for a slot that the caller changed from
//!   NO_THREAD. The thread before it takes no step on the slot after it has set NO_THREAD.
//! * *Calls before returns*: a snapshot reads the returns before the calls. So it never finds more
//!   returns than calls.
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

#[cfg(all(test, unix, not(any(loom, miri))))]
mod tests {
    use super::*;
    use crate::builder::Builder;

    unsafe extern "C" {
        fn fork() -> i32;
        fn alarm(seconds: u32) -> u32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }

    #[test]
    fn a_forked_child_drops_a_runtime_whose_spares_are_locked() {
        let runtime = Builder::new_multi_thread().worker_threads(1).control_socket(false).build().unwrap();
        let shared = runtime.handle().shared().clone();
        let locked = lock(&shared.spares.threads);
        // SAFETY: a function of the C library. The child only drops its copy of the runtime.
        let pid = unsafe { fork() };
        if pid == 0 {
            // SAFETY: a function of the C library; the signal's default is to end the program.
            unsafe { alarm(8) };
            drop(runtime);
            // SAFETY: a function of the C library; nothing of the parent's may be torn down here.
            unsafe { _exit(0) };
        }
        drop(locked);
        let mut status = -1;
        // SAFETY: a function of the C library, which writes to `status`.
        let ended = unsafe { waitpid(pid, &raw mut status, 0) };
        assert_eq!((ended, status), (pid, 0), "the child hangs");
    }
}
