//! The shutdown of a system beside starts and exits of its processes.
//!
//! The registry contains the processes that are alive, in *shards*, each behind a lock, and counts
//! them. A shutdown cancels all processes in the registry, and then waits until the count is 0. An
//! exit notifies a shutdown that waits.
//!
//! An ordinary case: two processes are alive. A shutdown sets the flag, finds both in the registry
//! and cancels them. Each exits, finds the flag set, and notifies the shutdown, which then reads
//! the count. After the second exit it is 0.
//!
//! The race: a process starts while the shutdown lists the registry. It may be in a shard that the
//! shutdown has passed already, and would never be cancelled. Or the last process exits at that
//! time: it may see no shutdown, which then waits for a notification that does not come.
//!
//! # Protocol
//!
//! * Start: (1) put the process into its shard, under the lock; (2) check the flag. If it is set,
//!   the process is refused.
//! * Stop, by a shutdown: (1) set the flag; (2) list the registry, which takes the lock of each
//!   shard, and cancel the processes; (3) read the count, and wait for an exit unless it is 0.
//! * Exit: (1) remove the process from its shard and lower the count, under the lock; (2) check the
//!   flag. If it is set, notify the shutdown.
//!
//! # Invariants
//!
//! Either Start (1) or Exit (1) has the lock of the shard before Stop (2), or after it. If it has
//! the lock after Stop (2), it acquires what precedes that, and sees the flag at its step (2).
//!
//! * *FOUND OR REFUSED*: a process that starts is found by Stop (2), or refused at Start (2).
//! * *LAST EXIT SEEN*: the last exit is in the count that Stop (3) reads, or notifies the shutdown.

use std::ops::DerefMut;

use volt_shim::{AtomicBool, AtomicUsize, Ordering};

#[cfg(all(test, loom))]
mod loom_models;

/// The flag: whether the system shuts down. It is never cleared.
#[derive(Debug)]
pub(crate) struct Stopping(AtomicBool);

impl Stopping {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Start (1) and (2). `insert` puts a process into the registry. Returns its result, and
    /// whether the process is refused.
    pub(crate) fn start<T>(&self, insert: impl FnOnce() -> T) -> (T, bool) {
        // Start (1)
        let inserted = insert();
        // Start (2)
        (inserted, self.is_set())
    }

    /// Stop (1) and (2). `list` lists the registry, now or later.
    pub(crate) fn stop<T>(&self, list: impl FnOnce() -> T) -> T {
        // Stop (1)
        // ORDERING: Relaxed; ordered by the lock of the process's shard, which a start or an exit
        // takes before it checks, and `list` takes after this store.
        self.0.store(true, Ordering::Relaxed);
        // Stop (2)
        list()
    }

    /// Start (2) or Exit (2).
    pub(crate) fn is_set(&self) -> bool {
        // ORDERING: Relaxed; see `stop`.
        self.0.load(Ordering::Relaxed)
    }
}

/// Exit (1): removes a process with `remove` from its `shard`, which is locked, and lowers the
/// count of those that are `alive`. Returns the result of `remove`.
pub(crate) fn remove<S: DerefMut, T>(mut shard: S, alive: &AtomicUsize, remove: impl FnOnce(&mut S::Target) -> T) -> T {
    let removed = remove(&mut shard);
    // ORDERING: Relaxed; changed under the lock of the shard. A shutdown that locks the shard later
    // sees this change; one that has locked it earlier is notified at Exit (2).
    alive.fetch_sub(1, Ordering::Relaxed);
    drop(shard);
    removed
}
