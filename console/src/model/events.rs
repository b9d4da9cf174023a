//! The log of events since the console attached: stuck polls that began and ended, replaced
//! workers, findings that appeared and disappeared, runtimes, lost snapshots, and lost connections.
//!
//! The log is a list of events, the latest last, and for each runtime the state of the previous
//! snapshot.
//!
//! Bounds: [`EVENTS_MAX`] events are kept, and the number of older ones. Of the new stuck polls of
//! a snapshot, at most [`OF_A_SNAPSHOT`] are logged individually, and one event has the number of
//! the others. Counted events, such as replacements, become one event per [`TOGETHER`], so that a
//! steady stream of them does not push out all others.

use std::collections::VecDeque;
use std::time::Duration;

use volt_diagnosis::doctor::course::{Course, Turn};
use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::incident::Incident;
use volt_telemetry::processes::kind_name;
use volt_telemetry::snapshot::{Program, Snapshot};

use crate::facts::Tone;
use crate::facts::incidents::{named, newest_first, place_of};
use crate::text::clean;
use crate::text::figures::{age, count, duration};

/// The maximum number of events.
pub const EVENTS_MAX: usize = 500;
/// Counted events become one if they follow the first within this time.
const TOGETHER: Duration = Duration::from_secs(10);
/// The maximum number of new stuck polls of one snapshot that are logged individually.
const OF_A_SNAPSHOT: usize = 8;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// When it was logged: [`Model::now`](super::Model::now).
    pub at: Duration,
    /// Its kind, in one word.
    pub kind: &'static str,
    /// The runtime; empty if the event is about the program.
    pub runtime: String,
    /// The text.
    pub text: String,
    /// The meaning for the user.
    pub tone: Tone,
    /// For counted events: how many there were, and the time of the first.
    counted: Option<(u64, Duration)>,
}

impl Happened {
    /// Returns the text, with the number of counted events.
    pub fn full_text(&self) -> String {
        match self.counted {
            None => self.text.clone(),
            Some((times, first)) if first == self.at => match times {
                1 => self.text.clone(),
                _ => format!("{} times: {}", count(times), self.text),
            },
            Some((times, first)) => {
                let within = age(u64::try_from((self.at - first).as_nanos()).unwrap_or(u64::MAX));
                format!("{} times in {within}: {}", count(times), self.text)
            }
        }
    }
}

/// The latest events of the connection, and the values of the previous snapshot, with which the
/// next one is compared.
#[derive(Clone, Debug, Default)]
pub struct Log {
    events: VecDeque<Happened>,
    /// The number of events that were removed.
    pub forgotten: u64,
    runtimes: Vec<Known>,
    pid: Option<u32>,
}

/// The state of a runtime in the previous snapshot.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    started_at_ns: u64,
    course: Course,
    /// The number of the latest incident that was logged.
    last_incident: u64,
    /// The incidents that were not over.
    open: Vec<u64>,
    /// Times that a spare worker started to replace another.
    replaced: u64,
    capped: u64,
    panicked: u64,
    /// Processes that exited abnormally, and restarts.
    failed: u64,
    restarts: u64,
}

impl Log {
    /// Returns the events, the latest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Happened> {
        self.events.iter().rev()
    }

    /// Adds an event.
    pub(super) fn add(&mut self, at: Duration, kind: &'static str, runtime: &str, text: String, tone: Tone) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.forgotten += 1;
        }
        self.events.push_back(Happened { at, kind, runtime: runtime.into(), text, tone, counted: None });
    }

    /// Adds `times` events of one kind. If the last event of this kind is recent, adds them to that
    /// event.
    fn count(&mut self, at: Duration, kind: &'static str, runtime: &str, times: u64, text: &str, tone: Tone) {
        if times == 0 {
            return;
        }
        let last = self.events.iter().rposition(|event| event.kind == kind && event.runtime == runtime);
        let open = last.filter(|index| self.events[*index].counted.is_some_and(|(_, first)| at < first + TOGETHER));
        let former = open.and_then(|index| self.events.remove(index)).and_then(|event| event.counted);
        let (before, first) = former.unwrap_or((0, at));
        self.add(at, kind, runtime, text.into(), tone);
        if let Some(event) = self.events.back_mut() {
            event.counted = Some((before.saturating_add(times), first));
        }
    }

    /// Compares a snapshot with the previous one, and logs the differences.
    pub(super) fn take(&mut self, program: &Program, now: Duration) {
        if self.pid.replace(program.pid).is_some_and(|pid| pid != program.pid) {
            self.runtimes.clear();
            self.add(now, "program", "", format!("another program responds: pid {}", program.pid), Tone::Warn);
        }
        let has_ended = |known: &Known| !program.runtimes.iter().any(|runtime| known.is(runtime));
        let gone: Vec<String> =
            self.runtimes.iter().filter(|known| has_ended(known)).map(|known| known.name.clone()).collect();
        self.runtimes.retain(|known| !has_ended(known));
        for name in gone {
            self.add(now, "runtime", &name, "ended".into(), Tone::Plain);
        }
        let is_first = self.runtimes.is_empty() && self.events.is_empty();
        for runtime in &program.runtimes {
            let index = self.runtimes.iter().position(|known| known.is(runtime));
            let index = index.unwrap_or_else(|| {
                // A runtime that existed when the console attached is not an event.
                if !is_first {
                    let text = format!("started with {} workers", runtime.workers.len());
                    self.add(now, "runtime", &runtime.runtime, text, Tone::Plain);
                }
                self.runtimes.push(Known::new(runtime));
                self.runtimes.len() - 1
            });
            let mut known = self.runtimes.swap_remove(index);
            self.compare(&mut known, runtime, now);
            self.runtimes.push(known);
        }
    }

    fn compare(&mut self, known: &mut Known, runtime: &Snapshot, now: Duration) {
        let name = &runtime.runtime;
        self.compare_incidents(known, runtime, now);
        let grown = |before: &mut u64, after: u64| after.saturating_sub(std::mem::replace(before, after));
        let sentinel = &runtime.sentinel;
        let replaced = grown(&mut known.replaced, sentinel.spare_calls);
        let text = format!("a spare worker replaced a worker; spare workers in use: {}", sentinel.spares_in_use);
        self.count(now, "replaced", name, replaced, &text, Tone::Warn);
        let capped = grown(&mut known.capped, sentinel.capped);
        let text = "no spare worker was available at a check of the sentinel";
        self.count(now, "no spare", name, capped, text, Tone::Alarm);
        let panicked = grown(&mut known.panicked, runtime.tasks.panicked);
        self.count(now, "panic", name, panicked, "a task panicked", Tone::Warn);
        if let Some(all) = &runtime.processes {
            let failed = grown(&mut known.failed, all.ended_abnormally);
            let last = all.last_failure.as_ref().map_or_else(String::new, |last| {
                let name = last.name.as_ref().map_or_else(String::new, |name| format!(" {name}"));
                format!(", latest {}{name} ({}): {}", last.pid, kind_name(&last.kind), last.reason)
            });
            self.count(now, "process", name, failed, &format!("a process exited abnormally{last}"), Tone::Warn);
            let restarts = grown(&mut known.restarts, all.restarts);
            self.count(now, "restart", name, restarts, "a supervisor restarted a process", Tone::Plain);
        }
        for turn in known.course.check(runtime) {
            let (kind, finding, end) = match turn {
                Turn::Began { finding, suppressed: 0 } => ("finding", finding, String::new()),
                Turn::Began { finding, suppressed } => {
                    ("finding", finding, format!(", {} times since last reported", count(suppressed + 1)))
                }
                Turn::Ended { finding, for_ns } => ("past", finding, format!(", ended after {}", duration(for_ns))),
                _ => continue,
            };
            let tone = if kind == "past" { Tone::Plain } else { tone_of(finding.severity) };
            self.add(now, kind, name, format!("{}{end}", text_of(&finding)), tone);
        }
    }

    fn compare_incidents(&mut self, known: &mut Known, runtime: &Snapshot, now: Duration) {
        let incidents = &runtime.incidents;
        let name = &runtime.runtime;
        for ended in incidents.latest.iter().filter(|incident| incident.is_over && known.open.contains(&incident.id)) {
            let text = format!("{}, after {}", subject(ended), duration(ended.for_ns));
            self.add(now, "unstuck", name, text, Tone::Plain);
        }
        let news: Vec<&Incident> =
            incidents.latest.iter().filter(|incident| incident.id > known.last_incident).collect();
        for incident in news.iter().take(OF_A_SNAPSHOT) {
            let (kind, so_far) = if incident.is_over { ("stall", "for") } else { ("stuck", "so far") };
            let cause = incident.cause.name();
            let text = format!("{}, {so_far} {}: {cause}", subject(incident), duration(incident.for_ns));
            self.add(now, kind, name, text, Tone::of_duration(incident.for_ns).max(Tone::Warn));
        }
        let last = newest_first(incidents).map(|incident| incident.id).next().unwrap_or(known.last_incident);
        let logged = news.len().min(OF_A_SNAPSHOT) as u64;
        let others = last.saturating_sub(known.last_incident).saturating_sub(logged);
        if others > 0 {
            let polls = if others == 1 { "poll" } else { "polls" };
            self.add(now, "stall", name, format!("{} more stuck {polls}", count(others)), Tone::Warn);
        }
        known.last_incident = last.max(known.last_incident);
        known.open = open(runtime);
    }
}

impl Known {
    fn new(runtime: &Snapshot) -> Known {
        let mut course = Course::default();
        // Findings of the first snapshot are not events.
        let _ = course.check(runtime);
        Known {
            name: runtime.runtime.clone(),
            started_at_ns: runtime.started_at_ns,
            course,
            last_incident: newest_first(&runtime.incidents).map(|incident| incident.id).next().unwrap_or(0),
            open: open(runtime),
            replaced: runtime.sentinel.spare_calls,
            capped: runtime.sentinel.capped,
            panicked: runtime.tasks.panicked,
            failed: runtime.processes.as_ref().map_or(0, |all| all.ended_abnormally),
            restarts: runtime.processes.as_ref().map_or(0, |all| all.restarts),
        }
    }

    fn is(&self, runtime: &Snapshot) -> bool {
        self.name == runtime.runtime && self.started_at_ns == runtime.started_at_ns
    }
}

fn open(runtime: &Snapshot) -> Vec<u64> {
    runtime.incidents.latest.iter().filter(|incident| !incident.is_over).map(|incident| incident.id).collect()
}

fn subject(incident: &Incident) -> String {
    let task = named(incident.name(), incident.task_id);
    format!("worker {} by {task} {}", incident.worker, place_of(incident))
}

/// Formats a finding as `stalled-poll: task 7 has held …`, without characters that control a
/// terminal.
fn text_of(finding: &Finding) -> String {
    format!("{}: {}", finding.rule.name(), clean::text(&finding.title))
}

/// Returns the tone of a severity.
pub(crate) fn tone_of(severity: Severity) -> Tone {
    match severity {
        Severity::Info => Tone::Plain,
        Severity::Warning => Tone::Warn,
        Severity::Critical => Tone::Alarm,
    }
}
