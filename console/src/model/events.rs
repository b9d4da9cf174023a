//! What has happened since the console attached: stuck polls that began and ended, workers that
//! were replaced, findings of the doctor that came and went, runtimes, lost snapshots, lost
//! connections.
//!
//! Shape: a list, the latest last, and per runtime what is known of it from the snapshot before.
//! Bounds: [`EVENTS_MAX`] events, the oldest go first and are counted; a snapshot adds
//! [`OF_A_SNAPSHOT`] at most of one kind, and one that says how many more there were. What is
//! counted by number, as replacements, makes one event in [`TOGETHER`], so that a program in which
//! they go on does not push everything else out.

use std::collections::VecDeque;
use std::time::Duration;

use volt_diagnosis::doctor::course::{Course, Turn};
use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::incident::Incident;
use volt_telemetry::processes::kind_name;
use volt_telemetry::snapshot::{Process, Snapshot};

use crate::facts::Tone;
use crate::facts::incidents::{named, newest_first, place_of};
use crate::text::clean;
use crate::text::figures::{age, count, duration};

/// Events that are kept.
pub const EVENTS_MAX: usize = 500;
/// Events that are the same but for their number are one if they come so soon after the first.
const TOGETHER: Duration = Duration::from_secs(10);
/// Stuck polls that are told one by one of one snapshot.
const OF_A_SNAPSHOT: usize = 8;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// The time since the console started.
    pub at: Duration,
    /// Its kind, in one word.
    pub kind: &'static str,
    /// The runtime; empty if it is about the program.
    pub runtime: String,
    /// What.
    pub text: String,
    /// What it means.
    pub tone: Tone,
    /// How many of them, of what is counted, and when the first was.
    counted: Option<(u64, Duration)>,
}

impl Happened {
    /// What, with how many there were.
    pub fn told(&self) -> String {
        match self.counted {
            None => self.text.clone(),
            Some((times, first)) if first == self.at => format!("{}x {}", count(times), self.text),
            Some((times, first)) => {
                let within = age(u64::try_from((self.at - first).as_nanos()).unwrap_or(u64::MAX));
                format!("{}x within {within}: {}", count(times), self.text)
            }
        }
    }
}

/// See the header of this file.
#[derive(Clone, Debug, Default)]
pub struct Log {
    events: VecDeque<Happened>,
    /// Events that were forgotten.
    pub forgotten: u64,
    runtimes: Vec<Known>,
    pid: Option<u32>,
}

/// What is known of a runtime.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    started_at_ns: u64,
    course: Course,
    /// The number of the latest incident that was told.
    last_incident: u64,
    /// Those that went on.
    open: Vec<u64>,
    replacements: u64,
    capped: u64,
    panicked: u64,
    /// Processes that ended abnormally, and restarts.
    failed: u64,
    restarts: u64,
}

impl Log {
    /// The events, the latest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Happened> {
        self.events.iter().rev()
    }

    /// Adds one.
    pub(super) fn add(&mut self, at: Duration, kind: &'static str, runtime: &str, text: String, tone: Tone) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.forgotten += 1;
        }
        self.events.push_back(Happened { at, kind, runtime: runtime.into(), text, tone, counted: None });
    }

    /// Adds so many of one, to the last of its kind if that is not long ago.
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

    /// Compares a snapshot with what is known.
    pub(super) fn take(&mut self, process: &Process, now: Duration) {
        if self.pid.replace(process.pid).is_some_and(|pid| pid != process.pid) {
            self.runtimes.clear();
            self.add(now, "program", "", format!("another program responds: pid {}", process.pid), Tone::Warn);
        }
        let is_gone = |known: &Known| !process.runtimes.iter().any(|runtime| known.is(runtime));
        let gone: Vec<String> =
            self.runtimes.iter().filter(|known| is_gone(known)).map(|known| known.name.clone()).collect();
        self.runtimes.retain(|known| !is_gone(known));
        for name in gone {
            self.add(now, "runtime", &name, "ended".into(), Tone::Plain);
        }
        let is_first = self.runtimes.is_empty() && self.events.is_empty();
        for runtime in &process.runtimes {
            let index = self.runtimes.iter().position(|known| known.is(runtime));
            let index = index.unwrap_or_else(|| {
                // What the console found when it came is no event.
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
        let replaced = grown(&mut known.replacements, sentinel.replacements);
        let text =
            format!("a spare worker replaced a stuck worker; spare workers on duty: {}", sentinel.spares_on_duty);
        self.count(now, "replaced", name, replaced, &text, Tone::Warn);
        let capped = grown(&mut known.capped, sentinel.capped);
        self.count(now, "capped", name, capped, "no spare worker was available for a stuck worker", Tone::Alarm);
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
                Turn::Began { finding, suppressed: 0 } => ("found", finding, String::new()),
                Turn::Began { finding, suppressed } => {
                    ("found", finding, format!(", {} times since last reported", count(suppressed + 1)))
                }
                Turn::Ended { finding, for_ns } => ("over", finding, format!(", over after {}", duration(for_ns))),
                _ => continue,
            };
            let tone = if kind == "over" { Tone::Plain } else { tone_of(finding.severity) };
            self.add(now, kind, name, format!("{}{end}", told(&finding)), tone);
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
        let told = news.len().min(OF_A_SNAPSHOT) as u64;
        let untold = last.saturating_sub(known.last_incident).saturating_sub(told);
        if untold > 0 {
            self.add(now, "stalls", name, format!("{} more stuck polls", count(untold)), Tone::Warn);
        }
        known.last_incident = last.max(known.last_incident);
        known.open = open(runtime);
    }
}

impl Known {
    fn new(runtime: &Snapshot) -> Known {
        let mut course = Course::default();
        // Nothing is reported for the first snapshot.
        let _ = course.check(runtime);
        Known {
            name: runtime.runtime.clone(),
            started_at_ns: runtime.started_at_ns,
            course,
            last_incident: newest_first(&runtime.incidents).map(|incident| incident.id).next().unwrap_or(0),
            open: open(runtime),
            replacements: runtime.sentinel.replacements,
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
    let task = named(incident.task_name.as_deref(), incident.task_id);
    format!("worker {} by {task} {}", incident.worker, place_of(incident))
}

/// `stalled-poll: task 7 has held …`, without what a terminal would obey.
fn told(finding: &Finding) -> String {
    format!("{}: {}", finding.rule.name(), clean::text(&finding.title))
}

/// What a severity means.
pub(crate) fn tone_of(severity: Severity) -> Tone {
    match severity {
        Severity::Info => Tone::Plain,
        Severity::Warning => Tone::Warn,
        Severity::Critical => Tone::Alarm,
    }
}
