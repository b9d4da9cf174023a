//! The runtime's own doctor: its findings about this runtime, with their history, for snapshots and
//! for the application's log.
//!
//! The *doctor* compares two snapshots of a runtime and reports what is wrong as *findings*. A
//! finding is *open* while it is current and at least a warning.
//!
//! An ordinary case: a task blocks its worker now and then. The first examination after that adds
//! the finding `stalled-poll` to the history and writes it to the log. A client that requests a
//! snapshot gets the same finding. Some time after the last such poll, an examination ends the
//! finding and logs that.
//!
//! Protocol:
//! 1. The sentinel requests an examination every `DOCTOR_INTERVAL` while a worker is awake, if the
//!    log or the control socket is enabled; with a black box, every `BlackBox::sample_interval`. It
//!    requests one more before it suspends its checks, if there was an incident since the last one,
//!    if a finding is open, or if there is a black box. If tasks seem to wait for each other, it
//!    stays awake for some examinations more.
//! 2. The thread that resolves stacks takes a snapshot.
//! 3. The thread that takes a snapshot, this one or any other, examines it: the history of findings
//!    (`volt_diagnosis::doctor::history`) compares it with the previous one, and the findings are
//!    added to it. So the findings of an idle runtime become past findings when a snapshot is
//!    taken.
//! 4. The thread that resolves stacks writes findings that began or ended to the log, if the log is
//!    enabled. `volt_diagnosis::doctor::course` limits how often and how many. If a stack takes
//!    longer than findings are kept, it then logs the beginning and the end of those that it
//!    missed.
//!
//! Invariants:
//! * *One verdict*: the log, the control socket and the exporter show the findings of one history.
//! * *No worker and no sentinel runs a subscriber's code*, which may block: workers do so only for
//!   the events of their own tasks.
//! * *An idle runtime is left asleep*: a finding that is open when the runtime becomes idle is
//!   logged as ended only when the runtime wakes up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use volt_diagnosis::doctor::course::{Course, Turn};
use volt_diagnosis::doctor::history::History;
use volt_telemetry::Snapshot;
use volt_telemetry::finding::{Finding, Severity};

use crate::config::Config;
use crate::task::contain::contain;

/// The history of findings: see the module documentation.
#[derive(Default)]
pub(crate) struct Doctor {
    /// Whether a finding is open; read by the sentinel.
    has_open_finding: AtomicBool,
    history: Mutex<History>,
}

impl Doctor {
    /// Returns whether a subscriber may be listening. Costs one relaxed load and runs no code of
    /// the subscriber.
    fn is_logged(config: &Config) -> bool {
        config.doctor_events && LevelFilter::current() >= LevelFilter::WARN
    }

    /// Returns whether the result of an examination can be read. Without the log, the socket and a
    /// black box, only the program itself takes snapshots, and each of those is judged.
    pub(in crate::scheduler) fn is_wanted(config: &Config, has_black_box: bool) -> bool {
        config.control_socket || has_black_box || Self::is_logged(config)
    }

    /// Returns whether a finding is open.
    pub(in crate::scheduler) fn has_open_finding(&self) -> bool {
        // ORDERING: Relaxed; no other data depends on the flag.
        self.has_open_finding.load(Ordering::Relaxed)
    }

    /// Adds the findings to a snapshot of the runtime.
    pub(in crate::scheduler) fn judge(&self, now: &mut Snapshot) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.judge(now);
        drop(history);
        let is_open = |finding: &Finding| finding.seen.is_current && finding.severity >= Severity::Warning;
        // ORDERING: Relaxed; no other data depends on the flag.
        self.has_open_finding.store(now.findings.iter().flatten().any(is_open), Ordering::Relaxed);
    }

    /// Writes to the log what is new to `course` in a snapshot that was judged.
    pub(in crate::scheduler) fn log_changes(now: &Snapshot, config: &Config, course: &mut Course) {
        if !Self::is_logged(config) || !tracing::event_enabled!(target: "volt::doctor", Level::WARN) {
            return;
        }
        for turn in course.check(now) {
            // A subscriber that panics at one event must still receive the next.
            contain(|| log(&now.runtime, &turn));
        }
    }
}

fn log(runtime: &str, turn: &Turn) {
    match turn {
        Turn::Began { finding, suppressed } => {
            let (location, evidence) = (locations(finding), evidence(finding));
            tracing::warn!(
                target: "volt::doctor",
                runtime,
                rule = finding.rule.name(),
                severity = finding.severity.name(),
                location,
                evidence,
                advice = finding.advice,
                suppressed,
                "{}", finding.title
            );
        }
        Turn::Ended { finding, for_ns } => {
            let (location, evidence) = (locations(finding), evidence(finding));
            tracing::info!(
                target: "volt::doctor",
                runtime,
                rule = finding.rule.name(),
                severity = finding.severity.name(),
                location,
                evidence,
                for_ms = for_ns / 1_000_000,
                "no longer found: {}", finding.title
            );
        }
        _ => {}
    }
}

/// The locations that cause the finding come first.
fn locations(finding: &Finding) -> String {
    let places: Vec<_> = finding.locations.iter().map(ToString::to_string).collect();
    places.join(", ")
}

fn evidence(finding: &Finding) -> String {
    let texts: Vec<_> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    texts.join("; ")
}
