//! A barrier that lets a group of tasks continue together.

use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::pin;

use tokio::sync::BarrierWaitResult;
use volt_core::task::details::awaits::{Awaits, Pending};
use volt_core::task::resources::{self, Awaited, Key};
use volt_telemetry::dump::Resource;

use super::spend::poll_pending;

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
pub struct Barrier {
    tasks: tokio::sync::Barrier,
    n: usize,
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tasks.fmt(f)
    }
}

impl Barrier {
    /// Creates a barrier for `n` tasks. 0 is treated as 1.
    #[track_caller]
    pub fn new(n: usize) -> Self {
        Self { tasks: tokio::sync::Barrier::new(n), n: n.max(1) }
    }

    /// Waits until all `n` tasks have arrived. One of them is designated as the leader.
    ///
    /// # Cancel safety
    /// Not cancel safe: a task that has arrived stays counted.
    #[track_caller]
    pub fn wait(&self) -> impl Future<Output = BarrierWaitResult> {
        let mut pending = Pending::new(Awaits::Others, Location::caller());
        async move {
            let mut wait = pin!(self.tasks.wait());
            poll_fn(|cx| {
                let polled = poll_pending(&mut pending, cx, |cx| wait.as_mut().poll(cx));
                if polled.is_pending() {
                    let numbers = Resource { wanted: Some(self.n as u64), ..Resource::default() };
                    resources::note(|| Some(Awaited::new(Key::of(self), "barrier", numbers)));
                }
                polled
            })
            .await
        }
    }
}
