//! The pauses between restarts, and the limit on their number. This module only computes: it uses
//! neither a clock nor processes.
//!
//! There are two limits, and neither replaces the other. The back-off belongs to a child: it keeps
//! a child that fails immediately from using a whole processor. The restart intensity belongs to
//! the supervisor: when restarts do not help, the supervisor fails, and leaves the problem to its
//! own supervisor, which restarts a larger part of the program.
//!
//! Sources: exponential back-off with jitter is that of gRPC's "Connection Backoff Protocol". The
//! window is that of OTP's `supervisor`.

use std::collections::VecDeque;
use std::time::Duration;

use volt::time::Instant;

/// The first pause: long enough for a dependency to come back, and short enough that users do not
/// complain.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause: a child that stays broken is tried about every minute and a half.
const MAX: Duration = Duration::from_secs(90);
/// The factor from one pause to the next.
const FACTOR: f64 = 2.0;
/// The fraction by which a pause varies in either direction, so that a thousand children that
/// failed together do not restart together.
const JITTER_RATIO: f64 = 0.1;

/// The maximum number of restarts within [`WINDOW`]. A child that fails immediately is restarted
/// after 1, 2, 4, 8 and 16 s. After the sixth failure, half a minute later, restarts have proved
/// useless.
pub(super) const RESTARTS_MAX: u32 = 5;
/// Longer than these five pauses together, and shorter than the lifetime that resets the back-off.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
const _: () = assert!(WINDOW.as_secs() > 31 && WINDOW.as_secs() < MAX.as_secs());

/// The pauses of a supervisor before it restarts a child. Each is longer than the one before, up to
/// a maximum. After a child has been alive for as long as the maximum, its next pause is the first
/// one again.
///
/// By default, pauses double from 1 s to 90 s, and vary by a tenth in either direction.
///
/// ```
/// use std::time::Duration;
/// use volt_process::{Backoff, Strategy, Supervisor};
///
/// let soon = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
/// let supervisor = Supervisor::new(Strategy::OneForOne).backoff(soon);
/// # drop(supervisor);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    factor: f64,
    jitter_ratio: f64,
}

impl Backoff {
    /// Creates a back-off whose pauses double from `first` to `max`, and vary by a tenth in either
    /// direction. If both are zero, a child is restarted immediately, and only the
    /// [intensity](super::Supervisor::intensity) limits its restarts. A pause of more than 30 years
    /// is cut to 30 years.
    ///
    /// # Panics
    /// Panics if `first` is longer than `max`.
    #[track_caller]
    pub fn new(first: Duration, max: Duration) -> Self {
        assert!(first <= max, "the first pause, {first:?}, is longer than the longest, {max:?}");
        Self { first, max, factor: FACTOR, jitter_ratio: JITTER_RATIO }
    }

    /// Sets the factor from one pause to the next.
    ///
    /// # Panics
    /// Panics if `factor` is below 1, infinite, or not a number.
    #[track_caller]
    pub fn factor(self, factor: f64) -> Self {
        assert!(factor >= 1.0 && factor.is_finite(), "a back-off's factor is 1 or more, not {factor}");
        Self { factor, ..self }
    }

    /// Sets the fraction by which a pause varies at random in either direction. With 0.1, a pause
    /// of 10 s becomes 9 to 11 s.
    ///
    /// # Panics
    /// Panics if `ratio` is not between 0 and 1.
    #[track_caller]
    pub fn jitter(self, ratio: f64) -> Self {
        assert!((0.0..=1.0).contains(&ratio), "a back-off's jitter is 0 to 1, not {ratio}");
        Self { jitter_ratio: ratio, ..self }
    }

    /// Returns the pause after `failures` failures in a row, at least 1. `random` is in 0..1.
    pub(super) fn pause(&self, failures: u32, random: f64) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        // If the power overflows to infinity, `min` selects the longest pause.
        let pause = (self.first.as_secs_f64() * self.factor.powi(exponent)).min(self.max.as_secs_f64());
        let spread = 1.0 + self.jitter_ratio * (2.0 * random - 1.0);
        Duration::try_from_secs_f64(pause * spread).unwrap_or(self.max)
    }

    /// Returns the number of failures in a row, including this one. `lived` is how long the child
    /// was up, if it was.
    pub(super) fn failures(&self, before: u32, lived: Option<Duration>) -> u32 {
        let is_long = lived.is_some_and(|lived| lived >= self.max);
        if is_long { 1 } else { before.saturating_add(1) }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(FIRST, MAX)
    }
}

/// The restart intensity: the maximum number of restarts in a window, and the restarts within the
/// last one.
#[derive(Debug)]
pub(super) struct Intensity {
    pub max: u32,
    pub window: Duration,
    /// Contains at most `max` instants.
    restarts: VecDeque<Instant>,
}

impl Intensity {
    pub(super) fn new(max: u32, window: Duration) -> Self {
        Self { max, window, restarts: VecDeque::new() }
    }

    /// Counts a restart at `now`. Returns false if it exceeds the maximum.
    #[must_use = "a supervisor that is refused a restart gives up"]
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        while self.restarts.front().is_some_and(|&first| now.saturating_duration_since(first) > self.window) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.max as usize {
            return false;
        }
        self.restarts.push_back(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(backoff: Backoff, random: f64) -> Vec<f64> {
        (1..=9).map(|failures| backoff.pause(failures, random).as_secs_f64()).collect()
    }

    #[test]
    fn pauses_double_from_one_second_to_ninety() {
        assert_eq!(seconds(Backoff::default(), 0.5), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 90.0, 90.0]);
        assert_eq!(Backoff::default().pause(u32::MAX, 0.5), MAX);
        let tripled = Backoff::new(FIRST, MAX).factor(3.0);
        assert_eq!(seconds(tripled, 0.5)[..6], [1.0, 3.0, 9.0, 27.0, 81.0, 90.0]);
    }

    #[test]
    fn jitter_spreads_a_pause_by_a_tenth_either_way_and_no_further() {
        for (low, high) in seconds(Backoff::default(), 0.0).into_iter().zip(seconds(Backoff::default(), 1.0)) {
            assert!((high / low - 1.1 / 0.9).abs() < 1e-6, "{low} to {high}");
        }
        let middle = Backoff::default().pause(3, 0.75).as_secs_f64();
        assert!((middle - 4.2).abs() < 1e-6, "{middle}");
        assert_eq!(seconds(Backoff::default().jitter(0.0), 0.9), seconds(Backoff::default(), 0.5));
        assert_eq!(Backoff::new(Duration::ZERO, Duration::ZERO).pause(7, 0.9), Duration::ZERO);
        let far = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(far.pause(1, 1.0), Duration::MAX);
    }

    #[test]
    fn a_long_lived_child_resets_its_restart_backoff() {
        let backoff = Backoff::default();
        assert_eq!(backoff.failures(0, Some(Duration::ZERO)), 1);
        assert_eq!(backoff.failures(4, None), 5);
        assert_eq!(backoff.failures(4, Some(MAX - Duration::from_millis(1))), 5);
        assert_eq!(backoff.failures(4, Some(MAX)), 1);
    }

    #[test]
    fn restarts_above_the_intensity_are_refused_within_the_window() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut intensity = Intensity::new(3, Duration::from_secs(10));
        assert!([0, 1, 5].into_iter().all(|second| intensity.admit(at(second))));
        assert!(!intensity.admit(at(10)), "the first is ten seconds old, and counts");
        assert!(intensity.admit(at(11)));
        assert!(!intensity.admit(at(11)));
        assert!(intensity.admit(at(12)), "the second is past");
        assert!(!Intensity::new(0, WINDOW).admit(start), "none is allowed");
    }
}
