//! What the doctor finds, as plain data: for people, for programs and for a metric.
//!
//! Strings in here come from the program that is looked at, names of tasks first of all: who prints them on a terminal
//! cleans them.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};

use super::rule::Rule;
use crate::bounded;
use crate::incident::Frame;

/// Findings that a reader takes from one runtime, with all their numbers; a program keeps far fewer.
const MAX_WEIGHT: usize = 16 * 1024;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
            seen: Seen { worst: severity, ..Seen::default() },
        }
    }

    /// Since when it is there and how often it was seen, in one line: `first seen 3.2 min ago, last 0 s ago, by 190 checks`.
    pub fn history(&self, now_ns: u64) -> String {
        let Seen { is_current, first_at_ns, last_at_ns, count, worst } = self.seen;
        let ago = |at_ns: u64| match now_ns.saturating_sub(at_ns) / 1_000_000_000 {
            0 => "just now".to_owned(),
            seconds => format!("{} ago", duration(seconds * 1_000_000_000)),
        };
        let past = if is_current { String::new() } else { format!("past, at worst {}; ", worst.name()) };
        format!("{past}first seen {}, last {}, by {}", ago(first_at_ns), ago(last_at_ns), counted(count, "check"))
    }

    /// What makes two findings of one runtime the same, whatever their numbers are: the rule, and where in the code.
    pub fn key(&self) -> Key {
        let mut places: Vec<_> = match self.rule {
            // Rules about one place. The places of other rules are whoever is there at the moment.
            Rule::StalledPoll
            | Rule::NoYield
            | Rule::SelfWakeLoop
            | Rule::LostWaker
            | Rule::TaskLeak
            | Rule::MailboxGrowing => self.locations.iter().map(|place| place.at().to_owned()).collect(),
            _ => Vec::new(),
        };
        places.sort_unstable();
        Key { rule: self.rule, places }
    }

    /// The value of a piece of evidence that is a number of ns, or a count.
    pub(super) fn figure(&self, key: &str) -> Option<u64> {
        let evidence = self.evidence.iter().find(|evidence| evidence.key == key)?;
        if let Figure::Count(count) = evidence.value { Some(count) } else { None }
    }

    /// When it was so, if that is not the moment of the snapshot.
    pub(super) fn seen_from(mut self, first_at_ns: u64, last_at_ns: u64) -> Self {
        (self.seen.first_at_ns, self.seen.last_at_ns) = (first_at_ns, last_at_ns);
        self
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
        self.evidence.push(Evidence { key: key.into(), value, text });
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

/// See [`Finding::key`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    rule: Rule,
    places: Vec<String>,
}

impl Key {
    pub(super) fn rule(&self) -> Rule {
        self.rule
    }

    /// Whether `other` is the same but for a line that is known of one of them only: the stack of a stuck poll is read a
    /// moment after the poll is seen.
    pub(super) fn is_less_known(&self, other: &Key) -> bool {
        self.rule == other.rule
            && self.rule == Rule::StalledPoll
            && self.places.len() < other.places.len()
            && self.places.iter().all(|place| other.places.contains(place))
    }
}

/// A finding as another version of Volt may send it.
#[derive(Deserialize)]
struct Sent {
    rule: String,
    severity: Severity,
    #[serde(default)]
    title: String,
    #[serde(default)]
    evidence: Vec<Evidence>,
    #[serde(default)]
    workers: Vec<u32>,
    #[serde(default)]
    tasks: Vec<TaskName>,
    #[serde(default)]
    locations: Vec<Place>,
    #[serde(default)]
    advice: String,
    #[serde(default)]
    seen: Seen,
}

/// The findings of a message. Those of rules that this reader does not know are left out.
pub(crate) fn of_message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Finding>>, D::Error> {
    let known = |sent: Sent| {
        let Sent { rule, severity, title, evidence, workers, tasks, locations, advice, seen } = sent;
        let rule = Rule::by_name(&rule)?;
        Some(Finding { rule, severity, title, evidence, workers, tasks, locations, advice, seen })
    };
    let sent: Option<SentList> = Option::deserialize(deserializer)?;
    Ok(sent.map(|SentList(list)| list.into_iter().filter_map(known).collect()))
}

struct SentList(Vec<Sent>);

impl<'de> Deserialize<'de> for SentList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let weigh =
            |sent: &Sent| 1 + sent.evidence.len() + sent.workers.len() + sent.tasks.len() + sent.locations.len();
        bounded::list(deserializer, MAX_WEIGHT, weigh).map(SentList)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;
    use crate::wire::{MAX_REPLY_BYTES, decode, encode};

    fn finding() -> Finding {
        Finding::new(Rule::StalledPoll, Severity::Warning, "it blocks")
            .ns("for_ns", "for", 7)
            .rate("rate", "rate", 2.0)
            .word("cause", "cause", "sleep")
            .worker(3)
            .task(7, Some("checkout"))
            .spawned_at("src/main.rs:12:5")
            .advice("Do not.")
            .seen_from(5, 9)
    }

    #[test]
    fn findings_come_through_a_message_as_they_were() {
        let sent = Snapshot { findings: Some(vec![finding()]), ..Snapshot::default() };
        let frame = encode(&sent, MAX_REPLY_BYTES).unwrap();
        assert_eq!(decode::<Snapshot>(&frame[4..]).unwrap(), sent);
        let frame = encode(&Snapshot::default(), MAX_REPLY_BYTES).unwrap();
        assert_eq!(decode::<Snapshot>(&frame[4..]).unwrap().findings, None);
    }

    #[test]
    fn findings_of_rules_of_tomorrow_are_left_out_and_too_many_refused() {
        let mut json =
            serde_json::to_value(Snapshot { findings: Some(vec![finding(); 2]), ..Snapshot::default() }).unwrap();
        json["findings"][0]["rule"] = "of-tomorrow".into();
        let read: Snapshot = serde_json::from_value(json).unwrap();
        assert_eq!(read.findings, Some(vec![finding()]));
        let many = Snapshot { findings: Some(vec![finding(); MAX_WEIGHT]), ..Snapshot::default() };
        assert!(serde_json::from_value::<Snapshot>(serde_json::to_value(many).unwrap()).is_err());
    }

    #[test]
    fn the_history_is_one_line() {
        const SECOND: u64 = 1_000_000_000;
        let mut finding = finding().seen_from(10 * SECOND, 190 * SECOND);
        finding.seen.count = 45;
        assert_eq!(finding.history(190 * SECOND), "first seen 3 min ago, last just now, by 45 checks");
        finding.seen.is_current = false;
        let told = "past, at worst warning; first seen 6.6 min ago, last 3.6 min ago, by 45 checks";
        assert_eq!(finding.history(410 * SECOND), told);
    }
}
