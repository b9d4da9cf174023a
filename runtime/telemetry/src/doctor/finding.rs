//! What the doctor finds, as plain data: for people, for programs and for a metric.
//!
//! Strings in here come from the program that is looked at, names of tasks first of all: who prints them on a terminal
//! cleans them.

use serde::Serialize;

use super::rule::Rule;
use crate::incident::Frame;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nobody has to get up for it.
    Info,
    /// Somebody waits for longer than need be, or something is wasted.
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
}

/// A task that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskName {
    /// Its id.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
}

/// A line of the program's code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Its name for programs, with the unit last: `for_ns`, `waiting_count`, `lifo_ratio`.
    pub key: &'static str,
    /// Its value for programs.
    pub value: Figure,
    /// Both for people.
    pub text: String,
}

/// The value of an [`Evidence`].
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    pub(super) fn new(rule: Rule, severity: Severity, title: impl Into<String>) -> Self {
        Self {
            rule,
            severity,
            title: title.into(),
            evidence: Vec::new(),
            workers: Vec::new(),
            tasks: Vec::new(),
            locations: Vec::new(),
            advice: String::new(),
        }
    }

    pub(super) fn ns(self, key: &'static str, label: &str, ns: u64) -> Self {
        self.with(key, Figure::Count(ns), format!("{label}: {}", duration(ns)))
    }

    pub(super) fn count(self, key: &'static str, label: &str, count: u64) -> Self {
        self.with(key, Figure::Count(count), format!("{label}: {count}"))
    }

    pub(super) fn ratio(self, key: &'static str, label: &str, ratio: f64) -> Self {
        self.with(key, Figure::Number(ratio), format!("{label}: {}", percent(ratio)))
    }

    pub(super) fn rate(self, key: &'static str, label: &str, per_second: f64) -> Self {
        self.with(key, Figure::Number(per_second), format!("{label}: {per_second:.0} a second"))
    }

    pub(super) fn word(self, key: &'static str, label: &str, word: impl Into<String>) -> Self {
        let word = word.into();
        let text = format!("{label}: {word}");
        self.with(key, Figure::Text(word), text)
    }

    fn with(mut self, key: &'static str, value: Figure, text: String) -> Self {
        debug_assert!(self.evidence.iter().all(|evidence| evidence.key != key), "{key} stands twice");
        self.evidence.push(Evidence { key, value, text });
        self
    }

    pub(super) fn worker(mut self, index: u32) -> Self {
        self.workers.push(index);
        self
    }

    pub(super) fn task(mut self, id: u64, name: Option<&str>) -> Self {
        self.tasks.push(TaskName { id, name: name.map(str::to_owned) });
        self
    }

    pub(super) fn guilty(mut self, frame: Option<&Frame>) -> Self {
        self.locations.extend(frame.map(Place::of_frame));
        self
    }

    /// Unless it stands there already, or nobody knows.
    pub(super) fn spawned_at(mut self, at: &str) -> Self {
        let place = Place::Spawned { at: at.to_owned() };
        if !at.is_empty() && !self.locations.contains(&place) {
            self.locations.push(place);
        }
        self
    }

    pub(super) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

impl Place {
    pub(super) fn of_frame(frame: &Frame) -> Self {
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

/// A task for people: `task 12 "checkout"`.
pub(super) fn task(id: u64, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("task {id} \"{name}\""),
        None => format!("task {id}"),
    }
}

/// The tasks of one spawn location for people.
pub(super) fn spawned(at: &str) -> String {
    // What a table of bounded size calls those that it has no row for.
    if at == "other" { "tasks spawned elsewhere".to_owned() } else { format!("tasks spawned at {at}") }
}

/// A length of time for people, to two digits: `850 ns`, `4.2 ms`, `312 ms`, `17 s`, `3.5 h`.
pub(super) fn duration(ns: u64) -> String {
    const UNITS: [(u64, &str); 6] = [
        (86_400_000_000_000, "days"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "µs"),
    ];
    match UNITS.into_iter().find(|(unit, _)| ns >= *unit) {
        Some((unit, name)) if ns < 10 * unit && ns % unit >= unit / 10 => {
            format!("{}.{} {name}", ns / unit, ns % unit / (unit / 10))
        }
        Some((unit, name)) => format!("{} {name}", ns / unit),
        None => format!("{ns} ns"),
    }
}

/// A ratio for people: `43 %`.
pub(super) fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// One thing or several: `1 task`, `3 tasks`.
pub(super) fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}
