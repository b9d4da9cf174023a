//! The worker that runs on the current thread, if there is one.
//!
//! The worker's thread sets the pointer when it starts and resets it when it ends. Code that
//! submits a task reads it on the same thread, to decide between the worker's own queues and the
//! global one.
//!
//! Invariant: *Worker while set*: the pointer is set to a worker only by `run_as`, and only while
//! the worker is borrowed there.

use std::cell::Cell;
use std::ptr;

use volt_telemetry::recording::event::Waker as By;

use super::Worker;
use crate::task::current::{self, run_outside_tasks};

thread_local! {
    /// A thread-local that needs no destructor is cheaper to access, so this is a plain pointer.
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with the worker of the current thread, if there is one.
#[inline]
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    let worker = WORKER.get();
    // SAFETY: Worker while set: `run_as`, further up the stack of this thread, borrows it.
    f(unsafe { worker.as_ref() })
}

/// Returns the index of the worker that runs on this thread, from 0 to
/// [`num_workers`](crate::handle::metrics::RuntimeMetrics::num_workers) - 1.
///
/// Returns `None` in these cases:
///
/// * The thread is not a worker.
/// * It is a spare worker, which replaces a stuck worker.
/// * It is in [`block_in_place`](crate::context::block_in_place::block_in_place): another thread
///   has taken over the worker's tasks.
///
/// In a current-thread runtime, the thread in `block_on` that runs the tasks is worker 0.
///
/// A task may continue on another worker after each `.await`.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_current_thread().build()?;
/// assert_eq!(runtime.block_on(async { volt::runtime::worker_index() }), Some(0));
/// assert_eq!(volt::runtime::worker_index(), None);
/// # Ok::<(), volt::BuildError>(())
/// ```
pub fn worker_index() -> Option<usize> {
    with_worker(|worker| worker.filter(|worker| !worker.is_spare()).map(Worker::index))
}

/// Returns whether the current thread is a worker.
pub(crate) fn is_worker() -> bool {
    !WORKER.get().is_null()
}

/// Makes the current thread `worker` while `f` runs.
pub(crate) fn run_as(worker: &Worker, f: impl FnOnce()) {
    set(worker, || run_outside_tasks(By::Worker, f));
}

/// Makes the current thread an ordinary thread while `f` runs: for simulated threads, whose steps
/// are taken inside the polls of workers.
#[cfg(test)]
pub(crate) fn run_outside_workers(f: impl FnOnce()) {
    set(ptr::null(), || run_outside_tasks(By::Outside, f));
}

/// Makes the current thread an ordinary thread while `f` runs, which a task has announced as
/// blocking. The current task stays the same.
pub(crate) fn run_blocking(f: impl FnOnce()) {
    set(ptr::null(), || current::run_blocking(f));
}

/// Sets the worker while `f` runs; afterwards the previous one is set again.
fn set(worker: *const Worker, f: impl FnOnce()) {
    struct Reset(*const Worker);
    impl Drop for Reset {
        fn drop(&mut self) {
            WORKER.set(self.0);
        }
    }
    let _reset = Reset(WORKER.replace(worker));
    f();
}
