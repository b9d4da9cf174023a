//! The facts about one worker, in groups.

use volt_diagnosis::rates::{Shares, WorkerRates};
use volt_telemetry::snapshot::{GlobalChecks, Worker};

use super::{Fact, Group, Scene, Tone, global_check};
use crate::text::figures::{ABSENT, count, duration, maybe_duration, percent, rate};

/// The share of time that a runnable worker waits for a processor from which it counts as starved.
const STARVED_RATIO: f64 = 0.2;

impl Scene<'_> {
    /// Returns all facts about worker `index`, in groups, the most important first.
    pub fn worker(&self, index: usize) -> Vec<Group> {
        let Some(worker) = self.snapshot.workers.get(index) else { return Vec::new() };
        let rates = self.worker_rates(index);
        vec![
            worker_polls(worker, rates),
            self.worker_budget(worker),
            worker_steals(worker),
            worker_parks(worker),
            worker_time(rates),
            self.settings(),
        ]
    }

    fn worker_budget(&self, worker: &Worker) -> Group {
        let lifo_max = self.snapshot.config.max_lifo_polls_per_tick;
        let facts = vec![
            Fact::new("exhausted", count(worker.budget_exhausted)),
            Fact::new("yields", count(worker.coop_yields)),
            Fact::new("lifo hits", count(worker.lifo_hits)),
            Fact::new("evicted", count(worker.lifo_evictions)),
            Fact::new("flushed", count(worker.lifo_cap_flushes)),
            Fact::new("lifo polls this tick", format!("{} of {lifo_max}", worker.lifo_polls_this_tick)),
            Fact::new("ticks", count(worker.ticks)),
        ];
        Group { title: "budget", facts }
    }
}

fn worker_time(rates: Option<&WorkerRates>) -> Group {
    let share = |of: fn(&Shares) -> f64| rates.map_or(ABSENT.into(), |rates| percent(of(&rates.shares)));
    let mut facts = vec![
        Fact::new("busy", share(|shares| shares.busy_ratio)),
        Fact::new("searching", share(|shares| shares.searching_ratio)),
        Fact::new("parked", share(|shares| shares.parked_ratio)),
        Fact::new("driver", share(|shares| shares.driver_ratio)),
        Fact::new("maintenance", share(|shares| shares.maintenance_ratio)),
    ];
    if let Some(ratio) = rates.and_then(|rates| rates.cpu_ratio) {
        facts.push(Fact::new("on a processor", percent(ratio)));
    }
    if let Some(ratio) = rates.and_then(|rates| rates.run_delay_ratio) {
        let fact = Fact::new("run delay", percent(ratio));
        facts.push(if ratio >= STARVED_RATIO { fact.toned(Tone::Warn) } else { fact });
    }
    Group { title: "time", facts }
}

fn worker_polls(worker: &Worker, rates: Option<&WorkerRates>) -> Group {
    let per_second = rates.map_or(ABSENT.into(), |rates| format!("{}/s", rate(rates.polls_per_second)));
    let poll = rates.map(|rates| rates.poll_time).unwrap_or_default();
    let delay = rates.map(|rates| rates.schedule_delay).unwrap_or_default();
    let facts = vec![
        Fact::new("", per_second),
        Fact::new("p50", maybe_duration(poll.p50_ns)),
        Fact::time("p99", poll.p99_ns),
        Fact::time("max", poll.max_ns),
        Fact::time("delay p99", delay.p99_ns),
        Fact::new("avg poll", duration(worker.avg_poll_ns)),
        Fact::new("global check", global_check(worker)),
        Fact::new("total", count(worker.polls)),
        Fact::new(
            "measured polls per check",
            rates.and_then(|rates| rates.polls_per_global_check).map_or(ABSENT.into(), rate),
        ),
    ];
    Group { title: "polls", facts }
}

fn worker_steals(worker: &Worker) -> Group {
    let checks =
        |of: fn(&GlobalChecks) -> u64| worker.global_checks.as_ref().map_or(ABSENT.into(), |all| count(of(all)));
    let facts = vec![
        Fact::new("tries", count(worker.steal_attempts)),
        Fact::new("ok", count(worker.steals)),
        Fact::new("stolen", count(worker.tasks_stolen)),
        Fact::new("races lost", count(worker.steal_races_lost)),
        Fact::new("given", count(worker.tasks_given)),
        Fact::new("ring overflows", count(worker.overflows)),
        Fact::new("tasks overflowed", count(worker.tasks_overflowed)),
        Fact::new("from global queue", count(worker.global_tasks)),
        Fact::new("global checks: interval", checks(|checks| checks.interval)),
        Fact::new("target time", checks(|checks| checks.elapsed)),
        Fact::new("empty queues", checks(|checks| checks.empty)),
    ];
    Group { title: "steals", facts }
}

fn worker_parks(worker: &Worker) -> Group {
    let mut facts = vec![Fact::new("", count(worker.parks))];
    if worker.lost_wakeup_rescues > 0 {
        facts.push(Fact::fault("lost wake-ups", worker.lost_wakeup_rescues, Tone::Alarm));
    }
    let unparks = &worker.unparks;
    facts.extend([
        Fact::new("notified", count(unparks.notified)),
        Fact::new("io", count(unparks.io)),
        Fact::new("timer", count(unparks.timer)),
        Fact::new("timed out", count(unparks.timeout)),
        Fact::new("spurious", count(unparks.spurious)),
        Fact::new("wakes sent", count(worker.wakes_sent)),
        Fact::new("park time-out", maybe_duration(worker.park_timeout_ns)),
        Fact::new("spins: helped", count(worker.spins_helped)),
        Fact::new("in vain", count(worker.spins_in_vain)),
    ]);
    Group { title: "parks", facts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_that_are_not_counted_are_absent_and_not_zero() {
        let value = |worker: &Worker| {
            let steals = worker_steals(worker);
            let empty = steals.facts.iter().find(|fact| fact.label == "empty queues").unwrap();
            empty.value.clone()
        };
        assert_eq!(value(&Worker::default()), ABSENT, "of an older program");
        assert_eq!(value(&Worker { global_checks: Some(GlobalChecks::default()), ..Worker::default() }), "0");
    }
}
