//! Determines when two findings are the same.
//!
//! The numbers in a finding change from check to check, and so does the worker. The rule does not
//! change, nor does, for rules about one place, the place in the code.

use std::borrow::Cow;

use volt_telemetry::finding::{Evidence, Figure, Finding, Place};
use volt_telemetry::incident::Cause;
use volt_telemetry::rule::Rule;

/// The evidence key for findings of stalls without a line of code, and its values.
pub(super) const LINE: &str = "line";
pub(super) const LINE_PENDING: &str = "pending";
pub(super) const LINE_UNKNOWN: &str = "unknown";

/// Identifies a finding of one runtime, independent of its numbers: the rule, and the place in the
/// code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    rule: Rule,
    places: Vec<String>,
    is_provisional: bool,
}

impl Key {
    /// Returns the key of a finding. Polls that compute are the same if they are in one function,
    /// since each sample of them shows another line of it.
    pub fn of(finding: &Finding) -> Self {
        let rule = finding.rule;
        let is_sampled = rule == Rule::StalledPoll && is_word(finding, "cause", Cause::Cpu.name());
        let mut places: Vec<_> = match rule {
            // Rules about one place. The places of other rules are incidental.
            Rule::StalledPoll
            | Rule::NoYield
            | Rule::SelfWakeLoop
            | Rule::LostWaker
            | Rule::Deadlock
            | Rule::LockHeld
            | Rule::WaitingForever
            | Rule::TaskLeak
            | Rule::MailboxGrowing => {
                finding.locations.iter().map(|place| group(place, is_sampled).into_owned()).collect()
            }
            _ => Vec::new(),
        };
        places.sort_unstable();
        Self { rule, places, is_provisional: is_word(finding, LINE, LINE_PENDING) }
    }

    /// Returns the rule of the finding.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Returns whether the stack of the poll is not read yet. Shortly afterwards the finding is
    /// replaced by one with a line or without.
    pub fn is_provisional(&self) -> bool {
        self.is_provisional
    }

    /// Returns whether this is the key of the finding that replaces a provisional one.
    pub(super) fn replaces(&self, provisional: &Key) -> bool {
        provisional.is_provisional
            && !self.is_provisional
            && self.rule == provisional.rule
            && provisional.places.iter().all(|place| self.places.contains(place))
    }
}

/// Returns whether a finding has no known line of code.
pub(super) fn has_no_line(finding: &Finding) -> bool {
    is_word(finding, LINE, LINE_UNKNOWN)
}

/// Returns what stalls at one place have in common: the line, or the function if the line
/// `is_sampled` from a poll that computes. A function's name may not be unique, so its file is
/// included.
pub(super) fn group(place: &Place, is_sampled: bool) -> Cow<'_, str> {
    match place {
        Place::Guilty { at, function: Some(function) } if is_sampled => {
            let file = at.rsplit_once(':').map_or("", |(file, _)| file);
            format!("{function} in {file}").into()
        }
        Place::Guilty { function: None, .. } if is_sampled => "a function without a name".into(),
        place => place.at().into(),
    }
}

/// Returns whether a piece of evidence has this value.
fn is_word(finding: &Finding, key: &str, word: &str) -> bool {
    let is_it =
        |evidence: &Evidence| evidence.key == key && matches!(&evidence.value, Figure::Text(text) if text == word);
    finding.evidence.iter().any(is_it)
}
