//! The task that writes a line of the log: what the line reports about it.
//!
//! All of it is read on the thread that polls the task, so no synchronization is needed.

use super::worker::current::{with_worker, worker_index};
use crate::task::current;
use crate::task::header::Header;
use crate::task::id::Id;

/// The task that runs on this thread, for a line of the log.
#[derive(Debug)]
pub struct Logged<'a> {
    /// The task's id.
    pub id: Id,
    /// The task's name, if it has one.
    pub name: Option<&'a str>,
    /// The worker that polls the task: see [`worker_index`]. `None` in a job of the blocking pool.
    pub worker: Option<usize>,
    /// How long the task waited in a queue before this poll, ns. `None` if a worker does not poll
    /// the task itself: in a `LocalSet`, in a dump, in `block_in_place`, on the blocking pool, and
    /// after the task has completed.
    pub queue_delay_ns: Option<u64>,
}

/// Calls `f` with the task that runs on this thread, if there is one: the one that
/// [`try_id`](current::try_id) returns. Allocates nothing.
pub fn with_logged<R>(f: impl FnOnce(Option<Logged<'_>>) -> R) -> R {
    current::with(|task| match task.map(|task| task.header()) {
        Some(task) => {
            let queue_delay_ns = queue_delay_ns(task);
            f(Some(Logged { id: task.id, name: task.name(), worker: worker_index(), queue_delay_ns }))
        }
        // In the destructor of a task's output, the task has completed.
        None => f(current::try_id().map(|id| Logged { id, name: None, worker: worker_index(), queue_delay_ns: None })),
    })
}

/// Returns how long the task that runs on this thread waited before its poll, if a worker polls it.
fn queue_delay_ns(task: &Header) -> Option<u64> {
    let began_at_ns = with_worker(|worker| worker?.cells().began_at_ns_of(task.id.as_u64()));
    // A task that is woken during its poll is submitted after it.
    began_at_ns.map(|began_at_ns| began_at_ns.saturating_sub(task.submitted_at_ns()))
}
