//! Rules about tasks and jobs that accumulate.

use std::cmp::Reverse;

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::listing::order;
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::text::{counted, duration, percent};
use volt_telemetry::waits::awaited;

use super::case::Span;
use super::describe::{Describe, spawned};
use super::growth::{Growth, LEAK_ENDED_RATIO, LEAK_GROWN_MIN, LONG_NS, LONG_START_NS, Leak, MANY, SHORT_NS, START_NS};

/// Maximum number of findings of `task-leak` per runtime.
const LEAKS_MAX: usize = 16;

// ---- blocking-pool-saturated --------------------------------------------------------------------

pub(super) fn blocking_pool_saturated_threshold() -> String {
    format!(
        "In both snapshots, jobs wait and all allowed blocking threads are in use. The finding is {} if no job \
         completed in between.",
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
    let threads = counted(pool.threads, "blocking thread");
    let jobs = if pool.queue_len == 1 { "1 job waits".to_owned() } else { format!("{} jobs wait", pool.queue_len) };
    let title = format!("{jobs} for one of {threads}, all in use");
    let mut finding = Finding::new(Rule::BlockingPoolSaturated, severity, title)
        .count("queue_len", "waiting jobs", pool.queue_len)
        .count("threads_count", "blocking threads, all in use", pool.threads)
        .count("max_threads", "allowed blocking threads", pool.max_threads)
        .rate("completed_per_second", "completed jobs", span.per_second(done))
        .rate("submitted_per_second", "submitted jobs", span.rates.blocking_submitted_per_second);
    if let Some(wait_ns) = pool.queue_len.saturating_mul(span.interval_ns()).checked_div(done) {
        finding = finding.ns("wait_ns", "expected wait of a new job", wait_ns);
    }
    let advice = if done == 0 {
        "No job completed between the snapshots: the jobs wait for something, perhaps for jobs behind them in the \
         queue. Check what they wait for. Raise Builder::max_blocking_threads only if each job does complete."
    } else {
        "Raise Builder::max_blocking_threads if the jobs wait for something. If they compute, submit fewer at a time."
    };
    vec![finding.advice(advice)]
}

// ---- task-leak ----------------------------------------------------------------------------------

pub(super) fn are_alive_reported(snapshot: &Snapshot) -> bool {
    snapshot.tasks.spawned == 0 || snapshot.blame.iter().any(|blame| blame.alive.is_some())
}

pub(super) fn task_leak_threshold() -> String {
    format!(
        "The live tasks of one spawn location grow by {LEAK_GROWN_MIN} or more over {}, at every check. Or they grow \
         like this over {}, while less than {} as many tasks end as are spawned. The rule stops firing at half of that \
         growth. The finding is {} if the growth may belong to the start-up of the runtime: if the long window begins \
         in the first {} s of the runtime, or, for the short window, if the growth began in the first {} s, unless \
         the growth has lasted for {} s and {MANY} tasks are alive.",
        duration(LONG_NS),
        duration(SHORT_NS),
        percent(LEAK_ENDED_RATIO),
        Severity::Info.name(),
        LONG_START_NS / 1_000_000_000,
        START_NS / 1_000_000_000,
        START_NS / 1_000_000_000,
    )
}

pub(super) fn task_leak(growth: &Growth) -> Vec<Finding> {
    let mut findings: Vec<_> = growth.leaks().iter().map(of_leak).collect();
    order::sort_by_key(&mut findings, |finding| (Reverse(finding.severity), Reverse(finding.figure("grown_count"))));
    findings.truncate(LEAKS_MAX);
    findings
}

fn of_leak(leak: &Leak) -> Finding {
    let severity = if leak.is_at_start { Severity::Info } else { Severity::Warning };
    let per_second = leak.grown as f64 * 1e9 / leak.over_ns.max(1) as f64;
    let mut title = format!("{} {} are alive, {per_second:.0} more per second", leak.alive, spawned(&leak.spawned_at));
    let main = leak.main_await.as_ref();
    if let Some(main) = main {
        title += &match main.awaits.as_str() {
            // Of a task, the location is that of its spawn.
            "others" => format!("; at least half await other tasks ({})", main.awaits_at),
            _ => format!("; at least half await {} at {}", awaited(&main.awaits), main.awaits_at),
        };
    }
    let mut finding = Finding::new(Rule::TaskLeak, severity, title)
        .count("alive_count", "live tasks of this spawn location", leak.alive)
        .count("grown_count", "live tasks added", leak.grown)
        .ns("over_ns", "measured over", leak.over_ns)
        .rate("grown_per_second", "rate of growth", per_second);
    if let Some(main) = main {
        finding = finding
            .word("awaits", "at least half of them await", awaited(&main.awaits))
            .word("awaits_at", "location of that await, or of the spawn of the awaited task", &main.awaits_at)
            .count("awaiting_count", "tasks that await this", main.tasks);
    }
    finding.spawned_at(&leak.spawned_at).advice(leak_advice(main.map(|main| main.awaits.as_str())))
}

/// Returns what to do about a leak of tasks that await this.
fn leak_advice(awaits: Option<&str>) -> &'static str {
    match awaits {
        Some("room") => {
            "The channel is full: the tasks send more messages than its receiver processes, or the receiver is stuck. \
             `volt-console dump` shows the receiver and what it waits for. Make it faster, or limit the number of tasks \
             that send."
        }
        Some("message") => {
            "The channels from which they receive still have senders. `volt-console dump` shows the channels. Drop the \
             senders when no more messages will come, or abort the tasks that are no longer needed."
        }
        Some("lock" | "permits") => {
            "New tasks arrive faster than the lock or the permits are released, or the holder is stuck. `volt-console \
             dump` shows the holder and what it waits for. Hold it for a shorter time, or limit the number of tasks."
        }
        Some("others") => {
            "They wait for the end of other tasks, for a barrier, or for a value that another task sets. `volt-console \
             dump` shows what those tasks wait for. Abort tasks that are no longer needed."
        }
        Some("value" | "notice") => {
            "The sender, or the task that is to notify them, still exists. `volt-console dump` shows what they wait \
             for. Limit the wait by a time-out, or abort the tasks that are no longer needed."
        }
        _ => {
            "Check what they wait for (`volt-console dump`): a channel whose other end stays open, a connection without \
             a time-out, an endless loop. Abort tasks that are no longer needed, and limit their number."
        }
    }
}

// ---- lost-waker ---------------------------------------------------------------------------------

pub(super) fn are_stranded_reported(snapshot: &Snapshot) -> bool {
    snapshot.tasks.spawned == 0 || snapshot.blame.iter().any(|blame| blame.stranded.is_some())
}

pub(super) fn lost_waker_threshold() -> String {
    "In both snapshots, a spawn location has waiting tasks that have no waker left.".to_owned()
}

pub(super) fn lost_waker(span: &Span<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for now in &span.now.blame {
        let then = span.then.blame.iter().find(|then| then.spawned_at == now.spawned_at);
        let (Some(stranded @ 1..), Some(1..)) = (now.stranded, then.and_then(|then| then.stranded)) else { continue };
        let waits = if stranded == 1 { "waits" } else { "wait" };
        let title = format!("{stranded} of the {} {waits} without a waker", spawned(&now.spawned_at));
        let mut finding = Finding::new(Rule::LostWaker, Severity::Warning, title).count(
            "stranded_count",
            "waiting tasks without a waker",
            stranded,
        );
        if let Some(alive) = now.alive {
            finding = finding.count("alive_count", "live tasks of this spawn location", alive);
        }
        findings.push(finding.spawned_at(&now.spawned_at).advice(
            "A future returned Pending without storing the waker, or the owner of the waker was dropped or forgotten (a \
             channel's sender, a timer, a registration). Store `cx.waker().clone()` before returning Pending. If a \
             task is meant to wait forever, abort it when it is no longer needed.",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use volt_telemetry::incident::MainAwait;

    use super::*;

    #[test]
    fn a_leak_has_the_spawn_location_of_an_awaited_task() {
        let of = |awaits: &str| {
            let main = MainAwait { awaits: awaits.into(), awaits_at: "src/b.rs:7:9".into(), tasks: 900 };
            let (spawned_at, main_await) = ("src/a.rs:3:5".to_owned(), Some(main));
            of_leak(&Leak { spawned_at, alive: 1_000, grown: 1_000, over_ns: LONG_NS, is_at_start: false, main_await })
        };
        let [lock, task] = ["lock", "others"].map(of);
        assert!(lock.title.ends_with("; at least half await a lock at src/b.rs:7:9"), "{}", lock.title);
        assert!(task.title.ends_with("; at least half await other tasks (src/b.rs:7:9)"), "{}", task.title);
        assert!(lock.advice.contains("the holder") && task.advice.contains("those tasks"), "{}", task.advice);
    }
}
