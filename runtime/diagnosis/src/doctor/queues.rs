//! Rules about tasks that wait although a worker could run them: workers are parked, the load is
//! unevenly distributed, or the tasks are in the wrong queue.

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Duty, Phase, Snapshot, Worker};
use volt_telemetry::text::{duration, percent};

use super::case::{Case, LATE_NS, Pair, Span, poll_for_ns, queue_len};
use super::describe::Describe;
use super::machine;

/// Tasks may wait in the global queue for the target latency of the runtime. If they wait this many
/// times as long, checks of the queue are missing.
const TARGETS_MISSED: u64 = 20;
/// After a second in the global queue, clients give up.
const GLOBAL_OUTAGE_NS: u64 = 1_000_000_000;
/// If most polls are of tasks from the global queue, it is served as well as possible, and there is
/// too much work.
const GLOBAL_SHARE: f64 = 0.5;
/// A full LIFO slot counts as held if the current poll has lasted this long. By default the
/// sentinel had ten checks in which to have the slot emptied. That is enough even if processors are
/// scarce and the sentinel itself is late.
const LIFO_HELD_NS: u64 = 100_000_000;
/// The share of a worker's polls that come from the LIFO slot. By default at most 3 polls of a tick
/// of 128 do, so only other settings reach this threshold.
const LIFO_SHARE: f64 = 0.75;
/// A wait in a worker's local queues that is worth reporting: longer than any tick of short polls.
const FELT_NS: u64 = 1_000_000;
/// Fewer polls than this are not a monopoly.
const LIFO_POLLS_MIN: u64 = 1_000;
/// A worker that was parked for this share of the time was not needed, or not woken.
const ASLEEP_RATIO: f64 = 0.95;
/// A worker that polled for this share of the time is at its limit.
const BUSY_RATIO: f64 = 0.9;
/// The number of tasks in a worker's queues, in addition to the next one it runs, that should make
/// another worker wake up. For fewer tasks the runtime wakes no worker.
const BACKLOG_LEN: u32 = 2;
/// The allowed difference between the shares of the time that two workers are busy.
const IMBALANCE_RATIO: f64 = 0.5;
/// The number of tasks in the busier worker's queues, at both snapshots. A thief would have halved
/// this number with one steal.
const IMBALANCE_LEN: u32 = 16;

// ---- lost-wakeup --------------------------------------------------------------------------------
// No program can trigger this rule: that would require a bug in the wake-up protocol. Tests of the
// runtime inject one: see its PROOF.md.

pub(super) fn lost_wakeup_threshold() -> String {
    format!(
        "A park time-out found work for which no worker had been woken. Or, in both snapshots, all workers have been \
         parked for {} while tasks wait in their queues or in the global queue. The finding is {} if it happened only \
         before the first snapshot, and {} otherwise.",
        duration(LATE_NS),
        Severity::Info.name(),
        Severity::Critical.name()
    )
}

pub(super) fn lost_wakeup(case: &Case<'_>) -> Vec<Finding> {
    let rescues = |snapshot: &Snapshot| {
        snapshot.workers.iter().map(|worker| worker.lost_wakeup_rescues).fold(0, u64::saturating_add)
    };
    let (caught, since_start) = (case.span.as_ref().map_or(0, |span| span.grown(rescues)), rescues(case.now));
    let stranded = case.span.as_ref().filter(|span| span.at_both(is_asleep_over_work)).map(|_| waiting(case.now));
    let (severity, title) = match (stranded, caught, since_start) {
        (Some(waiting), _, _) => (Severity::Critical, format!("all workers are parked while {}", wait(waiting))),
        (None, 1.., _) => (Severity::Critical, format!("{} just now; a park time-out found the work", lost(caught))),
        (None, 0, 1..) => (Severity::Info, format!("{} since the runtime started", lost(since_start))),
        (None, 0, 0) => return Vec::new(),
    };
    let finding = Finding::new(Rule::LostWakeup, severity, title)
        .count("waiting_count", "tasks waiting in queues now", waiting(case.now))
        .count("parked_count", "parked workers", case.now.parked_count().into())
        .count("rescues_count", "park time-outs that found work in the measured interval", caught)
        .count("rescues_since_start_count", "park time-outs that found work since the runtime started", since_start)
        .advice(
            "This is a bug in Volt: please report it with the output of `volt-console top --once --json`. \
            Builder::park_timeout limits its effect.",
        );
    vec![finding]
}

/// Returns whether all workers are parked, and have been for long, while tasks wait.
fn is_asleep_over_work(snapshot: &Snapshot) -> bool {
    let mut active = snapshot.workers.iter().filter(|worker| worker.duty != Duty::Off).peekable();
    let is_asleep = |worker: &Worker| {
        matches!(worker.phase, Phase::Parked | Phase::Driver)
            && worker.phase_for_ns >= LATE_NS
            && snapshot.is_parked(worker.index as usize)
    };
    active.peek().is_some() && active.all(is_asleep) && snapshot.searching == 0 && waiting(snapshot) > 0
}

/// Returns the number of tasks in all queues, except the inboxes, and the global queue if its
/// oldest task entered it very recently: a worker may be waking up for these tasks.
fn waiting(snapshot: &Snapshot) -> u64 {
    let is_old = snapshot.global_queue.oldest_age_ns.is_some_and(|ns| ns >= LATE_NS);
    let global = if is_old { snapshot.global_queue.len } else { 0 };
    let own =
        |worker: &Worker| u64::from(worker.ring_len) + u64::from(worker.batch_len) + u64::from(worker.is_lifo_filled);
    snapshot.workers.iter().map(own).fold(global, u64::saturating_add)
}

fn lost(wakes: u64) -> String {
    if wakes == 1 { "1 wake-up was lost".to_owned() } else { format!("{wakes} wake-ups were lost") }
}

fn wait(tasks: u64) -> String {
    if tasks == 1 { "1 task waits".to_owned() } else { format!("{tasks} tasks wait") }
}

// ---- parked-while-backlog -----------------------------------------------------------------------

pub(super) fn parked_while_backlog_threshold() -> String {
    format!(
        "A worker was parked for {} of the time, while another, busy for {} of it, had {BACKLOG_LEN} tasks in its \
         queues in both snapshots (1 if it is stuck in a poll). Or a worker is parked in both snapshots while the \
         oldest task of the global queue has waited for {}.",
        percent(ASLEEP_RATIO),
        percent(BUSY_RATIO),
        duration(LATE_NS)
    )
}

pub(super) fn parked_while_backlog(span: &Span<'_>) -> Vec<Finding> {
    if span.at_both(is_asleep_over_work) || span.is_undriven() {
        return Vec::new();
    }
    let asleep = asleep(span);
    let backlogs = backlogs(span);
    let age_ns = |snapshot: &Snapshot| snapshot.global_queue.oldest_age_ns.unwrap_or(0);
    let is_global =
        span.at_both(|snapshot| age_ns(snapshot) >= LATE_NS && snapshot.parked_count() > 0 && snapshot.searching == 0);
    if !is_global && (asleep.is_empty() || backlogs.is_empty()) {
        return Vec::new();
    }
    let local: u64 = backlogs.iter().map(|pair| u64::from(pair.queue_len())).fold(0, u64::saturating_add);
    let waiting = if is_global { local.saturating_add(span.now.global_queue.len) } else { local };
    let (parked, active) = (span.now.parked_count(), span.now.active_count());
    let is_or_are = if parked == 1 { "is" } else { "are" };
    let title = format!("{} although {parked} of {active} workers {is_or_are} parked", wait(waiting));
    let mut finding = Finding::new(Rule::ParkedWhileBacklog, Severity::Warning, title)
        .count("backlog_count", "tasks in the queues of busy workers, lower of the two snapshots", local)
        .count("global_count", "tasks in the global queue", span.now.global_queue.len)
        .ns("global_age_ns", "age of the oldest of them", age_ns(span.now))
        .count("parked_count", "parked workers", span.now.parked_count().into())
        .word("stealing", "stealing", if span.now.config.enable_stealing { "on" } else { "off" });
    for pair in &backlogs {
        finding = finding.worker(pair.index());
        if let Some(poll) = &pair.now.in_flight {
            finding = finding.spawned_at(&poll.spawned_at);
        }
    }
    let advice = if !span.now.config.enable_stealing {
        "Enable stealing (Builder::enable_stealing), so that idle workers take tasks from busy ones."
    } else {
        "With stealing on, this state should not last: please report it with the output of `volt-console top --once --json`."
    };
    vec![finding.advice(advice)]
}

/// Returns the workers that were parked nearly all of the time.
fn asleep<'s>(span: &'s Span<'_>) -> Vec<Pair<'s>> {
    span.pairs().filter(|pair| pair.asleep_ratio() >= ASLEEP_RATIO).collect()
}

/// Returns the workers that were busy nearly all of the time and have waiting tasks.
fn backlogs<'s>(span: &'s Span<'_>) -> Vec<Pair<'s>> {
    let is_behind = |pair: &Pair<'_>| {
        let is_stuck = poll_for_ns(pair.now) >= LATE_NS;
        let needed = if is_stuck { 1 } else { BACKLOG_LEN };
        pair.rates.shares.busy_ratio >= BUSY_RATIO && pair.queue_len() >= needed
    };
    span.pairs().filter(is_behind).collect()
}

// ---- global-starved -----------------------------------------------------------------------------

pub(super) fn global_starved_threshold() -> String {
    format!(
        "In both snapshots, the oldest task of the global queue has waited for {TARGETS_MISSED} times the target \
         latency, and for at least {0}. No worker is parked, and polls last less than {0} on average. Less than {1} \
         of the polls were of tasks from the global queue; with more, the runtime is overloaded. The finding is {2} \
         if the task has waited for {3}.",
        duration(LATE_NS),
        percent(GLOBAL_SHARE),
        Severity::Critical.name(),
        duration(GLOBAL_OUTAGE_NS)
    )
}

pub(super) fn global_starved(span: &Span<'_>) -> Vec<Finding> {
    let config = &span.now.config;
    let late_ns = config.target_global_queue_latency_ns.saturating_mul(TARGETS_MISSED).max(LATE_NS);
    let is_late = |snapshot: &Snapshot| {
        snapshot.global_queue.oldest_age_ns.is_some_and(|ns| ns >= late_ns) && snapshot.parked_count() == 0
    };
    let polls = span.grown_of_workers(|worker| worker.polls);
    let fetched = span.grown_of_workers(|worker| worker.global_tasks);
    // Polls that take that long themselves are the subject of another rule.
    let workers = span.pairs().count() as u64;
    let are_stuck = polls.saturating_mul(LATE_NS) <= span.interval_ns().saturating_mul(workers);
    if are_stuck || !span.at_both(is_late) {
        return Vec::new();
    }
    let share = fetched as f64 / polls as f64;
    if share >= GLOBAL_SHARE {
        return Vec::new();
    }
    let age_ns = span.now.global_queue.oldest_age_ns.unwrap_or(0);
    let severity = if age_ns >= GLOBAL_OUTAGE_NS { Severity::Critical } else { Severity::Warning };
    let title = format!(
        "{} in the global queue, the oldest for {}, while the workers run their own tasks",
        wait(span.now.global_queue.len),
        duration(age_ns)
    );
    let intervals = span.pairs().map(|pair| pair.now.global_queue_interval);
    let poll_p99_ns = span.rates.poll_time.p99_ns.unwrap_or(0);
    let finding = Finding::new(Rule::GlobalStarved, severity, title)
        .ns("global_age_ns", "waiting time of the oldest task in the global queue", age_ns)
        .ns("target_ns", "target time between two checks of the queue", config.target_global_queue_latency_ns)
        .count("global_count", "tasks in the global queue", span.now.global_queue.len)
        .ratio("global_ratio", "polls of tasks from the global queue", share)
        .count(
            "interval_polls_count",
            "polls between two checks of the queue, at most",
            intervals.max().unwrap_or(0).into(),
        )
        .ns("poll_p99_ns", "99th percentile of poll durations", poll_p99_ns)
        .advice(
            "Shorten the polls (see `no-yield`). Or check the global queue more often: lower \
             Builder::target_global_queue_latency or the upper bound of Builder::global_queue_interval_bounds. Or take \
             more tasks at each check: raise Builder::global_queue_batch_bounds.",
        );
    vec![finding]
}

// ---- lifo-held ----------------------------------------------------------------------------------

pub(super) fn lifo_held_threshold() -> String {
    format!(
        "A task waits in the LIFO slot of a worker whose poll has lasted {}, while another worker is parked.",
        duration(LIFO_HELD_NS)
    )
}

pub(super) fn lifo_held(case: &Case<'_>) -> Vec<Finding> {
    let now = case.now;
    let mut findings = Vec::new();
    for worker in now.workers.iter().filter(|worker| worker.is_lifo_filled && worker.duty != Duty::Off) {
        let is_another_asleep = |other: &Worker| other.index != worker.index && now.is_parked(other.index as usize);
        let (for_ns, Some(poll)) = (poll_for_ns(worker), &worker.in_flight) else { continue };
        if for_ns < LIFO_HELD_NS || !now.workers.iter().any(is_another_asleep) {
            continue;
        }
        let title = format!(
            "a task waits in the LIFO slot of worker {}, whose poll has lasted {}",
            worker.index,
            duration(for_ns)
        );
        let advice = if now.config.enable_stealing {
            "Keep the sentinel on (Builder::sentinel_interval): it lets other workers take such tasks. See \
             `stalled-poll` for the poll."
        } else {
            "Enable stealing (Builder::enable_stealing), so that other workers can take the task. Or disable the LIFO \
             slot (Builder::max_lifo_polls_per_tick(0))."
        };
        findings.push(
            Finding::new(Rule::LifoHeld, Severity::Warning, title)
                .ns("poll_for_ns", "duration of the poll so far", for_ns)
                .count("ring_count", "tasks in the worker's other queues", queue_len(worker).into())
                .count("parked_count", "parked workers", now.parked_count().into())
                .word("stealing", "stealing", if now.config.enable_stealing { "on" } else { "off" })
                .worker(worker.index)
                .task(poll.task_id, poll.task_name.as_deref())
                .spawned_at(&poll.spawned_at)
                .advice(advice),
        );
    }
    findings
}

// ---- lifo-monopoly ------------------------------------------------------------------------------

pub(super) fn lifo_monopoly_threshold() -> String {
    format!(
        "{} of a worker's polls (at least {LIFO_POLLS_MIN} polls) are of tasks from its LIFO slot. Meanwhile, tasks \
         wait in its other queues in both snapshots, and one of them waited for {} or longer.",
        percent(LIFO_SHARE),
        duration(FELT_NS)
    )
}

pub(super) fn lifo_monopoly(span: &Span<'_>) -> Vec<Finding> {
    let config = &span.now.config;
    let mut findings = Vec::new();
    for pair in span.pairs() {
        let (polls, hits) = (pair.grown(|worker| worker.polls), pair.grown(|worker| worker.lifo_hits));
        let share = hits as f64 / polls.max(1) as f64;
        let longest_ns = pair.rates.schedule_delay.max_ns.unwrap_or(0);
        let is_felt = longest_ns >= FELT_NS;
        if polls < LIFO_POLLS_MIN || share < LIFO_SHARE || pair.queue_len() == 0 || !is_felt {
            continue;
        }
        let title = format!(
            "{} of the polls of worker {} are of tasks from its LIFO slot, while {} in its other queues",
            percent(share),
            pair.index(),
            wait(pair.queue_len().into())
        );
        let mut finding = Finding::new(Rule::LifoMonopoly, Severity::Warning, title)
            .ratio("lifo_ratio", "polls of tasks from the LIFO slot", share)
            .count("waiting_count", "tasks in its other queues, lower of the two snapshots", pair.queue_len().into())
            .ns("longest_delay_ns", "longest wait of a task there", longest_ns)
            .count("lifo_cap_count", "allowed polls from the slot per tick", config.max_lifo_polls_per_tick.into())
            .worker(pair.index())
            .advice("Lower Builder::max_lifo_polls_per_tick; the default of 3 is enough for a request and its reply.");
        if let Some(poll) = &pair.now.in_flight {
            finding = finding.spawned_at(&poll.spawned_at);
        }
        findings.push(finding);
    }
    findings
}

// ---- imbalance ----------------------------------------------------------------------------------

pub(super) fn imbalance_threshold() -> String {
    format!(
        "The busy time of one worker exceeds that of another by {} of the interval, and the busier one has \
         {IMBALANCE_LEN} tasks in its queues in both snapshots. Stuck workers do not count. The rule does not fire \
         together with `parked-while-backlog`, or if the machine keeps workers from running.",
        percent(IMBALANCE_RATIO)
    )
}

pub(super) fn imbalance(span: &Span<'_>) -> Vec<Finding> {
    if !parked_while_backlog(span).is_empty() || machine::is_to_blame(span) {
        return Vec::new();
    }
    let busy = |pair: &Pair<'_>| pair.rates.shares.busy_ratio;
    // A worker that is stuck in a poll, or blocks, takes no tasks, however little it does.
    let takes_tasks = |pair: &Pair<'_>| [pair.then, pair.now].iter().all(|worker| worker.duty == Duty::Present);
    let Some(least) = span.pairs().filter(takes_tasks).map(|pair| busy(&pair)).reduce(f64::min) else {
        return Vec::new();
    };
    let behind: Vec<_> = span
        .pairs()
        .filter(|pair| busy(pair) - least >= IMBALANCE_RATIO && pair.queue_len() >= IMBALANCE_LEN)
        .collect();
    let Some(most) = behind.iter().map(busy).reduce(f64::max) else { return Vec::new() };
    let waiting: u64 = behind.iter().map(|pair| u64::from(pair.queue_len())).fold(0, u64::saturating_add);
    let title = format!(
        "{} at workers that are busy for {} of the time, while other workers are busy for {}",
        wait(waiting),
        percent(most),
        percent(least)
    );
    let mut finding = Finding::new(Rule::Imbalance, Severity::Warning, title)
        .ratio("most_busy_ratio", "time that the busiest worker is busy", most)
        .ratio("least_busy_ratio", "time that the least busy worker is busy", least)
        .count("backlog_count", "tasks waiting at the busy workers, lower of the two snapshots", waiting)
        .rate("stolen_per_second", "tasks stolen", span.rates.tasks_stolen_per_second)
        .word("stealing", "stealing", if span.now.config.enable_stealing { "on" } else { "off" });
    for pair in &behind {
        finding = finding.worker(pair.index());
        if let Some(poll) = &pair.now.in_flight {
            finding = finding.spawned_at(&poll.spawned_at);
        }
    }
    let advice = if span.now.config.enable_stealing {
        "Spawn such tasks from several tasks, or from outside the workers (Handle::spawn), instead of from one task."
    } else {
        "Enable stealing (Builder::enable_stealing), so that idle workers take tasks from busy ones."
    };
    vec![finding.advice(advice)]
}
