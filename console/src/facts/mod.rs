//! The facts about a runtime or a worker that the screens show, as labelled values in groups.
//!
//! All screen sizes use the same list: a narrow screen prints a group as a line, a wide one as a
//! panel. If there is too little room, the facts at the end of a group are left out first. This
//! module is independent of the terminal: a [`Tone`] is the meaning of a value, and the view
//! decides how to draw it.

use volt_diagnosis::rates::{Quantiles, Rates, Shares, WorkerRates, local_queue_len, searchers_max, worker_count};
use volt_telemetry::incident::{Cause, Incidents};
use volt_telemetry::snapshot::{Duty, Phase, Snapshot, Worker};

use crate::text::figures::{ABSENT, count, duration, maybe_duration, percent, rate};

pub mod events;
pub mod incidents;
pub mod why;
mod worker;

/// A poll or a delay of this length affects other tasks noticeably: a warning. The runtime records
/// polls of this length as incidents by default.
pub const LONG_NS: u64 = 10_000_000;
/// A poll or a delay of this length is an alarm. The list of programs counts a worker with such a
/// poll as stuck.
pub const STUCK_NS: u64 = 100_000_000;
/// The oldest task of the global queue is not late before it has waited for this long, however
/// short the target latency is.
const LATE_NS: u64 = 10_000_000;

/// The meaning of a value for the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Zero or absent.
    Quiet,
    /// An ordinary value.
    #[default]
    Plain,
    /// A warning; marked with `!`.
    Warn,
    /// A problem; marked with `!!`.
    Alarm,
}

impl Tone {
    /// Returns the mark that is used without colours.
    pub fn mark(self) -> &'static str {
        match self {
            Tone::Quiet | Tone::Plain => "",
            Tone::Warn => "!",
            Tone::Alarm => "!!",
        }
    }

    /// Returns the tone of a poll or delay of `ns`.
    pub fn of_duration(ns: u64) -> Tone {
        match ns {
            STUCK_NS.. => Tone::Alarm,
            LONG_NS.. => Tone::Warn,
            _ => Tone::Plain,
        }
    }
}

/// A labelled value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The label.
    pub label: &'static str,
    /// The value as text.
    pub value: String,
    /// The meaning of the value.
    pub tone: Tone,
}

impl Fact {
    fn new(label: &'static str, value: impl Into<String>) -> Fact {
        let value = value.into();
        let is_nothing = ["0", "0%", "0ns", ABSENT].contains(&value.as_str());
        let tone = if is_nothing { Tone::Quiet } else { Tone::Plain };
        Fact { label, value, tone }
    }

    /// Returns a counter that should be 0.
    fn fault(label: &'static str, number: u64, tone: Tone) -> Fact {
        Fact { label, value: count(number), tone: if number > 0 { tone } else { Tone::Quiet } }
    }

    /// Returns a time that should be short.
    fn time(label: &'static str, ns: Option<u64>) -> Fact {
        let fact = Fact::new(label, maybe_duration(ns));
        let tone = ns.map_or(fact.tone, Tone::of_duration);
        fact.toned(tone)
    }

    fn toned(self, tone: Tone) -> Fact {
        Fact { tone, ..self }
    }

    /// Returns the value with the mark of its tone.
    pub fn marked(&self) -> String {
        format!("{}{}", self.value, self.tone.mark())
    }
}

/// Facts under a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The title.
    pub title: &'static str,
    /// The facts, the most important first.
    pub facts: Vec<Fact>,
}

/// The numbers and rates of one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The numbers.
    pub snapshot: &'a Snapshot,
    /// The rates between the last two snapshots; `None` after the first.
    pub rates: Option<&'a Rates>,
}

impl<'a> Scene<'a> {
    /// Returns the rates of worker `index`.
    pub fn worker_rates(&self, index: usize) -> Option<&'a WorkerRates> {
        self.rates?.workers.get(index)
    }

    /// Returns the indexes of the workers that are shown: all except unused spares.
    pub fn shown_workers(&self) -> Vec<usize> {
        shown_workers(self.snapshot)
    }

    fn rate(&self, of: fn(&Rates) -> f64) -> String {
        self.rates.map_or_else(|| ABSENT.into(), |rates| rate(of(rates)))
    }

    /// Returns the parked and searching workers, and how the workers spend their time.
    pub fn workers(&self) -> Group {
        let snapshot = self.snapshot;
        let (active, searchers) = (snapshot.active_count(), searchers_max(worker_count(snapshot)));
        let shares = |of: fn(&Shares) -> f64| self.rates.map_or(ABSENT.into(), |rates| percent(of(&rates.shares)));
        let facts = vec![
            Fact::new("parked", format!("{}/{active}", snapshot.parked_count())),
            // More workers than the limit can search if they were woken, which the limit does not
            // cover.
            Fact::new("searching", format!("{}/{searchers}", snapshot.searching)),
            Fact::new("busy", shares(|shares| shares.busy_ratio)),
            Fact::new("search", shares(|shares| shares.searching_ratio)),
            Fact::new("idle", shares(|shares| shares.parked_ratio + shares.driver_ratio)),
            Fact::new("steals/s", self.rate(|rates| rates.tasks_stolen_per_second)),
            Fact::new("parks/s", self.rate(|rates| rates.parks_per_second)),
        ];
        Group { title: "workers", facts }
    }

    /// Returns the lengths of the global queue and of the workers' local queues.
    pub fn queues(&self) -> Group {
        let queue = &self.snapshot.global_queue;
        let target = self.snapshot.config.target_global_queue_latency_ns;
        let is_late = queue.oldest_age_ns.is_some_and(|age| age > target.saturating_mul(10).max(LATE_NS));
        let oldest = Fact::new("oldest", maybe_duration(queue.oldest_age_ns));
        let facts = vec![
            Fact::new("global", count(queue.len)),
            if is_late { oldest.toned(Tone::Warn) } else { oldest },
            Fact::new("local", count(local_queue_len(self.snapshot))),
            Fact::new("injected/s", self.rate(|rates| rates.injected_per_second)),
            Fact::new("overflowed/s", self.rate(|rates| rates.overflowed_per_second)),
        ];
        Group { title: "queues", facts }
    }

    /// Returns the counts of tasks since the runtime started.
    pub fn tasks(&self) -> Group {
        let tasks = &self.snapshot.tasks;
        let facts = vec![
            Fact::new("alive", count(tasks.alive)),
            Fact::new("spawned", count(tasks.spawned)),
            Fact::new("completed", count(tasks.completed)),
            Fact::new("cancelled", count(tasks.cancelled)),
            Fact::fault("panicked", tasks.panicked, Tone::Warn),
            Fact::new("spawned/s", self.rate(|rates| rates.spawned_per_second)),
        ];
        Group { title: "tasks", facts }
    }

    /// Returns the facts about the I/O driver.
    pub fn driver(&self) -> Group {
        let driver = &self.snapshot.driver;
        let owner = driver.owner.map_or_else(|| "no worker".into(), |worker| format!("worker {worker}"));
        let mut facts = vec![
            Fact::new("owner", owner),
            Fact::new("sockets", count(driver.registrations)),
            Fact::new("events/s", self.rate(|rates| rates.driver_events_per_second)),
            Fact::new("polls/s", self.rate(|rates| rates.driver_polls_per_second)),
            Fact::new("idle", duration(driver.idle_ns)),
        ];
        if driver.accept_backoffs > 0 {
            facts.insert(2, Fact::fault("accept backoffs", driver.accept_backoffs, Tone::Warn));
        }
        facts.push(Fact::new("backend", self.snapshot.config.io_backend.clone()));
        Group { title: "driver", facts }
    }

    /// Returns the facts about timers.
    pub fn timers(&self) -> Group {
        let timers = &self.snapshot.timers;
        let mut facts = vec![
            Fact::new("armed", count(timers.armed)),
            Fact::new("next", maybe_duration(timers.next_in_ns)),
            Fact::new("late", duration(timers.last_lag_ns)),
            Fact::new("fired/s", self.rate(|rates| rates.timers_fired_per_second)),
        ];
        if let Some(clock) = self.snapshot.clock.as_ref().filter(|clock| clock.faults > 0) {
            facts.push(Fact::fault("clock faults", clock.faults, Tone::Warn));
        }
        Group { title: "timers", facts }
    }

    /// Returns the facts about the blocking threads.
    pub fn blocking(&self) -> Group {
        let blocking = &self.snapshot.blocking;
        let is_saturated = blocking.queue_len > 0 && blocking.threads >= blocking.max_threads;
        let queued = Fact::new("queued", count(blocking.queue_len));
        let running = blocking.threads.saturating_sub(blocking.idle_threads);
        let facts = vec![
            Fact::new("busy", format!("{}/{}", count(running), count(blocking.max_threads))),
            if is_saturated { queued.toned(Tone::Warn) } else { queued },
            Fact::new("threads", count(blocking.threads)),
            Fact::new("jobs/s", self.rate(|rates| rates.blocking_submitted_per_second)),
        ];
        Group { title: "blocking", facts }
    }

    /// Returns the number of stuck polls since the runtime started, by cause.
    pub fn incidents(&self) -> Group {
        let incidents = &self.snapshot.incidents;
        let mut facts = vec![Fact::fault("", incidents.total(), Tone::Warn)];
        if incidents.total() > 0 {
            facts.push(Fact::new("", format!("({})", causes(incidents))));
        }
        facts.extend([
            Fact::new("new/s", self.rate(|rates| rates.incidents_per_second)),
            Fact::new("not recorded", count(incidents.suppressed)),
            Fact::new("overwritten", count(incidents.evicted)),
        ]);
        Group { title: "incidents", facts }
    }

    /// Returns what the sentinel did about stuck workers.
    pub fn sentinel(&self) -> Group {
        let sentinel = &self.snapshot.sentinel;
        let facts = vec![
            Fact::new("spares", format!("{}/{}", sentinel.spares_in_use, sentinel.max_spares)),
            Fact::new("replaced", count(sentinel.spare_calls)),
            Fact::fault("no spare", sentinel.capped, Tone::Warn),
            Fact::new("tasks rescued", count(sentinel.tasks_rescued)),
            Fact::fault("pauses", sentinel.pauses, Tone::Warn),
            Fact::new("preempted", count(sentinel.preempts)),
            Fact::new("stuck", count(sentinel.replacements)),
            Fact::new("block_in_place", count(sentinel.blocks)),
            Fact::fault("spares not started", sentinel.spare_failures, Tone::Warn),
            Fact::new("checks", count(sentinel.checks)),
        ];
        Group { title: "sentinel", facts }
    }

    /// Returns the runtime's settings that decide where and when tasks run.
    pub fn settings(&self) -> Group {
        let config = &self.snapshot.config;
        let bounds = |min: u32, max: u32| format!("{min}..{max}");
        let interval = bounds(config.min_global_queue_interval, config.max_global_queue_interval);
        let batch = bounds(config.min_global_queue_batch, config.max_global_queue_batch);
        let checks = format!("{}, {interval} polls", duration(config.target_global_queue_latency_ns));
        let facts = vec![
            Fact::new("placement", config.placement.clone()),
            Fact::new("global check every", checks),
            Fact::new("spin", config.park_spin.clone()),
            Fact::new("batch", format!("{batch} tasks")),
            Fact::new("driver every", duration(config.driver_interval_ns)),
            Fact::new("average weight", config.ewma_alpha.to_string()),
            Fact::new("stealing", if config.enable_stealing { "on" } else { "off" }),
            Fact::new("park time-out", maybe_duration(config.park_timeout_ns)),
        ];
        Group { title: "settings", facts }
    }

    /// Returns the poll durations of the last interval.
    pub fn poll_time(&self) -> Group {
        Group { title: "poll", facts: distribution(self.rates.map(|rates| &rates.poll_time)) }
    }

    /// Returns the schedule delays of the last interval.
    pub fn schedule_delay(&self) -> Group {
        Group { title: "delay", facts: distribution(self.rates.map(|rates| &rates.schedule_delay)) }
    }
}

fn distribution(quantiles: Option<&Quantiles>) -> Vec<Fact> {
    let quantiles = quantiles.copied().unwrap_or_default();
    vec![
        Fact::new("p50", maybe_duration(quantiles.p50_ns)),
        Fact::time("p99", quantiles.p99_ns),
        Fact::time("max", quantiles.max_ns),
        Fact::new("p90", maybe_duration(quantiles.p90_ns)),
        Fact::time("p99.9", quantiles.p999_ns),
        Fact::new("count", count(quantiles.count)),
    ]
}

/// Returns the causes that occurred, the most frequent first: `sleep 2, cpu 1`.
pub fn causes(incidents: &Incidents) -> String {
    let mut counts: Vec<(Cause, u64)> = incidents.counts().filter(|(_, n)| *n > 0).collect();
    // The sort is stable: equal counts keep the order of the causes.
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let texts: Vec<_> = counts.iter().map(|(cause, n)| format!("{} {}", cause.name(), count(*n))).collect();
    texts.join(", ")
}

/// Returns the indexes of the workers of `snapshot` that are shown: all except unused spares.
pub fn shown_workers(snapshot: &Snapshot) -> Vec<usize> {
    let workers = snapshot.workers.iter().enumerate();
    workers.filter(|(_, worker)| worker.duty != Duty::Off).map(|(index, _)| index).collect()
}

/// Returns how often the worker checks the global queue.
pub fn global_check(worker: &Worker) -> String {
    match worker.global_queue_interval {
        1 => "every poll".into(),
        polls => format!("every {polls} polls"),
    }
}

/// Returns the state of a worker in one word: its phase, or why it runs no tasks.
pub fn state_word(worker: &Worker) -> &'static str {
    match (worker.duty, worker.phase) {
        (Duty::Stuck, _) => "stuck",
        (Duty::Blocking, _) => "blocking",
        (_, phase) => phase_word(phase),
    }
}

/// Returns the state of a worker as one letter. The screen shows it next to the worker's lamp, the
/// sign for its bit in the parked bitmap.
pub fn state_letter(worker: &Worker) -> char {
    match (worker.duty, worker.phase) {
        (Duty::Stuck, _) => 'X',
        (Duty::Blocking, _) => 'K',
        (_, phase) => phase_letter(phase),
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Stopped => "stopped",
        Phase::Busy => "busy",
        Phase::Searching => "search",
        Phase::Parked => "parked",
        Phase::Driver => "driver",
        Phase::Maintenance => "maintenance",
        _ => "?",
    }
}

fn phase_letter(phase: Phase) -> char {
    match phase {
        Phase::Stopped => '-',
        Phase::Busy => 'B',
        Phase::Searching => 'S',
        Phase::Parked => 'P',
        Phase::Driver => 'D',
        Phase::Maintenance => 'M',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_searchers_is_the_runtimes_own() {
        let workers = vec![Worker::default(); 4];
        let snapshot = Snapshot { searching: 3, workers, ..Snapshot::default() };
        let workers = Scene { snapshot: &snapshot, rates: None }.workers();
        let searching = workers.facts.iter().find(|fact| fact.label == "searching").unwrap();
        assert_eq!(searching.value, "3/2", "one of them was woken");
    }

    #[test]
    fn only_spares_that_started_count_as_replacements() {
        let mut snapshot = Snapshot::default();
        (snapshot.sentinel.replacements, snapshot.sentinel.spare_calls) = (50, 3);
        let sentinel = Scene { snapshot: &snapshot, rates: None }.sentinel();
        let value = |label: &str| sentinel.facts.iter().find(|fact| fact.label == label).unwrap().value.clone();
        assert_eq!((value("replaced"), value("stuck")), ("3".into(), "50".into()));
    }

    #[test]
    fn causes_are_sorted_by_frequency_and_unseen_ones_left_out() {
        let mut incidents = Incidents { by_cause: vec![1, 12_345, 0, 1], ..Incidents::default() };
        assert_eq!(causes(&incidents), "sleep 12.3k, cpu 1, io 1");
        incidents.by_cause.clear();
        assert_eq!(causes(&incidents), "");
    }
}
