//! Long polls: their causes, and polls in flight without an incident.
//!
//! Of many similar polls, the runtime records only some as incidents. So the cause of a poll
//! without an incident can only be inferred from earlier polls of the same spawn location. They may
//! have had several causes, of which a finding names each, with the incident that shows it.

use volt_telemetry::finding::{Figure, Finding, Place, Severity};
use volt_telemetry::incident::{Cause, CauseTime, Incident};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Duty, InFlight, Snapshot, Worker};
use volt_telemetry::text::duration;

use super::case::{Case, LATE_NS};
use super::describe::{Describe, task};
use super::machine;

/// A poll of this length that continues is an outage of its worker, which users notice.
pub(super) const OUTAGE_NS: u64 = 100_000_000;
/// How long the cause of an incident is assumed for later polls of the same place. Of many
/// incidents of one kind, the runtime records one per second.
pub(super) const LIKE_NS: u64 = 10_000_000_000;

/// Parts of the names of functions that acquire a lock, in lower case.
const LOCK_NAMES: [&str; 4] = ["mutex", "rwlock", "::lock", "lll_lock"];
/// The advice for a thread that waits for a lock.
const LOCK_ADVICE: &str = "Hold the lock as briefly as possible and never across slow work. Otherwise, acquire it in \
                           task::spawn_blocking, or use an asynchronous lock.";

/// Returns whether the task is responsible for this cause, and not the machine.
pub(super) fn is_of_the_task(cause: Cause) -> bool {
    !cause.is_of_machine()
}

/// Returns how long a poll has blocked its worker, without the time for which the machine did.
pub(super) fn of_the_task_ns(incident: &Incident) -> u64 {
    if incident.causes.is_empty() {
        return incident.for_ns;
    }
    let parts = incident.causes.iter().filter(|part| is_of_the_task(part.cause));
    parts.map(|part| part.for_ns).fold(0, u64::saturating_add)
}

/// Returns when it ended, or was last observed to continue.
pub(super) fn ended_at_ns(incident: &Incident) -> u64 {
    incident.began_at_ns.saturating_add(incident.for_ns)
}

/// Returns the causes of a poll that are worth mentioning, that of the incident first.
pub(super) fn causes(incident: &Incident) -> Vec<CauseTime> {
    match incident.main_causes() {
        [] => {
            let at = incident.guilty().map(|frame| Place::of_frame(frame).at().to_owned());
            vec![CauseTime { cause: incident.cause, for_ns: incident.for_ns, at }]
        }
        several => several.to_vec(),
    }
}

/// Describes the causes of a poll, and the suspect line of each.
pub(super) fn causes_and_lines(incident: &Incident) -> String {
    match (incident.main_causes(), incident.cause) {
        ([], cause) => {
            let line = incident.guilty().map(|frame| format!(" at {}", Place::of_frame(frame).at()));
            let cause = if cause == Cause::Unknown { "cause unknown" } else { &format!("cause: {}", cause.name()) };
            format!("({cause}){}", line.unwrap_or_default())
        }
        (several, _) => format!("(causes: {})", listed(several)),
    }
}

/// Lists causes with their times and lines.
pub(super) fn listed(causes: &[CauseTime]) -> String {
    causes.iter().map(CauseTime::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns long polls without an incident: one of the same kind was recorded shortly before, or
/// incidents are off.
pub(super) fn unrecorded<'a>(case: &'a Case<'_>) -> impl Iterator<Item = (&'a Worker, &'a InFlight)> {
    let is_recorded = |worker: &Worker, poll: &InFlight| {
        let latest = &case.now.incidents.latest;
        let is_this = |incident: &Incident| incident.worker == worker.index && incident.task_id == poll.task_id;
        latest.iter().any(|incident| !incident.is_over && is_this(incident))
    };
    // A poll that the kernel does not run is not stuck.
    let is_kept_off = |worker: &Worker, poll: &InFlight| {
        let Some(span) = &case.span else { return false };
        let pair = span.pairs().find(|pair| pair.index() == worker.index);
        let waited_ns = pair.and_then(|pair| pair.grown_if_known(|worker| worker.run_delay_ns)).unwrap_or(0);
        waited_ns.saturating_mul(2) >= poll.for_ns && span.share(waited_ns) >= machine::STARVED_RATIO
    };
    let polls = case.now.workers.iter().filter_map(|worker| Some((worker, worker.in_flight.as_ref()?)));
    polls.filter(move |(worker, poll)| {
        // A poll that announced that it blocks has handed over its worker.
        let is_announced = worker.duty == Duty::Blocking;
        poll.for_ns >= LATE_NS && !is_announced && !is_kept_off(worker, poll) && !is_recorded(worker, poll)
    })
}

/// Returns the causes of the polls of a spawn location that were in progress at `since_ns` or
/// later, each with the latest incident that shows it. The latest cause is first.
pub(super) fn likes<'a>(now: &'a Snapshot, spawned_at: &str, since_ns: u64) -> Vec<(&'a Incident, CauseTime)> {
    let is_like = |incident: &&Incident| {
        let is_fresh = !incident.is_over || ended_at_ns(incident) >= since_ns;
        incident.spawned_at == spawned_at && is_fresh
    };
    let mut likes: Vec<(&Incident, CauseTime)> = Vec::new();
    for incident in now.incidents.latest.iter().rev().filter(is_like) {
        for part in causes(incident).into_iter().filter(|part| is_of_the_task(part.cause)) {
            if likes.iter().all(|(_, known)| known.cause != part.cause) {
                likes.push((incident, part));
            }
        }
    }
    likes
}

/// Returns the finding for a poll in flight without an incident, if it is an outage, or if no spare
/// worker replaces its worker and earlier incidents show the cause. For other polls the recorded
/// incidents suffice.
pub(super) fn of_unrecorded(case: &Case<'_>, worker: &Worker, poll: &InFlight) -> Option<Finding> {
    let is_capped = worker.duty == Duty::Stuck && case.now.sentinel.spares_in_use == 0;
    let likes = likes(case.now, &poll.spawned_at, case.now.at_ns.saturating_sub(LIKE_NS));
    if poll.for_ns < OUTAGE_NS && (!is_capped || likes.is_empty()) {
        return None;
    }
    let cause = if let [(_, like)] = &likes[..] { like.cause } else { Cause::Unknown };
    let who = task(poll.task_id, poll.task_name.as_deref());
    let names: Vec<_> = likes.iter().map(|(_, like)| like.cause.name()).collect();
    let why = match (&names[..], cause) {
        ([], _) | ([_], Cause::Unknown) => "cause unknown".to_owned(),
        ([cause], _) => format!("probable cause: {cause}, as in an earlier poll"),
        (several, _) => format!("probable cause: {}, as in earlier polls", several.join(" or ")),
    };
    let title = format!("{who} has blocked worker {} for {} ({why})", worker.index, duration(poll.for_ns));
    let served = if worker.duty == Duty::Stuck && !is_capped { "replaced by a spare worker" } else { "not replaced" };
    let mut finding = Finding::new(Rule::StalledPoll, Severity::Critical, title)
        .cause(cause)
        .ns("for_ns", "duration so far", poll.for_ns)
        .with("duty", Figure::Text(worker.duty.name().to_owned()), format!("worker: {served}"))
        .without_line(false);
    if let Some(route) = &poll.route {
        finding = finding.word("route", "HTTP route", route.as_str());
    }
    if !likes.is_empty() {
        let like = |(incident, like): &(&Incident, CauseTime)| {
            let at = like.at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
            format!("incident {} ({}{at})", incident.id, like.cause.name())
        };
        let known_from = likes.iter().map(like).collect::<Vec<_>>().join(", ");
        finding = finding.word("known_from", "earlier polls of the same spawn location", known_from);
    }
    let advice = match &likes[..] {
        [(incident, like)] if like.cause == incident.cause => advice_on(incident),
        _ => advice(cause),
    };
    let finding = finding
        .worker(worker.index)
        .task(poll.task_id, poll.task_name.as_deref())
        .spawned_at(&poll.spawned_at)
        .advice(advice)
        .seen_from(case.now.at_ns.saturating_sub(poll.for_ns), case.now.at_ns.max(1));
    Some(finding)
}

/// Returns whether a thread that waits for another one waits for a lock, as the names of the
/// library's functions on its stack show. `None` if they are not known.
pub(super) fn is_at_lock(incident: &Incident) -> Option<bool> {
    let inner = incident.stack.iter().take_while(|frame| !frame.is_user_code);
    let names: Vec<&str> = inner.filter_map(|frame| frame.function.as_deref()).collect();
    // Type arguments do not count: a Condvar waits with the guard of a Mutex.
    let paths = names.iter().filter_map(|name| name.trim_start_matches('<').split('<').next());
    let mut paths = paths.map(str::to_lowercase);
    if paths.any(|path| LOCK_NAMES.iter().any(|lock| path.contains(lock))) {
        return Some(true);
    }
    // A call into the kernel alone shows nothing.
    names.iter().any(|name| name.contains("::")).then_some(false)
}

/// Returns the advice for a recorded poll.
pub(super) fn advice_on(incident: &Incident) -> &'static str {
    match incident.cause {
        Cause::Lock if is_at_lock(incident) == Some(true) => LOCK_ADVICE,
        cause => advice(cause),
    }
}

/// Returns the advice for a poll of which only the cause is known.
pub(super) fn advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Sleep => {
            "Await time::sleep instead of sleeping in the thread, or move the call into \
             task::spawn_blocking."
        }
        Cause::Lock => {
            "The thread waits for another one: for a lock, for a message, or for its end. Use an asynchronous lock, \
             channel or JoinHandle instead, or wait in task::spawn_blocking."
        }
        Cause::Io => "Use asynchronous I/O, or move the blocking call into task::spawn_blocking.",
        Cause::Cpu => {
            "Call task::yield_now().await or consume_budget().await in the loop, or move the computation into \
             task::spawn_blocking."
        }
        Cause::PageIn => "Add memory to the machine, or access files and mapped memory in task::spawn_blocking.",
        _ => {
            "Move the blocking work of these tasks into task::spawn_blocking, or wrap it in \
             task::block_in_place. `volt-console stacks --all` prints the lines of their long polls."
        }
    }
}
