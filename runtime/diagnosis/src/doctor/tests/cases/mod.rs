//! Tests of each rule: programs on which it fires, and similar ones on which it does not. All are
//! modified healthy programs.

pub(super) mod edges;
mod others;
pub(super) mod processes;
mod queues;
pub(super) mod stalls;

use volt_telemetry::finding::Severity;
use volt_telemetry::incident::{Cause, Frame, Incident, Remedy};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;

use super::programs::{MS, Pair, busy};

/// Returns all cases.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [stalls::CASES, queues::CASES, others::CASES, processes::CASES].into_iter().flatten()
}

/// One way in which a rule fires.
pub(super) struct Case {
    pub(super) rule: Rule,
    pub(super) severity: Severity,
    pub(super) what: &'static str,
    sick: fn() -> Pair,
    /// Other rules that rightly fire as well.
    pub(super) beside: &'static [Rule],
    pub(super) but: &'static str,
    look_alike: fn() -> Pair,
}

impl Case {
    pub(super) fn sick(&self) -> Pair {
        (self.sick)()
    }

    pub(super) fn look_alike(&self) -> Pair {
        (self.look_alike)()
    }
}

/// Applies `change` to both snapshots of `program`.
fn both(program: Pair, change: impl Fn(&mut Snapshot)) -> Pair {
    let (mut before, mut after) = program;
    change(&mut before);
    change(&mut after);
    (before, after)
}

/// Applies `change` to the second snapshot of `program`.
fn after(program: Pair, change: impl FnOnce(&mut Snapshot)) -> Pair {
    let (before, mut after) = program;
    change(&mut after);
    (before, after)
}

/// An incident that began `for_ms` before the second snapshot.
fn incident(snapshot: &Snapshot, cause: Cause, for_ms: u64) -> Incident {
    let frame = Frame {
        function: Some("shop::pay".into()),
        file: Some("src/pay.rs".into()),
        line: Some(40),
        is_user_code: true,
        ..Frame::default()
    };
    Incident {
        id: 1,
        began_at_ns: snapshot.at_ns - for_ms * MS,
        for_ns: for_ms * MS,
        task_id: 7,
        task_name: Some("checkout".into()),
        spawned_at: "src/main.rs:12:5".into(),
        cause,
        stack: vec![Frame::default(), frame],
        remedy: Remedy::Replaced,
        ..Incident::default()
    }
}

fn stuck(cause: Cause, for_ms: u64) -> Pair {
    after(busy(), |now| now.incidents.latest.push(incident(now, cause, for_ms)))
}
