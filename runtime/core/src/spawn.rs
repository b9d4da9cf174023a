//! The function that spawns a task onto the current runtime.

use std::future::Future;
use std::panic::Location;

use crate::context;
use crate::task::join::JoinHandle;

/// Spawns a task onto the current runtime and returns a [`JoinHandle`] for it.
///
/// The task runs concurrently with its caller, even if the handle is not awaited. Dropping the
/// handle detaches the task; it keeps running. In a current-thread runtime, tasks run only while a
/// thread is in [`Runtime::block_on`](crate::Runtime::block_on).
///
/// The shutdown of the runtime cancels tasks that have not completed. To be certain that a task
/// completes, await its handle first. If the runtime is already shutting down, the task is
/// cancelled immediately, and awaiting the handle returns a [`JoinError`](crate::task::JoinError).
///
/// The future must be `Send`, so it must not keep a value such as an `Rc` across an `.await`. For
/// futures that do, see `volt::task::spawn_local`.
///
/// # Panics
/// Panics if called outside a runtime.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// runtime.block_on(async {
///     let tasks: Vec<_> = (0..3).map(|n| volt::spawn(async move { n * n })).collect();
///     let mut sum = 0;
///     for task in tasks {
///         sum += task.await.unwrap();
///     }
///     assert_eq!(sum, 5);
/// });
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    context::handle().spawn_at(future, None, Location::caller())
}
