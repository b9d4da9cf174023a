//! Rules about processes: state machines with mailboxes.

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::processes::{Mailbox, Processes, SAMPLE_NS, kind_name};
use volt_telemetry::rule::Rule;
use volt_telemetry::text::{counted, duration};

use super::case::{Case, Span};
use super::describe::Describe;

/// Number of consecutive samples in which a mailbox must be deeper than in the previous one. Four
/// in a row are rare for a mailbox that goes up and down, and take 4 s if only the doctor takes
/// snapshots.
const RISES_MIN: u32 = 4;
/// Fewer messages than this are handled in one step.
const LEN_MIN: u64 = 128;
/// A mailbox must be at least 1/`FULL_RATIO` full. One that is far from full may still catch up
/// before any user notices.
const FULL_RATIO: u64 = 2;
/// A mailbox with a very large capacity is reported at this number of messages, even if it is far
/// from half full.
const LEN_ALWAYS: u64 = 10_000;
/// Restarts per second. By default, a supervisor waits between two restarts and makes at most one
/// per second of each child.
const RESTARTS_PER_SECOND: f64 = 5.0;
/// Fewer restarts than this may be accidental.
const RESTARTS_MIN: u64 = 10;

/// Describes a process for people: `local:17.3 "lobby" (Room)`.
fn process(pid: &str, name: Option<&str>, kind: &str) -> String {
    let name = name.map_or_else(String::new, |name| format!(" \"{name}\""));
    format!("{pid}{name} ({})", kind_name(kind))
}

// ---- mailbox-growing ----------------------------------------------------------------------------

pub(super) fn mailbox_growing_threshold() -> String {
    format!(
        "A mailbox contains {LEN_MIN} messages and is half full, or contains {LEN_ALWAYS}. In {RISES_MIN} consecutive \
         checks, at least {} apart, it has grown or lost messages. The finding is critical if it is full and loses \
         messages. The rule does not fire for a full mailbox whose senders wait (`Overflow::Block`).",
        duration(SAMPLE_NS)
    )
}

pub(super) fn mailbox_growing(case: &Case<'_>) -> Vec<Finding> {
    let is_deep = |mailbox: &&Mailbox| {
        let is_half_full = mailbox.len >= LEN_MIN && mailbox.len.saturating_mul(FULL_RATIO) >= mailbox.capacity;
        mailbox.rises >= RISES_MIN && (is_half_full || mailbox.len >= LEN_ALWAYS)
    };
    let deepest = case.now.processes.iter().flat_map(|all| &all.deepest);
    deepest.filter(is_deep).map(growing).collect()
}

fn growing(mailbox: &Mailbox) -> Finding {
    let whose = process(&mailbox.pid, mailbox.name.as_deref(), &mailbox.kind);
    let is_full = mailbox.len >= mailbox.capacity;
    let (severity, title) = if is_full {
        (Severity::Critical, format!("the mailbox of {whose} is full and loses messages"))
    } else {
        let waiting = counted(mailbox.len, "message");
        (
            Severity::Warning,
            format!("the mailbox of {whose} grows: it has {waiting}, and more arrive than the process handles"),
        )
    };
    let mut finding = Finding::new(Rule::MailboxGrowing, severity, title)
        .count("mailbox_len", "waiting messages", mailbox.len)
        .count("mailbox_capacity", "capacity of the mailbox", mailbox.capacity)
        .count("grown_count", "messages added or lost since the growth began", mailbox.grown)
        .ns("rising_for_ns", "duration of the growth", mailbox.rising_for_ns)
        .count("lost_count", "messages lost so far", mailbox.lost);
    if let Some(task) = mailbox.task {
        finding = finding.task(task, mailbox.name.as_deref());
    }
    finding.spawned_at(&mailbox.spawned_at).advice(
        "The process handles messages more slowly than they arrive. Check what its steps wait for or compute (`volt-console processes`, and \
         its task in `volt-console tasks`). Split its work among several processes. Or slow the senders down: Overflow::Block makes them \
         wait, Overflow::Error returns an error to them.",
    )
}

// ---- restart-storm ------------------------------------------------------------------------------

pub(super) fn restart_storm_threshold() -> String {
    format!(
        "Supervisors restart {RESTARTS_MIN} processes between two snapshots, and {RESTARTS_PER_SECOND} per second. The \
         finding is critical if most starts are restarts."
    )
}

pub(super) fn restart_storm(span: &Span<'_>) -> Vec<Finding> {
    let Some(now) = &span.now.processes else { return Vec::new() };
    let grown = |of: fn(&Processes) -> u64| span.grown(|snapshot| snapshot.processes.as_ref().map_or(0, of));
    let restarts = grown(|all| all.restarts);
    let per_second = span.per_second(restarts);
    if restarts < RESTARTS_MIN || per_second < RESTARTS_PER_SECOND {
        return Vec::new();
    }
    let started = grown(|all| all.started);
    let severity = if restarts.saturating_mul(2) > started { Severity::Critical } else { Severity::Warning };
    let title = format!("supervisors restart processes {per_second:.0} times per second");
    let mut finding = Finding::new(Rule::RestartStorm, severity, title)
        .rate("restarts_per_second", "restarts", per_second)
        .rate("abnormal_per_second", "abnormal exits", span.per_second(grown(|all| all.ended_abnormally)))
        .rate("started_per_second", "starts, including restarts", span.per_second(started))
        .count("alive_count", "live processes", now.alive);
    if let Some(failure) = &now.last_failure {
        let whose = process(&failure.pid, failure.name.as_deref(), &failure.kind);
        finding = finding
            .word("last_failure", "latest failed process", format!("{whose} {}", failure.reason))
            .spawned_at(&failure.spawned_at);
    }
    vec![finding.advice(
        "A process fails soon after each start. Its log lines (target volt::process) report the reason. Fix that reason: restarts only \
         help against transient failures. Until then, set a longer back-off, or a lower restart intensity, so that the supervisor stops sooner.",
    )]
}
