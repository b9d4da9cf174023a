//! Functions by which a task lets other tasks run.

use crate::coop;

/// Yields to the other ready tasks: the calling task moves to the tail of its worker's queue.
///
/// # Cancel safety
/// Cancel safe.
///
/// ```
/// # use volt_core as volt;
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async { volt::spawn(async {
/// for chunk in [1, 2, 3] {
///     // … a stretch of computing …
///     volt::task::yield_now().await;
/// #   let _ = chunk;
/// }
/// # }).await.unwrap() });
/// ```
pub async fn yield_now() {
    coop::yield_once().await;
}

/// Consumes one unit of the task's cooperative budget (128 operations per poll by default), and
/// yields if none is left.
///
/// Use it in loops that compute for long and use no socket, timer, lock, channel or join handle of
/// the runtime.
///
/// # Cancel safety
/// Cancel safe.
///
/// ```
/// # use volt_core as volt;
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async { volt::spawn(async {
/// let mut sum = 0u64;
/// for n in 0..10_000 {
///     sum += n;
///     volt::task::consume_budget().await;
/// }
/// # assert_eq!(sum, 49_995_000);
/// # }).await.unwrap() });
/// ```
pub async fn consume_budget() {
    coop::consume().await;
}
