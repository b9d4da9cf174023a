//! The verdict on one runtime: what is wrong with it now and what was, from check to check.
//!
//! A rule judges one interval, a second as a rule, and what it finds comes and goes: a handler that
//! blocks twice a minute is found in two seconds of sixty. Whoever reads such findings sees them
//! flicker, and the severity with them. So this keeps each finding, by rule and line, and says
//! of it since when it is there, how often it was seen, and whether it still goes on.
//!
//! Who writes: one thread at a time, with [`check`](History::check). Who reads:
//! [`findings`](History::findings), which goes into the snapshot. A program keeps a history for
//! each runtime; a reader keeps one for programs that are too old to do so
//! ([`Watch`](super::Watch)).
//!
//! 1. A check applies the rules to this snapshot and to the one before, [`CHECKS_APART_NS`] earlier
//!    or more. What a rule finds is *seen*.
//! 2. A finding *enters* when it is seen. One that goes by rates, when it is seen at two checks in
//!    a row. A stall that is short, when it was seen in `RECURRING_MOMENTS` different seconds
//!    within `RECURRING_NS`: again and again, it is a warning.
//! 3. It stays as bad as it was for [`HOLD_NS`] after it was last seen to be so bad, and for twice
//!    the longest time that it took from one time to the next since it began: until it comes half
//!    as often as it did.
//! 4. Then it is *past*: an info that says when it was seen first and last.
//!
//! A stall whose stack is still to be read is *provisional*: shown while it is found so. In a
//! moment it is found at its line, or at the spawn location if its stack could not be read, and
//! that is another finding. Likewise a poll that was found before the runtime wrote it down is
//! dropped when its incident has a line. The finding that replaces another one inherits its
//! severity, with the times of (3), and its beginning. Neither waits for the next check, and nor
//! does a new incident: a runtime that comes to rest is examined once more, perhaps right after a
//! reader's check.
//!
//! Invariants. *Only time mends*: between two checks a finding becomes milder only by (3).
//! *Bounded*: `KNOWN_MAX` findings, of which past ones are dropped first, after `PAST_NS` at the
//! latest; findings without room at the last check are counted in [`unheard`](History::unheard).
//! *Adaptation stays out*: what is written to the log depends on how much there was lately, the
//! verdict does not.

use std::cmp::Reverse;

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::incident::Incident;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;

use super::case::Case;
use super::describe::Describe;
use super::growth::Growth;
use super::key::{Key, has_no_line};
use super::rule::{RuleEntry, examine_with};
use super::stalls::{RECURRING_MOMENTS, key_when_read, stalled_poll};

/// Two snapshots that are closer together are one check: several readers may take snapshots beside
/// the runtime itself.
pub const CHECKS_APART_NS: u64 = 500_000_000;
/// A finding is as bad as it was for so long, at least.
pub const HOLD_NS: u64 = 30_000_000_000;
/// See [`RECURRING_MOMENTS`].
const RECURRING_NS: u64 = 60_000_000_000;
/// Stalls within so short a time are one moment, since of one kind the runtime writes down one a
/// second.
const MOMENT_NS: u64 = 900_000_000;
/// A poll in flight and an incident of the same worker and task that began so close together are
/// the same poll. Each was timed on its own, and lasts for longer.
const SAME_POLL_NS: u64 = 10_000_000;
/// A past finding is shown for so long.
const PAST_NS: u64 = 3_600_000_000_000;
/// A history whose first snapshot comes so soon after the runtime was built knows what it was like
/// before: nothing had happened.
const START_NS: u64 = 10_000_000_000;
/// Findings of one runtime that a history keeps.
pub const KNOWN_MAX: usize = 64;

/// See the header of this file.
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
    /// Snapshots that are closer together are one check.
    apart_ns: u64,
    last: Option<Snapshot>,
    growth: Growth,
    known: Vec<Known>,
    checks: u64,
    unheard: u64,
}

/// A finding over time.
#[derive(Clone, Debug)]
struct Known {
    key: Key,
    /// As it was when it was last seen.
    finding: Finding,
    first_at_ns: u64,
    last_at_ns: u64,
    /// Checks that saw it anew, and the last of them.
    count: u64,
    counted_check: u64,
    /// The check that found it last.
    check: u64,
    /// It was seen to be more than one odd second's.
    is_confirmed: bool,
    /// The last times that it was seen, in different seconds, the latest last.
    moments: [u64; RECURRING_MOMENTS],
    /// The longest time between two of these since it was last past.
    apart_ns: u64,
    /// When it was last so bad, from the mildest.
    bad_at_ns: [Option<u64>; Severity::ALL.len()],
    worst: Severity,
}

impl Default for History {
    fn default() -> Self {
        Self::with_checks_apart(CHECKS_APART_NS)
    }
}

impl History {
    /// One whose checks are so far apart, or further; [`CHECKS_APART_NS`] by default. For a reader
    /// that has a second only: a finding that goes by rates has to be seen at two checks after the
    /// first.
    pub fn with_checks_apart(apart_ns: u64) -> Self {
        let growth = Growth::default();
        Self { apart_ns, last: None, growth, known: Vec::new(), checks: 0, unheard: 0 }
    }

    /// Applies the rules, unless that was done a moment ago.
    pub fn check(&mut self, now: &Snapshot) {
        let start;
        let last = match &self.last {
            Some(last) if last.started_at_ns != now.started_at_ns => {
                // Another runtime of that name.
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
        self.unheard = 0;
        self.growth.take(now);
        let found = examine_with(last, now, Some(&self.growth));
        self.last = Some(Snapshot { findings: None, ..now.clone() });
        self.checks += 1;
        // The worst comes last, so that it is shown of those that are the same.
        for finding in found.into_iter().rev() {
            self.see(finding, now.at_ns);
        }
        let check = self.checks;
        self.replace(now, |known| known.key.is_provisional() && known.check != check);
        self.known.retain(|known| {
            let is_wanted = known.is_confirmed || known.check == check;
            is_wanted && now.at_ns.saturating_sub(known.last_at_ns) < PAST_NS
        });
    }

    /// Checks a snapshot and adds the findings to it.
    pub fn judge(&mut self, now: &mut Snapshot) {
        self.check(now);
        (now.findings, now.findings_left_out) = (Some(self.findings(now.at_ns)), Some(self.unheard));
    }

    /// When the last check was; `None` before the first.
    pub fn checked_at_ns(&self) -> Option<u64> {
        self.last.as_ref().map(|last| last.at_ns)
    }

    /// Everything that is known at this moment: what is current first, then the worst, then the
    /// oldest.
    pub fn findings(&self, now_ns: u64) -> Vec<Finding> {
        let known = self.known.iter().filter(|known| known.is_confirmed);
        let mut findings: Vec<_> = known.map(|known| known.at(now_ns)).collect();
        // Nothing in here changes from check to check, so that rows stay where they are.
        findings.sort_by_cached_key(|finding| {
            let bad = (Reverse(finding.seen.is_current), Reverse(finding.severity));
            (bad, finding.rule, finding.seen.first_at_ns, Key::of(finding))
        });
        findings
    }

    /// Stalls between two checks: what was provisional is found at its line, or is gone.
    fn see_stalls(&mut self, stalls: Vec<Finding>, now: &Snapshot) {
        let found: Vec<_> = stalls.iter().map(Key::of).collect();
        // Those that the last check had no room for may be among them.
        let unheard = std::mem::take(&mut self.unheard);
        for stall in stalls.into_iter().rev() {
            self.see(stall, now.at_ns);
        }
        self.unheard = self.unheard.max(unheard);
        self.replace(now, |known| known.key.is_provisional() && !found.contains(&known.key));
    }

    /// Drops findings that others replace, each of which inherits the severity of its predecessor:
    /// those that are provisional and `is_gone`, and those that were written down.
    fn replace(&mut self, now: &Snapshot, is_gone: impl Fn(&Known) -> bool) {
        let is_written = |known: &Known| now.incidents.latest.iter().any(|incident| known.is_of(incident));
        let replaced: Vec<_> = self.known.extract_if(.., |known| is_gone(known) || is_written(known)).collect();
        for former in replaced {
            // The last poll that it can have been seen in.
            let incident = now.incidents.latest.iter().rev().find(|incident| former.may_be(incident));
            let Some(key) = incident.map(key_when_read) else { continue };
            if let Some(known) = self.known.iter_mut().find(|known| known.key == key) {
                known.inherit(&former);
            }
        }
    }

    /// Findings of the last check that there was no room for.
    pub fn unheard(&self) -> u64 {
        self.unheard
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

    /// Where the finding of this key is, or is to be.
    fn place_of(&mut self, key: &Key, now_ns: u64) -> Option<usize> {
        if let Some(index) = self.known.iter().position(|known| known.key == *key) {
            return Some(index);
        }
        if self.known.len() == KNOWN_MAX {
            let past = self.known.iter().enumerate().filter(|(_, known)| known.severity(now_ns).is_none());
            let Some((oldest, _)) = past.min_by_key(|(_, known)| known.last_at_ns) else {
                self.unheard += 1;
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
        // An incident stays in the list for long after it ended.
        let is_news = at_ns > self.last_at_ns;
        let was_seen = self.check + 1 == check;
        (self.check, self.first_at_ns) = (check, self.first_at_ns.min(first_at_ns));
        let is_sure = RuleEntry::of(finding.rule).can_judge_one_snapshot() || finding.severity == Severity::Info;
        self.is_confirmed |= is_sure || was_seen;
        if !is_news && self.count > 0 {
            return;
        }
        self.last_at_ns = at_ns;
        // Several of one check may be the same finding.
        if self.counted_check != check {
            (self.counted_check, self.count) = (check, self.count + 1);
        }
        let before_ns = self.moments[RECURRING_MOMENTS - 1];
        let apart_ns = at_ns.saturating_sub(before_ns);
        if apart_ns >= MOMENT_NS {
            // Less often than that it does not come again and again.
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
            // At the end of the interval, that is: it may have been so until a moment ago.
            let bad_at_ns = if finding.rule == Rule::StalledPoll { at_ns } else { now_ns };
            Severity::ALL.iter().filter(|severity| **severity <= bad).for_each(|severity| {
                self.bad_at_ns[*severity as usize] = Some(bad_at_ns);
            });
            self.worst = self.worst.max(bad);
        }
    }

    /// Whether it is a finding without a line of the poll alone that is this incident, whose line
    /// is known now.
    fn is_of(&self, incident: &Incident) -> bool {
        has_no_line(&self.finding)
            && incident.guilty().is_some()
            && self.may_be(incident)
            && self.first_at_ns.abs_diff(incident.began_at_ns) < SAME_POLL_NS
    }

    /// Whether it was last seen in a poll of the worker and task of this incident, which had begun
    /// by then.
    fn may_be(&self, incident: &Incident) -> bool {
        self.finding.workers == [incident.worker]
            && self.finding.tasks.iter().all(|task| task.id == incident.task_id)
            && incident.began_at_ns <= self.last_at_ns
    }

    /// Becomes as bad as the finding was that it replaces, and for as long.
    fn inherit(&mut self, former: &Known) {
        self.first_at_ns = self.first_at_ns.min(former.first_at_ns);
        self.worst = self.worst.max(former.worst);
        for (bad_at_ns, former_at_ns) in self.bad_at_ns.iter_mut().zip(former.bad_at_ns) {
            *bad_at_ns = (*bad_at_ns).max(former_at_ns);
        }
    }

    /// Whether it was seen in several seconds of the last minute before it was last seen.
    fn is_recurring(&self) -> bool {
        let [first, .., last] = self.moments;
        first > 0 && last.saturating_sub(first) < RECURRING_NS
    }

    /// For how long it counts after it was seen.
    fn hold_ns(&self) -> u64 {
        HOLD_NS.max(2 * self.apart_ns)
    }

    /// How bad it is at this moment; `None` = it is past.
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
        finding
    }
}

/// Whether there was an incident from `last` to `now`, or one that was counted before was written
/// down late.
fn has_new_incident(last: &Snapshot, now: &Snapshot) -> bool {
    let seen = |snapshot: &Snapshot| {
        let incidents = &snapshot.incidents;
        (incidents.total(), incidents.evicted.saturating_add(incidents.latest.len() as u64))
    };
    seen(last) != seen(now)
}

/// The runtime when it was built.
fn at_start(now: &Snapshot) -> Snapshot {
    let (runtime, started_at_ns) = (now.runtime.clone(), now.started_at_ns);
    Snapshot { runtime, started_at_ns, at_ns: started_at_ns, ..Snapshot::default() }
}

#[cfg(test)]
mod tests;
