//! Rules about effort that runs no task: futile steals, wake-ups for little work, and polling for
//! nothing.

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::incident::Blame;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Snapshot, Worker};
use volt_telemetry::text::{duration, percent};

use super::case::Span;
use super::describe::{Describe, spawned};
use super::machine;

/// Lost races per second. A retry takes some 100 ns, so fewer cost less than a hundredth of a
/// processor. If the kernel interrupts one thief between its two steps, the others lose several
/// thousand races within a moment.
const RACES_PER_SECOND: f64 = 100_000.0;
/// The share of attempts that found tasks but lost them to another worker: most.
const RACES_RATIO: f64 = 0.5;
/// The cost of waking a parked worker, for both threads together, ns. It consists of two
/// transitions through the kernel, a thread switch, and cold caches, with which even the shortest
/// poll takes some µs. Measured on an ordinary x86-64 machine.
const WAKE_COST_NS: u64 = 10_000;
/// Wake-ups per second that cost a tenth of a processor.
const WAKES_PER_SECOND: f64 = 10_000.0;
/// Polls per second in which a task woke itself. A task that does useful work in between does not
/// reach this rate.
const SELF_WAKES_PER_SECOND: f64 = 10_000.0;
/// The share of a location's polls in which the task woke itself: all but a few.
const SELF_WAKES_RATIO: f64 = 0.9;
/// A poll shorter than this, on average, has only checked whether it can proceed.
const EMPTY_POLL_NS: u64 = 10_000;

// ---- steal-contention ---------------------------------------------------------------------------

pub(super) fn steal_contention_threshold() -> String {
    format!(
        "{RACES_PER_SECOND} steal attempts per second lose a race, and they are {} of the attempts that found tasks. \
         The rule does not fire if the machine keeps workers from running, because an interrupted thief delays the \
         others.",
        percent(RACES_RATIO)
    )
}

pub(super) fn steal_contention(span: &Span<'_>) -> Vec<Finding> {
    let lost = span.grown_of_workers(|worker| worker.steal_races_lost);
    let won = span.grown_of_workers(|worker| worker.steals);
    let ratio = lost as f64 / lost.saturating_add(won).max(1) as f64;
    let lost_per_second = span.per_second(lost);
    if lost_per_second < RACES_PER_SECOND || ratio < RACES_RATIO || machine::is_to_blame(span) {
        return Vec::new();
    }
    let title = format!(
        "{} of the steal attempts that find tasks lose a race with another worker, {lost_per_second:.0} per second",
        percent(ratio)
    );
    let finding = Finding::new(Rule::StealContention, Severity::Warning, title)
        .rate("races_lost_per_second", "steal attempts that lost a race", lost_per_second)
        .rate("steals_per_second", "successful steal attempts", span.per_second(won))
        .ratio("lost_ratio", "lost share of the attempts that found tasks", ratio)
        .ratio("searching_ratio", "time that workers spend searching for work", span.rates.shares.searching_ratio)
        .advice(
            "Use fewer workers or larger tasks: many workers steal from the few that spawn. Spawning from outside the \
             workers (Handle::spawn) spreads tasks through the global queue, in batches.",
        );
    vec![finding]
}

// ---- wake-storm ---------------------------------------------------------------------------------

pub(super) fn wake_storm_threshold() -> String {
    format!(
        "Workers are woken {WAKES_PER_SECOND} times per second. At a cost of {} each, the wake-ups take longer than \
         all polls together.",
        duration(WAKE_COST_NS)
    )
}

pub(super) fn wake_storm(span: &Span<'_>) -> Vec<Finding> {
    let woken = span.grown_of_workers(|worker| worker.unparks.notified);
    let woken_per_second = span.per_second(woken);
    let polls = span.grown_of_workers(|worker| worker.polls);
    let polled_ns = span.grown_of_workers(|worker| worker.poll_time.sum_ns());
    let cost_ns = woken.saturating_mul(WAKE_COST_NS);
    if woken_per_second < WAKES_PER_SECOND || cost_ns <= polled_ns {
        return Vec::new();
    }
    let title = format!(
        "workers are woken {woken_per_second:.0} times per second and then poll {:.1} tasks on average, which takes \
         less time than the wake-up",
        polls as f64 / woken as f64
    );
    let finding = Finding::new(Rule::WakeStorm, Severity::Warning, title)
        .rate("wakes_per_second", "wake-ups of workers", woken_per_second)
        .rate("polls_per_second", "polls", span.rates.polls_per_second)
        .ns("wakes_cost_ns", "approximate cost of the wake-ups", cost_ns)
        .ns("polls_ns", "duration of all polls", polled_ns)
        .rate("injected_per_second", "tasks spawned or woken from other threads", span.rates.injected_per_second)
        .advice(
            "Submit work in larger pieces: spawn one task that spawns the others, wake once for several messages, or \
             make the producer a task of the same runtime. Fewer workers help too.",
        );
    vec![finding]
}

// ---- self-wake-loop -----------------------------------------------------------------------------

pub(super) fn are_self_wakes_reported(snapshot: &Snapshot) -> bool {
    snapshot.blame.iter().any(|blame| blame.self_wakes.is_some())
        || snapshot.workers.iter().any(|worker| worker.self_wakes.is_some())
}

pub(super) fn self_wake_loop_threshold() -> String {
    format!(
        "Tasks of one spawn location wake themselves in {SELF_WAKES_PER_SECOND} polls per second, and in {} of all \
         their polls. Their polls take less than {} on average.",
        percent(SELF_WAKES_RATIO),
        duration(EMPTY_POLL_NS)
    )
}

pub(super) fn self_wake_loop(span: &Span<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for now in &span.now.blame {
        let unseen = Blame { self_wakes: Some(0), ..Blame::default() };
        let then = span.then.blame.iter().find(|then| then.spawned_at == now.spawned_at).unwrap_or(&unseen);
        let (Some(self_then), Some(self_now)) = (then.self_wakes, now.self_wakes) else { continue };
        let polls = now.polls.saturating_sub(then.polls);
        let busy_ns = now.busy_ns.saturating_sub(then.busy_ns);
        let looped = Looped { polls, self_wakes: self_now.saturating_sub(self_then), busy_ns };
        let who = spawned(&now.spawned_at);
        findings.extend(looped.finding(span, &who).map(|finding| finding.spawned_at(&now.spawned_at)));
    }
    if !findings.is_empty() || !span.now.blame.is_empty() {
        return findings;
    }
    // Without counts by location, use the counts of each worker and its current task.
    for pair in span.pairs() {
        let Some(self_wakes) = pair.grown_if_known(|worker: &Worker| worker.self_wakes) else { continue };
        let busy_ns = pair.grown(|worker| worker.poll_time.sum_ns());
        let looped = Looped { polls: pair.grown(|worker| worker.polls), self_wakes, busy_ns };
        let Some(mut finding) = looped.finding(span, &format!("tasks on worker {}", pair.index())) else { continue };
        if let Some(poll) = &pair.now.in_flight {
            finding = finding.task(poll.task_id, poll.task_name.as_deref()).spawned_at(&poll.spawned_at);
        }
        findings.push(finding.worker(pair.index()));
    }
    findings
}

/// Polls of one location or worker between the snapshots.
struct Looped {
    polls: u64,
    self_wakes: u64,
    busy_ns: u64,
}

impl Looped {
    fn finding(&self, span: &Span<'_>, who: &str) -> Option<Finding> {
        let per_second = span.per_second(self.self_wakes);
        let ratio = self.self_wakes as f64 / self.polls.max(1) as f64;
        let mean_ns = self.busy_ns.checked_div(self.polls)?;
        if per_second < SELF_WAKES_PER_SECOND || ratio < SELF_WAKES_RATIO || mean_ns >= EMPTY_POLL_NS {
            return None;
        }
        let title = format!("{who} wake themselves {per_second:.0} times per second and do almost no work in between");
        let finding = Finding::new(Rule::SelfWakeLoop, Severity::Warning, title)
            .rate("self_wakes_per_second", "polls that ended with the task waking itself", per_second)
            .ratio("self_wakes_ratio", "share of all their polls", ratio)
            .ns("mean_poll_ns", "mean poll", mean_ns)
            .advice(
                "Wake the task only when the state it waits for changes: store its waker, or use a channel or a timer. \
                 Do not call wake_by_ref or yield_now in a loop that only checks a condition.",
            );
        Some(finding)
    }
}
