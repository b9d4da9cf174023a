//! `sleep`, the timer on which all other timers of Volt are built.
//!
//! A [`Sleep`] consists of a deadline and, once it was polled, the key of its entry in the
//! runtime's timer wheel, with the identity of the waker in that entry.
//!
//! Invariants:
//! * *Last waker*: the wheel contains the waker of the last poll.
//! * *The clock decides*: a sleep is over when both the program's clock and the system clock have
//!   passed the deadline, not when it was woken. A superfluous wake-up costs a poll, and the sleep
//!   never ends early. A timer that fires before the system clock has reached the deadline, because
//!   the program's clock was corrected meanwhile, is armed again.
//! * *Same waker*: two wakers with the same identity wake the same task as long as one of them
//!   lives. The one in the wheel lives until its timer has fired and it was called; that is checked
//!   first.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::clock::Both;
use crate::driver::turn::Driver;
use crate::driver::wheel::Key;
use crate::{clock, context, coop};

/// The distance of "never": 30 years, since `Instant` has no maximum.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Waits until `duration` has elapsed.
///
/// Waits at least that long, and usually less than a quarter of a millisecond longer (see the
/// module `volt::time`). A duration that exceeds the range of `Instant` is replaced by 30 years, so
/// `Duration::MAX` waits practically forever.
///
/// # Panics
/// Panics if called outside of a runtime, and when awaited after the runtime was shut down.
///
/// # Cancel safety
/// This function is cancel safe. Dropping the future disarms the timer.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let began = Instant::now();
/// volt::time::sleep(Duration::from_millis(10)).await;
/// assert!(began.elapsed() >= Duration::from_millis(10));
/// # });
/// ```
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::after(context::driver(), duration)
}

/// Waits until `deadline`. Completes immediately if it has passed.
///
/// # Panics
/// Same as [`sleep`].
///
/// # Cancel safety
/// Same as [`sleep`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let deadline = Instant::now() + Duration::from_millis(5);
/// volt::time::sleep_until(deadline).await;
/// assert!(Instant::now() >= deadline);
/// # });
/// ```
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::on(context::driver(), deadline)
}

/// Returns `start + duration`, or 30 years from now if there is no such instant.
pub fn after(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or_else(|| Instant::now() + FAR)
}

/// Future returned by [`sleep`] and [`sleep_until`]. It remains ready once its deadline has passed.
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Sleep {
    driver: Arc<Driver>,
    deadline: Instant,
    /// The deadline on the program's clock.
    deadline_ns: u64,
    /// The entry in the wheel. It may have fired since.
    armed: Option<Armed>,
}

struct Armed {
    key: Key,
    waker: Identity,
}

/// The identity of a waker. A clone of the waker instead would cost two read-modify-writes per
/// sleep.
#[derive(PartialEq, Eq)]
struct Identity {
    data: usize,
    vtable: usize,
}

impl Identity {
    #[inline]
    fn of(waker: &Waker) -> Self {
        Self { data: waker.data().addr(), vtable: std::ptr::from_ref(waker.vtable()).addr() }
    }
}

impl Sleep {
    /// Creates a sleep on `driver`, independent of the runtime that this thread is in.
    pub(crate) fn on(driver: Arc<Driver>, deadline: Instant) -> Sleep {
        let clocks = driver.now();
        Sleep::new(driver, clocks, deadline)
    }

    /// Creates a sleep of `duration` on `driver`.
    #[doc(hidden)]
    pub fn after(driver: Arc<Driver>, duration: Duration) -> Sleep {
        let clocks = driver.now();
        Sleep::new(driver, clocks, after(clocks.now, duration))
    }

    /// Returns the present time on the clock of its driver.
    #[doc(hidden)]
    pub fn now(&self) -> Instant {
        self.driver.now().now
    }

    fn new(driver: Arc<Driver>, clocks: Both, deadline: Instant) -> Sleep {
        Sleep { driver, deadline, deadline_ns: clocks.ns_of(deadline), armed: None }
    }

    /// Returns the instant at which the sleep ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether the deadline has passed.
    pub fn is_elapsed(&self) -> bool {
        // The program's clock stays within microseconds of `Instant`. A sleep must not end early by
        // either of them.
        match &self.driver.test_clock {
            None => clock::now_ns() >= self.deadline_ns && Instant::now() >= self.deadline,
            Some(clock) => clock.now_ns() >= self.deadline_ns,
        }
    }

    /// Sets another deadline, earlier or later, even after the sleep has ended. A task that awaits
    /// it is woken at the new deadline.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut sleep = volt::time::sleep(Duration::from_secs(3600));
    /// sleep.reset(Instant::now() + Duration::from_millis(5));
    /// sleep.await;
    /// # });
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.move_timer();
    }

    /// Moves the timer to where the deadline is on the program's clock.
    fn move_timer(&mut self) {
        self.deadline_ns = self.driver.now().ns_of(self.deadline);
        let armed = self.armed.as_ref();
        if !armed.is_some_and(|armed| self.driver.reset_timer(armed.key, self.deadline_ns)) {
            self.armed = None;
        }
    }

    /// Same as [`reset`](Self::reset), but only the next poll arms the timer.
    #[doc(hidden)]
    pub fn reset_disarmed(&mut self, deadline: Instant) {
        self.disarm();
        self.deadline = deadline;
        self.deadline_ns = self.driver.now().ns_of(deadline);
    }

    /// Polls without using the cooperative budget: for a time-out, whose inner future may have used
    /// all of it.
    #[doc(hidden)]
    #[inline]
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_elapsed() {
            // Checked in each iteration, since a shutdown, too, removes the entry from the wheel.
            assert!(!self.driver.timers.is_shut_down(), "{SHUT_DOWN}");
            let waker = Identity::of(cx.waker());
            match &mut self.armed {
                // See *The clock decides*.
                Some(_) if self.driver.timers.has_fired(self.deadline_ns) => self.move_timer(),
                // See *Same waker*.
                Some(armed) if armed.waker == waker => return Poll::Pending,
                Some(armed) => {
                    if self.driver.timers.set_waker(armed.key, cx.waker().clone()) {
                        armed.waker = waker;
                        return Poll::Pending;
                    }
                    // It fired in between: the clock has moved.
                    self.armed = None;
                }
                None => {
                    let key = self.driver.arm_timer(self.deadline_ns, cx.waker().clone()).expect(SHUT_DOWN);
                    self.armed = Some(Armed { key, waker });
                    return Poll::Pending;
                }
            }
        }
        self.disarm();
        Poll::Ready(())
    }

    fn disarm(&mut self) {
        if let Some(armed) = self.armed.take()
            && !self.driver.timers.has_fired(self.deadline_ns)
        {
            self.driver.timers.disarm(armed.key);
        }
    }
}

/// The message of the panic if a sleep can never end.
const SHUT_DOWN: &str = "the runtime whose timer this is was shut down, so it would never fire";

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let unit = ready!(coop::poll_proceed(cx));
        ready!(self.poll_elapsed(cx));
        unit.made_progress();
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .field("is_armed", &self.armed.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::builder::Builder;

    #[test]
    fn a_sleep_rearms_if_its_timer_fires_before_the_deadline() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (ended, end) = mpsc::channel();
        let task = runtime.spawn(async move {
            let began = Instant::now();
            let mut sleep = sleep(Duration::from_millis(30));
            // As if the program's clock had been behind when the sleep was created, and was
            // corrected since.
            sleep.deadline_ns = clock::now_ns() + 1_000_000;
            sleep.await;
            ended.send(began.elapsed()).unwrap();
        });
        let took = end.recv_timeout(Duration::from_secs(10)).expect("the sleep ends");
        assert!(took >= Duration::from_millis(30), "{took:?}");
        runtime.block_on(task).unwrap();
    }
}
