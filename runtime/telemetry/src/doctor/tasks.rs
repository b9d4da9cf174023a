//! Rules about tasks and jobs that pile up.

use super::case::Span;
use super::finding::{Finding, Severity, counted, duration, percent, spawned};
use super::rule::Rule;
use crate::incident::Blame;
use crate::rates::local_queue_len;
use crate::snapshot::Snapshot;

/// Fewer tasks alive than this are a program's own business.
const LEAK_ALIVE_MIN: u64 = 1_000;
/// Spawns a second below which growth is slow enough to wait for a longer look.
const LEAK_SPAWNED_PER_SECOND: f64 = 100.0;
/// Of what is spawned, what may end.
const LEAK_ENDED_RATIO: f64 = 0.05;
/// Over less time, tasks that wait for their turn look like tasks that stay.
const LEAK_INTERVAL_NS: u64 = 1_000_000_000;
/// Until then a program may still be starting, and what it starts may stay on purpose.
const START_NS: u64 = 60_000_000_000;

// ---- blocking-pool-saturated ---------------------------------------------------------------------------------------

pub(super) fn blocking_pool_saturated_threshold() -> String {
    format!(
        "at both looks jobs wait and every thread that is allowed is in use; {} if none was done in between",
        Severity::Critical.name()
    )
}

pub(super) fn blocking_pool_saturated(span: &Span<'_>) -> Vec<Finding> {
    let is_full = |snapshot: &Snapshot| {
        let pool = &snapshot.blocking;
        pool.queue_len > 0 && pool.idle_threads == 0 && pool.threads >= pool.max_threads && pool.max_threads > 0
    };
    if !span.at_both(is_full) {
        return Vec::new();
    }
    let pool = &span.now.blocking;
    let done = span.grown(|snapshot| snapshot.blocking.completed);
    let severity = if done == 0 { Severity::Critical } else { Severity::Warning };
    let threads = counted(pool.threads, "thread");
    let title = format!("{} wait for one of {threads} for blocking work, all in use", counted(pool.queue_len, "job"));
    let mut finding = Finding::new(Rule::BlockingPoolSaturated, severity, title)
        .count("queue_len", "jobs that wait", pool.queue_len)
        .count("threads_count", "threads, all in use", pool.threads)
        .count("max_threads", "threads that are allowed", pool.max_threads)
        .rate("completed_per_second", "jobs done", span.per_second(done))
        .rate("submitted_per_second", "jobs handed in", span.rates.blocking_submitted_per_second);
    if let Some(wait_ns) = pool.queue_len.saturating_mul(span.interval_ns()).checked_div(done) {
        finding = finding.ns("wait_ns", "a job that comes now waits for about", wait_ns);
    }
    let advice = if done == 0 {
        "No job ended between the looks: they wait for something, perhaps for jobs behind them. Look at what they do; \
         raise Builder::max_blocking_threads only if each does end."
    } else {
        "Raise Builder::max_blocking_threads if the jobs wait for something; if they compute, hand in fewer at a time."
    };
    vec![finding.advice(advice)]
}

// ---- task-leak -----------------------------------------------------------------------------------------------------

pub(super) fn task_leak_threshold() -> String {
    format!(
        "over {} at least {LEAK_SPAWNED_PER_SECOND} tasks a second are spawned, less than {} as many end or wait in \
         queues, and {LEAK_ALIVE_MIN} live; {} in the first {} of a runtime, when it may still be starting, {} after",
        duration(LEAK_INTERVAL_NS),
        percent(LEAK_ENDED_RATIO),
        Severity::Info.name(),
        duration(START_NS),
        Severity::Warning.name()
    )
}

pub(super) fn task_leak(span: &Span<'_>) -> Vec<Finding> {
    let now = span.now;
    let spawned = span.grown(|snapshot| snapshot.tasks.spawned);
    let alive_before = span.then.tasks.alive;
    let queued = now.global_queue.len.saturating_add(local_queue_len(now));
    let grown = now.tasks.alive.saturating_sub(alive_before).saturating_sub(queued);
    let ended = spawned.saturating_sub(grown);
    let is_growing = span.interval_ns() >= LEAK_INTERVAL_NS
        && span.per_second(spawned) >= LEAK_SPAWNED_PER_SECOND
        && now.tasks.alive >= LEAK_ALIVE_MIN;
    let ratio = ended as f64 / spawned.max(1) as f64;
    if !is_growing || ratio >= LEAK_ENDED_RATIO {
        return Vec::new();
    }
    let age_ns = now.at_ns.saturating_sub(now.started_at_ns);
    let severity = if age_ns < START_NS { Severity::Info } else { Severity::Warning };
    let title = format!(
        "{} live, {:.0} more a second, and hardly any ends",
        counted(now.tasks.alive, "task"),
        span.per_second(grown)
    );
    let mut finding = Finding::new(Rule::TaskLeak, severity, title)
        .count("alive_count", "tasks that live", now.tasks.alive)
        .rate("spawned_per_second", "spawned", span.per_second(spawned))
        .rate("ended_per_second", "ended", span.per_second(ended))
        .ns("age_ns", "the runtime was built before this look by", age_ns)
        .advice(
            "Find where they are spawned and what they wait for: a channel whose other end is kept, a connection \
             without a time-out, a loop without an end. Abort tasks that nobody needs, and bound how many there may \
             be.",
        );
    let growth = |now: &Blame| {
        let then = span.then.blame.iter().find(|then| then.spawned_at == now.spawned_at);
        Some(now.alive?.saturating_sub(then.map_or(Some(0), |then| then.alive)?))
    };
    // The one place that grows most, if places are known.
    let worst = now.blame.iter().filter_map(|blame| Some((growth(blame)?, blame))).max_by_key(|(growth, _)| *growth);
    if let Some((growth @ 1.., blame)) = worst {
        finding = finding
            .count("worst_grown_count", "of the growth, tasks of the place that grew most", growth)
            .spawned_at(&blame.spawned_at);
    }
    vec![finding]
}

// ---- lost-waker ----------------------------------------------------------------------------------------------------

pub(super) fn are_stranded_told(snapshot: &Snapshot) -> bool {
    snapshot.tasks.spawned == 0 || snapshot.blame.iter().any(|blame| blame.stranded.is_some())
}

pub(super) fn lost_waker_threshold() -> String {
    "at both looks a spawn location has tasks that wait and of which no waker is left".to_owned()
}

pub(super) fn lost_waker(span: &Span<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for now in &span.now.blame {
        let then = span.then.blame.iter().find(|then| then.spawned_at == now.spawned_at);
        let (Some(stranded @ 1..), Some(1..)) = (now.stranded, then.and_then(|then| then.stranded)) else { continue };
        let title = format!("{stranded} of the {} wait, and nothing can wake them", spawned(&now.spawned_at));
        let mut finding = Finding::new(Rule::LostWaker, Severity::Warning, title).count(
            "stranded_count",
            "tasks that wait without a waker",
            stranded,
        );
        if let Some(alive) = now.alive {
            finding = finding.count("alive_count", "tasks of that place that live", alive);
        }
        findings.push(finding.spawned_at(&now.spawned_at).advice(
            "A future returned Pending without keeping the waker, or what kept it was dropped (a channel's sender that \
             was forgotten, a timer, a registration). Keep `cx.waker().clone()` before returning Pending; a task that \
             waits for ever on purpose is better aborted.",
        ));
    }
    findings
}
