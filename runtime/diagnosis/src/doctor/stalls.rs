//! Rules about polls that take too long: for their worker, for those that wait behind them, for timers and sockets.
//!
//! What the runtime itself has written down about a poll, its [`Incident`], comes first: it was made while the poll was
//! stuck, and knows the cause and the line. Polls of which nothing was written down are seen in flight only.
//!
//! Invariant: *a finding names no line but of incidents that it counts*. An incident whose stack
//! could not be read, and a poll of which nothing was written down, are counted at the spawn
//! location, whatever other polls of that location did.

use std::borrow::Cow;
use std::collections::BTreeMap;

use volt_telemetry::finding::{Finding, Place, Severity};
use volt_telemetry::incident::{Blame, Cause, Incident, Remedy};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Duty, InFlight, Phase, Snapshot, Worker};
use volt_telemetry::text::{counted, duration, percent};

use super::case::{Case, LATE_NS, Span, poll_for_ns};
use super::describe::{Describe, spawned, task};
use super::key::{Key, group};
use super::machine;

/// A poll of this length that still goes on is an outage of its worker: what people notice.
const OUTAGE_NS: u64 = 100_000_000;
/// Timers and sockets that nobody polled for so long are late for everybody: five checks of the
/// sentinel at its default distance, which wakes a worker for them at every one.
const DRIVER_IDLE_NS: u64 = 50_000_000;
/// So long, and most time-outs of clients have passed.
const DRIVER_OUTAGE_NS: u64 = 1_000_000_000;
/// A poll of this length on average is long: it is what the tuner lets a task wait in the global queue by default.
const LONG_POLL_NS: u64 = 1_000_000;
/// Waiting that tasks of one place cause to tasks of others, beyond what they suffer themselves, as a share of the
/// time. Who computes in turns with others of its kind, suffers as much as it causes, and is fair.
const NET_DELAY_RATIO: f64 = 0.1;
/// What a poll was stuck for is likely to be what the next of its place is stuck for, for so long.
/// Of many of one kind
/// the runtime writes one a second down.
const LIKE_NS: u64 = 10_000_000_000;
/// So long the stack of a poll may take to be read: the first needs the program's debug information.
const READING_NS: u64 = 5_000_000_000;
/// Lines of a function that computes, of different samples, that a finding lists.
const SAMPLED_LINES_MAX: usize = 3;
/// Different seconds within a minute in which a short stall makes it one that happens again and again. A start has many
/// stalls in one second, and a busy machine a stray one.
pub(super) const RECURRING_MOMENTS: usize = 3;
/// Findings of one rule that are told of one snapshot.
const FINDINGS_MAX: usize = 16;

/// Causes that say that the poll does something wrong, not the machine.
fn is_of_the_task(cause: Cause) -> bool {
    !matches!(cause, Cause::NotScheduled | Cause::Throttled | Cause::Stopped)
}

// ---- stalled-poll --------------------------------------------------------------------------------------------------

pub(super) fn stalled_poll_threshold() -> String {
    format!(
        "polls of one place last 10 ms or more (`Builder::incident_after`): {} as soon as one has lasted for {} and goes \
         on, or no spare worker was left; {} if one lasted for {}, or if it happens again and again, which is in \
         {RECURRING_MOMENTS} different seconds of a minute, for as long as it does; {} otherwise. What the kernel did \
         to the poll does not count",
        Severity::Critical.name(),
        duration(OUTAGE_NS),
        Severity::Warning.name(),
        duration(OUTAGE_NS),
        Severity::Info.name(),
    )
}

pub(super) fn stalled_poll(case: &Case<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = unwritten(case).filter_map(|(worker, poll)| of_unwritten(case, worker, poll)).collect();
    let mut groups: BTreeMap<(&str, Cause, Cow<'_, str>), Vec<&Incident>> = BTreeMap::new();
    let mut suppressed: BTreeMap<(&str, Cause), u64> = BTreeMap::new();
    for incident in case.now.incidents.latest.iter().filter(|incident| is_of_the_task(incident.cause)) {
        let kind = (incident.spawned_at.as_str(), incident.cause);
        let count = suppressed.entry(kind).or_default();
        *count = count.saturating_add(incident.suppressed);
        groups.entry((kind.0, kind.1, site(incident))).or_default().push(incident);
    }
    findings.extend(groups.iter().filter_map(|((spawned_at, cause, _), incidents)| {
        of_incidents(case, incidents, suppressed.get(&(*spawned_at, *cause)).copied().unwrap_or(0))
    }));
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), std::cmp::Reverse(finding.seen.last_at_ns)));
    findings.truncate(FINDINGS_MAX);
    findings
}

/// Which incidents of one spawn location and cause are one finding. Several lines may block in
/// tasks of one location, as the handlers of a service do; what is said of each, [`group`]
/// says. Those without a line are by themselves, and so are those whose line is still to be read.
fn site(incident: &Incident) -> Cow<'static, str> {
    match incident.guilty() {
        Some(frame) => group(&Place::of_frame(frame), incident.cause == Cause::Cpu).into_owned().into(),
        None if is_stack_pending(incident) => "pending".into(),
        None => "".into(),
    }
}

/// The key of the finding of an incident, now that its stack is read, or could not be.
pub(super) fn key_when_read(incident: &Incident) -> Key {
    let finding = Finding::new(Rule::StalledPoll, Severity::Info, "")
        .word("cause", "cause", incident.cause.name())
        .guilty(incident.guilty())
        .spawned_at(&incident.spawned_at);
    Key::of(&finding)
}

/// Whether its stack is still to be read.
fn is_stack_pending(incident: &Incident) -> bool {
    incident.stack.is_empty() && incident.stack_error.is_none()
}

/// Polls that are long, and of which nothing was written down: one of their kind was a moment ago, or incidents are
/// off.
fn unwritten<'a>(case: &'a Case<'_>) -> impl Iterator<Item = (&'a Worker, &'a InFlight)> {
    let is_written_down = |worker: &Worker, poll: &InFlight| {
        let latest = &case.now.incidents.latest;
        let is_this = |incident: &Incident| incident.worker == worker.index && incident.task_id == poll.task_id;
        latest.iter().any(|incident| !incident.is_over && is_this(incident))
    };
    // A poll that the kernel does not let run is not stuck.
    let is_kept_off = |worker: &Worker, poll: &InFlight| {
        let Some(span) = &case.span else { return false };
        let pair = span.pairs().find(|pair| pair.index() == worker.index);
        let waited_ns = pair.and_then(|pair| pair.grown_if_known(|worker| worker.run_delay_ns)).unwrap_or(0);
        waited_ns.saturating_mul(2) >= poll.for_ns && span.share(waited_ns) >= machine::STARVED_RATIO
    };
    let polls = case.now.workers.iter().filter_map(|worker| Some((worker, worker.in_flight.as_ref()?)));
    polls.filter(move |(worker, poll)| {
        // One that has announced that it blocks has handed its worker on.
        let is_announced = worker.duty == Duty::Blocking;
        poll.for_ns >= LATE_NS && !is_announced && !is_kept_off(worker, poll) && !is_written_down(worker, poll)
    })
}

/// The last incident of a spawn location that went on at `since_ns` or later.
fn like<'a>(now: &'a Snapshot, spawned_at: &str, since_ns: u64) -> Option<&'a Incident> {
    let is_like = |incident: &&Incident| {
        let is_fresh = !incident.is_over || ended_at_ns(incident) >= since_ns;
        incident.spawned_at == spawned_at && is_of_the_task(incident.cause) && is_fresh
    };
    now.incidents.latest.iter().rev().find(is_like)
}

/// A poll in flight of which nothing was written down, if it is an outage. Of shorter ones enough
/// are written down.
fn of_unwritten(case: &Case<'_>, worker: &Worker, poll: &InFlight) -> Option<Finding> {
    let is_capped = worker.duty == Duty::Away && case.now.sentinel.spares_on_duty == 0;
    let like = like(case.now, &poll.spawned_at, case.now.at_ns.saturating_sub(LIKE_NS));
    if poll.for_ns < OUTAGE_NS && !(is_capped && like.is_some()) {
        return None;
    }
    let cause = like.map_or(Cause::Unknown, |like| like.cause);
    let who = task(poll.task_id, poll.task_name.as_deref());
    let why = match cause {
        Cause::Unknown => "no cause known".to_owned(),
        cause => format!("probably, as one before it, a poll that {}", cause.explain()),
    };
    let title = format!("{who} has held worker {} for {}: {why}", worker.index, duration(poll.for_ns));
    let mut finding = Finding::new(Rule::StalledPoll, Severity::Critical, title)
        .word("cause", "cause", cause.name())
        .ns("for_ns", "it lasts so far", poll.for_ns)
        .word("duty", "its worker is", worker.duty.name())
        .without_line(false);
    if like.is_some() {
        finding = finding.word("known_from", "the cause is that of", "an earlier poll of the same spawn location");
    }
    let finding = finding
        .worker(worker.index)
        .task(poll.task_id, poll.task_name.as_deref())
        .spawned_at(&poll.spawned_at)
        .advice(advice(cause))
        .seen_from(case.now.at_ns.saturating_sub(poll.for_ns), case.now.at_ns.max(1));
    Some(finding)
}

/// Incidents of one spawn location, cause and [`site`]; of the location and cause so many more were
/// counted only.
fn of_incidents(case: &Case<'_>, incidents: &[&Incident], suppressed: u64) -> Option<Finding> {
    let shown = *incidents.iter().max_by_key(|incident| (!incident.is_over, ended_at_ns(incident)))?;
    let ended_ago_ns = case.now.at_ns.saturating_sub(ended_at_ns(shown));
    // Its finding is another one once its stack is read, which must not be the milder for that.
    let is_recent = case.since_ns.is_some_and(|since_ns| ended_at_ns(shown).saturating_add(READING_NS) >= since_ns);
    let is_outage = shown.for_ns >= OUTAGE_NS || shown.remedy == Remedy::Capped;
    // Whose holder the kernel does not run, on a machine that is short of time, waits for the machine.
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
    let line = guilty.map(|frame| format!(", at {}", Place::of_frame(frame).at())).unwrap_or_default();
    let has_held = if shown.is_over { "held" } else { "has held" };
    let why = match shown.cause {
        Cause::Unknown => "no cause known".to_owned(),
        cause => format!("a poll that {}", cause.explain()),
    };
    let title = format!("{who} {has_held} worker {} for {}: {why}{line}", shown.worker, duration(shown.for_ns));
    let first_ns = incidents.iter().map(|incident| incident.began_at_ns).min().unwrap_or(shown.began_at_ns);
    let longest_ns = incidents.iter().map(|incident| incident.for_ns).max().unwrap_or(shown.for_ns);
    let mut finding = Finding::new(Rule::StalledPoll, severity, title).word("cause", "cause", shown.cause.name()).ns(
        "for_ns",
        if shown.is_over { "it lasted" } else { "it lasts so far" },
        shown.for_ns,
    );
    if shown.is_over {
        finding = finding.ns("ended_ago_ns", "it ended before this look by", ended_ago_ns);
    }
    finding = finding
        .count("seen_count", "polls like it, as far as they are remembered", incidents.len() as u64)
        .ns("longest_ns", "the longest of them", longest_ns)
        .count("waiting_count", "tasks that waited in its worker's queues", shown.waiting)
        .word("remedy", "what the runtime did about it", remedy(shown.remedy));
    if suppressed > 0 {
        let label = "polls of the same spawn location and cause, at whatever line, that were only counted";
        finding = finding.count("suppressed_count", label, suppressed);
    }
    let lines = sampled_lines(incidents);
    if shown.cause == Cause::Cpu && lines.len() > 1 {
        finding = finding.word("sampled_lines", "lines of the last samples", lines.join(", "));
    }
    if let Some(channel) = &shown.wait_channel {
        finding = finding.word("wait_channel", "where the kernel says that it waits", channel.as_str());
    }
    if let Some(error) = &shown.stack_error {
        finding = finding.word("stack_error", "why there is no stack, or not all of it", error.as_str());
    }
    if guilty.is_none() {
        finding = finding.without_line(is_stack_pending(shown));
    }
    let finding = finding
        .worker(shown.worker)
        .task(shown.task_id, shown.task_name.as_deref())
        .guilty(guilty)
        .spawned_at(&shown.spawned_at)
        .advice(advice(shown.cause))
        .seen_from(first_ns, ended_at_ns(shown).min(case.now.at_ns).max(1));
    Some(finding)
}

/// The lines of some of them, the latest first.
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

/// When it ended, or was last seen to go on.
fn ended_at_ns(incident: &Incident) -> u64 {
    incident.began_at_ns.saturating_add(incident.for_ns)
}

fn remedy(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::Rescued => "a parked worker was woken and took what waited",
        Remedy::Replaced => "a spare worker took its place",
        Remedy::Capped => "nothing: every spare worker that is allowed was in use",
        _ => "nothing: nobody waited, or nothing could be done",
    }
}

fn advice(cause: Cause) -> &'static str {
    match cause {
        Cause::Sleep => {
            "Await volt::time::sleep instead of sleeping in the thread, or move the call into \
             volt::task::spawn_blocking."
        }
        Cause::Lock => {
            "Hold the lock for as short as possible and never across slow work, or wait for it in \
             volt::task::spawn_blocking or with an asynchronous lock."
        }
        Cause::Io => "Use volt::net, or move the call that blocks into volt::task::spawn_blocking.",
        Cause::Cpu => {
            "Call volt::task::yield_now().await or consume_budget().await in the loop, or move the computation into \
             volt::task::spawn_blocking."
        }
        Cause::PageIn => {
            "Give the machine more memory, or touch files and mapped memory in volt::task::spawn_blocking."
        }
        _ => {
            "Move what the poll does at that line into volt::task::spawn_blocking, or announce it with \
             volt::task::block_in_place."
        }
    }
}

// ---- no-yield ------------------------------------------------------------------------------------------------------

/// Nobody blames in a runtime that has not polled.
pub(super) fn is_blame_told(snapshot: &Snapshot) -> bool {
    !snapshot.blame.is_empty() || snapshot.workers.iter().all(|worker| worker.polls == 0)
}

pub(super) fn no_yield_threshold() -> String {
    format!(
        "the polls of one spawn location take {} or more on average, are no incidents, and others wait behind them for \
         {} of the time beyond what these wait themselves",
        duration(LONG_POLL_NS),
        percent(NET_DELAY_RATIO)
    )
}

pub(super) fn no_yield(span: &Span<'_>) -> Vec<Finding> {
    // Where processors are short, a poll lasts for longer than it computes.
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
        // Those are told by `stalled_poll`, with their cause.
        let is_told = like(span.now, &now.spawned_at, span.then.at_ns.saturating_sub(LIKE_NS)).is_some();
        if mean_ns < LONG_POLL_NS || span.share(net_ns) < NET_DELAY_RATIO || is_told {
            continue;
        }
        let title = format!(
            "{} compute for {} a poll, and others waited behind them for {}",
            spawned(&now.spawned_at),
            duration(mean_ns),
            duration(caused_ns)
        );
        findings.push(
            Finding::new(Rule::NoYield, Severity::Warning, title)
                .ns("mean_poll_ns", "their mean poll, waiting for a processor left out", mean_ns)
                .ns("longest_poll_ns", "their longest poll, since start", now.longest_poll_ns)
                .ns("delay_caused_ns", "waiting that they caused, summed over those that waited", caused_ns)
                .ns("net_delay_ns", "of it, beyond what they waited themselves", net_ns)
                .count("polls_count", "their polls", polls)
                .count("preempts_count", "polls that were asked to yield", span.grown(|s| s.sentinel.preempts))
                .spawned_at(&now.spawned_at)
                .advice(advice(Cause::Cpu)),
        );
    }
    findings.truncate(FINDINGS_MAX);
    findings
}

// ---- driver-held ---------------------------------------------------------------------------------------------------

pub(super) fn driver_held_threshold() -> String {
    format!(
        "nobody has looked at timers and sockets for {}, or timers fired that late, while some worker was awake and \
         the machine let it run; {} from {} on",
        duration(DRIVER_IDLE_NS),
        Severity::Critical.name(),
        duration(DRIVER_OUTAGE_NS)
    )
}

pub(super) fn driver_held(span: &Span<'_>) -> Vec<Finding> {
    let (now, driver, timers) = (span.now, &span.now.driver, &span.now.timers);
    if machine::is_to_blame(span) {
        return Vec::new();
    }
    let is_anything_there = driver.registrations > 0 || timers.armed > 0;
    let is_somebody_awake = now.parked_count() < now.on_duty_count();
    let idle_ns = if is_anything_there && is_somebody_awake { driver.idle_ns } else { 0 };
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
        format!("nobody has looked at timers and sockets for {}", duration(held_ns))
    } else {
        format!("timers fired {} late, since nobody looked at them", duration(lag_ns))
    };
    let mut finding = Finding::new(Rule::DriverHeld, severity, title)
        .ns("driver_idle_ns", "since the last look at timers and sockets", driver.idle_ns)
        .ns("timers_lag_ns", "how late the timers were that fired last", timers.last_lag_ns)
        .count("timers_armed_count", "timers that are armed", timers.armed)
        .count("registrations_count", "sockets", driver.registrations)
        .count("capped_count", "looks of the sentinel that found no spare worker", span.grown(|s| s.sentinel.capped));
    for worker in holders {
        finding = finding.worker(worker.index);
        if let Some(poll) = &worker.in_flight {
            finding = finding.task(poll.task_id, poll.task_name.as_deref()).spawned_at(&poll.spawned_at);
        }
    }
    let held = counted(finding.workers.len() as u64, "worker");
    let advice = if now.sentinel.max_spares == 0 {
        "Allow spare workers (Builder::max_spare_workers), so that one goes on duty while others are stuck; and see \
         `stalled-poll`."
            .to_owned()
    } else {
        format!(
            "See `stalled-poll` for what {held} in a long poll did; raise Builder::max_spare_workers if more block at \
             a time."
        )
    };
    vec![finding.advice(advice)]
}
