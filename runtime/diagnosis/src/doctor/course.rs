//! Turns findings into events, for readers that report each finding once: the runtime in its log,
//! and the console in its list of events.
//!
//! [`History`](super::History) decides whether something is wrong, and for how long. This module
//! decides how much of it is reported. It keeps a list of reported findings, by rule and place, and
//! compares it with the findings of each snapshot.
//!
//! An ordinary case: a handler blocks its worker. The first snapshot with the finding has no stack
//! yet. The next one has it, and [`Turn::Began`] is returned. When the finding is past,
//! [`Turn::Ended`] is returned. If it begins again less than a minute after it was reported,
//! that is only counted.
//!
//! # Rules
//!
//! 1. Only findings of [`Severity::Warning`] and worse are reported, while they are current.
//! 2. A stall is reported only after its stack was read or could not be read: slightly later, but
//!    with its line. If the stack is not read within `STACK_TIMEOUT_NS`, the stall is reported
//!    without it, and its evidence contains that the stack is not read yet.
//! 3. A finding that is past, and was last seen after the previous snapshot, is reported as begun
//!    and ended. This happens if the reader was busy for longer than findings are kept: the thread
//!    that logs findings also reads stacks, and a stack may take that long.
//! 4. If a finding begins again within `QUIET_NS` of being reported, it is only counted. The count
//!    is part of its next report. A finding that is over at the end of that time is forgotten, with
//!    its count.
//!
//! # Invariants
//!
//! * *In pairs*: an end follows its beginning, and the next beginning follows that end.
//! * *Bounded*: `KNOWN_MAX` findings are kept. A finding that begins while none of these is over is
//!   counted in [`left_out`](Course::left_out), at each check.

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::snapshot::Snapshot;

use super::history::HOLD_NS;
use super::key::Key;

/// A recurring finding results in one event per minute.
const QUIET_NS: u64 = 60_000_000_000;
/// How long a stall waits for its stack before it is reported without it. Less than [`HOLD_NS`],
/// after which a stall that is over is past.
const STACK_TIMEOUT_NS: u64 = 10_000_000_000;
const _: () = assert!(STACK_TIMEOUT_NS < HOLD_NS);
/// Maximum number of findings that are kept, open or recently over.
const KNOWN_MAX: usize = 64;

/// An event to report.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Turn {
    /// A problem has begun.
    Began {
        /// The finding.
        finding: Finding,
        /// How often it began and ended again since it was last reported.
        suppressed: u64,
    },
    /// A problem has ended.
    Ended {
        /// The finding as it was when it was last current.
        finding: Finding,
        /// How long it was observed, ns.
        for_ns: u64,
    },
}

/// The reported findings of one runtime.
///
/// ```
/// use volt_diagnosis::doctor::{Course, History, Turn};
/// use volt_telemetry::{Cause, Incident, Snapshot};
///
/// let (mut history, mut course) = (History::default(), Course::default());
/// let mut now = Snapshot { at_ns: 1_000_000_000, ..Snapshot::default() };
/// let stack_error = Some("stacks are off".to_owned());
/// let stuck = Incident { for_ns: 300_000_000, cause: Cause::Sleep, stack_error, ..Incident::default() };
/// now.incidents.latest.push(stuck);
/// history.check(&now);
/// now.findings = Some(history.findings(now.at_ns));
/// assert!(matches!(course.check(&now)[..], [Turn::Began { .. }]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Course {
    known: Vec<Known>,
    left_out: u64,
    /// When the previous snapshot was taken.
    checked_at_ns: Option<u64>,
}

#[derive(Clone, Debug)]
struct Known {
    key: Key,
    finding: Finding,
    phase: Phase,
    /// When its beginning was reported.
    reported_at_ns: u64,
    suppressed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The beginning was reported.
    Open,
    /// It began again too soon to be reported.
    Hushed,
    Over,
}

impl Course {
    /// Returns what has begun and ended since the previous snapshot.
    pub fn check(&mut self, now: &Snapshot) -> Vec<Turn> {
        let checked_at_ns = self.checked_at_ns.replace(now.at_ns);
        let is_open = |finding: &&Finding| finding.seen.is_current && finding.severity >= Severity::Warning;
        let open = now.findings.iter().flatten().filter(is_open).map(|finding| (Key::of(finding), finding));
        let has_waited = |finding: &Finding| now.at_ns.saturating_sub(finding.seen.first_at_ns) >= STACK_TIMEOUT_NS;
        let open: Vec<_> = open.filter(|(key, finding)| !key.is_provisional() || has_waited(finding)).collect();
        // A finding that waited for its stack has not ended: it has another key now.
        let is_open = |key: &Key| open.iter().any(|(open, _)| open == key);
        let is_replaced = |key: &Key| !is_open(key) && open.iter().any(|(open, _)| open.replaces(key));
        self.known.retain(|known| !is_replaced(&known.key));
        let mut turns = Vec::new();
        for known in &mut self.known {
            turns.extend(
                known.follow(open.iter().find(|(key, _)| known.key == *key).map(|(_, finding)| *finding), now.at_ns),
            );
        }
        let is_wanted = |known: &Known| known.phase != Phase::Over || known.is_quiet(now.at_ns);
        self.known.retain(is_wanted);
        for (key, finding) in open {
            turns.extend(self.begin(key, finding, now.at_ns));
        }
        let was_missed = |finding: &&Finding| {
            let seen = finding.seen;
            !seen.is_current
                && seen.worst >= Severity::Warning
                && checked_at_ns.is_some_and(|checked_at_ns| seen.last_at_ns > checked_at_ns)
        };
        for finding in now.findings.iter().flatten().filter(was_missed) {
            let begun = self.begin(Key::of(finding), finding, now.at_ns);
            let is_begun = begun.is_some();
            turns.extend(begun);
            if is_begun && let Some(known) = self.known.last_mut() {
                turns.extend(known.follow(None, now.at_ns));
            }
        }
        turns
    }

    /// Adds a finding, unless it is known or there is no room. Returns its beginning.
    fn begin(&mut self, key: Key, finding: &Finding, now_ns: u64) -> Option<Turn> {
        if self.known.iter().any(|known| known.key == key) {
            return None;
        }
        if self.known.len() == KNOWN_MAX {
            let Some(over) = self.known.iter().position(|known| known.phase == Phase::Over) else {
                self.left_out += 1;
                return None;
            };
            self.known.swap_remove(over);
        }
        let finding = finding.clone();
        self.known.push(Known {
            key,
            finding: finding.clone(),
            phase: Phase::Open,
            reported_at_ns: now_ns,
            suppressed: 0,
        });
        Some(Turn::Began { finding, suppressed: 0 })
    }

    /// Returns whether any reported finding has not ended yet.
    pub fn has_open_finding(&self) -> bool {
        self.known.iter().any(|known| known.phase == Phase::Open)
    }

    /// Returns how often a check did not report a finding because there were too many. A finding
    /// that stays is counted at each check.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Known {
    fn is_quiet(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.reported_at_ns) < QUIET_NS
    }

    /// Updates the state with the current finding, if there is one.
    fn follow(&mut self, now: Option<&Finding>, now_ns: u64) -> Option<Turn> {
        let was = self.phase;
        let Some(finding) = now else {
            self.phase = Phase::Over;
            let for_ns = self.finding.seen.last_at_ns.saturating_sub(self.finding.seen.first_at_ns);
            return (was == Phase::Open).then(|| Turn::Ended { finding: self.finding.clone(), for_ns });
        };
        self.finding = finding.clone();
        if was == Phase::Open {
            return None;
        }
        if self.is_quiet(now_ns) {
            self.suppressed += u64::from(was == Phase::Over);
            self.phase = Phase::Hushed;
            return None;
        }
        (self.phase, self.reported_at_ns) = (Phase::Open, now_ns);
        Some(Turn::Began { finding: finding.clone(), suppressed: std::mem::take(&mut self.suppressed) })
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::finding::Place;
    use volt_telemetry::rule::Rule;

    use super::*;
    use crate::doctor::describe::Describe;

    const SECOND: u64 = 1_000_000_000;

    fn at(second: u64) -> Snapshot {
        Snapshot { at_ns: second * SECOND, findings: Some(Vec::new()), ..Snapshot::default() }
    }

    /// A poll of the task spawned at `line` is stuck.
    fn stuck(second: u64, line: u64) -> Snapshot {
        let mut now = at(second);
        let mut finding =
            Finding::new(Rule::StalledPoll, Severity::Warning, "stuck").spawned_at(&format!("src/main.rs:{line}:1"));
        (finding.seen.first_at_ns, finding.seen.last_at_ns) = (now.at_ns - SECOND, now.at_ns);
        now.findings = Some(vec![finding]);
        now
    }

    fn reported(course: &mut Course, now: &Snapshot) -> Vec<bool> {
        course.check(now).into_iter().map(|turn| matches!(turn, Turn::Began { .. })).collect()
    }

    #[test]
    fn a_finding_begins_once_and_ends_once() {
        let mut course = Course::default();
        assert_eq!(reported(&mut course, &at(1)), [false; 0]);
        assert_eq!(reported(&mut course, &stuck(2, 7)), [true]);
        assert!(course.has_open_finding());
        assert_eq!(reported(&mut course, &stuck(3, 7)), [false; 0], "it goes on");
        assert_eq!(reported(&mut course, &at(4)), [false]);
        assert!(!course.has_open_finding());
        assert_eq!(reported(&mut course, &at(5)), [false; 0]);
    }

    #[test]
    fn past_findings_and_infos_are_not_reported() {
        let mut course = Course::default();
        let mut now = stuck(1, 7);
        now.findings.as_mut().unwrap()[0].severity = Severity::Info;
        assert_eq!(reported(&mut course, &now), [false; 0]);
        let mut now = stuck(2, 7);
        let seen = &mut now.findings.as_mut().unwrap()[0].seen;
        (seen.is_current, seen.last_at_ns) = (false, SECOND);
        assert_eq!(reported(&mut course, &now), [false; 0], "it was last seen before the previous snapshot");
    }

    #[test]
    fn a_recurring_finding_is_logged_once_a_minute_with_a_count() {
        let mut course = Course::default();
        let (mut begun, mut ended, mut suppressed) = (0, 0, 0);
        for second in 1..=200 {
            // For one second in every ten.
            let now = if second % 10 == 1 { stuck(second, 7) } else { at(second) };
            for turn in course.check(&now) {
                match turn {
                    Turn::Began { suppressed: more, .. } => (begun, suppressed) = (begun + 1, suppressed + more),
                    Turn::Ended { .. } => ended += 1,
                }
            }
        }
        assert_eq!((begun, ended), (4, 4), "at 1, 61, 121, 181");
        assert_eq!(suppressed, 3 * 5, "and 5 in between, each time");
    }

    #[test]
    fn an_early_recurring_finding_is_reported_after_the_minute() {
        let mut course = Course::default();
        assert_eq!(reported(&mut course, &stuck(1, 7)), [true]);
        assert_eq!(reported(&mut course, &at(20)), [false]);
        let begun: Vec<_> = (30..100).filter(|second| !reported(&mut course, &stuck(*second, 7)).is_empty()).collect();
        assert_eq!(begun, [61]);
    }

    #[test]
    fn a_stall_is_reported_once_its_stack_is_read() {
        let mut course = Course::default();
        let mut now = stuck(1, 7);
        now.findings.iter_mut().flatten().for_each(|finding| *finding = finding.clone().without_line(true));
        assert_eq!(reported(&mut course, &now), [false; 0]);
        let mut now = stuck(2, 7);
        let guilty = Place::Guilty { at: "src/pay.rs:40".into(), function: None };
        now.findings.as_mut().unwrap()[0].locations.insert(0, guilty);
        assert_eq!(reported(&mut course, &now), [true]);
        assert_eq!(reported(&mut course, &now), [false; 0]);
        assert_eq!(reported(&mut course, &stuck(3, 7)), [false, true], "one without a line is another");
    }

    #[test]
    fn past_findings_make_room_and_the_others_are_counted() {
        let mut course = Course::default();
        let many = |second: u64, lines: std::ops::Range<u64>| {
            let all = lines.flat_map(|line| stuck(second, line).findings.unwrap());
            Snapshot { findings: Some(all.collect()), ..at(second) }
        };
        let most = KNOWN_MAX as u64;
        assert_eq!(reported(&mut course, &many(1, 0..most)).len(), KNOWN_MAX);
        assert_eq!(reported(&mut course, &many(2, 0..most + 1)), [false; 0]);
        assert_eq!(course.left_out(), 1);
        assert_eq!(reported(&mut course, &at(3)).len(), KNOWN_MAX);
        assert_eq!(reported(&mut course, &stuck(4, 999)), [true]);
        assert_eq!((course.left_out(), course.known.len()), (1, KNOWN_MAX));
    }
}
