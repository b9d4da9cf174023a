//! What the doctor finds, as plain data: for people, for programs and for a metric.
//!
//! Strings in here come from the program that is observed, names of tasks first of all: who prints
//! them on a terminal cleans them.

pub(crate) mod message;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::incident::Frame;
use crate::rule::Rule;
use crate::text::{counted, duration};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "String")]
pub enum Severity {
    /// Worth knowing; nobody has to get up for it.
    Info,
    /// Somebody waits for longer than need be, or something is wasted. A reader takes a severity
    /// that only a later version of Volt knows for this one.
    Warning,
    /// Work stands still, or will.
    Critical,
}

impl Severity {
    /// All of them, the mildest first.
    pub const ALL: [Severity; 3] = [Severity::Info, Severity::Warning, Severity::Critical];

    /// The name in text, JSON and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// The severity of this name; [`Severity::Warning`] for one that only a later version of Volt
/// knows.
impl From<String> for Severity {
    fn from(name: String) -> Self {
        Self::ALL.into_iter().find(|severity| severity.name() == name).unwrap_or(Severity::Warning)
    }
}

/// One thing that is wrong with one runtime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The rule that found it.
    pub rule: Rule,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one line, with the numbers that matter.
    pub title: String,
    /// The numbers that it was found by, the most telling first.
    pub evidence: Vec<Evidence>,
    /// The workers that it is about, by index.
    pub workers: Vec<u32>,
    /// The tasks that it is about.
    pub tasks: Vec<TaskName>,
    /// Where in the code: lines that block first, then where the tasks were spawned.
    pub locations: Vec<Place>,
    /// What to change.
    pub advice: String,
    /// Since when, how often, and whether it still is so.
    pub seen: Seen,
}

/// When a finding was seen, on the clock of [`Snapshot::at_ns`](crate::Snapshot::at_ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Whether it is so now. A finding that is past is an [info](Severity::Info).
    pub is_current: bool,
    /// When it was first seen.
    pub first_at_ns: u64,
    /// When it was last seen.
    pub last_at_ns: u64,
    /// Checks that found it; they are a second apart as a rule.
    pub count: u64,
    /// The worst that it was.
    pub worst: Severity,
}

impl Default for Seen {
    fn default() -> Self {
        Self { is_current: true, first_at_ns: 0, last_at_ns: 0, count: 1, worst: Severity::Info }
    }
}

/// A task that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskName {
    /// Its id.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
}

/// A line of the program's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Place {
    /// The innermost line of the application's own code in a poll that did not end.
    Guilty {
        /// `file:line`, as far as they are known.
        at: String,
        /// The function that it stands in.
        function: Option<String>,
    },
    /// Where tasks were spawned.
    Spawned {
        /// `file:line:column`.
        at: String,
    },
}

/// One number that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its name for programs, with the unit last: `for_ns`, `waiting_count`, `lifo_ratio`.
    pub key: Cow<'static, str>,
    /// Its value for programs.
    pub value: Figure,
    /// Both for people.
    pub text: String,
}

/// The value of an [`Evidence`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// How many, or how many ns.
    Count(u64),
    /// A ratio, or a rate a second.
    Number(f64),
    /// A word.
    Text(String),
}

impl Finding {
    /// Since when it is there and how often it was seen, in one line: `first seen 3.2 min ago, last
    /// 0 s ago, by 190 checks`.
    pub fn history(&self, now_ns: u64) -> String {
        let Seen { is_current, first_at_ns, last_at_ns, count, worst } = self.seen;
        let ago = |at_ns: u64| match now_ns.saturating_sub(at_ns) / 1_000_000_000 {
            0 => "just now".to_owned(),
            seconds => format!("{} ago", duration(seconds * 1_000_000_000)),
        };
        let past = if is_current { String::new() } else { format!("past, worst severity {}; ", worst.name()) };
        format!("{past}first seen {}, last seen {}, in {}", ago(first_at_ns), ago(last_at_ns), counted(count, "check"))
    }
}

impl Place {
    /// A line of a stack.
    pub fn of_frame(frame: &Frame) -> Self {
        let at = match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file.clone(),
            (None, _) => frame.module.clone().unwrap_or_else(|| format!("{:#x}", frame.address)),
        };
        Place::Guilty { at, function: frame.function.clone() }
    }

    /// The line, with its file.
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
