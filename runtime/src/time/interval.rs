//! [`Interval`]: ticks at a fixed period.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use volt_core::context;
use volt_core::sleep::{RawSleep, after};
use volt_core::time::Instant;

/// A tick that is taken later than this after its due time counts as missed, and
/// [`MissedTickBehavior`] applies. The value is well above the lateness of timers themselves.
const MISSED_AFTER: Duration = Duration::from_millis(5);
/// The panic message for a period of zero.
const ZERO_PERIOD: &str = "`period` must be non-zero.";

/// Creates an [`Interval`] that ticks every `period`. The first tick completes immediately.
///
/// The period is measured from tick to tick. So a loop that awaits `tick` runs once per period, as
/// long as its body takes less than that. A loop that awaits [`sleep`](crate::time::sleep) adds the
/// time of its body to each period. If a tick is missed, [`MissedTickBehavior`] determines the next
/// one.
///
/// # Panics
/// Panics if `period` is zero, or if called outside a runtime.
///
/// ```
/// use volt::time::{Duration, Instant};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let began = Instant::now();
/// let mut interval = volt::time::interval(Duration::from_millis(5));
/// for _ in 0..3 {
///     interval.tick().await;
/// }
/// assert!(began.elapsed() >= Duration::from_millis(10));
/// # });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "{ZERO_PERIOD}");
    interval_at(Instant::now(), period)
}

/// Creates an [`Interval`] that ticks every `period`. The first tick completes at `start`.
///
/// # Panics
/// Panics if `period` is zero, or if called outside a runtime.
///
/// ```
/// use volt::time::{Duration, Instant};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let start = Instant::now() + Duration::from_millis(5);
/// let mut interval = volt::time::interval_at(start, Duration::from_secs(60));
/// assert_eq!(interval.tick().await, start);
/// # });
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "{ZERO_PERIOD}");
    Interval {
        sleep: RawSleep::until(context::timers(), start),
        period,
        missed_tick_behavior: MissedTickBehavior::default(),
    }
}

/// Defines how an [`Interval`] behaves after a tick that was taken more than 5 ms late.
///
/// ```text
/// due     |  1  |  2  |  3  |  4  |  5  |  6  |
/// taken   |  1  |  2 ---- busy ---- |...
/// Burst                             345  |  6  |     the missed ticks immediately, then the original schedule
/// Delay                             3     |  4       one full period after each late tick
/// Skip                              3    |  6  |     the next tick of the schedule; missed ticks are skipped
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Ticks as fast as possible until caught up. The number of ticks stays correct.
    #[default]
    Burst,
    /// Ticks one full period after the late tick, and so on. The distance between ticks stays
    /// correct.
    Delay,
    /// Skips missed ticks and continues with the next tick of the original schedule. The phase
    /// stays correct.
    Skip,
}

impl MissedTickBehavior {
    /// Returns the due time of the next tick, after a tick that was due at `due` and taken late, at
    /// `now`.
    fn next(self, due: Instant, now: Instant, period: Duration) -> Instant {
        match self {
            MissedTickBehavior::Burst => after(due, period),
            MissedTickBehavior::Delay => after(now, period),
            MissedTickBehavior::Skip => {
                let late_ns = now.saturating_duration_since(due).as_nanos() % period.as_nanos();
                let late = Duration::from_nanos(u64::try_from(late_ns).unwrap_or(u64::MAX));
                after(now, period.saturating_sub(late))
            }
        }
    }
}

/// The interval returned by [`interval`] and [`interval_at`].
#[derive(Debug)]
pub struct Interval {
    sleep: RawSleep,
    period: Duration,
    missed_tick_behavior: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick, and returns the instant at which it was due.
    ///
    /// # Panics
    /// Panics if awaited after the runtime was shut down.
    ///
    /// # Cancel safety
    /// Cancel safe: if the future is dropped before it completes, the next call returns the same
    /// tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick. If several tasks poll, only the last one is woken.
    ///
    /// # Panics
    /// Same as [`tick`](Self::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        let now = self.sleep.now();
        let next = if now.saturating_duration_since(due) > MISSED_AFTER {
            self.missed_tick_behavior.next(due, now, self.period)
        } else {
            after(due, self.period)
        };
        self.sleep.reset_disarmed(next);
        Poll::Ready(due)
    }

    /// Resets the interval: the next tick completes one period from now.
    ///
    /// ```
    /// use volt::time::{Duration, Instant, advance, interval};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).start_paused(true).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut interval = interval(Duration::from_millis(100));
    /// interval.tick().await;
    /// advance(Duration::from_millis(50)).await;
    /// interval.reset();
    /// let began = Instant::now();
    /// interval.tick().await;
    /// assert_eq!(began.elapsed(), Duration::from_millis(100));
    /// # });
    /// ```
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Resets the interval: the next tick completes immediately.
    pub fn reset_immediately(&mut self) {
        self.reset_at(self.sleep.now());
    }

    /// Resets the interval: the next tick completes after `duration`.
    pub fn reset_after(&mut self, duration: Duration) {
        self.reset_at(after(self.sleep.now(), duration));
    }

    /// Resets the interval: the next tick completes at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
    }

    /// Returns the behavior after a missed tick. Default [`MissedTickBehavior::Burst`].
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed_tick_behavior
    }

    /// Sets the behavior after a missed tick.
    ///
    /// ```
    /// use volt::time::{Duration, MissedTickBehavior, interval};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut interval = interval(Duration::from_millis(100));
    /// interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    /// # });
    /// ```
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed_tick_behavior = behavior;
    }

    /// Returns the period of the interval.
    pub fn period(&self) -> Duration {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missed_tick_behavior_schedules_the_next_tick() {
        let ms = Duration::from_millis;
        let due = Instant::now();
        let now = due + ms(25);
        assert_eq!(MissedTickBehavior::Burst.next(due, now, ms(10)), due + ms(10));
        assert_eq!(MissedTickBehavior::Delay.next(due, now, ms(10)), due + ms(35));
        assert_eq!(MissedTickBehavior::Skip.next(due, now, ms(10)), due + ms(30));
        assert_eq!(
            MissedTickBehavior::Skip.next(due, due + ms(20), ms(10)),
            due + ms(30),
            "exactly on a tick of the plan"
        );
        assert!(MissedTickBehavior::Delay.next(due, now, Duration::MAX) > now, "no overflow");
    }
}
