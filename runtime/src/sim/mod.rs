//! Deterministic simulation: tests that find a race, and replay it by its seed.
//!
//! The result of a program with a race depends on the order in which its tasks are polled. An
//! ordinary test runs them in nearly the same order each time. [`check`] runs a test once for each
//! of many seeds. A *seed* is a number that determines the order of polls. If the test fails, the
//! message contains the seed. Set `VOLT_SEED` to that seed to run the same order again, as often as
//! needed to find the cause.
//!
//! ```should_panic
//! use std::sync::Arc;
//! use volt::sync::Mutex;
//!
//! /// Withdraws 60, if the account has as much.
//! async fn withdraw(balance: Arc<Mutex<i64>>) {
//!     if *balance.lock().await >= 60 {
//!         // The lock is released, so another task may withdraw here.
//!         *balance.lock().await -= 60;
//!     }
//! }
//!
//! volt::sim::check(0..1000, || async {
//!     let balance = Arc::new(Mutex::new(100));
//!     let tasks = [volt::spawn(withdraw(balance.clone())), volt::spawn(withdraw(balance.clone()))];
//!     for task in tasks {
//!         task.await.unwrap();
//!     }
//!     let balance = *balance.lock().await;
//!     assert!(balance >= 0, "the account is overdrawn: {balance}");
//! });
//! ```
//!
//! The test above panics with a message like this one:
//!
//! ```text
//! seed 33 fails, after 33 seeds without a failure: the account is overdrawn: -20
//! schedule 2905971890d14d4a, the same in a second run
//! replay it with: VOLT_SEED=33 cargo test -- --exact account_is_never_overdrawn
//! ```
//!
//! The runtime of each seed is a [current-thread runtime](crate::Builder::new_current_thread) with
//! [`Builder::seed`](crate::Builder::seed), which lists what a seed controls and what it does not.
//! Its clock is simulated: when no task is ready, it advances to the next timer, so an hour of
//! sleep takes no time. If there is no timer either, the run fails: no task can ever be woken. So a
//! lost wake-up is a failure and not a test that never ends.
//!
//! A runtime with a seed has no sockets. [`net`] has simulated connections, whose delays and resets
//! the seed determines, too, and partitions, which the test sets. [`random`] returns numbers for
//! the test itself.
//!
//! This module needs the feature `sim`:
//!
//! ```toml
//! [dev-dependencies]
//! volt = { package = "volt-runtime", version = "0.1", features = ["sim"] }
//! ```

pub mod net;
mod run;

pub use run::{Failure, check, first_failure};

use volt_core::context;

/// Returns the next random number of the sequence that the seed of the current runtime determines.
///
/// The scheduler uses another sequence, so the n-th number is the same in each run with the same
/// seed, whatever the order of polls. The delays and faults of [`net`] use this sequence, too.
///
/// # Panics
/// Panics outside a runtime with a [seed](crate::Builder::seed).
///
/// ```
/// let draw = |seed| {
///     let runtime = volt::Builder::new_current_thread().seed(seed).build().unwrap();
///     runtime.block_on(async { volt::sim::random() })
/// };
/// assert_eq!(draw(1), draw(1));
/// assert_ne!(draw(1), draw(2));
/// ```
#[track_caller]
pub fn random() -> u64 {
    drawn(context::draw())
}

/// Returns a random number in `0..n` from the same sequence as [`random`], or 0 for `n = 0`.
///
/// # Panics
/// Panics outside a runtime with a [seed](crate::Builder::seed).
///
/// ```
/// volt::sim::check(0..10, || async {
///     let dice = 1 + volt::sim::below(6);
///     assert!((1..=6).contains(&dice));
/// });
/// ```
#[track_caller]
pub fn below(n: u64) -> u64 {
    drawn(context::draw_below(n))
}

#[track_caller]
fn drawn(number: Option<u64>) -> u64 {
    match number {
        Some(number) => number,
        None => panic!("there is no seed to draw from: call this inside a runtime that was built with Builder::seed"),
    }
}
