//! Finds task leaks: spawn locations whose number of live tasks keeps growing, over minutes.
//!
//! [`History`](super::History) adds a sample at each check, and the rule `task-leak` reads the
//! leaks.
//!
//! # Shape
//!
//! A list of samples for each location, [`STEP_NS`] apart or more, that goes back [`LONG_NS`]. A
//! list of the totals over all tasks shows how many ended.
//!
//! # Definition of a leak
//!
//! Over a window, the location grows by [`LEAK_GROWN_MIN`] or more. It also grows at every step, by
//! at least [`STEADY_RATIO`] of the mean step. A leak continues. A warm-up or a burst comes to an
//! end, and steps without growth follow. A location whose tasks end as fast as they are spawned
//! does not grow.
//!
//! There are two windows. For `LONG_NS` this is the only condition. Over [`SHORT_NS`] a rising load
//! looks the same, but its tasks end. The short window therefore requires that few tasks of the
//! runtime have completed.
//!
//! A window has at least two steps. If counting the tasks takes so long that it is seldom repeated,
//! the window is longer, and proportionally more growth is required.
//!
//! # Start of a program
//!
//! A program that starts may spawn for minutes tasks that it then keeps. For the short window,
//! growth that began in the first [`START_NS`] is only an info, until it has lasted for `START_NS`
//! and [`MANY`] tasks are alive: then the memory may be full before the long window is over. For
//! the long window, growth that began [`LONG_START_NS`] after the start or later is a warning.
//!
//! # Old counts
//!
//! If there are too many tasks, they are no longer counted. A location whose last sample is older
//! than [`STALE_NS`] is not judged, since it may have stopped growing.
//!
//! # Hysteresis
//!
//! A leaking location remains a leak while it grows by half of the minimum.
//!
//! # Invariants
//!
//! * *Nothing without a place*: `other`, the row for all locations that do not fit into the blame
//!   table, is ignored.
//! * *Bounded*: [`LINES_MAX`] locations, beyond which none is watched, and [`SAMPLES_MAX`] samples
//!   each.

use std::collections::{HashMap, HashSet, VecDeque};

use volt_telemetry::incident::MainAwait;
use volt_telemetry::snapshot::Snapshot;

/// Minimum time between two samples.
const STEP_NS: u64 = 5_000_000_000;
/// The long window. It finds a leak of 10 tasks per second, and no load rises evenly for that long
/// without ending tasks.
pub(super) const LONG_NS: u64 = 120_000_000_000;
/// The short window, for leaks that fill the memory before the long one is over. A burst that takes
/// longer is rare.
pub(super) const SHORT_NS: u64 = 20_000_000_000;
/// The growth in a window that is worth reporting.
pub(super) const LEAK_GROWN_MIN: u64 = 1_000;
/// For the short window: how many tasks may end, as a share of those spawned. Of a backlog that
/// grows quickly, some tasks end.
pub(super) const LEAK_ENDED_RATIO: f64 = 0.2;
/// Until then a program may still be starting, and may keep the tasks that it spawns.
pub(super) const START_NS: u64 = 60_000_000_000;
/// The same for the long window. A leak that begins in the first second is found within three
/// minutes, with 20 s to spare for late samples. A warm-up that takes longer than 160 s is mistaken
/// for a leak.
pub(super) const LONG_START_NS: u64 = 40_000_000_000;
/// No program keeps that many tasks of one spawn location after a start of a minute, unless it
/// serves as many clients: 50 MB or more.
pub(super) const MANY: u64 = 100_000;
/// The minimum growth of each step, as a share of the mean step: a busy machine does not run all
/// programs evenly.
const STEADY_RATIO: f64 = 0.25;
/// Samples older than this are not judged. See the module documentation.
const STALE_NS: u64 = 2 * SHORT_NS;
/// Minimum number of samples of a window.
const WINDOW_SAMPLES_MIN: usize = 3;
const LINES_MAX: usize = 1024;
/// One more than the long window has if the samples are as close together as possible.
const SAMPLES_MAX: usize = (LONG_NS / STEP_NS) as usize + 2;
/// The name of the blame table's row for all locations that do not fit into it.
const OTHER: &str = "other";

/// The growth of all locations of a runtime. See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    lines: HashMap<String, Line>,
    totals: VecDeque<Totals>,
    /// When the runtime was built.
    started_at_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Line {
    samples: VecDeque<Sample>,
    is_leaking: bool,
    /// What at least half of the tasks awaited at the last sample.
    main_await: Option<MainAwait>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    alive: u64,
}

/// Totals over all tasks of the runtime.
#[derive(Clone, Copy, Debug)]
struct Totals {
    at_ns: u64,
    spawned: u64,
    ended: u64,
}

/// A location whose number of tasks keeps growing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leak {
    pub(super) spawned_at: String,
    pub(super) alive: u64,
    pub(super) grown: u64,
    pub(super) over_ns: u64,
    /// Whether the runtime may still have been starting when the growth began.
    pub(super) is_at_start: bool,
    /// What at least half of the live tasks await.
    pub(super) main_await: Option<MainAwait>,
}

impl Growth {
    /// Adds a sample of each location, if one is due.
    pub(super) fn take(&mut self, now: &Snapshot) {
        self.started_at_ns = now.started_at_ns;
        // The tasks are counted in a pass over all of them, which may be older than the snapshot.
        let at_ns = now.alive_counted_at_ns.unwrap_or(now.at_ns);
        let is_due = self.totals.back().is_none_or(|last| at_ns >= last.at_ns.saturating_add(STEP_NS));
        if !is_due {
            return;
        }
        let known: HashSet<_> = now.blame.iter().map(|blame| blame.spawned_at.as_str()).collect();
        self.lines.retain(|line, _| known.contains(line.as_str()));
        let ended = now.tasks.spawned.saturating_sub(now.tasks.alive);
        push(&mut self.totals, Totals { at_ns, spawned: now.tasks.spawned, ended });
        for blame in now.blame.iter().filter(|blame| blame.spawned_at != OTHER) {
            let Some(alive) = blame.alive else { continue };
            if self.lines.len() < LINES_MAX || self.lines.contains_key(&blame.spawned_at) {
                let line = self.lines.entry(blame.spawned_at.clone()).or_default();
                push(&mut line.samples, Sample { at_ns, alive });
                line.main_await.clone_from(&blame.main_await);
            }
        }
        let leaking: Vec<_> = self.leaks().into_iter().map(|leak| leak.spawned_at).collect();
        for (spawned_at, line) in &mut self.lines {
            line.is_leaking = leaking.contains(spawned_at);
        }
    }

    /// Returns the locations that leak, in no particular order.
    pub(super) fn leaks(&self) -> Vec<Leak> {
        let now_ns = self.totals.back().map_or(0, |now| now.at_ns);
        let leak = |(spawned_at, line): (&String, &Line)| {
            let last = line.samples.back()?;
            if now_ns.saturating_sub(last.at_ns) > STALE_NS {
                return None;
            }
            let over = |window_ns| line.grown_over(window_ns);
            let (grown, over_ns, is_long) = match (over(LONG_NS), over(SHORT_NS)) {
                (Some((grown, over_ns)), _) => (grown, over_ns, true),
                (None, Some((grown, over_ns))) if self.ends_few(over_ns) => (grown, over_ns, false),
                _ => return None,
            };
            let (began_at_ns, start_ns) = match is_long {
                true => (last.at_ns.saturating_sub(over_ns), LONG_START_NS),
                false => (line.grows_since(grown as f64 / over_ns.max(1) as f64), START_NS),
            };
            let is_huge = last.alive >= MANY && last.at_ns.saturating_sub(began_at_ns) >= START_NS;
            let is_at_start = began_at_ns.saturating_sub(self.started_at_ns) < start_ns && !is_huge;
            let (spawned_at, main_await) = (spawned_at.clone(), line.main_await.clone());
            Some(Leak { spawned_at, alive: last.alive, grown, over_ns, is_at_start, main_await })
        };
        self.lines.iter().filter_map(leak).collect()
    }

    /// Returns whether few tasks of the runtime ended in the last `over_ns`.
    fn ends_few(&self, over_ns: u64) -> bool {
        let Some(last) = self.totals.back() else { return false };
        let then = self.totals.iter().rev().find(|then| last.at_ns.saturating_sub(then.at_ns) >= over_ns);
        then.is_some_and(|then| {
            let (spawned, ended) = (last.spawned.saturating_sub(then.spawned), last.ended.saturating_sub(then.ended));
            (ended as f64) < spawned as f64 * LEAK_ENDED_RATIO
        })
    }
}

impl Line {
    /// Returns the growth and its duration, if the location leaks over a window of `window_ns`.
    fn grown_over(&self, window_ns: u64) -> Option<(u64, u64)> {
        let last = self.samples.back()?;
        let age_ns = |sample: &Sample| last.at_ns.saturating_sub(sample.at_ns);
        let first = self.samples.iter().rposition(|sample| age_ns(sample) >= window_ns)?;
        // A single step does not show how even the growth is.
        let first = first.min(self.samples.len().checked_sub(WINDOW_SAMPLES_MIN)?);
        let (grown, over_ns) = (last.alive.saturating_sub(self.samples[first].alive), age_ns(&self.samples[first]));
        let least = if self.is_leaking { LEAK_GROWN_MIN / 2 } else { LEAK_GROWN_MIN };
        let per_ns = grown as f64 / over_ns as f64;
        let is_enough = grown >= least && per_ns >= least as f64 / (window_ns + STEP_NS) as f64;
        (is_enough && self.steps_from(first).all(|step| step.is_steady(per_ns))).then_some((grown, over_ns))
    }

    /// Returns when it began to grow by `per_ns`, as far as the samples go back.
    fn grows_since(&self, per_ns: f64) -> u64 {
        let steps = self.steps_from(0).rev().take_while(|step| step.is_steady(per_ns));
        let began = steps.last().map(|step| step.then.at_ns);
        began.or(self.samples.back().map(|last| last.at_ns)).unwrap_or(0)
    }

    fn steps_from(&self, first: usize) -> impl DoubleEndedIterator<Item = Step> {
        let step = move |index: usize| Step { then: self.samples[index - 1], now: self.samples[index] };
        (first + 1..self.samples.len()).map(step)
    }
}

/// The interval from one sample to the next.
struct Step {
    then: Sample,
    now: Sample,
}

impl Step {
    /// Returns whether the step is part of a growth by `per_ns`.
    fn is_steady(&self, per_ns: f64) -> bool {
        let expected = per_ns * self.now.at_ns.saturating_sub(self.then.at_ns) as f64;
        self.now.alive.saturating_sub(self.then.alive) as f64 >= STEADY_RATIO * expected
    }
}

fn push<T>(samples: &mut VecDeque<T>, sample: T) {
    if samples.len() == SAMPLES_MAX {
        samples.pop_front();
    }
    samples.push_back(sample);
}

#[cfg(test)]
mod tests {
    use volt_telemetry::incident::Blame;
    use volt_telemetry::snapshot::Tasks;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const LINE: &str = "src/feed.rs:8:9";

    /// A runtime of this age, with `alive` live tasks of [`LINE`], and `spawned` tasks spawned in
    /// total.
    fn at(second: u64, alive: u64, spawned: u64) -> Snapshot {
        Snapshot {
            at_ns: second * SECOND,
            tasks: Tasks { spawned, alive, ..Tasks::default() },
            blame: vec![Blame { spawned_at: LINE.into(), alive: Some(alive), ..Blame::default() }],
            ..Snapshot::default()
        }
    }

    /// Returns the first and the last second in which a leak is found that is not part of the
    /// start, if there are `alive` tasks at each second.
    fn found(seconds: u64, alive: impl Fn(u64) -> u64, ended: impl Fn(u64) -> u64) -> Option<(u64, u64)> {
        let mut growth = Growth::default();
        let mut found = None;
        for second in 0..seconds {
            growth.take(&at(second, alive(second), alive(second) + ended(second)));
            if growth.leaks().iter().any(|leak| !leak.is_at_start) {
                found = Some((found.map_or(second, |(first, _)| first), second));
            }
        }
        found
    }

    #[test]
    fn a_leak_of_28_tasks_a_second_is_found_within_3_minutes() {
        let (first, last) = found(300, |second| 28 * second, |_| 0).unwrap();
        assert!(first <= 165 && last == 299, "{first} to {last}");
        let busy = found(300, |second| 28 * second, |second| 100_000 * second).unwrap();
        assert_eq!(busy, (first, last), "whatever else the program does");
    }

    #[test]
    fn a_fast_leak_is_found_within_30_seconds() {
        let (first, _) = found(200, |second| 4_000 * second.saturating_sub(100), |_| 0).unwrap();
        assert!((120..130).contains(&first), "{first}");
        // A backlog, of which a tenth is processed.
        let since = |second: u64| second.saturating_sub(100);
        let backlog = found(200, |second| 3_600 * since(second), |second| 400 * since(second)).unwrap();
        assert!((120..130).contains(&backlog.0), "{backlog:?}");
    }

    #[test]
    fn a_huge_leak_from_the_start_is_found_within_70_seconds() {
        let (first, last) = found(200, |second| 4_000 * second, |_| 0).unwrap();
        assert!((60..=70).contains(&first) && last == 199, "{first} to {last}");
        let many_clients = |second: u64| 10 + 4_000 * second.min(50);
        assert_eq!(found(400, many_clients, |_| 0), None);
    }

    #[test]
    fn a_warm_up_a_burst_and_steady_churn_are_no_leaks() {
        let warm_up = |second: u64| 10 + 100 * second.min(60);
        assert_eq!(found(400, warm_up, |_| 0), None);
        let burst = |second: u64| 10 + 5_000 * second.clamp(200, 214) - 5_000 * 200;
        assert_eq!(found(400, burst, |_| 0), None);
        let goes_again = |second: u64| if (200..220).contains(&second) { 50_000 } else { 10 };
        assert_eq!(found(400, goes_again, |_| 0), None);
        let churn = |second: u64| 20_000 + second % 7;
        assert_eq!(found(400, churn, |second| 3_000 * second), None);
        let rising_load = |second: u64| 10 + 60 * second.clamp(100, 180);
        assert_eq!(found(400, rising_load, |second| 6_000 * second), None);
    }

    #[test]
    fn a_slowing_leak_is_reported_until_it_is_half_as_fast() {
        // 10 per second, then 6, then 3.
        let alive =
            |second: u64| 10 * second.min(200) + 6 * (second.clamp(200, 500) - 200) + 3 * (second.max(500) - 500);
        let (first, last) = found(900, alive, |_| 0).unwrap();
        assert!(first <= 165 && (510..640).contains(&last), "{first} to {last}");
        assert_eq!(found(900, |second| 6 * second, |_| 0), None, "slower from the start");
    }

    #[test]
    fn nothing_is_found_without_a_place_or_twice_from_one_count() {
        let mut growth = Growth::default();
        for second in 0..400 {
            let mut now = at(second, 500 * second, 500 * second);
            now.blame[0].spawned_at = OTHER.into();
            growth.take(&now);
        }
        assert_eq!(growth.leaks(), []);
        // The count of tasks is old: there is only one sample, however many snapshots there are.
        let mut growth = Growth::default();
        for second in 0..400 {
            growth.take(&Snapshot { alive_counted_at_ns: Some(7), ..at(second, 9_000, 9_000) });
        }
        assert_eq!(growth.totals.len(), 1);
    }

    #[test]
    fn the_history_of_counts_is_bounded() {
        let mut growth = Growth::default();
        for second in (0..1_000).step_by(5) {
            let mut now = at(second, 1, 1);
            now.blame = (0..2 * LINES_MAX as u64)
                .map(|line| Blame { spawned_at: line.to_string(), alive: Some(second), ..Blame::default() })
                .collect();
            growth.take(&now);
        }
        assert_eq!(growth.lines.len(), LINES_MAX);
        assert!(growth.lines.values().all(|line| line.samples.len() <= SAMPLES_MAX));
        growth.take(&at(1_001, 1, 1));
        assert_eq!(growth.lines.keys().collect::<Vec<_>>(), [LINE], "and nothing of a location that is gone");
    }

    #[test]
    fn a_leak_of_millions_is_found_though_a_count_takes_minutes() {
        // The pass over millions of tasks may be repeated only every 130 s.
        let mut growth = Growth::default();
        let mut found = Vec::new();
        for second in 0..2_000 {
            let counted = if second < 1_000 { second } else { 1_000 + (second - 1_000) / 130 * 130 };
            let alive = 3_000 * counted;
            let now = Snapshot { alive_counted_at_ns: Some(counted * SECOND), ..at(second, alive, alive) };
            growth.take(&now);
            found.push(growth.leaks().iter().any(|leak| !leak.is_at_start));
        }
        let first = found.iter().position(|is_found| *is_found).unwrap();
        assert!(found[first..].iter().all(|is_found| *is_found), "until {first}");
        // When the leak ends, the finding ends too.
        for second in (2_000..3_000).step_by(130) {
            growth.take(&at(second, 6_000_000, 6_000_000));
        }
        assert_eq!(growth.leaks(), []);
    }

    #[test]
    fn a_leak_that_is_not_counted_any_more_is_soon_none() {
        let mut growth = Growth::default();
        let mut found = Vec::new();
        for second in 0..400 {
            let mut now = at(second, 1_000 * second, 1_000 * second);
            if second > 300 {
                now.blame[0].alive = None;
            }
            growth.take(&now);
            found.push(!growth.leaks().is_empty());
        }
        assert!(found[200..=340].iter().all(|is_found| *is_found), "a count may be late");
        assert!(found[350..].iter().all(|is_found| !is_found));
    }

    #[test]
    fn a_slow_warm_up_is_no_leak() {
        // 10,000 connections that are re-established over two and a half minutes, and stay.
        let warm_up = |second: u64| 10 + 67 * second.min(150);
        assert_eq!(found(400, warm_up, |_| 0), None);
        assert_eq!(found(400, warm_up, |second| 500 * second), None);
    }
}
