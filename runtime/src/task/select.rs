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
#[cfg(not(feature = "sim"))]
pub use tokio::select as without_budget;

/// For the macro: what it expands to with the feature `sim`. It passes the index of the branch that
/// is polled first to Tokio's macro, which would otherwise draw it. Only this feature depends on
/// the form in which Tokio's macro passes that index to itself.
#[doc(hidden)]
#[cfg(feature = "sim")]
#[macro_export]
macro_rules! select_from_seed {
    (biased; $($branches:tt)*) => { $crate::task::select::of_tokio!(biased; $($branches)*) };
    ($first:pat = $($branches:tt)*) => {
        $crate::task::select::of_tokio!(@{ start={ $crate::task::select::start(BRANCHES) }; () } $first = $($branches)*)
    };
    ($($others:tt)*) => { $crate::task::select::of_tokio!($($others)*) };
}
#[doc(hidden)]
#[cfg(feature = "sim")]
pub use {select_from_seed as without_budget, tokio::select as of_tokio};

/// For the macro: chooses the branch that is polled first, of `branches`; from the seed of the
/// runtime, if it has one.
#[doc(hidden)]
#[cfg(feature = "sim")]
pub fn start(branches: u32) -> u32 {
    let drawn = volt_core::context::draw_branch(u64::from(branches));
    drawn.map_or_else(|| tokio::macros::support::thread_rng_n(branches), |branch| branch as u32)
}

/// For the macro: yields if no unit of the budget is left. Spends nothing.
#[doc(hidden)]
pub async fn budget() {
    poll_fn(|cx| coop::poll_proceed(cx).map(drop)).await;
}

/// Waits for several futures concurrently, and runs the handler of the first one that is ready. The
/// other futures are dropped.
///
/// The syntax and the semantics are those of [Tokio's macro](tokio::select): patterns, conditions
/// (`, if …`), `else` and `biased;`. All futures are polled in the same task, one after the other.
/// The first one is chosen at random, unless `biased;` comes first. If the cooperative budget of
/// the task is spent, it yields before that.
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
