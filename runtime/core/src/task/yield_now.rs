//! Letting others run.

use crate::coop;

/// Lets the other tasks that are ready run first: the calling task goes to the tail of its worker's
/// ring.
///
/// # Cancel safety
/// Cancel safe: it holds nothing.
///
/// ```
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

/// Spends one unit of the task's cooperative budget (128 operations a poll by default) and yields
/// if none is left: for loops that compute and touch no socket, timer or handle of the runtime's.
///
/// # Cancel safety
/// Cancel safe: it holds nothing.
///
/// ```
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
