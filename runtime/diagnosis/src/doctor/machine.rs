//! Rules about what the machine provides and withholds: processors, quota, time.

use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::incident::{Cause, Incident};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{Snapshot, Worker};
use volt_telemetry::text::{counted, duration, percent};

use super::case::{Pair, Span};
use super::describe::Describe;

/// A worker that waits for a processor for a quarter of the time, and longer than it runs, gets
/// less than half of the processor time that it could use.
pub(super) const STARVED_RATIO: f64 = 0.25;
/// A worker that waits this long is badly starved: half of the time.
const STARVED_BADLY_RATIO: f64 = 0.5;
/// A worker that runs, or waits to run, for half of the time needs its own processor.
const WANTING_RATIO: f64 = 0.5;
/// The share of all processor time that the workers together must get for their number to be the
/// reason for the shortage. If they get less, other programs take the time. The share is not
/// higher, since there may be too many workers beside other programs as well.
const OWN_RATIO: f64 = 0.25;
/// Time for which the quota stopped the program, summed over processors, as a share of the time:
/// one request in twenty is affected.
const THROTTLED_RATIO: f64 = 0.05;
/// The same for a critical finding: a quarter of the time.
const THROTTLED_BADLY_RATIO: f64 = 0.25;

/// Returns whether the machine explains that the whole runtime is late.
pub(super) fn is_to_blame(span: &Span<'_>) -> bool {
    pauses(span) > 0 || starved(span).next().is_some() || throttled(span).is_some()
}

/// Returns the incidents with this cause that were in progress at some time between the snapshots.
fn incidents<'s>(span: &'s Span<'_>, cause: Cause) -> impl Iterator<Item = &'s Incident> {
    let since_ns = span.then.at_ns;
    span.now.incidents.latest.iter().filter(move |incident| {
        let ended_at_ns = incident.began_at_ns.saturating_add(incident.for_ns);
        incident.cause == cause && (!incident.is_over || ended_at_ns >= since_ns)
    })
}

// ---- cpu-starved, oversubscribed ----------------------------------------------------------------

/// Returns the workers that waited for a processor, with the share of the time.
fn starved<'s>(span: &'s Span<'_>) -> impl Iterator<Item = (Pair<'s>, f64)> {
    span.pairs().filter_map(|pair| {
        let waited_ns = pair.grown_if_known(|worker| worker.run_delay_ns)?;
        let ran_ns = pair.grown_if_known(|worker| worker.cpu_ns)?;
        let ratio = span.share(waited_ns).min(1.0);
        (ratio >= STARVED_RATIO && waited_ns > ran_ns).then_some((pair, ratio))
    })
}

/// Returns the time in which workers had a processor, as a share of the time in which they needed
/// one. Returns 1 if this is unknown.
pub(super) fn running_ratio(span: &Span<'_>) -> f64 {
    let sum_ns = |of: fn(&Worker) -> Option<u64>| {
        span.pairs().filter_map(|pair| pair.grown_if_known(of)).fold(0, u64::saturating_add)
    };
    let (ran_ns, waited_ns) = (sum_ns(|worker| worker.cpu_ns), sum_ns(|worker| worker.run_delay_ns));
    if ran_ns == 0 { 1.0 } else { ran_ns as f64 / ran_ns.saturating_add(waited_ns) as f64 }
}

/// Returns how many workers that were active at both snapshots used a processor, or waited for one,
/// most of the time. Spare workers do not count: they are active only while another worker is
/// stuck.
fn wanting(span: &Span<'_>) -> u32 {
    let wants = |pair: &Pair<'_>| {
        let waited_ns = pair.grown_if_known(|worker| worker.run_delay_ns).unwrap_or(0);
        let ran_ns = pair.grown_if_known(|worker| worker.cpu_ns).unwrap_or(0);
        !pair.now.is_spare && span.share(waited_ns.saturating_add(ran_ns)) >= WANTING_RATIO
    };
    span.pairs().filter(wants).count() as u32
}

/// Returns the number of processors, if more workers need one than there are, and the workers get a
/// significant share of them.
fn oversubscription(span: &Span<'_>) -> Option<u32> {
    let processors = span.now.host.as_ref()?.processors;
    let ran_ns: u64 =
        span.pairs().filter_map(|pair| pair.grown_if_known(|worker| worker.cpu_ns)).fold(0, u64::saturating_add);
    let own_ratio = span.share(ran_ns) / f64::from(processors.max(1));
    (wanting(span) > processors && own_ratio >= OWN_RATIO).then_some(processors)
}

pub(super) fn is_run_delay_reported(snapshot: &Snapshot) -> bool {
    snapshot.workers.iter().any(|worker| worker.run_delay_ns.is_some() && worker.cpu_ns.is_some())
}

pub(super) fn cpu_starved_threshold() -> String {
    format!(
        "A worker waits for a processor for {} of the time, and longer than it runs. The finding is {} from {} on. The \
         rule does not fire if there are more busy workers than processors, or if the CPU quota is used up.",
        percent(STARVED_RATIO),
        Severity::Critical.name(),
        percent(STARVED_BADLY_RATIO)
    )
}

pub(super) fn cpu_starved(span: &Span<'_>) -> Vec<Finding> {
    if oversubscription(span).is_some() || throttled(span).is_some() {
        return Vec::new();
    }
    let advice = "Stop or move other programs on this machine, give this program a higher priority or its own \
        processors, or add processors. Within the program, use fewer busy threads.";
    waiting_for_a_processor(span, Rule::CpuStarved, |worst| {
        format!(
            "a worker waited for a processor for {} of the time, while the kernel ran other threads",
            percent(worst)
        )
    })
    .map(|finding| {
        let unscheduled = incidents(span, Cause::NotScheduled).count() as u64;
        finding.count("not_scheduled_count", "polls stuck for this reason", unscheduled).advice(advice)
    })
    .into_iter()
    .collect()
}

pub(super) fn are_processors_reported(snapshot: &Snapshot) -> bool {
    snapshot.host.is_some() && is_run_delay_reported(snapshot)
}

pub(super) fn oversubscribed_threshold() -> String {
    format!(
        "There are more workers that need a processor for {} of the time than processors; spare workers do not count. \
         Together they get at least {} of the processor time; with less, other programs take it. One of them waits \
         for a processor for {} of the time, and longer than it runs. The finding is {} from {}.",
        percent(WANTING_RATIO),
        percent(OWN_RATIO),
        percent(STARVED_RATIO),
        Severity::Critical.name(),
        percent(STARVED_BADLY_RATIO)
    )
}

pub(super) fn oversubscribed(span: &Span<'_>) -> Vec<Finding> {
    let Some(processors) = oversubscription(span) else { return Vec::new() };
    if throttled(span).is_some() {
        return Vec::new();
    }
    let wanting = wanting(span);
    let advice = format!(
        "Set Builder::worker_threads to {processors}, or to 0 for one worker per processor. Move computations that must \
         run beside requests to another program."
    );
    waiting_for_a_processor(span, Rule::Oversubscribed, |worst| {
        let processors = counted(processors.into(), "processor");
        format!(
            "{wanting} busy workers share {processors} and wait for each other for up to {} of the time",
            percent(worst)
        )
    })
    .map(|finding| {
        finding
            .count("processors_count", "processors that the program can use", processors.into())
            .count("wanting_count", "workers that need a processor for half of the time or more", wanting.into())
            .count("spares_count", "spare workers in use", span.now.sentinel.spares_in_use)
            .advice(advice)
    })
    .into_iter()
    .collect()
}

fn waiting_for_a_processor(span: &Span<'_>, rule: Rule, title: impl FnOnce(f64) -> String) -> Option<Finding> {
    let starved: Vec<_> = starved(span).collect();
    let worst = starved.iter().map(|(_, ratio)| *ratio).reduce(f64::max)?;
    let severity = if worst >= STARVED_BADLY_RATIO { Severity::Critical } else { Severity::Warning };
    let sum_ns = |of: fn(&Worker) -> Option<u64>| {
        starved.iter().filter_map(|(pair, _)| pair.grown_if_known(of)).fold(0, u64::saturating_add)
    };
    let mut finding = Finding::new(rule, severity, title(worst))
        .ratio("run_delay_ratio", "largest share of time that a worker waited for a processor", worst)
        .ns(
            "run_delay_ns",
            "time that these workers waited for a processor, in total",
            sum_ns(|worker| worker.run_delay_ns),
        )
        .ns("cpu_ns", "time that these workers ran, in total", sum_ns(|worker| worker.cpu_ns))
        .ns("interval_ns", "measured over", span.interval_ns());
    for (pair, _) in starved {
        finding = finding.worker(pair.index());
    }
    Some(finding)
}

// ---- cgroup-throttled ---------------------------------------------------------------------------

/// Returns how long the quota stopped the program, and in how many periods. Returns `None` if the
/// time was short or is unknown.
fn throttled(span: &Span<'_>) -> Option<(u64, u64)> {
    let host = |snapshot: &Snapshot| {
        let host = snapshot.host.as_ref()?;
        Some((host.throttled_ns?, host.throttles.unwrap_or(0)))
    };
    let (then, now) = (host(span.then)?, host(span.now)?);
    let (held_ns, periods) = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
    (span.share(held_ns) >= THROTTLED_RATIO).then_some((held_ns, periods))
}

pub(super) fn cgroup_throttled_threshold() -> String {
    format!(
        "The CPU quota delayed the program for {} of the time, summed over processors, or an incident shows that it \
         delayed a poll. The finding is {} from {}.",
        percent(THROTTLED_RATIO),
        Severity::Critical.name(),
        percent(THROTTLED_BADLY_RATIO)
    )
}

pub(super) fn cgroup_throttled(span: &Span<'_>) -> Vec<Finding> {
    let stuck: Vec<_> = incidents(span, Cause::Throttled).collect();
    let counted_ns = throttled(span);
    let (held_ns, periods) = counted_ns.unwrap_or_default();
    let longest_ns = stuck.iter().map(|incident| incident.for_ns).max();
    if counted_ns.is_none() && longest_ns.is_none() {
        return Vec::new();
    }
    let is_bad = span.share(held_ns) >= THROTTLED_BADLY_RATIO;
    let severity = if is_bad { Severity::Critical } else { Severity::Warning };
    let title = match counted_ns {
        Some(_) => format!(
            "the control group has used up its CPU quota: the kernel paused the program for {}, summed over \
             processors, within {}",
            duration(held_ns),
            duration(span.interval_ns())
        ),
        None => {
            format!(
                "the control group has used up its CPU quota: the kernel paused a poll for {}",
                duration(longest_ns.unwrap_or(0))
            )
        }
    };
    let mut finding = Finding::new(Rule::CgroupThrottled, severity, title)
        .ns("throttled_ns", "time that the program was paused, summed over processors", held_ns)
        .count("throttles_count", "periods in which it was paused", periods)
        .count("stuck_count", "polls paused for this reason", stuck.len() as u64)
        .advice(
            "Raise the quota (cpu.max, or the container's CPU limit), or use fewer workers, which use it up more \
            slowly.",
        );
    for incident in stuck {
        finding = finding.worker(incident.worker);
    }
    finding.workers.sort_unstable();
    finding.workers.dedup();
    vec![finding]
}

// ---- program-paused -----------------------------------------------------------------------------

fn pauses(span: &Span<'_>) -> u64 {
    span.grown(|snapshot| snapshot.sentinel.pauses)
}

pub(super) fn program_paused_threshold() -> String {
    format!(
        "The sentinel was 50 ms late, or an incident shows that the thread of a poll was stopped. The finding is \
         always {}.",
        Severity::Info.name()
    )
}

pub(super) fn program_paused(span: &Span<'_>) -> Vec<Finding> {
    let stopped = incidents(span, Cause::Stopped).count() as u64;
    let pauses = pauses(span);
    if pauses == 0 && stopped == 0 {
        return Vec::new();
    }
    // Explained as for any thread; `none` if the sentinel was never late.
    let held_by =
        span.now.sentinel.last_pause.map_or("none".to_owned(), |cause| format!("its thread {}", cause.explain()));
    let finding = Finding::new(
        Rule::ProgramPaused,
        Severity::Info,
        "the whole program was paused for a while, by the machine and not by its tasks",
    )
    .count("pauses_count", "late checks of the sentinel", pauses)
    .count("stopped_count", "polls whose thread was stopped by a signal or a debugger", stopped)
    .word("held_by", "cause of the sentinel's last delay", held_by)
    .advice(
        "The program needs no change. Look for a debugger, SIGSTOP, a suspended laptop, or a virtual machine whose \
         host runs other guests.",
    );
    vec![finding]
}
