//! A barrier that lets a group of tasks continue together.

use tokio::sync::BarrierWaitResult;

use super::wrapper::impl_debug;
use super::{Awaits, spend};

/// Blocks tasks until `n` of them have arrived, then lets them all continue. The barrier can be
/// reused.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let meeting = std::sync::Arc::new(volt::sync::Barrier::new(2));
/// let other = volt::spawn({
///     let meeting = meeting.clone();
///     async move { meeting.wait().await.is_leader() }
/// });
/// let leads = meeting.wait().await.is_leader();
/// assert_ne!(leads, other.await.unwrap(), "one of them leads");
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
pub struct Barrier(tokio::sync::Barrier);

impl_debug!([] Barrier);

impl Barrier {
    /// Creates a barrier for `n` tasks. 0 is treated as 1.
    #[track_caller]
    pub fn new(n: usize) -> Self {
        Self(tokio::sync::Barrier::new(n))
    }

    /// Waits until all `n` tasks have arrived. One of them is designated as the leader.
    ///
    /// # Cancel safety
    /// Not cancel safe: a task that has arrived stays counted.
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = BarrierWaitResult> {
        spend(Awaits::Others, self.0.wait())
    }
}
