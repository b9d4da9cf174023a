//! Builds findings: rules call `Finding::new`, and then a method for each detail to add.

use volt_telemetry::finding::{Evidence, Figure, Finding, Place, Seen, Severity, TaskName};
use volt_telemetry::incident::{Cause, Frame};
use volt_telemetry::rule::Rule;
use volt_telemetry::text::{duration, percent};

use super::key::{LINE, LINE_PENDING, LINE_UNKNOWN};

/// Methods of [`Finding`] that only rules use. All other code only reads findings.
pub(super) trait Describe: Sized {
    fn new(rule: Rule, severity: Severity, title: impl Into<String>) -> Self;

    /// Returns the value of a piece of evidence that is a number of ns, or a count.
    fn figure(&self, key: &str) -> Option<u64>;

    /// Sets when the problem was observed, if that is not the time of the snapshot.
    fn seen_from(self, first_at_ns: u64, last_at_ns: u64) -> Self;

    fn with(self, key: &'static str, value: Figure, text: String) -> Self;

    fn ns(self, key: &'static str, label: &str, ns: u64) -> Self {
        self.with(key, Figure::Count(ns), format!("{label}: {}", duration(ns)))
    }

    fn count(self, key: &'static str, label: &str, count: u64) -> Self {
        self.with(key, Figure::Count(count), format!("{label}: {count}"))
    }

    fn ratio(self, key: &'static str, label: &str, ratio: f64) -> Self {
        self.with(key, Figure::Number(ratio), format!("{label}: {}", percent(ratio)))
    }

    fn rate(self, key: &'static str, label: &str, per_second: f64) -> Self {
        self.with(key, Figure::Number(per_second), format!("{label}: {per_second:.0} per second"))
    }

    fn word(self, key: &'static str, label: &str, word: impl Into<String>) -> Self {
        let word = word.into();
        let text = format!("{label}: {word}");
        self.with(key, Figure::Text(word), text)
    }

    /// Adds the cause of a stuck poll, with its explanation.
    fn cause(self, cause: Cause) -> Self {
        let text = match cause {
            Cause::Unknown => "cause: unknown".to_owned(),
            cause => format!("cause: {}, the thread {}", cause.name(), cause.explain()),
        };
        self.with("cause", Figure::Text(cause.name().to_owned()), text)
    }

    /// Adds that the line of code is not known, or not known yet.
    fn without_line(self, is_pending: bool) -> Self {
        let (word, text) = match is_pending {
            true => (LINE_PENDING, "line of code: pending, the stack is not read yet"),
            false => (LINE_UNKNOWN, "line of code: unknown, so the poll is counted at its spawn location"),
        };
        self.with(LINE, Figure::Text(word.to_owned()), text.to_owned())
    }

    fn worker(self, index: u32) -> Self;

    fn task(self, id: u64, name: Option<&str>) -> Self;

    fn guilty(self, frame: Option<&Frame>) -> Self;

    /// Adds the spawn location, unless it is present already or unknown.
    fn spawned_at(self, at: &str) -> Self;

    fn advice(self, advice: impl Into<String>) -> Self;
}

impl Describe for Finding {
    fn new(rule: Rule, severity: Severity, title: impl Into<String>) -> Self {
        Self {
            rule,
            severity,
            title: title.into(),
            evidence: Vec::new(),
            workers: Vec::new(),
            tasks: Vec::new(),
            locations: Vec::new(),
            advice: String::new(),
            seen: Seen { worst: severity, ..Seen::default() },
        }
    }

    fn figure(&self, key: &str) -> Option<u64> {
        let evidence = self.evidence.iter().find(|evidence| evidence.key == key)?;
        if let Figure::Count(count) = evidence.value { Some(count) } else { None }
    }

    fn seen_from(mut self, first_at_ns: u64, last_at_ns: u64) -> Self {
        (self.seen.first_at_ns, self.seen.last_at_ns) = (first_at_ns, last_at_ns);
        self
    }

    fn with(mut self, key: &'static str, value: Figure, text: String) -> Self {
        debug_assert!(self.evidence.iter().all(|evidence| evidence.key != key), "{key} stands twice");
        self.evidence.push(Evidence { key: key.into(), value, text });
        self
    }

    fn worker(mut self, index: u32) -> Self {
        self.workers.push(index);
        self
    }

    fn task(mut self, id: u64, name: Option<&str>) -> Self {
        self.tasks.push(TaskName { id, name: name.map(str::to_owned) });
        self
    }

    fn guilty(mut self, frame: Option<&Frame>) -> Self {
        self.locations.extend(frame.map(Place::of_frame));
        self
    }

    fn spawned_at(mut self, at: &str) -> Self {
        let place = Place::Spawned { at: at.to_owned() };
        if !at.is_empty() && !self.locations.contains(&place) {
            self.locations.push(place);
        }
        self
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}

/// Describes a task for people: `task 12 "checkout"`.
pub(super) fn task(id: u64, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("task {id} \"{name}\""),
        None => format!("task {id}"),
    }
}

/// Describes the tasks of one spawn location for people.
pub(super) fn spawned(at: &str) -> String {
    // A bounded table uses this name for all locations that it has no row for.
    if at == "other" { "tasks spawned elsewhere".to_owned() } else { format!("tasks spawned at {at}") }
}
