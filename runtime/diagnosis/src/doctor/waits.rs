//! The rule about tasks that wait for each other.

use volt_telemetry::finding::{Finding, Place, Severity};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::text::{counted, duration};
use volt_telemetry::waits::{Deadlock, DeadlockLink};

use super::case::Case;
use super::describe::{Describe, task};

/// A cycle that nothing but an abort can end is reported after this time: longer than a lock takes
/// to be handed on while the machine is busy.
const CERTAIN_NS: u64 = 1_000_000_000;
/// Any other cycle is reported after this time: longer than most time-outs of an attempt to lock.
const PROBABLE_NS: u64 = 10_000_000_000;
/// The tasks of a cycle that a finding describes, by the keys of their evidence.
const CHAIN: [&str; 8] = ["chain_1", "chain_2", "chain_3", "chain_4", "chain_5", "chain_6", "chain_7", "chain_8"];

pub(super) fn are_deadlocks_told(snapshot: &Snapshot) -> bool {
    snapshot.deadlocks.is_some()
}

pub(super) fn deadlock_threshold() -> String {
    format!(
        "Two snapshots find the same tasks in the same waits, in a cycle, for {} or more. The finding is {} if only an \
         abort can end it. It is a {}, after {}, if something else may, such as a time-out, or if an owned guard is \
         involved.",
        duration(CERTAIN_NS),
        Severity::Critical.name(),
        Severity::Warning.name(),
        duration(PROBABLE_NS)
    )
}

pub(super) fn deadlock(case: &Case<'_>) -> Vec<Finding> {
    let is_ripe = |deadlock: &&Deadlock| {
        let from_ns = if deadlock.is_certain { CERTAIN_NS } else { PROBABLE_NS };
        deadlock.for_ns >= from_ns && !deadlock.links.is_empty()
    };
    let deadlocks = case.now.deadlocks.iter().flatten().filter(is_ripe);
    deadlocks.map(|deadlock| of_deadlock(deadlock, case.now.at_ns)).collect()
}

fn of_deadlock(deadlock: &Deadlock, now_ns: u64) -> Finding {
    let severity = if deadlock.is_certain { Severity::Critical } else { Severity::Warning };
    let began_at_ns = now_ns.saturating_sub(deadlock.for_ns);
    let mut finding = Finding::new(Rule::Deadlock, severity, title(deadlock))
        .ns("for_ns", "all have waited for", deadlock.for_ns)
        .count("tasks_count", "tasks that wait for each other", deadlock.links.len() as u64);
    for (index, (link, key)) in deadlock.links.iter().zip(CHAIN).enumerate() {
        let holder = &deadlock.links[(index + 1) % deadlock.links.len()];
        let label = format!("chain {}", index + 1);
        finding = finding.word(key, &label, chain(link, holder)).task(link.task, link.name.as_deref());
    }
    for link in deadlock.links.iter().take(CHAIN.len()) {
        let place = Place::Guilty { at: link.awaits_at.clone(), function: None };
        if !finding.locations.contains(&place) {
            finding.locations.push(place);
        }
    }
    for link in deadlock.links.iter().take(CHAIN.len()) {
        finding = finding.spawned_at(&link.spawned_at);
    }
    let is_joined = deadlock.links.iter().any(|link| link.held_at.is_none());
    let change = match &deadlock.links[..] {
        [_] => "Drop the guard before the task locks again, or pass the guard to the code that needs it.",
        _ if is_joined => "Drop the guard before awaiting the task that needs the same lock.",
        _ => {
            "Acquire these locks in the same order everywhere, or drop the first guard before awaiting the second lock."
        }
    };
    let end = match deadlock.is_certain {
        true => "Only aborting a task ends this.",
        false => "Something else may still wake one of the tasks, such as a time-out.",
    };
    let advice = format!("{change} {end}");
    finding.advice(advice).seen_from(began_at_ns.max(1), now_ns.max(1))
}

fn title(deadlock: &Deadlock) -> String {
    let what = if deadlock.is_certain { "deadlock" } else { "probable deadlock" };
    match &deadlock.links[..] {
        [link] => format!("{what}: {} {} that it holds itself", who(link), waits(link)),
        [one, other] => format!(
            "{what}: {} and {} wait for each other: the first {}, the second {}",
            who(one),
            who(other),
            waits(one),
            waits(other)
        ),
        links => format!(
            "{what}: {} wait for each other in a cycle; {} {}",
            counted(links.len() as u64, "task"),
            who(&links[0]),
            waits(&links[0])
        ),
    }
}

/// Describes what a task waits for, and the holder of it.
fn chain(link: &DeadlockLink, holder: &DeadlockLink) -> String {
    let (task, holder) = (who(link), who(holder));
    let waits = format!("{task}, spawned at {}, {} (for {})", link.spawned_at, waits(link), duration(link.waiting_ns));
    let ago = link.held_ns.map(|ns| format!(" ({} ago)", duration(ns))).unwrap_or_default();
    match &link.held_at {
        Some(at) => format!("{waits}, which {holder} acquired at {at}{ago}"),
        None => format!("{waits}: {holder}"),
    }
}

fn who(link: &DeadlockLink) -> String {
    task(link.task, link.name.as_deref())
}

/// Describes what a task waits for, and where.
fn waits(link: &DeadlockLink) -> String {
    match link.awaits.as_str() {
        "others" => format!("awaits a task spawned at {}", link.awaits_at),
        "permits" => format!("awaits a semaphore's permit at {}", link.awaits_at),
        _ => format!("awaits a lock at {}", link.awaits_at),
    }
}
