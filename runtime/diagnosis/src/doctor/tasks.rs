//! Rules about tasks and jobs that pile up.

use std::cmp::Reverse;

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::text::{counted, duration, percent};

use super::case::Span;
use super::describe::{Describe, spawned};
use super::growth::{Growth, LEAK_ENDED_RATIO, LEAK_GROWN_MIN, LONG_NS, LONG_START_NS, Leak, SHORT_NS, START_NS};

/// Findings of this rule that are told of one runtime.
const LEAKS_MAX: usize = 16;

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

pub(super) fn are_alive_told(snapshot: &Snapshot) -> bool {
    snapshot.tasks.spawned == 0 || snapshot.blame.iter().any(|blame| blame.alive.is_some())
}

pub(super) fn task_leak_threshold() -> String {
    format!(
        "the tasks alive of one spawn location grow by {LEAK_GROWN_MIN} or more, at every check: over {}, or over {} if \
         less than {} as many tasks end as are spawned; until it is half of that. Warning; {} if the growth may \
         belong to the start: in the long window if it began in the first {} s of the runtime, in the short window if \
         it began in the first {} s",
        duration(LONG_NS),
        duration(SHORT_NS),
        percent(LEAK_ENDED_RATIO),
        Severity::Info.name(),
        LONG_START_NS / 1_000_000_000,
        START_NS / 1_000_000_000,
    )
}

pub(super) fn task_leak(growth: &Growth) -> Vec<Finding> {
    let mut findings: Vec<_> = growth.leaks().iter().map(of_leak).collect();
    findings.sort_by_key(|finding| (Reverse(finding.severity), Reverse(finding.figure("grown_count"))));
    findings.truncate(LEAKS_MAX);
    findings
}

fn of_leak(leak: &Leak) -> Finding {
    let severity = if leak.is_at_start { Severity::Info } else { Severity::Warning };
    let per_second = leak.grown as f64 * 1e9 / leak.over_ns.max(1) as f64;
    let title = format!("{} {} are alive, {per_second:.0} more a second", leak.alive, spawned(&leak.spawned_at));
    Finding::new(Rule::TaskLeak, severity, title)
        .count("alive_count", "tasks of that place that are alive", leak.alive)
        .count("grown_count", "more than before", leak.grown)
        .ns("over_ns", "within", leak.over_ns)
        .rate("grown_per_second", "growth", per_second)
        .spawned_at(&leak.spawned_at)
        .advice(
            "See what they wait for (`volt-console tasks`): a channel whose other end is kept, a connection without a \
             time-out, a loop without an end. Abort tasks that nobody needs, and bound how many there may be.",
        )
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
