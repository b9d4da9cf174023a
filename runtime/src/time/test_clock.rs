//! A clock that tests can control.
//!
//! A runtime built with [`Builder::test_clock`](crate::Builder::test_clock) or
//! [`start_paused`](crate::Builder::start_paused) uses a separate clock for its timers. While that
//! clock is paused, sleeping takes no real time: when the runtime has nothing left to do but wait
//! for a timer, the clock advances to that timer. A test of one hour then takes a millisecond and
//! gives the same result each time. [`Instant::now`](crate::time::Instant::now) returns the time of
//! that clock.

use std::time::Duration;

use crate::task::yield_now;
use volt_core::context;
use volt_core::driver::test_clock::TestClock;
use volt_core::driver::turn::Driver;

/// The panic message if the clock runs. It begins with Tokio's message, for which programs search.
const NOT_FROZEN: &str = "time is not frozen: the test clock of this runtime runs; `volt::time::pause` pauses it";

/// Pauses the clock of the current runtime.
///
/// Timers then fire only when the clock is [advanced](advance), or when it advances automatically:
/// as soon as no task can run, no blocking closure runs and every thread in `block_on` waits, the
/// clock jumps to the next timer. If sockets are open, it first waits 1 ms for their events.
///
/// [`Instant::now`](crate::time::Instant::now) returns the same instant until the clock moves.
///
/// # Panics
/// Panics if called outside a runtime, if the runtime has no test clock, or if the clock is already
/// paused.
///
/// ```
/// use volt::time::{Duration, Instant, advance, pause};
///
/// # fn main() -> Result<(), volt::BuildError> {
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).test_clock(true).build()?;
/// runtime.block_on(async {
///     pause();
///     let began = Instant::now();
///     advance(Duration::from_secs(60)).await;
///     assert_eq!(began.elapsed(), Duration::from_secs(60));
/// });
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn pause() {
    let driver = context::timers();
    // The message begins with Tokio's, for which programs search.
    assert!(
        clock(&driver).pause().is_ok(),
        "time is already frozen: the test clock of this runtime is paused; `volt::time::resume` resumes it"
    );
    // A thread that is parked in the driver has computed its timeout from the running clock.
    driver.unpark();
}

/// Resumes the clock of the current runtime, from its current value.
///
/// # Panics
/// Panics if called outside a runtime, if the runtime has no test clock, or if the clock is not
/// paused.
///
/// ```
/// use volt::time::{Duration, pause, resume, sleep};
///
/// # fn main() -> Result<(), volt::BuildError> {
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).test_clock(true).build()?;
/// runtime.block_on(async {
///     pause();
///     sleep(Duration::from_secs(3600)).await;
///     resume();
///     // This sleep takes real time.
///     sleep(Duration::from_millis(5)).await;
/// });
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn resume() {
    assert!(clock(&context::timers()).resume().is_ok(), "{NOT_FROZEN}");
}

/// Advances the clock of the current runtime by `duration`.
///
/// Wakes the tasks whose timers are due by then, to the nanosecond, and yields once. Other workers
/// may still be polling those tasks when this returns.
///
/// # Panics
/// Panics if called outside a runtime, if the runtime has no test clock, or if the clock is not
/// paused.
///
/// # Cancel safety
/// The first poll advances the clock, even if the future is dropped afterwards.
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
    let driver = context::timers();
    assert!(clock(&driver).advance(duration).is_ok(), "{NOT_FROZEN}");
    driver.fire_due();
    yield_now().await;
}

#[track_caller]
fn clock(driver: &Driver) -> &TestClock {
    driver.test_clock.as_ref().expect(
        "this runtime has no test clock: build it with Builder::test_clock(true), or paused from the start with Builder::start_paused(true)",
    )
}
