//! Decides which time spans of the flight recorder's buffers to write to files.
//!
//! The recorder continuously overwrites its buffers. When a trigger fires, for example a stall, the
//! events around it should be kept. This module turns triggers into windows of time. The console
//! records the windows.
//!
//! # Shape
//!
//! A pure state machine: it reads no clock and starts nothing. [`Windows::fire`] reports a trigger,
//! and [`Windows::due`] returns a window when its time is over.
//!
//! # Rules
//!
//! 1. A trigger at `t` requests the time from `t - before` to `t + after`.
//! 2. While a window is open, a trigger within its reach extends it, up to `max`, and opens no
//!    other window.
//! 3. After a window has closed, triggers within `debounce` are dropped and counted. Requests are
//!    exempt, since a user waits for them.
//! 4. A new window does not begin before the end of the last one.
//!
//! # Invariants
//!
//! * *Apart*: windows do not overlap, and are in order of time.
//! * *Counted*: every trigger has opened a window, was merged into one, or was dropped.
//!
//! One thread owns the state machine.

use std::time::Duration;

use volt_telemetry::recording::trigger::Trigger;

/// The time around a trigger that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Time before the trigger.
    pub before: Duration,
    /// Time after the trigger.
    pub after: Duration,
    /// Time after the end of a window in which triggers do not open another.
    pub debounce: Duration,
    /// Maximum length of a window, however many triggers fire in it.
    pub max: Duration,
}

impl Default for Reach {
    /// 1 s before, 500 ms after, 10 s of debounce, at most 10 s.
    fn default() -> Self {
        Self {
            before: Duration::from_secs(1),
            after: Duration::from_millis(500),
            debounce: Duration::from_secs(10),
            max: Duration::from_secs(10),
        }
    }
}

/// A time span to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its beginning, ns on the recorded program's clock.
    pub from_ns: u64,
    /// Its end, on the same clock.
    pub until_ns: u64,
    /// The time of the trigger that opened it, on the same clock.
    pub at_ns: u64,
    /// The trigger that opened it.
    pub trigger: Trigger,
    /// Number of further triggers that were merged into it.
    pub merged: u64,
}

/// The effect of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a window that was opened has to be recorded"]
pub enum Verdict {
    /// It opened a window.
    Opened,
    /// It is part of the window that is open.
    Merged,
    /// It fired too soon after the last window, or after the end of a window that [`Windows::due`]
    /// has not returned yet.
    Dropped,
}

/// Merges triggers into windows. See the module documentation.
///
/// ```
/// use std::time::Duration;
/// use volt_recording::windows::{Reach, Verdict, Windows};
/// use volt_telemetry::recording::trigger::Trigger;
///
/// let (before, after) = (Duration::from_nanos(100), Duration::from_nanos(50));
/// let mut windows = Windows::new(Reach { before, after, ..Reach::default() });
/// assert_eq!(windows.fire(1_000, Trigger::Stall { incident: 1 }), Verdict::Opened);
/// assert_eq!(windows.fire(1_020, Trigger::Stall { incident: 2 }), Verdict::Merged);
/// let window = windows.due(1_070).expect("its time is over");
/// assert_eq!((window.from_ns, window.until_ns, window.merged), (900, 1_070, 1));
/// assert_eq!(windows.fire(1_100, Trigger::Stall { incident: 3 }), Verdict::Dropped);
/// ```
#[derive(Clone, Debug)]
pub struct Windows {
    reach: Reach,
    open: Option<Window>,
    /// The end of the last window.
    last_until_ns: Option<u64>,
    dropped: u64,
}

impl Windows {
    /// Creates a state machine without windows.
    pub fn new(reach: Reach) -> Self {
        Self { reach, open: None, last_until_ns: None, dropped: 0 }
    }

    /// Reports a trigger at `at_ns`. Call [`due`](Self::due) first: with the same time or, if
    /// earlier events may still arrive, with the time until which all are known.
    pub fn fire(&mut self, at_ns: u64, trigger: Trigger) -> Verdict {
        let from_ns = at_ns.saturating_sub(ns(self.reach.before)).max(self.last_until_ns.unwrap_or(0));
        let until_ns = at_ns.saturating_add(ns(self.reach.after));
        if let Some(open) = &mut self.open {
            // Two threads may report triggers in a different order than they observed them.
            let earliest_ns = open.until_ns.saturating_sub(ns(self.reach.max));
            let begin_ns = open.from_ns.min(from_ns.max(earliest_ns));
            let longest_ns = begin_ns.saturating_add(ns(self.reach.max));
            if at_ns > longest_ns || at_ns < begin_ns || from_ns > open.until_ns {
                self.dropped += 1;
                return Verdict::Dropped;
            }
            open.from_ns = begin_ns;
            open.until_ns = open.until_ns.max(until_ns.min(longest_ns));
            open.merged += 1;
            return Verdict::Merged;
        }
        let is_soon = self.last_until_ns.is_some_and(|last| at_ns < last.saturating_add(ns(self.reach.debounce)));
        if is_soon && trigger != Trigger::Request {
            self.dropped += 1;
            return Verdict::Dropped;
        }
        let longest_ns = from_ns.saturating_add(ns(self.reach.max));
        // A trigger whose time an earlier window covers results in an empty window.
        let until_ns = until_ns.min(longest_ns).max(from_ns);
        self.open = Some(Window { from_ns, until_ns, at_ns, trigger, merged: 0 });
        Verdict::Opened
    }

    /// Returns the open window, if there is one.
    pub fn open(&self) -> Option<&Window> {
        self.open.as_ref()
    }

    /// Returns the open window if its time is over at `now_ns`, and closes it.
    pub fn due(&mut self, now_ns: u64) -> Option<Window> {
        let window = self.open.take_if(|open| now_ns >= open.until_ns)?;
        self.last_until_ns = Some(window.until_ns);
        Some(window)
    }

    /// Closes the open window at `now_ns`, because the program or the recording ends, and returns
    /// it.
    pub fn close(&mut self, now_ns: u64) -> Option<Window> {
        let mut window = self.open.take()?;
        window.until_ns = window.until_ns.min(now_ns).max(window.from_ns);
        self.last_until_ns = Some(window.until_ns);
        Some(window)
    }

    /// Returns the number of triggers that were dropped since this value was created; see
    /// [`Verdict::Dropped`].
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const REACH: Reach = Reach {
        before: Duration::from_nanos(100),
        after: Duration::from_nanos(50),
        debounce: Duration::from_nanos(1_000),
        max: Duration::from_nanos(400),
    };

    fn span(window: Option<Window>) -> Option<(u64, u64, u64)> {
        window.map(|window| (window.from_ns, window.until_ns, window.merged))
    }

    #[test]
    fn a_window_is_given_once_when_its_time_is_over() {
        let mut windows = Windows::new(REACH);
        assert_eq!(windows.fire(1_000, Trigger::Panic), Verdict::Opened);
        assert_eq!(windows.due(1_049), None);
        assert_eq!(span(windows.due(1_050)), Some((900, 1_050, 0)));
        assert_eq!(windows.due(9_999), None);
    }

    #[test]
    fn triggers_extend_a_window_up_to_its_maximum() {
        let mut windows = Windows::new(REACH);
        assert_eq!(windows.fire(1_000, Trigger::Stall { incident: 1 }), Verdict::Opened);
        for at_ns in (1_010..=1_300).step_by(10) {
            assert_eq!(windows.due(at_ns - 1), None);
            assert_eq!(windows.fire(at_ns, Trigger::Stall { incident: 2 }), Verdict::Merged);
        }
        assert_eq!(span(windows.due(1_300)), Some((900, 1_300, 30)));
    }

    #[test]
    fn triggers_within_the_rest_time_are_dropped_except_requests() {
        let mut windows = Windows::new(REACH);
        assert_eq!(windows.fire(1_000, Trigger::Stall { incident: 1 }), Verdict::Opened);
        assert!(windows.due(1_050).is_some());
        assert_eq!(windows.fire(2_049, Trigger::Stall { incident: 2 }), Verdict::Dropped);
        assert_eq!(windows.dropped(), 1);
        assert_eq!(windows.fire(1_100, Trigger::Request), Verdict::Opened);
        assert_eq!(span(windows.due(1_150)), Some((1_050, 1_150, 0)), "not what was written before");
        assert_eq!(windows.fire(2_150, Trigger::Stall { incident: 3 }), Verdict::Opened);
    }

    #[test]
    fn a_late_trigger_reaches_back_further() {
        let mut windows = Windows::new(REACH);
        assert_eq!(windows.fire(1_000, Trigger::Stall { incident: 1 }), Verdict::Opened);
        assert_eq!(windows.fire(980, Trigger::Panic), Verdict::Merged);
        assert_eq!(span(windows.due(1_050)), Some((880, 1_050, 1)));
    }

    #[test]
    fn late_triggers_do_not_lengthen_a_window_beyond_its_maximum() {
        let mut windows = Windows::new(REACH);
        assert_eq!(windows.fire(1_000, Trigger::Panic), Verdict::Opened);
        for at_ns in (1_010..=1_250).step_by(10) {
            assert_eq!(windows.fire(at_ns, Trigger::Panic), Verdict::Merged);
        }
        assert_eq!(windows.fire(960, Trigger::Panic), Verdict::Merged);
        assert_eq!(windows.open().map(|open| (open.from_ns, open.until_ns)), Some((900, 1_300)), "it is full");
        assert_eq!(windows.fire(890, Trigger::Panic), Verdict::Dropped, "the window does not contain it");
        // A trigger that is dropped changes nothing.
        let mut windows = Windows::new(Reach { before: Duration::from_nanos(600), ..REACH });
        assert_eq!(windows.fire(1_000, Trigger::Panic), Verdict::Opened);
        assert_eq!(windows.fire(990, Trigger::Panic), Verdict::Dropped);
        assert_eq!(span(windows.due(2_000)), Some((400, 800, 0)));
    }

    #[test]
    fn triggers_beyond_the_reach_of_an_automatic_window_are_dropped() {
        let mut windows = Windows::new(REACH);
        assert_eq!(windows.fire(1_000, Trigger::Panic), Verdict::Opened);
        assert_eq!(windows.fire(1_150, Trigger::Panic), Verdict::Merged);
        assert_eq!(windows.fire(1_301, Trigger::Request), Verdict::Dropped);
        assert_eq!((windows.dropped(), span(windows.due(2_000))), (1, Some((900, 1_200, 1))));
    }

    #[test]
    fn an_end_closes_the_open_window() {
        let mut windows = Windows::new(REACH);
        assert_eq!(windows.close(5), None);
        assert_eq!(windows.fire(1_000, Trigger::Request), Verdict::Opened);
        assert_eq!(span(windows.close(1_010)), Some((900, 1_010, 0)));
    }

    #[test]
    fn the_longest_reach_does_not_overflow() {
        let forever =
            Reach { before: Duration::MAX, after: Duration::MAX, debounce: Duration::MAX, max: Duration::MAX };
        let mut windows = Windows::new(forever);
        assert_eq!(windows.fire(7, Trigger::Request), Verdict::Opened);
        assert_eq!(windows.open().map(|window| (window.from_ns, window.until_ns)), Some((0, u64::MAX)));
        assert!(windows.close(8).is_some());
        assert_eq!(windows.fire(u64::MAX - 1, Trigger::Panic), Verdict::Dropped);
    }

    proptest! {
        // A failing case is printed; no file is written.
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn windows_are_apart_and_everything_fired_is_in_one_or_counted(
            steps in prop::collection::vec((0_u64..300, prop::bool::weighted(0.1)), 0..200)
        ) {
            let mut windows = Windows::new(REACH);
            let (mut now_ns, mut given, mut in_one, mut fired) = (0, Vec::new(), 0, 0);
            for (step_ns, is_request) in steps {
                now_ns += step_ns;
                given.extend(windows.due(now_ns));
                let before = windows.dropped();
                let trigger = if is_request { Trigger::Request } else { Trigger::Panic };
                let verdict = windows.fire(now_ns, trigger);
                fired += 1;
                prop_assert_eq!(verdict == Verdict::Dropped, windows.dropped() > before);
                prop_assert!(!(is_request && verdict == Verdict::Dropped));
                if verdict != Verdict::Dropped {
                    let open = windows.open().expect("it is open or was opened");
                    prop_assert!(open.from_ns <= now_ns && now_ns <= open.until_ns, "{now_ns} is in {open:?}");
                }
            }
            given.extend(windows.close(u64::MAX));
            let mut ended_ns = 0;
            for window in &given {
                prop_assert!(ended_ns <= window.from_ns && window.from_ns <= window.until_ns, "{window:?}");
                prop_assert!(window.until_ns - window.from_ns <= ns(REACH.max));
                ended_ns = window.until_ns;
                in_one += 1 + window.merged;
            }
            prop_assert_eq!(in_one + windows.dropped(), fired);
        }
    }
}
