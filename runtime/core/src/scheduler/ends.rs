//! When a runtime's workers may end: the counts of tasks, and the order in which they are read.
//!
//! Shape: a tally of spawns for each worker, one for each queue that threads outside push into, and
//! a tally of ends for each worker. `shared`, "How it ends", states the protocol and its proof.
//! Steps (2) to (4) of it are taken here, for the runtime and for the models of `queue/injector`.
//!
//! Ends are read before spawns, since whoever sees the end of a task sees its spawn. Read the other
//! way round, a task that is spawned and ends in between makes the sums equal too early.

use volt_shim::{AtomicBool, Ordering};

/// A runtime, as far as its end goes.
pub(crate) trait Ends {
    /// Tasks that were completed, cancelled, panicked: the sums of the tallies.
    fn ended(&self) -> [u64; 3];

    /// Tasks that were spawned on workers, outside: the sums of the tallies.
    fn spawned(&self) -> [u64; 2];

    /// Whether End (3) is done.
    fn closed(&self) -> &AtomicBool;

    /// End (2): closes every queue to what is new.
    fn close_queues_to_new(&self);

    // The steps that a model can do wrong.

    /// Ends, and then spawns.
    #[inline]
    fn count_tasks(&self) -> ([u64; 3], [u64; 2]) {
        let ended = self.ended();
        (ended, self.spawned())
    }

    /// End (2) and (3), but for the registry.
    #[inline]
    fn close_to_new(&self) {
        // End (2)
        self.close_queues_to_new();
        // End (3)
        // ORDERING: Release; pairs with the Acquire in `is_closed`: who sees the runtime closed
        // sees what was taken in from outside.
        self.closed().store(true, Ordering::Release);
    }
}

/// Whether End (3) is done, as far as can be seen.
#[inline]
pub(crate) fn is_closed(runtime: &impl Ends) -> bool {
    // ORDERING: Acquire; pairs with the Release in `close_to_new`. Between a worker's last check
    // and its sleep stands the fence of the park.
    runtime.closed().load(Ordering::Acquire)
}

/// End (4): whether workers may end.
#[inline]
pub(crate) fn is_done(runtime: &impl Ends) -> bool {
    is_closed(runtime) && {
        let (ended, spawned) = runtime.count_tasks();
        ended.iter().sum::<u64>() == spawned.iter().sum::<u64>()
    }
}
