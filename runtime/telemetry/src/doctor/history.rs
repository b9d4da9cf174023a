//! The verdict on one runtime: what is wrong with it now and what was, from check to check.
//!
//! A rule judges one interval, a second as a rule, and what it finds comes and goes: a handler that blocks twice a minute is found in two
//! seconds of sixty. Whoever reads such findings sees them flicker, and the severity with them. So this keeps each finding, by rule and line, and says
//! of it since when it is there, how often it was seen, and whether it still goes on.
//!
//! Who writes: one thread at a time, with [`check`](History::check). Who reads: [`findings`](History::findings), which goes into the snapshot.
//! A program keeps a history for each runtime; a reader keeps one for programs that are too old to do so ([`Watch`](super::Watch)).
//!
//! 1. A check applies the rules to this snapshot and to the one before, [`CHECKS_APART_NS`] earlier or more. What a rule finds is *seen*.
//! 2. A finding *enters* when it is seen. One that goes by rates, when it is seen at two checks in a row. A stall that is short, when it was seen in
//!    `RECURRING_MOMENTS` different seconds within `RECURRING_NS`: again and again, it is a warning.
//! 3. It stays as bad as it was for [`HOLD_NS`] after it was last seen to be so bad, and for twice as long as it takes from one time to the next:
//!    until it comes half as often as it did.
//! 4. Then it is *past*: an info that says when it was seen first and last.
//!
//! Invariants. *Only time mends*: between two checks a finding becomes milder only by (3). *Bounded*: `KNOWN_MAX` findings, of which past ones are
//! dropped first, after `PAST_NS` at the latest; what finds no room is counted in [`unheard`](History::unheard). *Adaptation stays out*: what is written
//! to the log depends on how much there was lately, the verdict does not.

use std::cmp::Reverse;

use super::finding::{Finding, Key, Severity};
use super::growth::Growth;
use super::rule::{Rule, examine_with};
use crate::snapshot::Snapshot;

/// Two snapshots that are closer together are one check: several readers may take snapshots beside the runtime itself.
pub const CHECKS_APART_NS: u64 = 500_000_000;
/// A finding is as bad as it was for so long, at least.
pub const HOLD_NS: u64 = 30_000_000_000;
/// Different seconds within [`RECURRING_NS`] in which a short stall makes it one that happens again and again. A start has many stalls in one second,
/// and a busy machine a stray one.
pub(super) const RECURRING_MOMENTS: usize = 3;
const RECURRING_NS: u64 = 60_000_000_000;
/// Stalls within so short a time are one moment, since of one kind the runtime writes down one a second.
const MOMENT_NS: u64 = 900_000_000;
/// A past finding is shown for so long.
const PAST_NS: u64 = 3_600_000_000_000;
/// A history whose first snapshot comes so soon after the runtime was built knows what it was like before: nothing had happened.
const START_NS: u64 = 10_000_000_000;
/// Findings that are known.
const KNOWN_MAX: usize = 64;

/// See the header of this file.
///
/// ```
/// use volt_telemetry::doctor::{History, Severity};
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
#[derive(Clone, Debug, Default)]
pub struct History {
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
    /// When it was last so bad, from the mildest.
    bad_at_ns: [Option<u64>; Severity::ALL.len()],
    worst: Severity,
}

impl History {
    /// Applies the rules, unless that was done a moment ago.
    pub fn check(&mut self, now: &Snapshot) {
        let start;
        let last = match &self.last {
            Some(last) if last.started_at_ns != now.started_at_ns => {
                // Another runtime of that name.
                *self = Self::default();
                now
            }
            Some(last) if now.at_ns.saturating_sub(last.at_ns) < CHECKS_APART_NS => return,
            Some(last) => last,
            None if now.at_ns.saturating_sub(now.started_at_ns) < START_NS => {
                start = at_start(now);
                &start
            }
            None => now,
        };
        self.growth.take(now);
        let found = examine_with(last, now, Some(&self.growth));
        self.last = Some(Snapshot { findings: None, ..now.clone() });
        self.checks += 1;
        // The worst comes last, so that it is shown of those that are the same.
        for finding in found.into_iter().rev() {
            self.see(finding, now.at_ns);
        }
        let check = self.checks;
        self.known.retain(|known| {
            let is_wanted = known.is_confirmed || known.check == check;
            is_wanted && now.at_ns.saturating_sub(known.last_at_ns) < PAST_NS
        });
    }

    /// When the last check was; `None` before the first.
    pub fn checked_at_ns(&self) -> Option<u64> {
        self.last.as_ref().map(|last| last.at_ns)
    }

    /// Everything that is known at this moment: what is current first, then the worst, then the oldest.
    pub fn findings(&self, now_ns: u64) -> Vec<Finding> {
        let known = self.known.iter().filter(|known| known.is_confirmed);
        let mut findings: Vec<_> = known.map(|known| known.at(now_ns)).collect();
        // Nothing in here changes from check to check, so that rows stay where they are.
        findings.sort_by_cached_key(|finding| {
            let bad = (Reverse(finding.seen.is_current), Reverse(finding.severity));
            (bad, finding.rule, finding.seen.first_at_ns, finding.key())
        });
        findings
    }

    /// Findings that there was no room for.
    pub fn unheard(&self) -> u64 {
        self.unheard
    }

    fn see(&mut self, finding: Finding, now_ns: u64) {
        if now_ns.saturating_sub(finding.seen.last_at_ns) >= PAST_NS {
            return;
        }
        let key = finding.key();
        let Some(index) = self.place_of(&key, now_ns) else { return };
        let (check, known) = (self.checks, &mut self.known[index]);
        // The line of a stall is not known until its stack is read: what was known before stays.
        let is_as_known = !key.is_less_known(&known.key);
        if is_as_known {
            known.key = key;
        }
        known.see(&finding, check, now_ns);
        if is_as_known {
            known.finding = finding;
        }
    }

    /// Where the finding of this key is, or is to be.
    fn place_of(&mut self, key: &Key, now_ns: u64) -> Option<usize> {
        let same = self.known.iter().position(|known| known.key == *key);
        let is_like = |known: &&Known| key.is_less_known(&known.key) || known.key.is_less_known(key);
        let like = || {
            let all = self.known.iter().enumerate().filter(|(_, known)| is_like(known));
            all.max_by_key(|(_, known)| known.last_at_ns).map(|(index, _)| index)
        };
        if let Some(index) = same.or_else(like) {
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
        let is_sure = finding.rule.entry().can_judge_one_look() || finding.severity == Severity::Info;
        self.is_confirmed |= is_sure || was_seen;
        if !is_news && self.count > 0 {
            return;
        }
        self.last_at_ns = at_ns;
        // Several of one check may be the same finding.
        if self.counted_check != check {
            (self.counted_check, self.count) = (check, self.count + 1);
        }
        if at_ns.saturating_sub(self.moments[RECURRING_MOMENTS - 1]) >= MOMENT_NS {
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

    /// Whether it was seen in several seconds of the last minute before it was last seen.
    fn is_recurring(&self) -> bool {
        let [first, .., last] = self.moments;
        first > 0 && last.saturating_sub(first) < RECURRING_NS
    }

    /// For how long it counts after it was seen.
    fn hold_ns(&self) -> u64 {
        let [.., before, last] = self.moments;
        let apart_ns = if before == 0 { 0 } else { last.saturating_sub(before) };
        if apart_ns < RECURRING_NS { HOLD_NS.max(2 * apart_ns) } else { HOLD_NS }
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

/// The runtime when it was built.
fn at_start(now: &Snapshot) -> Snapshot {
    let (runtime, started_at_ns) = (now.runtime.clone(), now.started_at_ns);
    Snapshot { runtime, started_at_ns, at_ns: started_at_ns, ..Snapshot::default() }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
