//! Utilities for tracking time: [`sleep()`], [`timeout()`], [`interval()`].
//!
//! Timers have a resolution of 160 µs: a timer fires at the first multiple of 160 µs, counted on
//! the program's clock, at or after its deadline, and never before it. On a test clock it fires
//! exactly at its deadline.
//!
//! The clock is monotonic (`std::time::Instant`): changing the system time has no effect. Any
//! worker can fire any timer. A task that blocks its worker therefore delays only the tasks queued
//! on that worker, not the timers of other tasks.
//!
//! All functions of this module use the timers of the current runtime and must be called inside a
//! runtime. Their futures may be awaited anywhere while that runtime runs.

mod interval;
mod test_clock;
pub(crate) mod timeout;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use test_clock::{advance, now, pause, resume};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
pub use volt_core::sleep::{Sleep, sleep, sleep_until};

#[doc(no_inline)]
pub use std::time::{Duration, Instant};
