//! Findings over time: which begin, which are over. For whoever tells each once, as the runtime does in the log.
//!
//! Shape: a list of what is known, by rule and place. One look after another is compared with it.
//!
//! 1. Only [warnings](Severity::Warning) and worse count. A finding that a single look can tell begins at once; one of rates, when two looks in
//!    a row find it.
//! 2. It is over when it has not been found for `OVER_AFTER_NS`.
//! 3. Of one that begins again within `QUIET_NS` of being told, nothing is told but a count, when it is told the next time.
//!
//! Invariants. *Told in pairs*: an end follows its beginning, and another beginning its end. *Bounded*: `KNOWN_MAX` are known; a finding that
//! comes when all are open is counted in [`unheard`](Course::unheard). *Two looks of one runtime, [`INTERVAL_MIN_NS`] apart*: a look that
//! comes sooner is none.

use super::INTERVAL_MIN_NS;
use super::finding::{Finding, Place, Severity};
use super::rule::{Rule, examine};
use crate::snapshot::Snapshot;

/// Who stalls once a second would begin and end all the time.
const OVER_AFTER_NS: u64 = 5_000_000_000;
/// Of what comes and goes, one word a minute.
const QUIET_NS: u64 = 60_000_000_000;
/// Whose first look comes so soon after the runtime was built knows what it was like before: nothing had happened.
const START_NS: u64 = 10_000_000_000;
/// Findings that are known, open or lately over.
const KNOWN_MAX: usize = 64;

/// What there is to tell.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Turn {
    /// Something is wrong.
    Began {
        /// What.
        finding: Finding,
        /// How often it began and ended since it was last told.
        suppressed: u64,
    },
    /// It is not any more.
    Ended {
        /// As it was when it was last found.
        finding: Finding,
        /// For how long it was found, ns.
        for_ns: u64,
    },
}

/// The findings of one runtime.
///
/// ```
/// use volt_telemetry::doctor::{Course, Turn};
/// use volt_telemetry::{Cause, Incident, Snapshot};
///
/// let mut course = Course::default();
/// let mut now = Snapshot { at_ns: 1_000_000_000, ..Snapshot::default() };
/// assert!(course.look(&now).is_empty());
/// now.incidents.latest.push(Incident { for_ns: 300_000_000, cause: Cause::Sleep, ..Incident::default() });
/// now.at_ns += 1_000_000_000;
/// assert!(matches!(course.look(&now)[..], [Turn::Began { .. }]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Course {
    last: Option<Snapshot>,
    known: Vec<Known>,
    unheard: u64,
}

#[derive(Clone, Debug)]
struct Known {
    key: Key,
    finding: Finding,
    since_ns: u64,
    seen_at_ns: u64,
    phase: Phase,
    /// When its beginning was told.
    told_at_ns: Option<u64>,
    suppressed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Found once, and not told yet.
    Suspected,
    /// Told.
    Open,
    /// Begun again too soon to be told.
    Hushed,
    Over,
}

/// What makes two findings the same: the numbers change, and the guilty line is known a moment later.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    rule: Rule,
    spawned_at: Vec<String>,
}

impl Key {
    fn of(finding: &Finding) -> Self {
        let spawned = |place: &Place| match place {
            Place::Spawned { at } => Some(at.clone()),
            Place::Guilty { .. } => None,
        };
        let mut spawned_at: Vec<_> = match finding.rule {
            // What they are about is whoever is there at the moment.
            Rule::StalledPoll
            | Rule::NoYield
            | Rule::SelfWakeLoop
            | Rule::LostWaker
            | Rule::TaskLeak
            | Rule::MailboxGrowing => finding.locations.iter().filter_map(spawned).collect(),
            _ => Vec::new(),
        };
        spawned_at.sort_unstable();
        Self { rule: finding.rule, spawned_at }
    }
}

impl Course {
    /// What has begun and ended since the look before.
    pub fn look(&mut self, now: &Snapshot) -> Vec<Turn> {
        let start;
        let last = match &self.last {
            Some(last) if now.at_ns.saturating_sub(last.at_ns) < INTERVAL_MIN_NS => return Vec::new(),
            Some(last) => last,
            None if now.at_ns.saturating_sub(now.started_at_ns) < START_NS => {
                start = at_start(now);
                &start
            }
            None => now,
        };
        let mut found = examine(last, now);
        found.retain(|finding| finding.severity >= Severity::Warning);
        self.last = Some(now.clone());
        let mut turns = Vec::new();
        for finding in found {
            turns.extend(self.see(finding, now.at_ns));
        }
        for known in &mut self.known {
            turns.extend(known.age(now.at_ns));
        }
        let is_wanted = |known: &Known| known.phase != Phase::Over || known.is_quiet(now.at_ns);
        self.known.retain(is_wanted);
        turns
    }

    /// Whether anything was told to have begun and not to have ended.
    pub fn is_unwell(&self) -> bool {
        self.known.iter().any(|known| known.phase == Phase::Open)
    }

    /// Findings that nobody was told of, since there were too many.
    pub fn unheard(&self) -> u64 {
        self.unheard
    }

    fn see(&mut self, finding: Finding, now_ns: u64) -> Option<Turn> {
        let (key, is_of_a_moment) = (Key::of(&finding), finding.rule.entry().can_judge_one_look());
        let index = self.known.iter().position(|known| known.key == key);
        let known = match index {
            Some(index) => &mut self.known[index],
            None => {
                if self.known.len() == KNOWN_MAX {
                    let Some(over) = self.known.iter().position(|known| known.phase == Phase::Over) else {
                        self.unheard += 1;
                        return None;
                    };
                    self.known.swap_remove(over);
                }
                self.known.push(Known::new(key, finding.clone(), now_ns));
                self.known.last_mut()?
            }
        };
        let was_there = index.is_some() && known.phase != Phase::Over;
        if known.phase == Phase::Over {
            (known.phase, known.since_ns) = (Phase::Suspected, now_ns);
        }
        (known.finding, known.seen_at_ns) = (finding, now_ns);
        let begins = known.phase == Phase::Suspected && (was_there || is_of_a_moment);
        begins.then(|| known.begin(now_ns)).flatten()
    }
}

/// The runtime when it was built.
fn at_start(now: &Snapshot) -> Snapshot {
    let (runtime, started_at_ns) = (now.runtime.clone(), now.started_at_ns);
    Snapshot { runtime, started_at_ns, at_ns: started_at_ns, ..Snapshot::default() }
}

impl Known {
    fn new(key: Key, finding: Finding, now_ns: u64) -> Self {
        let (since_ns, seen_at_ns) = (now_ns, now_ns);
        Self { key, finding, since_ns, seen_at_ns, phase: Phase::Suspected, told_at_ns: None, suppressed: 0 }
    }

    fn is_quiet(&self, now_ns: u64) -> bool {
        self.told_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < QUIET_NS)
    }

    fn begin(&mut self, now_ns: u64) -> Option<Turn> {
        if self.is_quiet(now_ns) {
            self.phase = Phase::Hushed;
            self.suppressed += 1;
            return None;
        }
        (self.phase, self.told_at_ns) = (Phase::Open, Some(now_ns));
        Some(Turn::Began { finding: self.finding.clone(), suppressed: std::mem::take(&mut self.suppressed) })
    }

    /// It was not found at this look, or it was.
    fn age(&mut self, now_ns: u64) -> Option<Turn> {
        let unseen_ns = now_ns.saturating_sub(self.seen_at_ns);
        if unseen_ns == 0 {
            // Of what goes on for so long, a word is due.
            let is_due = self.phase == Phase::Hushed && !self.is_quiet(now_ns);
            return is_due.then(|| self.begin(now_ns)).flatten();
        }
        let was = self.phase;
        if was == Phase::Suspected || unseen_ns >= OVER_AFTER_NS {
            self.phase = Phase::Over;
        }
        let has_ended = was == Phase::Open && self.phase == Phase::Over;
        let for_ns = self.seen_at_ns.saturating_sub(self.since_ns);
        has_ended.then(|| Turn::Ended { finding: self.finding.clone(), for_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incident::{Cause, Incident};
    use crate::snapshot::{Driver, Worker};

    const SECOND: u64 = 1_000_000_000;

    fn at(second: u64) -> Snapshot {
        Snapshot { at_ns: second * SECOND, ..Snapshot::default() }
    }

    /// A poll of the task spawned at `line` is stuck.
    fn stuck(second: u64, line: u64) -> Snapshot {
        let mut now = at(second);
        now.incidents.latest.push(Incident {
            began_at_ns: now.at_ns - SECOND / 2,
            for_ns: SECOND / 2,
            cause: Cause::Sleep,
            spawned_at: format!("src/main.rs:{line}:1"),
            ..Incident::default()
        });
        now
    }

    /// Nobody looks after sockets.
    fn held(second: u64) -> Snapshot {
        let driver = Driver { registrations: 1, idle_ns: SECOND / 2, ..Driver::default() };
        Snapshot { driver, workers: vec![Worker::default()], ..at(second) }
    }

    fn told(course: &mut Course, now: &Snapshot) -> Vec<(bool, Rule)> {
        let turns = course.look(now).into_iter();
        let told = turns.map(|turn| match turn {
            Turn::Began { finding, .. } => (true, finding.rule),
            Turn::Ended { finding, .. } => (false, finding.rule),
        });
        told.collect()
    }

    #[test]
    fn a_stall_begins_once_and_ends_once() {
        let mut course = Course::default();
        assert_eq!(told(&mut course, &at(1)), []);
        assert_eq!(told(&mut course, &stuck(2, 7)), [(true, Rule::StalledPoll)]);
        assert!(course.is_unwell());
        for second in 3..9 {
            assert_eq!(told(&mut course, &stuck(second, 7)), [], "it goes on");
        }
        for second in 9..13 {
            assert_eq!(told(&mut course, &at(second)), [], "it may come again at once");
        }
        assert_eq!(told(&mut course, &at(13)), [(false, Rule::StalledPoll)]);
        assert!(!course.is_unwell());
        assert_eq!(told(&mut course, &at(14)), []);
    }

    #[test]
    fn what_was_over_before_the_first_look_is_told_if_it_was_since_the_start() {
        let mut over = stuck(3, 7);
        over.incidents.latest[0].is_over = true;
        over.incidents.latest[0].began_at_ns -= SECOND;
        assert_eq!(told(&mut Course::default(), &over).len(), 1);
        over.at_ns += START_NS;
        assert_eq!(told(&mut Course::default(), &over), [], "who comes late is not told of old times");
    }

    #[test]
    fn one_that_is_of_rates_has_to_be_found_twice_in_a_row() {
        let mut course = Course::default();
        assert_eq!(told(&mut course, &at(1)), []);
        assert_eq!(told(&mut course, &held(2)), []);
        assert_eq!(told(&mut course, &at(3)), []);
        assert_eq!(told(&mut course, &held(4)), [], "it was gone in between");
        assert_eq!(told(&mut course, &held(5)), [(true, Rule::DriverHeld)]);
    }

    #[test]
    fn what_comes_and_goes_is_told_once_a_minute_with_a_count() {
        let mut course = Course::default();
        let (mut begun, mut ended, mut suppressed) = (0, 0, 0);
        for second in 1..=200 {
            // For a second, every ten.
            let now = if second % 10 == 1 { stuck(second, 7) } else { at(second) };
            for turn in course.look(&now) {
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
    fn what_begins_again_too_soon_and_goes_on_is_told_when_the_minute_is_over() {
        let mut course = Course::default();
        assert_eq!(told(&mut course, &stuck(1, 7)).len(), 1);
        assert_eq!(told(&mut course, &at(20)).len(), 1);
        let begun: Vec<_> = (30..100).filter(|second| !told(&mut course, &stuck(*second, 7)).is_empty()).collect();
        assert_eq!(begun, [61]);
    }

    #[test]
    fn places_are_told_apart_and_looks_in_quick_succession_are_one() {
        let mut course = Course::default();
        assert_eq!(told(&mut course, &stuck(1, 7)).len(), 1);
        let mut soon = stuck(1, 8);
        soon.at_ns += INTERVAL_MIN_NS - 1;
        assert_eq!(told(&mut course, &soon), []);
        assert_eq!(told(&mut course, &stuck(2, 8)), [(true, Rule::StalledPoll)]);
    }

    #[test]
    fn however_many_places_are_stuck_few_are_known_and_the_others_are_counted() {
        let mut course = Course::default();
        let mut begun = 0;
        for second in 1..=100 {
            // Each goes on for as long as it is looked at, and is seen at every fourth look.
            begun += told(&mut course, &stuck(second, second)).iter().filter(|(begins, _)| *begins).count() as u64;
            assert!(course.known.len() <= KNOWN_MAX);
        }
        assert_eq!(begun + course.unheard(), 100);
    }

    #[test]
    fn those_that_are_over_make_room() {
        let mut course = Course::default();
        let mut all = at(1);
        (0..16).for_each(|line| all.incidents.latest.extend(stuck(1, line).incidents.latest));
        for round in 0..4 {
            let mut more = all.clone();
            more.at_ns += round * SECOND;
            for incident in &mut more.incidents.latest {
                incident.spawned_at += &format!(":{round}");
            }
            assert_eq!(told(&mut course, &more).len(), 16);
        }
        assert_eq!(told(&mut course, &stuck(5, 1)), [], "all are open");
        assert_eq!(course.unheard(), 1);
        assert_eq!(told(&mut course, &at(20)).len(), KNOWN_MAX);
        assert_eq!(told(&mut course, &stuck(21, 1)), [(true, Rule::StalledPoll)]);
        assert_eq!(course.unheard(), 1);
    }
}
