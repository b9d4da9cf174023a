//! When the workers of a runtime may end: the counts of tasks, and the order in which they are
//! read.
//!
//! A shutdown cancels all tasks, and the workers end once no task is left. There is one count of
//! spawns per worker, one per queue that other threads push into, and one count of ends per worker.
//! `shared::end`, "How it ends", has the protocol and its proof. Its steps (2) to (4) are
//! implemented here, for the runtime and for the models of `queue/injector`.
//!
//! Ends are read before spawns: a thread that sees the end of a task also sees its spawn. In the
//! opposite order, a task that is spawned and ends between the two reads would make the sums equal
//! too early.

use volt_shim::{AtomicBool, Ordering};

/// The parts of a runtime that its end depends on.
pub(crate) trait Ends {
    /// Returns how many tasks were completed, cancelled and panicked: the sums of the counts.
    fn ended(&self) -> [u64; 3];

    /// Returns how many tasks were spawned on workers and outside of them: the sums of the counts.
    fn spawned(&self) -> [u64; 2];

    /// Returns the flag that is set by End (3).
    fn closed(&self) -> &AtomicBool;

    /// End (2): closes every queue to new tasks.
    fn close_queues_to_new(&self);

    // Steps that a model can replace with faulty ones.

    /// Reads the ends, and then the spawns.
    #[inline]
    fn count_tasks(&self) -> ([u64; 3], [u64; 2]) {
        let ended = self.ended();
        (ended, self.spawned())
    }

    /// End (2) and (3), except for closing the registry.
    #[inline]
    fn close_to_new(&self) {
        // End (2)
        self.close_queues_to_new();
        // End (3)
        // ORDERING: Release; pairs with the Acquire in `is_closed`: a thread that sees the
        // runtime closed also sees the tasks that were spawned outside the workers.
        self.closed().store(true, Ordering::Release);
    }
}

/// Returns whether End (3) is done, as far as this thread sees.
#[inline]
pub(crate) fn is_closed(runtime: &impl Ends) -> bool {
    // ORDERING: Acquire; pairs with the Release in `close_to_new`. Between a worker's last check
    // and its sleep is the fence of the park.
    runtime.closed().load(Ordering::Acquire)
}

/// End (4): returns whether workers may end.
#[inline]
pub(crate) fn is_done(runtime: &impl Ends) -> bool {
    is_closed(runtime) && {
        let (ended, spawned) = runtime.count_tasks();
        ended.iter().sum::<u64>() == spawned.iter().sum::<u64>()
    }
}
