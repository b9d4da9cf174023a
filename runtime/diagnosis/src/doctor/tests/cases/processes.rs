//! Tests of the rules about processes that are too slow or fail, with similar programs on which
//! they do not fire.

use volt_telemetry::finding::Severity;
use volt_telemetry::processes::{Failure, Mailbox, Processes};
use volt_telemetry::rule::Rule;

use super::case::{Case, both};
use crate::doctor::tests::programs::{Pair, busy};

pub(super) const CASES: &[Case] = &[
    Case {
        rule: Rule::MailboxGrowing,
        severity: Severity::Warning,
        what: "a mailbox that is deeper at each snapshot",
        sick: || mailbox(700, 1024, 5),
        beside: &[],
        but: "a mailbox as deep that goes up and down",
        healthy: || mailbox(700, 1024, 1),
    },
    Case {
        rule: Rule::MailboxGrowing,
        severity: Severity::Critical,
        what: "a full mailbox that loses messages at each snapshot",
        sick: || mailbox(1024, 1024, 9),
        beside: &[],
        but: "a full mailbox whose senders wait",
        healthy: || mailbox(1024, 1024, 0),
    },
    Case {
        rule: Rule::RestartStorm,
        severity: Severity::Critical,
        what: "a process that fails immediately, a hundred times a second",
        sick: || restarting(100, 0),
        beside: &[],
        but: "as many starts that are no restarts",
        healthy: || restarting(0, 100),
    },
    Case {
        rule: Rule::RestartStorm,
        severity: Severity::Warning,
        what: "restarts beside many more starts",
        sick: || restarting(40, 400),
        beside: &[],
        but: "children that wait for their back-off",
        healthy: || restarting(4, 400),
    },
];

/// The deepest mailbox contains `len` of `capacity` messages, and grew in `rises` consecutive
/// samples.
pub(in super::super) fn mailbox(len: u64, capacity: u64, rises: u32) -> Pair {
    let deep = Mailbox {
        pid: "local:17.3".into(),
        name: Some("lobby".into()),
        kind: "chat::Room".into(),
        spawned_at: "src/rooms.rs:31:14".into(),
        task: Some(7),
        len,
        capacity,
        rises,
        rising_for_ns: u64::from(rises) * 250_000_000,
        grown: 400,
        ..Mailbox::default()
    };
    both(busy(), |snapshot| {
        let deepest = vec![deep.clone(), Mailbox::default()];
        snapshot.processes = Some(Processes { systems: 1, alive: 2, deepest, ..Processes::default() });
    })
}

/// `restarts` restarts and `others` other starts in the second between the snapshots.
pub(in super::super) fn restarting(restarts: u64, others: u64) -> Pair {
    let (mut before, mut after) = busy();
    for (snapshot, times) in [(&mut before, 1), (&mut after, 2)] {
        snapshot.processes = Some(Processes {
            alive: 30,
            restarts: times * restarts,
            started: times * (restarts + others),
            ended_abnormally: times * restarts,
            last_failure: Some(Failure {
                pid: "local:17.3".into(),
                kind: "chat::Session".into(),
                spawned_at: "src/main.rs:12:5".into(),
                reason: "panicked: no".into(),
                ..Failure::default()
            }),
            ..Processes::default()
        });
    }
    (before, after)
}
