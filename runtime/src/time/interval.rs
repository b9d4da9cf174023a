//! Ticks at a fixed period.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::time::test_clock::now;
use volt_core::sleep::{Sleep, after, sleep_until};

/// A tick that comes later than this was missed, and [`MissedTickBehavior`] applies: well above a
/// timer's own lateness.
const MISSED_AFTER: Duration = Duration::from_millis(5);

/// Ticks every `period`; the first tick is at once.
///
/// # Panics
/// If `period` is zero. Outside a runtime.
///
/// ```
/// use std::time::{Duration, Instant};
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
    interval_at(now(), period)
}

/// Ticks every `period`; the first tick is at `start`.
///
/// # Panics
/// If `period` is zero. Outside a runtime.
///
/// ```
/// use std::time::{Duration, Instant};
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
    assert!(!period.is_zero(), "an interval's period must not be zero");
    Interval { sleep: sleep_until(start), period, missed_tick_behavior: MissedTickBehavior::default() }
}

/// What an [`Interval`] does after a tick that was taken more than 5 ms late.
///
/// ```text
/// due     |  1  |  2  |  3  |  4  |  5  |  6  |
/// taken   |  1  |  2 ---- busy ---- |...
/// Burst                             345  |  6  |     as many ticks as were due, at once, then as planned
/// Delay                             3     |  4       a full period after each late tick
/// Skip                              3    |  6  |     the next tick of the plan, the ones in between left out
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTickBehavior {
    /// Catch up, without a pause between missed ticks. The number of ticks stays right.
    #[default]
    Burst,
    /// Begin anew from the late tick. The distance between ticks stays right.
    Delay,
    /// Leave out what was missed. The phase stays right.
    Skip,
}

impl MissedTickBehavior {
    /// When the next tick is due after one that was due at `due` and was taken late, at `now`.
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

/// What [`interval`] and [`interval_at`] give.
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed_tick_behavior: MissedTickBehavior,
}

impl Interval {
    /// Waits for the next tick; gives the instant at which it was due.
    ///
    /// # Panics
    /// When awaited after the runtime was shut down.
    ///
    /// # Cancel safety
    /// A tick that was waited for and not taken comes next time.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick. Of several tasks that do so, the last one is woken.
    ///
    /// # Panics
    /// As [`tick`](Self::tick).
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Future::poll(Pin::new(&mut self.sleep), cx));
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

    /// The next tick comes one period from now.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// The next tick comes at once.
    pub fn reset_immediately(&mut self) {
        self.reset_at(self.sleep.now());
    }

    /// The next tick comes after `duration`.
    pub fn reset_after(&mut self, duration: Duration) {
        self.reset_at(after(self.sleep.now(), duration));
    }

    /// The next tick comes at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
    }

    /// What happens after a missed tick.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed_tick_behavior
    }

    /// Sets what happens after a missed tick.
    ///
    /// ```
    /// use std::time::Duration;
    /// use volt::time::{MissedTickBehavior, interval};
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

    /// Time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_tick_is_followed_by_the_next_one_as_each_behaviour_says() {
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
