//! Rules about polls that take too long: for their worker, for the tasks that wait behind them, for
//! timers and sockets.
//!
//! The primary source is the [`Incident`] that the runtime records while a poll is stuck, with the
//! cause and the line of code. Polls without an incident are only visible while they are in flight.
//!
//! # Invariant
//!
//! *A finding is located at a line only by incidents that it counts*. An incident whose stack could
//! not be read, and a poll without an incident, are counted at the spawn location, whatever the
//! other polls of that location did. The evidence names the incidents of these.
//!
//! The only exception: two tasks of one spawn location block two workers. One poll is recorded, and
//! the other one is only counted. That is one problem, so it is one finding: that of the recorded
//! poll, whose evidence lists the other one apart. This requires that all recent incidents of the
//! spawn location are at one line (if they compute: in one function) and have one cause, and that
//! one of them was an outage, as the other poll is now.
//!
//! # Several causes
//!
//! A poll may wait for a lock and then sleep. It is counted at the line and cause that lasted
//! longest, but at one of the machine only if the program did not block. Its duration is that of
//! all causes, so the title and the evidence have the time and the line of each. Its severity
//! depends on the time of the program's causes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use volt_telemetry::finding::{Finding, Place, Severity};
use volt_telemetry::incident::{Blame, Cause, CauseTime, Incident, Remedy};
use volt_telemetry::listing::order;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{InFlight, Phase, Snapshot, Worker};
use volt_telemetry::text::{counted, duration, percent};

use super::case::{Case, Span, poll_for_ns};
use super::describe::{Describe, spawned, task};
use super::key::{Key, group};
use super::machine;
use super::polls::{
    LIKE_NS, OUTAGE_NS, advice, advice_on, causes, causes_and_lines, ended_at_ns, is_at_lock, is_of_the_task, likes,
    listed, of_the_task_ns, of_unrecorded, unrecorded,
};

/// If no worker polls the driver for this long, all timers and sockets are late. This is five
/// checks of the sentinel at its default interval; each of them wakes a parked worker, if there is
/// one, to poll the driver.
const DRIVER_IDLE_NS: u64 = 50_000_000;
/// After this time, most client timeouts have expired.
const DRIVER_OUTAGE_NS: u64 = 1_000_000_000;
/// A mean poll of this length is long: it delays each task behind it by a millisecond.
const LONG_POLL_NS: u64 = 1_000_000;
/// The net delay that tasks of one place cause to other tasks, as a share of the time. Net means
/// beyond the delay that they suffer themselves: tasks that compute in turns with others of their
/// kind suffer as much as they cause, and are fair.
const NET_DELAY_RATIO: f64 = 0.1;
/// How long reading the stack of a poll may take: the first stack requires the program's debug
/// information.
const READING_NS: u64 = 5_000_000_000;
/// Why the finding about a poll that waits for a lock does not name the thread that holds it.
const HOLDER_UNKNOWN: &str =
    "unknown, because a lock that blocks a thread, such as std's Mutex, does not record which thread holds it";
/// The key of the evidence for a poll that was stuck while another one waited for a lock. Only the
/// finding about the one that waited has it.
pub(super) const POSSIBLE_HOLDER: &str = "possible_holder";
/// The key of the evidence with the number of recorded polls. Only findings from incidents have it.
pub(super) const SEEN_COUNT: &str = "seen_count";
/// How many sampled lines of a function that computes a finding lists.
const SAMPLED_LINES_MAX: usize = 3;
/// How many polls that were not recorded a finding lists.
const SIMILAR_MAX: usize = 8;
/// A short stall recurs if it occurs in this many different seconds within a minute. A program that
/// starts has many stalls in one second, and a busy machine has a single one now and then.
pub(super) const RECURRING_MOMENTS: usize = 3;
/// Maximum number of findings of one rule per snapshot.
const FINDINGS_MAX: usize = 16;

// ---- stalled-poll -------------------------------------------------------------------------------

pub(super) fn stalled_poll_threshold() -> String {
    format!(
        "Polls at one place in the code last 10 ms or longer (`Builder::incident_after`). The finding is {} if the \
         latest of them continues, and has lasted {} or no spare worker was available. It is a {} if the latest poll \
         met this condition but has ended, or if such polls occur in {RECURRING_MOMENTS} different seconds of a \
         minute. Otherwise it is {}. The time for which the machine delays a poll does not count.",
        Severity::Critical.name(),
        duration(OUTAGE_NS),
        Severity::Warning.name(),
        Severity::Info.name(),
    )
}

/// A spawn location, a cause, and a [`site`].
type Group<'a> = (&'a str, Cause, Cow<'static, str>);

pub(super) fn stalled_poll(case: &Case<'_>) -> Vec<Finding> {
    let mut groups: BTreeMap<Group<'_>, Vec<&Incident>> = BTreeMap::new();
    let mut suppressed: BTreeMap<(&str, Cause), u64> = BTreeMap::new();
    for incident in case.now.incidents.latest.iter().filter(|incident| is_of_the_task(incident.cause)) {
        let kind = (incident.spawned_at.as_str(), incident.cause);
        let count = suppressed.entry(kind).or_default();
        *count = count.saturating_add(incident.suppressed);
        groups.entry((kind.0, kind.1, site(incident))).or_default().push(incident);
    }
    let mut recorded: BTreeMap<&Group<'_>, Finding> = BTreeMap::new();
    for (group, incidents) in &groups {
        let suppressed = suppressed.get(&(group.0, group.1)).copied().unwrap_or(0);
        recorded.extend(of_incidents(case, incidents, suppressed).map(|finding| (group, finding)));
    }
    let mut findings = Vec::new();
    let mut similar: BTreeMap<&Group<'_>, Vec<String>> = BTreeMap::new();
    for (worker, poll) in unrecorded(case) {
        let Some(finding) = of_unrecorded(case, worker, poll) else { continue };
        match outage_of(&groups, &poll.spawned_at, case.now.at_ns).filter(|group| recorded.contains_key(group)) {
            Some(group) => similar.entry(group).or_default().push(short(worker, poll)),
            None => findings.push(finding),
        }
    }
    findings.extend(recorded.into_iter().map(|(group, finding)| match similar.get(group) {
        Some(polls) => with_similar(finding, polls, case.now.at_ns),
        None => finding,
    }));
    order::sort_by_key(&mut findings, |finding| {
        (std::cmp::Reverse(finding.severity), std::cmp::Reverse(finding.seen.last_at_ns))
    });
    findings.truncate(FINDINGS_MAX);
    findings
}

/// Returns the only group of recent incidents of a spawn location, if each has one cause, it has a
/// line, or will have one, and one of its polls was an outage.
fn outage_of<'g, 'a>(
    groups: &'g BTreeMap<Group<'a>, Vec<&Incident>>,
    spawned_at: &str,
    now_ns: u64,
) -> Option<&'g Group<'a>> {
    let is_recent = |incident: &&Incident| !incident.is_over || ended_at_ns(incident) >= now_ns.saturating_sub(LIKE_NS);
    let mut recent = groups.iter().filter(|((at, ..), incidents)| *at == spawned_at && incidents.iter().any(is_recent));
    let (Some((group, incidents)), None) = (recent.next(), recent.next()) else { return None };
    let was_outage = incidents.iter().any(|incident| is_recent(incident) && of_the_task_ns(incident) >= OUTAGE_NS);
    let has_one_cause = incidents.iter().all(|incident| incident.main_causes().is_empty());
    (was_outage && has_one_cause && !group.2.is_empty()).then_some(group)
}

fn short(worker: &Worker, poll: &InFlight) -> String {
    let who = task(poll.task_id, poll.task_name.as_deref());
    format!("{who} blocked worker {} for {}", worker.index, duration(poll.for_ns))
}

/// Adds polls in flight that were not recorded to the finding of recorded polls of the same kind.
fn with_similar(finding: Finding, polls: &[String], now_ns: u64) -> Finding {
    let mut listed = polls.iter().take(SIMILAR_MAX).cloned().collect::<Vec<_>>().join(", ");
    if polls.len() > SIMILAR_MAX {
        listed += &format!(", and {} more", polls.len() - SIMILAR_MAX);
    }
    let mut finding = finding.word("similar_polls", "similar polls, not recorded", listed);
    (finding.severity, finding.seen.worst) = (Severity::Critical, Severity::Critical);
    finding.seen.last_at_ns = now_ns.max(1);
    finding
}

/// Returns the key by which incidents of one spawn location and cause are grouped into findings.
/// Tasks of one location may block at several lines, like the handlers of a service; [`group`]
/// gives the key of each line. Incidents without a line form one group, those whose stack is still
/// to be read another.
fn site(incident: &Incident) -> Cow<'static, str> {
    match incident.guilty() {
        Some(frame) => group(&Place::of_frame(frame), incident.cause == Cause::Cpu).into_owned().into(),
        None if is_stack_pending(incident) => "pending".into(),
        None => "".into(),
    }
}

/// Returns the key of an incident's finding.
pub(super) fn key_of(incident: &Incident) -> Key {
    let mut finding = Finding::new(Rule::StalledPoll, Severity::Info, "")
        .word("cause", "cause", incident.cause.name())
        .guilty(incident.guilty())
        .spawned_at(&incident.spawned_at);
    if is_stack_pending(incident) {
        finding = finding.without_line(true);
    }
    Key::of(&finding)
}

/// Returns whether its stack is still to be read.
pub(super) fn is_stack_pending(incident: &Incident) -> bool {
    incident.stack.is_empty() && incident.stack_error.is_none()
}

/// Returns the finding for incidents of one spawn location, cause and [`site`]. `suppressed` more
/// incidents of that location and cause were only counted.
fn of_incidents(case: &Case<'_>, incidents: &[&Incident], suppressed: u64) -> Option<Finding> {
    let shown = *incidents.iter().max_by_key(|incident| (!incident.is_over, ended_at_ns(incident)))?;
    let ended_ago_ns = case.now.at_ns.saturating_sub(ended_at_ns(shown));
    // A finding whose stack was read later is a different one, and must not be milder for that
    // reason.
    let is_recent = case.since_ns.is_some_and(|since_ns| ended_at_ns(shown).saturating_add(READING_NS) >= since_ns);
    let is_outage = of_the_task_ns(shown) >= OUTAGE_NS || shown.remedy == Remedy::Capped;
    // On a machine that is short of processor time, a thread may wait for a lock whose owner the
    // kernel does not run. It then waits for the machine.
    let may_be_victim = matches!(shown.cause, Cause::Lock | Cause::Unknown | Cause::PageIn) && !is_outage;
    if may_be_victim && case.span.as_ref().is_some_and(machine::is_to_blame) {
        return None;
    }
    let severity = match (shown.is_over, is_recent) {
        (false, _) if is_outage => Severity::Critical,
        (true, true) if is_outage => Severity::Warning,
        _ => Severity::Info,
    };
    let who = task(shown.task_id, shown.task_name.as_deref());
    let guilty = shown.guilty();
    let has_blocked = if shown.is_over { "blocked" } else { "has blocked" };
    let why = causes_and_lines(shown);
    let title = format!("{who} {has_blocked} worker {} for {} {why}", shown.worker, duration(shown.for_ns));
    let first_ns = incidents.iter().map(|incident| incident.began_at_ns).min().unwrap_or(shown.began_at_ns);
    let longest_ns = incidents.iter().map(|incident| incident.for_ns).max().unwrap_or(shown.for_ns);
    let mut finding = Finding::new(Rule::StalledPoll, severity, title).cause(shown.cause).ns(
        "for_ns",
        if shown.is_over { "duration" } else { "duration so far" },
        shown.for_ns,
    );
    if shown.is_over {
        finding = finding.ns("ended_ago_ns", "time since its end", ended_ago_ns);
    }
    if !shown.main_causes().is_empty() {
        finding = finding.word("causes", "time by cause", listed(shown.main_causes()));
    }
    finding = finding.count(SEEN_COUNT, "recorded polls of this kind, including this one", incidents.len() as u64).ns(
        "longest_ns",
        "longest of them",
        longest_ns,
    );
    if incidents.iter().any(|incident| !incident.main_causes().is_empty()) {
        let longest_ns = incidents.iter().map(|incident| incident.cause_for_ns()).max().unwrap_or(0);
        let label = format!("longest time of this cause ({}) in one of them", shown.cause.name());
        finding = finding.ns("longest_cause_ns", &label, longest_ns);
    }
    finding = finding.count("waiting_count", "tasks waiting in the queues of the worker", shown.waiting).word(
        "remedy",
        "action of the runtime",
        remedy(shown.remedy),
    );
    if suppressed > 0 {
        let label = "further polls of this spawn location and cause, not recorded";
        finding = finding.count("suppressed_count", label, suppressed);
    }
    let lines = sampled_lines(incidents);
    if shown.cause == Cause::Cpu && lines.len() > 1 {
        finding = finding.word("sampled_lines", "lines of the latest samples", lines.join(", "));
    }
    if let Some(route) = &shown.route {
        finding = finding.word("route", "HTTP route", route.as_str());
    }
    if let Some(channel) = &shown.wait_channel {
        finding = finding.word("wait_channel", "kernel wait channel", channel.as_str());
    }
    if shown.cause == Cause::Lock {
        let is_at_lock = is_at_lock(shown);
        if is_at_lock == Some(true) {
            finding = finding.word("holder", "holder of the lock", HOLDER_UNKNOWN);
        }
        if is_at_lock != Some(false)
            && let Some(other) = stuck_meanwhile(case.now, shown)
        {
            finding = finding.word(POSSIBLE_HOLDER, "possible holder, which was stuck at the same time", other);
        }
    }
    if let Some(error) = &shown.stack_error {
        let label = if shown.stack.is_empty() { "no stack" } else { "incomplete stack" };
        finding = finding.word("stack_error", label, error.as_str());
    }
    if guilty.is_none() {
        finding = finding.without_line(is_stack_pending(shown));
    }
    let finding = finding
        .worker(shown.worker)
        .task(shown.task_id, shown.task_name.as_deref())
        .guilty(guilty)
        .spawned_at(&shown.spawned_at)
        .advice(advice_on(shown))
        .seen_from(first_ns, ended_at_ns(shown).min(case.now.at_ns).max(1));
    Some(finding)
}

/// Describes the stuck poll that overlaps longest with a poll that waits for a lock of a thread,
/// and that does not only wait for locks itself: the task that holds the lock is probably in it.
fn stuck_meanwhile(now: &Snapshot, waiter: &Incident) -> Option<String> {
    let other_cause = |other: &Incident| {
        causes(other).into_iter().find(|part| part.cause != Cause::Lock && is_of_the_task(part.cause))
    };
    let overlap_ns = |other: &Incident, part: &CauseTime| {
        let from_ns = other.began_at_ns.max(waiter.began_at_ns);
        // When each cause began is not known, so this is the longest possible time.
        ended_at_ns(other).min(ended_at_ns(waiter)).saturating_sub(from_ns).min(part.for_ns)
    };
    let others = now.incidents.latest.iter().filter(|other| other.task_id != waiter.task_id);
    let others = others.filter_map(|other| Some((other, other_cause(other)?)));
    let others = others.map(|(other, part)| (overlap_ns(other, &part), other, part));
    let (_, other, part) = others.filter(|(ns, ..)| *ns > 0).max_by_key(|(ns, ..)| *ns)?;
    let place = part.at.map_or_else(|| format!("spawned at {}", other.spawned_at), |line| format!("at {line}"));
    let who = task(other.task_id, other.task_name.as_deref());
    Some(format!("{who} {place} (cause: {})", part.cause.name()))
}

/// Describes a poll as ended, if the finding describes it as still stuck.
pub(super) fn end_stall(finding: &mut Finding) {
    if finding.rule != Rule::StalledPoll {
        return;
    }
    let Some(stuck) = finding.tasks.first().map(|of| task(of.id, of.name.as_deref())) else { return };
    if let Some(rest) = finding.title.strip_prefix(&stuck).and_then(|rest| rest.strip_prefix(" has blocked")) {
        finding.title = format!("{stuck} blocked{rest}");
    }
    for evidence in finding.evidence.iter_mut().filter(|evidence| evidence.key == "for_ns") {
        evidence.text = evidence.text.replacen("duration so far", "duration", 1);
    }
}

/// Returns the lines of some of the incidents, the latest first.
fn sampled_lines(incidents: &[&Incident]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for frame in incidents.iter().rev().filter_map(|incident| incident.guilty()) {
        let at = Place::of_frame(frame).at().to_owned();
        if !lines.contains(&at) && lines.len() < SAMPLED_LINES_MAX {
            lines.push(at);
        }
    }
    lines
}

fn remedy(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Rescued => "woke a parked worker, which took the waiting tasks",
        Remedy::Replaced => "replaced the worker with a spare worker",
        Remedy::Capped => "none: no spare worker was available",
        _ => "none: no tasks waited, or no action was possible",
    }
}

// ---- no-yield -----------------------------------------------------------------------------------

/// Returns whether the program reports blame. The blame table of a runtime that has not polled is
/// empty.
pub(super) fn is_blame_reported(snapshot: &Snapshot) -> bool {
    !snapshot.blame.is_empty() || snapshot.workers.iter().all(|worker| worker.polls == 0)
}

pub(super) fn no_yield_threshold() -> String {
    format!(
        "Tasks of one spawn location have polls of {} or longer on average, without incidents. The delay that they \
         cause to other tasks, minus the delay that they suffer, is {} of the time or more, summed over tasks.",
        duration(LONG_POLL_NS),
        percent(NET_DELAY_RATIO)
    )
}

pub(super) fn no_yield(span: &Span<'_>) -> Vec<Finding> {
    // If processors are scarce, a poll takes longer than it computes.
    let running_ratio = machine::running_ratio(span);
    let mut findings = Vec::new();
    for now in &span.now.blame {
        let unseen = Blame::default();
        let then = span.then.blame.iter().find(|then| then.spawned_at == now.spawned_at).unwrap_or(&unseen);
        let grown = |of: fn(&Blame) -> u64| of(now).saturating_sub(of(then));
        let (polls, busy_ns) = (grown(|blame| blame.polls), grown(|blame| blame.busy_ns));
        let caused_ns = grown(|blame| blame.delay_caused_ns);
        let net_ns = caused_ns.saturating_sub(grown(|blame| blame.delay_suffered_ns));
        let Some(mean_ns) = busy_ns.checked_div(polls).map(|ns| (ns as f64 * running_ratio) as u64) else { continue };
        // `stalled-poll` reports these, with their cause.
        let is_reported = !likes(span.now, &now.spawned_at, span.then.at_ns.saturating_sub(LIKE_NS)).is_empty();
        if mean_ns < LONG_POLL_NS || span.share(net_ns) < NET_DELAY_RATIO || is_reported {
            continue;
        }
        let title = format!(
            "{} compute for {} per poll and delayed other tasks by {} in total, within {}",
            spawned(&now.spawned_at),
            duration(mean_ns),
            duration(caused_ns),
            duration(span.interval_ns())
        );
        findings.push(
            Finding::new(Rule::NoYield, Severity::Warning, title)
                .ns("mean_poll_ns", "mean poll, running time only", mean_ns)
                .ns("longest_poll_ns", "longest poll since the runtime started", now.longest_poll_ns)
                .ns("delay_caused_ns", "delay of other tasks, summed over them", caused_ns)
                .ns("net_delay_ns", "this delay minus their own delay", net_ns)
                .count("polls_count", "polls", polls)
                .count("preempts_count", "preempted polls of the whole runtime", span.grown(|s| s.sentinel.preempts))
                .spawned_at(&now.spawned_at)
                .advice(advice(Cause::Cpu)),
        );
    }
    findings.truncate(FINDINGS_MAX);
    findings
}

// ---- driver-held --------------------------------------------------------------------------------

pub(super) fn driver_held_threshold() -> String {
    format!(
        "No worker has polled the driver (timers and sockets) for {}, or timers fired that late, although a worker was \
         awake and the machine let it run. The finding is {} if no worker has polled the driver for {}.",
        duration(DRIVER_IDLE_NS),
        Severity::Critical.name(),
        duration(DRIVER_OUTAGE_NS)
    )
}

pub(super) fn driver_held(span: &Span<'_>) -> Vec<Finding> {
    let (now, driver, timers) = (span.now, &span.now.driver, &span.now.timers);
    if machine::is_to_blame(span) || span.is_undriven() {
        return Vec::new();
    }
    let is_anything_there = driver.registrations > 0 || timers.armed > 0;
    let is_any_awake = now.parked_count() < now.active_count();
    let idle_ns = if is_anything_there && is_any_awake { driver.idle_ns } else { 0 };
    let has_fired = span.grown(|snapshot| snapshot.timers.fired) > 0;
    let lag_ns = if has_fired { timers.last_lag_ns } else { 0 };
    let holds = |worker: &&Worker| {
        let is_owner = driver.owner == Some(worker.index) && worker.phase == Phase::Maintenance;
        poll_for_ns(worker) >= DRIVER_IDLE_NS || is_owner && worker.phase_for_ns >= DRIVER_IDLE_NS
    };
    let holders: Vec<_> = now.workers.iter().filter(holds).collect();
    let owner_ns = holders.iter().filter(|worker| driver.owner == Some(worker.index)).map(|worker| worker.phase_for_ns);
    let held_ns = idle_ns.max(owner_ns.max().unwrap_or(0));
    let worst_ns = held_ns.max(lag_ns);
    if worst_ns < DRIVER_IDLE_NS {
        return Vec::new();
    }
    let severity = if held_ns >= DRIVER_OUTAGE_NS { Severity::Critical } else { Severity::Warning };
    let title = if held_ns >= lag_ns {
        format!("no worker has polled the driver (timers and sockets) for {}", duration(held_ns))
    } else {
        format!("timers fired {} late because no worker polled the driver", duration(lag_ns))
    };
    let mut finding = Finding::new(Rule::DriverHeld, severity, title)
        .ns("driver_idle_ns", "time since the last poll of the driver", driver.idle_ns)
        .ns("timers_lag_ns", "lateness of the timers that fired last", timers.last_lag_ns)
        .count("timers_armed_count", "armed timers", timers.armed)
        .count("registrations_count", "registered sockets", driver.registrations)
        .count("capped_count", "sentinel checks that found no spare worker", span.grown(|s| s.sentinel.capped));
    for worker in holders {
        finding = finding.worker(worker.index);
        if let Some(poll) = &worker.in_flight {
            finding = finding.task(poll.task_id, poll.task_name.as_deref()).spawned_at(&poll.spawned_at);
        }
    }
    let held = match finding.workers.len() as u64 {
        0 => String::new(),
        workers => format!(" of {}", counted(workers, "worker")),
    };
    let advice = if now.sentinel.max_spares == 0 {
        "Allow spare workers (Builder::max_spare_workers), which replace stuck workers. See `stalled-poll` for the \
         cause."
            .to_owned()
    } else {
        format!(
            "See `stalled-poll` for the long polls{held}. If more workers block at the same time than there are spare \
             workers, raise Builder::max_spare_workers, or start the program with VOLT_MAX_SPARE_WORKERS=N."
        )
    };
    vec![finding.advice(advice)]
}
