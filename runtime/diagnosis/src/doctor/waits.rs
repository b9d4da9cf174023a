//! The rules about tasks that wait for each other, about locks that are held for long, and about
//! waits that are far longer than usual.

use volt_telemetry::finding::{Finding, Place, Severity};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::text::{counted, duration};
use volt_telemetry::waits::{Deadlock, DeadlockLink, HeldLock, LongWait};

use super::case::Case;
use super::describe::{Describe, task};

/// A cycle that nothing but an abort can end is reported after this time: longer than a lock takes
/// to be handed on while the machine is busy.
const CERTAIN_NS: u64 = 1_000_000_000;
/// Any other cycle is reported after this time: twice as long as the usual time-out of an attempt
/// to lock, which is a second. An attempt that is repeated is a new wait each time. The doctor
/// checks once a second, so the finding comes 2 to 3 s after the beginning.
const PROBABLE_NS: u64 = 2_000_000_000;
/// A lock that is held for this time while another task waits is reported. Longer than an attempt
/// to lock usually lasts before its time-out, and than a slow request. With the second until the
/// doctor's next check, it is reported within 5 s.
const HELD_NS: u64 = 3_000_000_000;
/// No wait is reported before this time, however short the usual ones are: longer than the
/// time-outs of most requests.
const FOREVER_NS: u64 = 30_000_000_000;
/// A wait is reported if it lasts this many times longer than the longest of the waits at its line
/// that were seen to end. Those are a sample: a rare one that takes ten times longer than most may
/// be missed.
const FOREVER_RATIO: u64 = 100;
/// The number of ended waits that show what is usual at a line. A task that waits for the end of
/// the program has none.
const ENDED_MIN: u64 = 10;
/// The tasks of a cycle that a finding describes, by the keys of their evidence.
const CHAIN: [&str; 8] = ["chain_1", "chain_2", "chain_3", "chain_4", "chain_5", "chain_6", "chain_7", "chain_8"];

pub(super) fn are_deadlocks_reported(snapshot: &Snapshot) -> bool {
    snapshot.deadlocks.is_some()
}

pub(super) fn deadlock_threshold() -> String {
    format!(
        "In two snapshots, the same tasks wait for each other in a cycle, for {} or more: each waits for a lock that the \
         next one holds, for room in a channel from which the next one receives, or for the next one to end. The \
         finding is {} if only an abort can end the cycle. It is a {}, after {}, if something else may, such as a \
         time-out, or if an owned guard or a channel is involved. Of channels, only bounded ones of `mpsc` are \
         checked, if the task that receives is known.",
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
    let joins = deadlock.links.iter().filter(|link| is_join(link)).count();
    let change = match &deadlock.links[..] {
        [link] if is_join(link) => "Do not pass a task's JoinHandle to that task, or to code that the task awaits.",
        links if links.iter().any(is_channel) => {
            "Receive and send in separate tasks, or in branches of one select!, so that a full channel does not keep \
             its task from receiving. More capacity only delays this."
        }
        [_] => "Drop the guard before the task locks again, or pass the guard to the code that needs it.",
        links if joins == links.len() => {
            "Await tasks in one direction only: for example, let each task await only the tasks that it spawned."
        }
        _ if joins > 0 => "Drop the guard before awaiting the task that needs the same lock.",
        _ => {
            "Acquire these locks in the same order everywhere, or drop the first guard before awaiting the second lock."
        }
    };
    let end = match deadlock.is_certain {
        true => "Only aborting a task ends this, unless a guard was moved to another task.",
        false if deadlock.links.iter().any(is_channel) => {
            "This ends only if another task receives from one of the channels, or closes it."
        }
        false => "Something else may still wake one of the tasks, such as a time-out.",
    };
    let advice = format!("{change} {end}");
    finding.advice(advice).seen_from(began_at_ns.max(1), now_ns.max(1))
}

fn title(deadlock: &Deadlock) -> String {
    let what = if deadlock.is_certain { "deadlock" } else { "probable deadlock" };
    match &deadlock.links[..] {
        [link] if is_join(link) => format!("{what}: {}, spawned at {}, awaits its own end", who(link), link.spawned_at),
        [link] if is_channel(link) => format!("{what}: {} {} that it receives from itself", who(link), waits(link)),
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
        Some(at) if is_channel(link) => format!("{waits}, from which {holder} receives at {at}"),
        Some(at) => format!("{waits}, which {holder} acquired at {at}{ago}"),
        None => format!("{waits}: {holder}"),
    }
}

/// Returns whether the task waits for room in a channel from which the next one receives.
fn is_channel(link: &DeadlockLink) -> bool {
    link.awaits == "room"
}

/// Returns whether the task waits for the end of the next one.
fn is_join(link: &DeadlockLink) -> bool {
    link.held_at.is_none()
}

fn who(link: &DeadlockLink) -> String {
    task(link.task, link.name.as_deref())
}

/// Describes what a task waits for, and where.
fn waits(link: &DeadlockLink) -> String {
    match link.awaits.as_str() {
        "others" => format!("awaits a task spawned at {}", link.awaits_at),
        "permits" => format!("awaits a semaphore's permit at {}", link.awaits_at),
        "room" => format!("awaits room in a channel at {}", link.awaits_at),
        _ => format!("awaits a lock at {}", link.awaits_at),
    }
}

pub(super) fn are_held_locks_reported(snapshot: &Snapshot) -> bool {
    snapshot.held_locks.is_some()
}

pub(super) fn lock_held_threshold() -> String {
    format!(
        "A task has held a `Mutex`, an `RwLock` or the permit of a `Semaphore` with one permit for {} or more, and \
         another task has waited for it for as long. Locks that are acquired at the same line are one finding. Locks \
         of a deadlock are not included.",
        duration(HELD_NS)
    )
}

pub(super) fn lock_held(case: &Case<'_>) -> Vec<Finding> {
    let is_long = |lock: &&HeldLock| lock.held_ns.min(lock.waiting_ns) >= HELD_NS;
    let long: Vec<&HeldLock> = case.now.held_locks.iter().flatten().filter(is_long).collect();
    // The first of each line has the longest wait.
    let is_first = |index: &usize| long[..*index].iter().all(|lock| lock.held_at != long[*index].held_at);
    let firsts = (0..long.len()).filter(is_first).map(|index| long[index]);
    let of_line = |lock: &HeldLock| long.iter().filter(|other| other.held_at == lock.held_at).count();
    firsts.map(|lock| of_lock(lock, of_line(lock) as u64, case.now.at_ns)).collect()
}

fn of_lock(lock: &HeldLock, locks: u64, now_ns: u64) -> Finding {
    let holder = task(lock.task, lock.name.as_deref());
    let kind = if lock.awaits == "permits" { "a semaphore's permit" } else { "a lock" };
    let title = format!(
        "{holder} has held {kind} for {}, acquired at {}, while {} for it",
        duration(lock.held_ns),
        lock.held_at,
        match lock.waiting {
            1 => "1 other waits".to_owned(),
            waiting => format!("{waiting} others wait"),
        }
    );
    let began_at_ns = now_ns.saturating_sub(lock.waiting_ns);
    let mut finding = Finding::new(Rule::LockHeld, Severity::Warning, title)
        .ns("held_ns", "held for", lock.held_ns)
        .word("held_at", "acquired at", &lock.held_at)
        .count("waiting_count", "tasks and threads that wait", lock.waiting)
        .ns("waiting_ns", "the first has waited for", lock.waiting_ns)
        .word("awaits_at", "the first waits at", &lock.awaits_at);
    let awaits = lock.holder_awaits.as_deref().and_then(awaited);
    if let Some(awaited) = awaits {
        let at = lock.holder_awaits_at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
        finding = finding.word("holder_awaits", "the holder awaits", format!("{awaited}{at}"));
    }
    if locks > 1 {
        finding = finding.count("locks_count", "locks acquired at that line and still held", locks);
    }
    finding = finding.task(lock.task, lock.name.as_deref());
    finding.locations.push(Place::Guilty { at: lock.held_at.clone(), function: None });
    let advice = match awaits {
        Some(_) => "Drop the guard before that await, or move what the guard protects into a task that owns it.",
        None => {
            "Drop the guard as soon as the value is no longer needed, and before any await that may take long. \
             `volt-console dump` shows what the holder does."
        }
    };
    let finding = finding.spawned_at(lock.spawned_at.as_deref().unwrap_or_default());
    finding.advice(advice).seen_from(began_at_ns.max(1), now_ns.max(1))
}

pub(super) fn are_long_waits_reported(snapshot: &Snapshot) -> bool {
    snapshot.long_waits.is_some()
}

pub(super) fn waiting_forever_threshold() -> String {
    format!(
        "A task has waited for a lock, permits, or a value that is set once, for {} or more. This is at least \
         {FOREVER_RATIO} times as long as the longest wait at this line that was seen to end, and at least \
         {ENDED_MIN} waits were seen to end there. Tasks that wait for messages, room or notifications may be idle, \
         and are not included. Waits with a time-out or in a `select!`, tasks of a `LocalSet`, and the future of \
         `block_on` are not included either. While there is a deadlock, or a task has held a lock for a second while \
         another one waited for it, waits for locks are not included.",
        duration(FOREVER_NS)
    )
}

pub(super) fn waiting_forever(case: &Case<'_>) -> Vec<Finding> {
    let now = case.now;
    let is_forever = |wait: &&LongWait| {
        wait.ended >= ENDED_MIN
            && wait.waiting_ns >= FOREVER_NS
            && wait.waiting_ns / FOREVER_RATIO >= wait.longest_ended_ns
    };
    // These name one of the waiters of a lock; others may wait for it at other lines.
    let has_explained_lock =
        now.deadlocks.iter().flatten().next().is_some() || now.held_locks.iter().flatten().next().is_some();
    let links = || now.deadlocks.iter().flatten().flat_map(|deadlock| &deadlock.links);
    let is_explained = |wait: &LongWait| {
        has_explained_lock && wait.awaits == "lock" || links().any(|link| link.awaits_at == wait.awaits_at)
    };
    let waits = now.long_waits.iter().flatten().filter(is_forever);
    waits.filter(|wait| !is_explained(wait)).map(|wait| of_wait(wait, now.at_ns)).collect()
}

fn of_wait(wait: &LongWait, now_ns: u64) -> Finding {
    let what = if wait.awaits == "lock" { "a lock" } else { awaited(&wait.awaits).unwrap_or("something") };
    let title = format!(
        "{} has waited for {what} for {} at {}, where waits usually end within {}",
        task(wait.task, wait.name.as_deref()),
        duration(wait.waiting_ns),
        wait.awaits_at,
        duration(wait.longest_ended_ns.max(1_000_000))
    );
    let began_at_ns = now_ns.saturating_sub(wait.waiting_ns);
    let mut finding = Finding::new(Rule::WaitingForever, Severity::Warning, title)
        .ns("waiting_ns", "the first has waited for", wait.waiting_ns)
        .count("waiting_count", "tasks that wait at this line", wait.waiting)
        .ns("longest_ended_ns", "the longest ended wait at this line", wait.longest_ended_ns)
        .count("ended_count", "ended waits that were seen", wait.ended)
        .word("spawned_at", "the first was spawned at", &wait.spawned_at)
        .task(wait.task, wait.name.as_deref());
    finding.locations.push(Place::Guilty { at: wait.awaits_at.clone(), function: None });
    let advice = match wait.awaits.as_str() {
        "value" => {
            "The sender, or the task that sets the value, still exists, but has not sent or set it: find out what it \
             waits for, with `volt-console dump`. Drop the sender on every path that does not send, and limit the wait \
             by a time-out."
        }
        "permits" => {
            "The permits are in use or were forgotten: find out what the tasks that have them wait for, with \
             `volt-console dump`. Limit by a time-out how long a task keeps a permit."
        }
        _ => {
            "Find out which task holds the lock, and what it waits for, with `volt-console dump`. Drop the guard \
             before an await that may take long."
        }
    };
    finding.advice(advice).seen_from(began_at_ns.max(1), now_ns.max(1))
}

/// Describes what the holder of a lock awaits.
fn awaited(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "lock" => "another lock",
        "permits" => "permits of a semaphore",
        "notice" => "a notification",
        "message" => "a message",
        "room" => "room in a channel",
        "value" => "a value",
        "others" => "other tasks",
        _ => return None,
    })
}
