//! [`Instant`]: the standard library's, on a clock that a test can pause.
//!
//! The timers of a runtime with a test clock follow that clock. All functions of `volt::time` that
//! take or return an instant use this type, so that a program measures time by the clock of its
//! timers.
//!
//! Cost. While the program has no runtime with a test clock, [`Instant::now`] is the standard
//! library's and one load of a static. Afterwards it also reads the current runtime from a
//! thread-local.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::{self, Duration};

use crate::context;

/// A measurement of the runtime's monotonic clock.
///
/// Wraps [`std::time::Instant`]. The two differ in [`now`](Self::now) only: in a runtime with a
/// [test clock](crate::builder::Builder::test_clock) it returns the time of that clock, which tests
/// pause and advance. Both types convert into each other with `From`, [`from_std`](Self::from_std)
/// and [`into_std`](Self::into_std).
///
/// ```
/// # use volt_core as volt;
/// use volt::time::{Duration, Instant, sleep};
///
/// # fn main() -> Result<(), volt::BuildError> {
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).start_paused(true).build()?;
/// runtime.block_on(async {
///     let began = Instant::now();
///     sleep(Duration::from_secs(3600)).await;
///     assert_eq!(began.elapsed(), Duration::from_secs(3600));
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    std: time::Instant,
}

impl Instant {
    /// Returns the current time.
    ///
    /// This is the time of the current runtime's test clock, if it has one, and otherwise that of
    /// [`std::time::Instant::now`]. May be called outside a runtime.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::Instant;
    ///
    /// let first = Instant::now();
    /// assert!(Instant::now() >= first);
    /// ```
    #[inline]
    pub fn now() -> Instant {
        Instant { std: context::test_now().unwrap_or_else(time::Instant::now) }
    }

    /// Creates an instant from the standard library's.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let std = std::time::Instant::now();
    /// assert_eq!(volt::time::Instant::from_std(std).into_std(), std);
    /// ```
    pub fn from_std(std: time::Instant) -> Instant {
        Instant { std }
    }

    /// Converts the instant into the standard library's.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let now: std::time::Instant = volt::time::Instant::now().into_std();
    /// ```
    pub fn into_std(self) -> time::Instant {
        self.std
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant};
    ///
    /// let now = Instant::now();
    /// let later = now + Duration::from_secs(1);
    /// assert_eq!(later.duration_since(now), Duration::from_secs(1));
    /// assert_eq!(now.duration_since(later), Duration::ZERO);
    /// ```
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.std.saturating_duration_since(earlier.std)
    }

    /// Returns the time from `earlier` to this instant, or `None` if `earlier` is later.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant};
    ///
    /// let now = Instant::now();
    /// let later = now + Duration::from_secs(1);
    /// assert_eq!(later.checked_duration_since(now), Some(Duration::from_secs(1)));
    /// assert_eq!(now.checked_duration_since(later), None);
    /// ```
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.std.checked_duration_since(earlier.std)
    }

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant};
    ///
    /// let now = Instant::now();
    /// let later = now + Duration::from_secs(1);
    /// assert_eq!(now.saturating_duration_since(later), Duration::ZERO);
    /// ```
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.std.saturating_duration_since(earlier.std)
    }

    /// Returns the time since this instant, on the clock of [`now`](Self::now), or zero if the
    /// instant is in the future.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant, sleep};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let began = Instant::now();
    /// sleep(Duration::from_millis(5)).await;
    /// assert!(began.elapsed() >= Duration::from_millis(5));
    /// # });
    /// ```
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// Returns the instant that is `duration` later, or `None` if it cannot be represented.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant};
    ///
    /// let now = Instant::now();
    /// assert_eq!(now.checked_add(Duration::from_secs(1)), Some(now + Duration::from_secs(1)));
    /// assert_eq!(now.checked_add(Duration::MAX), None);
    /// ```
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.std.checked_add(duration).map(Instant::from_std)
    }

    /// Returns the instant that is `duration` earlier, or `None` if it cannot be represented.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant};
    ///
    /// assert_eq!(Instant::now().checked_sub(Duration::MAX), None);
    /// ```
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.std.checked_sub(duration).map(Instant::from_std)
    }
}

impl From<time::Instant> for Instant {
    fn from(std: time::Instant) -> Instant {
        Instant::from_std(std)
    }
}

impl From<Instant> for time::Instant {
    fn from(instant: Instant) -> time::Instant {
        instant.into_std()
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    /// Panics if the sum cannot be represented; see [`Instant::checked_add`].
    fn add(self, duration: Duration) -> Instant {
        Instant::from_std(self.std + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns the time from `earlier` to this instant, or zero if `earlier` is later.
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    /// Panics if the difference cannot be represented; see [`Instant::checked_sub`].
    fn sub(self, duration: Duration) -> Instant {
        Instant::from_std(self.std - duration)
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.std.fmt(f)
    }
}
