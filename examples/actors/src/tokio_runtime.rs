//! The runtime of the libraries that run on Tokio's workers.

use tokio::runtime::{Builder, Runtime};

pub(crate) fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("Tokio starts")
}

/// Runs `task` as a task, and waits for it.
pub(crate) fn run<T: Send + 'static>(runtime: &Runtime, task: impl Future<Output = T> + Send + 'static) -> T {
    runtime.block_on(runtime.spawn(task)).expect("no task of the bench panics")
}
