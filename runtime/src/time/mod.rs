//! Waiting for time to pass: [`sleep()`], [`timeout()`], [`interval()`].
//!
//! Timers have a resolution of 160 µs: one fires at the first such boundary of the process's clock
//! at or after its deadline, never before it. On a clock that a test controls it fires at its
//! deadline. The clock is the monotonic one (`std::time::Instant`); setting the system's date
//! changes nothing. Any worker fires what is due, so a task that blocks its worker delays no timers
//! but those of the tasks behind it.
//!
//! All functions here must be called inside a runtime, whose timers they use; the futures may be
//! awaited anywhere, as long as that runtime runs.

mod interval;
mod test_clock;
pub(crate) mod timeout;

pub use interval::{Interval, MissedTickBehavior, interval, interval_at};
pub use test_clock::{advance, now, pause, resume};
pub use timeout::{Elapsed, Timeout, timeout, timeout_at};
pub use volt_core::sleep::{Sleep, sleep, sleep_until};

#[doc(no_inline)]
pub use std::time::{Duration, Instant};
