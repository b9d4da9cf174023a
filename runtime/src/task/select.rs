//! The macro `select!`.
//!
//! It is Tokio's macro with one step before it: if the task has no cooperative budget left, it
//! yields first. Tokio's own check reads the budget of Tokio's tasks. The branches of a `select!`
//! may be operations that spend nothing and are always ready, such as a foreign future, so a loop
//! around it would otherwise not yield although the budget is spent.

use std::future::poll_fn;

use volt_core::coop;

/// For the macro: what it expands to.
#[doc(hidden)]
pub use tokio::select as without_budget;

/// For the macro: yields if no unit of the budget is left. Spends nothing.
#[doc(hidden)]
pub async fn budget() {
    poll_fn(|cx| coop::poll_proceed(cx).map(drop)).await;
}

/// Waits for several futures concurrently, and runs the handler of the first one that is ready. The
/// other futures are dropped.
///
/// The syntax and the semantics are those of [Tokio's macro](tokio::select): patterns, conditions
/// (`, if …`), `else` and `biased;`. All futures are polled in the same task, in random order
/// unless `biased;` comes first. If the cooperative budget of the task is spent, it yields before
/// that.
///
/// # Panics
/// Panics if all branches are disabled and there is no `else`.
///
/// # Cancel safety
/// A future that is not ready is dropped, so in a loop, use futures that are cancel safe, or create
/// them outside of the loop.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let (sender, mut receiver) = volt::sync::mpsc::channel(1);
/// sender.send(7).await.unwrap();
/// let got = volt::select! {
///     number = receiver.recv() => number,
///     () = volt::time::sleep(std::time::Duration::from_secs(60)) => None,
/// };
/// assert_eq!(got, Some(7));
/// # });
/// ```
#[macro_export]
macro_rules! select {
    ($($branches:tt)*) => {{
        $crate::task::select::budget().await;
        $crate::task::select::without_budget!($($branches)*)
    }};
}
