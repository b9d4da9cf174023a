//! Time that a test controls.
//!
//! A runtime built with [`Builder::test_clock`](crate::Builder::test_clock) or
//! [`start_paused`](crate::Builder::start_paused) has a clock of its own for its timers. While that
//! is paused, sleeps cost no time: as soon as nothing is left to be done but to wait for a timer,
//! the clock moves on to it. So a test of an hour takes a millisecond, and gives the same result
//! each time.

use std::time::{Duration, Instant};

use crate::task::yield_now;
use volt_core::context;
use volt_core::driver::test_clock::TestClock;
use volt_core::driver::turn::Driver;

/// Now, on the clock of the current runtime's timers: `Instant::now()`, unless a test has paused it
/// or moved it on.
///
/// # Panics
/// Outside a runtime.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> Result<(), volt::BuildError> {
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).start_paused(true).build()?;
/// runtime.block_on(async {
///     let began = volt::time::now();
///     volt::time::sleep(Duration::from_secs(3600)).await;
///     assert!(volt::time::now() - began >= Duration::from_secs(3600));
/// });
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn now() -> Instant {
    context::driver().now().now
}

/// Stops the clock of the current runtime. Timers fire only when it is [advanced](advance), or
/// moves on by itself: when no task can run, no blocking job is under way and every thread in
/// `block_on` waits, it moves on to the next timer at once.
///
/// # Panics
/// Outside a runtime; if it has no test clock, or is paused already.
#[track_caller]
pub fn pause() {
    let driver = context::driver();
    assert!(clock(&driver).pause().is_ok(), "the clock is paused already");
    // Whoever sleeps there sleeps by the clock that went on.
    driver.unpark();
}

/// Lets the clock of the current runtime go on, from where it stands.
///
/// # Panics
/// Outside a runtime; if it has no test clock, or is not paused.
#[track_caller]
pub fn resume() {
    assert!(clock(&context::driver()).resume().is_ok(), "the clock is not paused");
}

/// Moves the clock of the current runtime on, wakes the tasks whose timers are due then, to the
/// nanosecond, and yields once. Other workers may still be polling them when this returns.
///
/// # Panics
/// Outside a runtime; if it has no test clock, or is not paused.
///
/// # Cancel safety
/// The clock has moved on by the first poll.
///
/// ```
/// use std::time::Duration;
///
/// # fn main() -> Result<(), volt::BuildError> {
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).start_paused(true).build()?;
/// runtime.block_on(async {
///     let sleeper = volt::spawn(volt::time::sleep(Duration::from_secs(60)));
///     volt::time::advance(Duration::from_secs(61)).await;
///     sleeper.await.unwrap();
/// });
/// # Ok(())
/// # }
/// ```
pub async fn advance(duration: Duration) {
    let driver = context::driver();
    assert!(
        clock(&driver).advance(duration).is_ok(),
        "the clock is not paused: only one that stands still is moved on"
    );
    driver.fire_due();
    yield_now().await;
}

#[track_caller]
fn clock(driver: &Driver) -> &TestClock {
    driver.test_clock.as_ref().expect(
        "this runtime has no test clock: build it with Builder::test_clock(true), or paused from the start with Builder::start_paused(true)",
    )
}
