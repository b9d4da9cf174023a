//! The functions of a runtime that the workloads need: tasks, timers, and threads for blocking
//! work.

use std::future::Future;
use std::time::Duration;

/// A runtime; dropping it ends its workers.
pub(crate) trait Peer: Sized + 'static {
    const NAME: &'static str;
    type Join<T: Send + 'static>: Send + 'static;

    fn start(workers: usize) -> Self;

    /// Spawns a task from a thread that is not a worker.
    fn spawn_from_outside<F>(&self, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// Runs the future on the calling thread.
    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// Spawns a task from a task.
    fn spawn<F>(future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    fn join<T: Send + 'static>(join: Self::Join<T>) -> impl Future<Output = T> + Send;
    fn detach<T: Send + 'static>(join: Self::Join<T>);
    fn yield_now() -> impl Future<Output = ()> + Send;
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
    fn unblock(f: impl FnOnce() + Send + 'static) -> impl Future<Output = ()> + Send;

    /// Runs the future as a task and waits for it on the calling thread.
    fn run<F>(&self, future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.block_on(Self::join(self.spawn_from_outside(future)))
    }
}
