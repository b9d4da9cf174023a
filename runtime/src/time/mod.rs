//! Utilities for tracking time: [`sleep()`], [`timeout()`], [`interval()`].
//!
//! Timers have a resolution of 160 µs: a timer fires at the first multiple of 160 µs, counted on
//! the program's clock, at or after its deadline, and never before it. On a test clock it fires
//! exactly at its deadline.
//!
//! The clock is monotonic: changing the system time has no effect. [`Instant`] reads it. Any worker
//! can fire any timer. A task that blocks its worker therefore delays only the tasks queued on that
//! worker, not the timers of other tasks.
//!
//! A [`Sleep`] that is pinned can be awaited by reference, for example to limit a loop:
//!
//! ```
//! use volt::time::{Duration, interval, sleep};
//!
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
//! # runtime.block_on(async {
//! let mut limit = std::pin::pin!(sleep(Duration::from_millis(5)));
//! let mut ticks = interval(Duration::from_millis(1));
//! loop {
//!     volt::select! {
//!         () = &mut limit => break,
//!         _ = ticks.tick() => {}
//!     }
//! }
//! assert!(limit.is_elapsed());
//! # });
//! ```
//!
//! A test can [`pause`] and [`advance`] the clock of a runtime that was built for it; see
//! [`Builder::test_clock`](crate::Builder::test_clock).
//!
//! Except for the methods of [`Instant`], all functions of this module use the timers of the
//! current runtime and must be called inside a runtime. They also panic on a runtime whose time is
//! [disabled](crate::Builder::disable_time). Their futures may be awaited anywhere while that
//! runtime runs.

pub mod error;

mod interval;
mod test_clock;
pub(crate) mod timeout;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use test_clock::{advance, pause, resume};
pub use timeout::{Timeout, timeout, timeout_at};
pub use volt_core::time::{Instant, Sleep, sleep, sleep_until};

#[doc(no_inline)]
pub use std::time::Duration;
