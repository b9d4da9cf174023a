//! A case of a rule, and the changes to healthy programs that several cases share.

use volt_telemetry::finding::Severity;
use volt_telemetry::incident::{Cause, Frame, Incident, Remedy};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;

use crate::doctor::tests::programs::{MS, Pair, busy};

/// One way in which a rule fires.
pub(in super::super) struct Case {
    pub(in super::super) rule: Rule,
    pub(in super::super) severity: Severity,
    pub(in super::super) what: &'static str,
    pub(super) sick: fn() -> Pair,
    /// Other rules that rightly fire as well.
    pub(in super::super) beside: &'static [Rule],
    pub(in super::super) but: &'static str,
    pub(super) healthy: fn() -> Pair,
}

impl Case {
    pub(in super::super) fn sick(&self) -> Pair {
        (self.sick)()
    }

    pub(in super::super) fn healthy(&self) -> Pair {
        (self.healthy)()
    }
}

/// Applies `change` to both snapshots of `program`.
pub(super) fn both(program: Pair, change: impl Fn(&mut Snapshot)) -> Pair {
    let (mut before, mut after) = program;
    change(&mut before);
    change(&mut after);
    (before, after)
}

/// Applies `change` to the second snapshot of `program`.
pub(super) fn after(program: Pair, change: impl FnOnce(&mut Snapshot)) -> Pair {
    let (before, mut after) = program;
    change(&mut after);
    (before, after)
}

/// An incident that began `for_ms` before the second snapshot.
pub(super) fn incident(snapshot: &Snapshot, cause: Cause, for_ms: u64) -> Incident {
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

pub(super) fn stuck(cause: Cause, for_ms: u64) -> Pair {
    after(busy(), |now| now.incidents.latest.push(incident(now, cause, for_ms)))
}
