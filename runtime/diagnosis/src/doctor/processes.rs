//! Rules about processes, state machines with mailboxes.

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::processes::{LOOK_NS, Mailbox, Processes, kind_name};
use volt_telemetry::rule::Rule;
use volt_telemetry::text::{counted, duration};

use super::case::{Case, Span};
use super::describe::Describe;

/// Samples in a row in which a mailbox is deeper than in the one before: four of a mailbox that
/// goes up and down are rare, and are made within a second.
const RISES_MIN: u32 = 4;
/// Fewer messages than this are worked off in one step.
const LEN_MIN: u64 = 128;
/// Of its room, what may be taken; a mailbox that is far from full may still catch up before anybody notices.
const FULL_RATIO: u64 = 2;
/// A mailbox of very much room is told of at so many messages, although it is far from half full.
const LEN_ALWAYS: u64 = 10_000;
/// Restarts a second. A supervisor that waits between two restarts, as it does unless told otherwise, makes one a second at most of each child.
const RESTARTS_PER_SECOND: f64 = 5.0;
/// Fewer restarts than this are an accident.
const RESTARTS_MIN: u64 = 10;

/// Whose it is, for people: `local:17.3 "lobby" (Room)`.
fn process(pid: &str, name: Option<&str>, kind: &str) -> String {
    let name = name.map_or_else(String::new, |name| format!(" \"{name}\""));
    format!("{pid}{name} ({})", kind_name(kind))
}

// ---- mailbox-growing -----------------------------------------------------------------------------------------------

pub(super) fn mailbox_growing_threshold() -> String {
    format!(
        "a mailbox holds {LEN_MIN} messages and is half full, or holds {LEN_ALWAYS}, and at {RISES_MIN} looks in a row, {} apart or more, it was \
         deeper than at the look before or had lost messages; critical when it is full and loses them. A full one whose senders wait is \
         none: that is what `Overflow::Block` is for",
        duration(LOOK_NS)
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
        (Severity::Critical, format!("the mailbox of {whose} is full, and messages to it are lost"))
    } else {
        let waiting = counted(mailbox.len, "message");
        (Severity::Warning, format!("the mailbox of {whose} grows: {waiting} wait, and more come than it takes"))
    };
    let mut finding = Finding::new(Rule::MailboxGrowing, severity, title)
        .count("mailbox_len", "messages that wait", mailbox.len)
        .count("mailbox_capacity", "room for", mailbox.capacity)
        .count("grown_count", "more since it began to grow, lost ones included", mailbox.grown)
        .ns("rising_for_ns", "it grows for", mailbox.rising_for_ns)
        .count("lost_count", "messages that found no room so far", mailbox.lost);
    if let Some(task) = mailbox.task {
        finding = finding.task(task, mailbox.name.as_deref());
    }
    finding.spawned_at(&mailbox.spawned_at).advice(
        "The process takes its messages more slowly than they come. See what its steps wait for or compute (volt-console processes, and its task \
         in volt-console tasks); split its work among several processes; or let senders feel it: Overflow::Block makes them wait, \
         Overflow::Error tells them.",
    )
}

// ---- restart-storm -------------------------------------------------------------------------------------------------

pub(super) fn restart_storm_threshold() -> String {
    format!(
        "supervisors start {RESTARTS_MIN} processes anew between two looks, and {RESTARTS_PER_SECOND} a second; critical if most of what is \
         started is restarts"
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
    let title = format!("supervisors start processes anew {per_second:.0} times a second");
    let mut finding = Finding::new(Rule::RestartStorm, severity, title)
        .rate("restarts_per_second", "restarts", per_second)
        .rate("abnormal_per_second", "abnormal ends", span.per_second(grown(|all| all.ended_abnormally)))
        .rate("started_per_second", "starts, those included", span.per_second(started))
        .count("alive_count", "processes that live", now.alive);
    if let Some(failure) = &now.last_failure {
        let whose = process(&failure.pid, failure.name.as_deref(), &failure.kind);
        finding = finding
            .word("last_failure", "the last that failed", format!("{whose} {}", failure.reason))
            .spawned_at(&failure.spawned_at);
    }
    vec![finding.advice(
        "A process fails soon after each start: its log lines (target volt::process) say why. Mend that; a restart only helps against what was \
         an accident. Until then: a longer back-off, or a smaller intensity, after which its supervisor gives up and says so.",
    )]
}
