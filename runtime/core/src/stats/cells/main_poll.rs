//! The poll of a main future, which has no task: a `block_on` that is the worker of a
//! current-thread runtime.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::Ordering;

use super::WorkerCells;
use crate::stats::counting;

impl WorkerCells {
    /// A poll of the main future `id` begins; `location` is the line that called `block_on`. As
    /// [`begin_poll`](Self::begin_poll), without the delay and the account of a task.
    pub(crate) fn begin_poll_of_main(&self, id: u64, location: &'static Location<'static>, now_ns: u64) {
        if !counting::IS_ON {
            return;
        }
        // In-flight is a sequence lock, begin (1).
        self.task_id.set(id);
        // ORDERING: Relaxed; published by the Release below.
        self.location.store(ptr::from_ref(location).cast_mut(), Ordering::Relaxed);
        self.poll_began_at_ns.set(now_ns);
        // Begin (2).
        // ORDERING: as in `begin_poll`.
        self.poll_seq.store(self.poll_seq.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}
