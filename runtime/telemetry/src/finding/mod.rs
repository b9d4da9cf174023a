//! Findings: the results of the doctor, as plain data.
//!
//! A finding contains strings of the observed program, for example names of tasks. Code that prints
//! them on a terminal must remove control characters first.

pub(crate) mod message;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::incident::Frame;
use crate::rule::Rule;
use crate::text::{counted, duration};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "String")]
pub enum Severity {
    /// Worth knowing, but needs no action now.
    Info,
    /// Work is delayed more than necessary, or resources are wasted. A severity that a later
    /// version of Volt added is read as this one.
    Warning,
    /// Work has stopped or is badly delayed.
    Critical,
}

impl Severity {
    /// All severities, from the mildest to the most severe.
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

    /// Returns the name in text, JSON and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// Returns the severity with this name, or [`Severity::Warning`] for a name that a later
/// version of Volt added.
impl From<String> for Severity {
    fn from(name: String) -> Self {
        Self::ALL.into_iter().find(|severity| severity.name() == name).unwrap_or(Severity::Warning)
    }
}

/// One problem of one runtime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule that fired.
    pub rule: Rule,
    /// The severity.
    pub severity: Severity,
    /// The problem in one line, with the numbers that matter.
    pub title: String,
    /// The values that made the rule fire, most important first.
    pub evidence: Vec<Evidence>,
    /// The affected workers, by index.
    pub workers: Vec<u32>,
    /// The affected tasks.
    pub tasks: Vec<TaskName>,
    /// The affected code: lines with the problem first, then spawn locations.
    pub locations: Vec<Place>,
    /// What to change.
    pub advice: String,
    /// When and how often it was found, and whether it is current.
    pub seen: Seen,
}

/// The times at which a finding was found, on the clock of
/// [`Snapshot::at_ns`](crate::Snapshot::at_ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Whether the problem exists now. A past finding has severity [info](Severity::Info).
    pub is_current: bool,
    /// When it was first found.
    pub first_at_ns: u64,
    /// When it was last found.
    pub last_at_ns: u64,
    /// Number of checks that found it anew; checks are usually one second apart.
    pub count: u64,
    /// The highest severity that it had.
    pub worst: Severity,
}

impl Default for Seen {
    fn default() -> Self {
        Self { is_current: true, first_at_ns: 0, last_at_ns: 0, count: 1, worst: Severity::Info }
    }
}

/// A task that a finding names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskName {
    /// Its id.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
}

/// A line of code in the observed program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Place {
    /// The line with the problem: the innermost line of application code in a poll that did not
    /// return, or the line where tasks wait, or where a lock was acquired.
    Guilty {
        /// `file:line`, perhaps with the column, as far as known.
        at: String,
        /// The function that contains the line, if it is known.
        function: Option<String>,
    },
    /// A spawn location.
    Spawned {
        /// `file:line:column`.
        at: String,
    },
}

/// A number or text that supports a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The key for programs. Most keys of numbers have the unit last: `for_ns`, `waiting_count`,
    /// `lifo_ratio`.
    pub key: Cow<'static, str>,
    /// The value for programs.
    pub value: Figure,
    /// Key and value as text for users.
    pub text: String,
}

/// The value of an [`Evidence`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// A count, or a number of ns.
    Count(u64),
    /// A ratio, or a rate per second.
    Number(f64),
    /// A text.
    Text(String),
}

impl Finding {
    /// Formats when the problem began, when it was last seen and how often, in one line: `began 3
    /// min 12 s ago, last seen just now, in 190 checks`.
    pub fn history(&self, now_ns: u64) -> String {
        let Seen { is_current, first_at_ns, last_at_ns, count, worst } = self.seen;
        let ago = |at_ns: u64| match now_ns.saturating_sub(at_ns) / 1_000_000_000 {
            0 => "just now".to_owned(),
            seconds => format!("{} ago", duration(seconds * 1_000_000_000)),
        };
        let past = if is_current { String::new() } else { format!("worst severity {}; ", worst.name()) };
        format!("{past}began {}, last seen {}, in {}", ago(first_at_ns), ago(last_at_ns), counted(count, "check"))
    }
}

impl Place {
    /// Returns the place of a stack frame.
    pub fn of_frame(frame: &Frame) -> Self {
        let at = match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.clone(),
            (None, _) => frame.module.clone().unwrap_or_else(|| format!("{:#x}", frame.address)),
        };
        Place::Guilty { at, function: frame.function.clone() }
    }

    /// Returns the file and line.
    pub fn at(&self) -> &str {
        match self {
            Place::Guilty { at, .. } | Place::Spawned { at } => at,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Guilty { at, function: Some(function) } => write!(f, "{at} in {function}"),
            Place::Guilty { at, function: None } => f.write_str(at),
            Place::Spawned { at } => write!(f, "spawned at {at}"),
        }
    }
}
