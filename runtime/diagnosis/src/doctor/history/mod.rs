//! The verdict on one runtime: its current and past problems, from check to check.
//!
//! A rule judges one interval, usually a second, so its findings come and go: a handler that blocks
//! twice a minute is found in two seconds of sixty. On a screen such findings would flicker, and so
//! would their severity. A history therefore keeps each finding, by rule and line of code. It adds
//! when the finding was first seen, how often, and whether it is current.
//!
//! # Writers and readers
//!
//! One thread at a time calls [`check`](History::check). [`findings`](History::findings) returns
//! the findings for the snapshot. A program keeps a history for each runtime. A reader keeps one
//! for programs that are too old to do so ([`Watch`](super::Watch)).
//!
//! An ordinary case: a handler blocks its worker for 20 ms, a few times in a minute. The check
//! after the first time finds the stall, which enters as an info. After the third time it is a
//! warning. When it has not been seen for half a minute or more, it becomes past.
//!
//! # Protocol
//!
//! 1. A check applies the rules to this snapshot and to the one of the previous check,
//!    [`CHECKS_APART_NS`] earlier or more. A problem that a rule finds is *seen*.
//! 2. A finding *enters* when it is seen. A finding that depends on two snapshots, and is not an
//!    info, enters when two consecutive checks see it. A short stall becomes a warning when it was
//!    seen in `RECURRING_MOMENTS` different seconds within `RECURRING_NS`.
//! 3. Its severity is kept for [`HOLD_NS`] after it was last seen with that severity. It is kept
//!    for longer if the finding recurs slowly: for twice the longest time between two sightings
//!    since it began. It thus ends when it occurs half as often as before.
//! 4. After that it is *past*: an info with the times when it was first and last seen.
//!
//! # Findings that replace others
//!
//! A stall whose stack is still to be read is *provisional*: it is shown as long as checks find it.
//! When the stack is read, the stall is found at its line, or at the spawn location if the stack
//! could not be read. That is a different finding. Similarly, a poll may be found before the
//! runtime records its incident. That finding is dropped when the incident has a line, or when a
//! provisional finding shows it.
//!
//! The new finding inherits the severity of the old one, with the times of (3), and its beginning.
//! This happens even between two checks, and so does adding a new incident. The reason is that a
//! runtime that becomes idle is examined only once more, perhaps right after a reader's check.
//!
//! # Invariants
//!
//! * *Only time mends*: between two checks a finding becomes milder only by (3).
//! * *Bounded*: `KNOWN_MAX` findings. Past ones are dropped first, after `PAST_NS` at the latest.
//!   Findings without room at the last check are counted in [`left_out`](History::left_out).
//! * *Adaptation stays out*: the log reports less of a frequent finding; the verdict does not
//!   depend on that.

use std::cmp::Reverse;

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::incident::Incident;
use volt_telemetry::listing::order;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;

use super::case::Case;
use super::describe::Describe;
use super::growth::Growth;
use super::key::{Key, has_no_line};
use super::rule::{RuleEntry, examine_with};
use super::stalls::{RECURRING_MOMENTS, SEEN_COUNT, end_stall, is_stack_pending, key_of, stalled_poll};

/// Two snapshots that are closer together count as one check: several readers may take snapshots in
/// addition to the runtime itself.
pub const CHECKS_APART_NS: u64 = 500_000_000;
/// Minimum time for which a finding keeps its severity.
pub const HOLD_NS: u64 = 30_000_000_000;
/// The time within which a short stall recurs. See [`RECURRING_MOMENTS`].
const RECURRING_NS: u64 = 60_000_000_000;
/// Stalls within this time count as one moment, since the runtime records one per second of each
/// kind.
const MOMENT_NS: u64 = 900_000_000;
/// A poll in flight and an incident of the same worker and task that began within this time of each
/// other are the same poll. The two begin times were measured separately, and a stuck poll lasts
/// longer than this.
const SAME_POLL_NS: u64 = 10_000_000;
/// How long a past finding is shown.
pub(super) const PAST_NS: u64 = 3_600_000_000_000;
/// If a history's first snapshot is taken this soon after the runtime was built, the earlier state
/// is known: nothing had happened.
const START_NS: u64 = 10_000_000_000;
/// Maximum number of findings of one runtime that a history keeps.
pub const KNOWN_MAX: usize = 64;

/// The findings of one runtime over time. See the module documentation.
///
/// ```
/// use volt_diagnosis::doctor::History;
/// use volt_telemetry::finding::Severity;
/// use volt_telemetry::{Cause, Incident, Snapshot};
///
/// const SECOND: u64 = 1_000_000_000;
/// let mut history = History::default();
/// let mut now = Snapshot { at_ns: SECOND, ..Snapshot::default() };
/// history.check(&now);
/// now.incidents.latest.push(Incident { began_at_ns: SECOND, for_ns: SECOND, cause: Cause::Sleep, ..Incident::default() });
/// now.at_ns = 2 * SECOND;
/// history.check(&now);
/// now.incidents.latest[0].is_over = true;
/// for second in 3..30 {
///     now.at_ns = second * SECOND;
///     history.check(&now);
///     assert_eq!(history.findings(now.at_ns)[0].severity, Severity::Critical, "it is over, and may come again");
/// }
/// now.at_ns = 60 * SECOND;
/// assert!(!history.findings(now.at_ns)[0].seen.is_current);
/// ```
#[derive(Clone, Debug)]
pub struct History {
    /// Snapshots that are closer together count as one check.
    apart_ns: u64,
    last: Option<Snapshot>,
    growth: Growth,
    known: Vec<Known>,
    checks: u64,
    left_out: u64,
}

/// A finding over time.
#[derive(Clone, Debug)]
struct Known {
    key: Key,
    /// The finding as it was last seen.
    finding: Finding,
    first_at_ns: u64,
    last_at_ns: u64,
    /// Number of checks with a new sighting, and the last of them.
    count: u64,
    counted_check: u64,
    /// The last check that found it.
    check: u64,
    /// Whether it was more than one unusual second.
    is_confirmed: bool,
    /// The last times that it was seen, in different seconds, the latest last.
    moments: [u64; RECURRING_MOMENTS],
    /// The longest time between two of these since it was last past.
    apart_ns: u64,
    /// When it was last seen with each severity, from the mildest.
    bad_at_ns: [Option<u64>; Severity::ALL.len()],
    worst: Severity,
}

impl Default for History {
    fn default() -> Self {
        Self::with_checks_apart(CHECKS_APART_NS)
    }
}

impl History {
    /// Creates a history whose checks are at least this far apart; the default is
    /// [`CHECKS_APART_NS`]. For a reader that has only a second: a finding that depends on rates
    /// must be seen at two checks after the first.
    pub fn with_checks_apart(apart_ns: u64) -> Self {
        let growth = Growth::default();
        Self { apart_ns, last: None, growth, known: Vec::new(), checks: 0, left_out: 0 }
    }

    /// Applies the rules, unless the last check was very recent.
    pub fn check(&mut self, now: &Snapshot) {
        let start;
        let last = match &self.last {
            Some(last) if last.started_at_ns != now.started_at_ns => {
                // This is another runtime of the same name.
                *self = Self::with_checks_apart(self.apart_ns);
                now
            }
            Some(last) if now.at_ns.saturating_sub(last.at_ns) < self.apart_ns => {
                let is_provisional = self.known.iter().any(|known| known.key.is_provisional());
                if is_provisional || has_new_incident(last, now) {
                    let stalls = stalled_poll(&Case::of(last, now));
                    self.see_stalls(stalls, now);
                }
                return;
            }
            Some(last) => last,
            None if now.at_ns.saturating_sub(now.started_at_ns) < START_NS => {
                start = at_start(now);
                &start
            }
            None => now,
        };
        self.left_out = 0;
        self.growth.take(now);
        let found = examine_with(last, now, Some(&self.growth));
        self.last = Some(Snapshot { findings: None, ..now.clone() });
        self.checks += 1;
        // The worst comes last, so that it is shown among findings with the same key.
        for finding in found.into_iter().rev() {
            self.see(finding, now.at_ns);
        }
        let check = self.checks;
        self.end_stalls();
        self.replace(now, |known| known.key.is_provisional() && known.check != check);
        self.known.retain(|known| {
            let is_wanted = known.is_confirmed || known.check == check;
            is_wanted && now.at_ns.saturating_sub(known.last_at_ns) < PAST_NS
        });
    }

    /// Checks a snapshot and adds the findings to it.
    pub fn judge(&mut self, now: &mut Snapshot) {
        self.check(now);
        (now.findings, now.findings_left_out) = (Some(self.findings(now.at_ns)), Some(self.left_out));
    }

    /// Returns the time of the last check, or `None` before the first.
    pub fn checked_at_ns(&self) -> Option<u64> {
        self.last.as_ref().map(|last| last.at_ns)
    }

    /// Returns all known findings: current ones first, then by severity, then by rule, then the
    /// oldest first.
    pub fn findings(&self, now_ns: u64) -> Vec<Finding> {
        let known = self.known.iter().filter(|known| known.is_confirmed);
        let mut findings: Vec<_> = known.map(|known| known.at(now_ns)).collect();
        // The sort key does not change from check to check, so that rows stay in place.
        order::sort_by_key(&mut findings, |finding| {
            let bad = (Reverse(finding.seen.is_current), Reverse(finding.severity));
            (bad, finding.rule, finding.seen.first_at_ns, Key::of(finding))
        });
        findings
    }

    /// Adds stalls between two checks: provisional findings are found at their lines, or are
    /// dropped.
    fn see_stalls(&mut self, stalls: Vec<Finding>, now: &Snapshot) {
        let found: Vec<_> = stalls.iter().map(Key::of).collect();
        // The stalls may include findings that the last check had no room for.
        let left_out = std::mem::take(&mut self.left_out);
        for stall in stalls.into_iter().rev() {
            self.see(stall, now.at_ns);
        }
        self.left_out = self.left_out.max(left_out);
        self.replace(now, |known| known.key.is_provisional() && !found.contains(&known.key));
    }

    /// Drops findings that others replace, each of which inherits the severity of its predecessor.
    /// These are provisional ones for which `is_obsolete` holds, and those whose incident has been
    /// recorded.
    fn replace(&mut self, now: &Snapshot, is_obsolete: impl Fn(&Known) -> bool) {
        let is_known = |key: &Key| self.known.iter().any(|known| known.key == *key);
        let is_shown = |incident: &&Incident| {
            incident.guilty().is_some() || is_stack_pending(incident) && is_known(&key_of(incident))
        };
        let shown: Vec<_> = now.incidents.latest.iter().filter(is_shown).collect();
        let is_written = |known: &Known| shown.iter().any(|incident| known.is_of(incident));
        let replaced: Vec<_> = self.known.extract_if(.., |known| is_obsolete(known) || is_written(known)).collect();
        for former in replaced {
            // The latest incident that can be the poll of this finding.
            let incident = now.incidents.latest.iter().rev().find(|incident| former.may_be(incident));
            let Some(key) = incident.map(key_of) else { continue };
            if let Some(known) = self.known.iter_mut().find(|known| known.key == key) {
                known.inherit(&former);
            }
        }
    }

    /// Returns the number of findings of the last check that there was no room for.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    fn see(&mut self, finding: Finding, now_ns: u64) {
        if now_ns.saturating_sub(finding.seen.last_at_ns) >= PAST_NS {
            return;
        }
        let key = Key::of(&finding);
        let Some(index) = self.place_of(&key, now_ns) else { return };
        self.known[index].see(&finding, self.checks, now_ns);
        self.known[index].finding = finding;
    }

    /// Puts stalls into the past tense that the last check did not find any more: a held finding
    /// must not read as if its poll still lasted.
    fn end_stalls(&mut self) {
        let check = self.checks;
        self.known.iter_mut().filter(|known| known.check != check).for_each(|known| end_stall(&mut known.finding));
    }

    /// Returns the index of the finding with this key, and adds it if necessary.
    fn place_of(&mut self, key: &Key, now_ns: u64) -> Option<usize> {
        if let Some(index) = self.known.iter().position(|known| known.key == *key) {
            return Some(index);
        }
        if self.known.len() == KNOWN_MAX {
            let past = self.known.iter().enumerate().filter(|(_, known)| known.severity(now_ns).is_none());
            let Some((oldest, _)) = past.min_by_key(|(_, known)| known.last_at_ns) else {
                self.left_out += 1;
                return None;
            };
            self.known.swap_remove(oldest);
        }
        self.known.push(Known::new(key.clone()));
        Some(self.known.len() - 1)
    }
}

impl Known {
    fn new(key: Key) -> Self {
        Self {
            finding: Finding::new(key.rule(), Severity::Info, ""),
            key,
            first_at_ns: u64::MAX,
            last_at_ns: 0,
            count: 0,
            counted_check: 0,
            check: 0,
            is_confirmed: false,
            moments: [0; RECURRING_MOMENTS],
            apart_ns: 0,
            bad_at_ns: Default::default(),
            worst: Severity::Info,
        }
    }

    fn see(&mut self, finding: &Finding, check: u64, now_ns: u64) {
        let (first_at_ns, at_ns) = (finding.seen.first_at_ns, finding.seen.last_at_ns);
        // An incident stays in the list long after it ended.
        let is_news = at_ns > self.last_at_ns;
        let was_seen = self.check + 1 == check;
        (self.check, self.first_at_ns) = (check, self.first_at_ns.min(first_at_ns));
        let is_sure = RuleEntry::of(finding.rule).can_judge_one_snapshot() || finding.severity == Severity::Info;
        self.is_confirmed |= is_sure || was_seen;
        if !is_news && self.count > 0 {
            return;
        }
        self.last_at_ns = at_ns;
        // Several findings of one check may have the same key.
        if self.counted_check != check {
            (self.counted_check, self.count) = (check, self.count + 1);
        }
        let before_ns = self.moments[RECURRING_MOMENTS - 1];
        let apart_ns = at_ns.saturating_sub(before_ns);
        if apart_ns >= MOMENT_NS {
            // If it is seen less often than that, it does not recur.
            let apart_ns = if before_ns > 0 && apart_ns < RECURRING_NS { apart_ns } else { 0 };
            let is_past = self.severity(at_ns).is_none();
            self.apart_ns = if is_past { apart_ns } else { self.apart_ns.max(apart_ns) };
            self.moments.rotate_left(1);
            self.moments[RECURRING_MOMENTS - 1] = at_ns;
        }
        let mut bad = finding.severity;
        if finding.rule == Rule::StalledPoll && self.is_recurring() {
            bad = bad.max(Severity::Warning);
        }
        if is_sure || was_seen {
            // At the end of the interval, since the problem may have lasted until then.
            let bad_at_ns = if finding.rule == Rule::StalledPoll { at_ns } else { now_ns };
            Severity::ALL.iter().filter(|severity| **severity <= bad).for_each(|severity| {
                self.bad_at_ns[*severity as usize] = Some(bad_at_ns);
            });
            self.worst = self.worst.max(bad);
        }
    }

    /// Returns whether this is a finding without a line whose only poll is this incident.
    fn is_of(&self, incident: &Incident) -> bool {
        let has_begun_with_it = self.first_at_ns.abs_diff(incident.began_at_ns) < SAME_POLL_NS;
        // A worker has one poll at a time, so an incident that began during a poll that was not
        // recorded yet is that poll. The beginning of an incident is later by the pauses of the
        // machine.
        let is_one_poll = self.first_at_ns.abs_diff(self.finding.seen.first_at_ns) < SAME_POLL_NS
            && self.finding.figure(SEEN_COUNT).is_none();
        let is_in_it = is_one_poll && incident.began_at_ns >= self.first_at_ns;
        has_no_line(&self.finding) && self.may_be(incident) && (has_begun_with_it || is_in_it)
    }

    /// Returns whether it was last seen in a poll of the worker and task of this incident, and the
    /// incident had begun by then.
    fn may_be(&self, incident: &Incident) -> bool {
        self.finding.workers == [incident.worker]
            && self.finding.tasks.iter().all(|task| task.id == incident.task_id)
            && incident.began_at_ns <= self.last_at_ns
    }

    /// Takes over the severity of the finding that it replaces, with its times.
    fn inherit(&mut self, former: &Known) {
        self.first_at_ns = self.first_at_ns.min(former.first_at_ns);
        self.worst = self.worst.max(former.worst);
        for (bad_at_ns, former_at_ns) in self.bad_at_ns.iter_mut().zip(former.bad_at_ns) {
            *bad_at_ns = (*bad_at_ns).max(former_at_ns);
        }
    }

    /// Returns whether it was seen in several seconds of the minute before it was last seen.
    fn is_recurring(&self) -> bool {
        let [first, .., last] = self.moments;
        first > 0 && last.saturating_sub(first) < RECURRING_NS
    }

    /// Returns how long its severity is kept after it was seen.
    fn hold_ns(&self) -> u64 {
        HOLD_NS.max(2 * self.apart_ns)
    }

    /// Returns the current severity, or `None` if it is past.
    fn severity(&self, now_ns: u64) -> Option<Severity> {
        let hold_ns = self.hold_ns();
        let is_held = |at_ns: &Option<u64>| at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < hold_ns);
        Severity::ALL.into_iter().rev().find(|severity| is_held(&self.bad_at_ns[*severity as usize]))
    }

    fn at(&self, now_ns: u64) -> Finding {
        let severity = self.severity(now_ns);
        let mut finding = self.finding.clone();
        finding.severity = severity.unwrap_or(Severity::Info);
        let seen = &mut finding.seen;
        (seen.is_current, seen.worst, seen.count) = (severity.is_some(), self.worst, self.count);
        (seen.first_at_ns, seen.last_at_ns) = (self.first_at_ns, self.last_at_ns);
        if severity.is_none() {
            // A later sighting that is not sure yet does not count.
            let held_at_ns = self.bad_at_ns.iter().flatten().max();
            seen.last_at_ns = held_at_ns.map_or(self.last_at_ns, |&held_at_ns| held_at_ns.min(self.last_at_ns));
        }
        finding
    }
}

/// Returns whether there was an incident from `last` to `now`, or one that was counted earlier was
/// recorded later.
fn has_new_incident(last: &Snapshot, now: &Snapshot) -> bool {
    let seen = |snapshot: &Snapshot| {
        let incidents = &snapshot.incidents;
        (incidents.total(), incidents.evicted.saturating_add(incidents.latest.len() as u64))
    };
    seen(last) != seen(now)
}

/// Returns the state of the runtime when it was built.
fn at_start(now: &Snapshot) -> Snapshot {
    let (runtime, started_at_ns) = (now.runtime.clone(), now.started_at_ns);
    Snapshot { runtime, started_at_ns, at_ns: started_at_ns, ..Snapshot::default() }
}

#[cfg(test)]
mod tests;
