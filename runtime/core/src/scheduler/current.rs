//! Which worker this thread is.
//!
//! Who writes: the worker's thread, when it starts and ends. Who reads: whoever submits a task, on
//! the same thread.
//!
//! Invariant: *Worker while set*: the pointer is set only by [`run_as`], for the time that the
//! worker is borrowed there.

use std::cell::Cell;
use std::ptr;

use volt_telemetry::recording::event::Waker as By;

use super::worker::Worker;
use crate::task::current::{self, run_outside_tasks};

thread_local! {
    /// By itself, since what needs no destructor is cheaper to reach.
    static WORKER: Cell<*const Worker> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with the worker that this thread is, if it is one.
#[inline]
pub(crate) fn with_worker<R>(f: impl FnOnce(Option<&Worker>) -> R) -> R {
    let worker = WORKER.get();
    // SAFETY: Worker while set: `run_as`, further up this thread's stack, borrows it.
    f(unsafe { worker.as_ref() })
}

/// Whether this thread is a worker.
pub(crate) fn is_worker() -> bool {
    !WORKER.get().is_null()
}

/// Makes this thread `worker` while `f` runs.
pub(crate) fn run_as(worker: &Worker, f: impl FnOnce()) {
    set(worker, || run_outside_tasks(By::Worker, f));
}

/// Makes this thread no worker while `f` runs: for simulated threads, whose steps are taken inside
/// the polls of workers.
#[cfg(test)]
pub(crate) fn run_outside_workers(f: impl FnOnce()) {
    set(ptr::null(), || run_outside_tasks(By::Outside, f));
}

/// The same for what a task says will block. The task stays what it is.
pub(crate) fn run_blocking(f: impl FnOnce()) {
    set(ptr::null(), || current::run_blocking(f));
}

/// The worker before is set again afterwards.
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
