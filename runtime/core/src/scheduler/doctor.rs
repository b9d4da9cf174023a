//! The runtime's own verdict: what the doctor finds in it, with history, for snapshots and for the
//! application's log.
//!
//! Protocol. (1) The sentinel requests an examination every `DOCTOR_INTERVAL` while a worker is
//! awake, if the log or the control socket is enabled; and once more before it dozes, if an
//! incident came since or something is open. (2) The thread that reads stacks takes a snapshot. (3)
//! Whoever takes a snapshot has it judged: the history of findings
//! (`volt_diagnosis::doctor::history`) compares it with the one before, and its findings go into
//! the snapshot. So an idle runtime's findings become past when somebody reads them. (4) The thread
//! that reads stacks writes what began and ended to the log, if somebody listens
//! (`volt_diagnosis::doctor::course`: how often, and how much at most).
//!
//! Invariants. *One verdict*: the log, the control socket and the exporter show the findings of one
//! history. *No worker and no sentinel runs a subscriber's code*, which may block: workers do in
//! their tasks' own events only. *An idle runtime is left asleep*: what is open when it comes to
//! rest ends in the log when it wakes up.

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

/// See the header of this file.
#[derive(Default)]
pub(crate) struct Doctor {
    /// Whether something is open, for the sentinel.
    is_unwell: AtomicBool,
    history: Mutex<History>,
}

impl Doctor {
    /// Whether anybody may listen. One relaxed load, and nothing of a subscriber's.
    fn is_heard(config: &Config) -> bool {
        config.doctor_events && LevelFilter::current() >= LevelFilter::WARN
    }

    /// Whether an examination can be read. Without log and socket only the program itself takes
    /// snapshots, and each of these is judged.
    pub(super) fn is_wanted(config: &Config) -> bool {
        config.control_socket || Self::is_heard(config)
    }

    /// Whether something is open.
    pub(super) fn is_unwell(&self) -> bool {
        // ORDERING: Relaxed; the flag alone is the message.
        self.is_unwell.load(Ordering::Relaxed)
    }

    /// Adds to a snapshot of the runtime what is wrong with it.
    pub(super) fn judge(&self, now: &mut Snapshot) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.judge(now);
        drop(history);
        let is_open = |finding: &Finding| finding.seen.is_current && finding.severity >= Severity::Warning;
        // ORDERING: Relaxed; the flag alone is the message.
        self.is_unwell.store(now.findings.iter().flatten().any(is_open), Ordering::Relaxed);
    }

    /// Writes to the log what is news to `course` in a snapshot that was judged.
    pub(super) fn tell_news(now: &Snapshot, config: &Config, course: &mut Course) {
        if !Self::is_heard(config) || !tracing::event_enabled!(target: "volt::doctor", Level::WARN) {
            return;
        }
        for turn in course.check(now) {
            // A subscriber that panics at one must still be told the next.
            contain(|| tell(&now.runtime, &turn));
        }
    }
}

fn tell(runtime: &str, turn: &Turn) {
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
                "over: {}", finding.title
            );
        }
        _ => {}
    }
}

/// The guilty lines first.
fn locations(finding: &Finding) -> String {
    let places: Vec<_> = finding.locations.iter().map(ToString::to_string).collect();
    places.join(", ")
}

fn evidence(finding: &Finding) -> String {
    let texts: Vec<_> = finding.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    texts.join("; ")
}
