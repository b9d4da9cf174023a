//! A meeting point.

use tokio::sync::BarrierWaitResult;

use super::{Awaits, spend};

/// Lets `n` tasks go on when all of them have arrived, again and again.
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
#[derive(Debug)]
pub struct Barrier(tokio::sync::Barrier);

impl Barrier {
    /// For `n` tasks; 0 is taken for 1.
    pub fn new(n: usize) -> Self {
        Self(tokio::sync::Barrier::new(n))
    }

    /// Waits until all have arrived; one of them is told that it leads.
    ///
    /// # Cancel safety
    /// Not cancel safe: who has arrived stays counted.
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = BarrierWaitResult> {
        spend(Awaits::Others, self.0.wait())
    }
}
