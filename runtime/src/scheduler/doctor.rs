//! What the doctor finds in this runtime, told in the application's log: one event when it begins, one when it is over.
//!
//! Protocol. (1) The sentinel, which is awake while a worker is, asks for an examination each `DOCTOR_INTERVAL`, if somebody listens; and once
//! more before it dozes, if an incident came since or something is open. (2) The thread that reads stacks takes a snapshot, compares it with
//! the one before, and tells what is new (`volt_telemetry::doctor::course`: what is told, how often, and how much at most).
//!
//! Invariants. *No worker and no sentinel runs a subscriber's code*, which may block: workers do in their tasks' own events only. *An idle runtime
//! is left asleep*: what is open when it comes to rest ends in the log when it wakes up.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use volt_telemetry::doctor::course::{Course, Turn};
use volt_telemetry::doctor::finding::Finding;

use super::shared::Shared;
use crate::task::contain::contain;

/// What the sentinel has to know of the findings.
#[derive(Default)]
pub(crate) struct Doctor {
    is_unwell: AtomicBool,
}

impl Doctor {
    /// Whether anybody may listen. One relaxed load, and nothing of a subscriber's.
    pub(super) fn is_wanted(shared: &Shared) -> bool {
        shared.config.doctor_events && LevelFilter::current() >= LevelFilter::WARN
    }

    /// Whether something is open.
    pub(super) fn is_unwell(&self) -> bool {
        // ORDERING: Relaxed; the flag alone is the message.
        self.is_unwell.load(Ordering::Relaxed)
    }

    /// Compares the runtime with what `course` has seen of it, and tells.
    pub(super) fn examine(&self, shared: &Shared, course: &mut Course) {
        if !tracing::event_enabled!(target: "volt::doctor", Level::WARN) {
            return;
        }
        let now = shared.snapshot();
        for turn in course.look(&now) {
            // A subscriber that panics at one must still be told the next.
            contain(|| tell(&shared.name, &turn));
        }
        // ORDERING: Relaxed; the flag alone is the message.
        self.is_unwell.store(course.is_unwell(), Ordering::Relaxed);
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
