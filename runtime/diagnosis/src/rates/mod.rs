//! Computes rates, shares of time and quantiles from two snapshots of one program.
//!
//! This is the only place that computes them. Consoles and exporters display these numbers and
//! derive none themselves.
//!
//! # Invariants
//!
//! * *Per second means per second of the program's clock*, between the two `at_ns`.
//! * *Nothing is derived across a restart*: two runtimes of one name that were built at different
//!   times have no rates. Their rates are absent, not 0.
//! * *Nothing is derived from missing data*: a field that one of the two snapshots lacks
//!   ([`Snapshot::incomplete`]) has no rates.
//! * *Ratios are in 0..=1*, although the counters that they are computed from are not read
//!   atomically together.

use std::collections::HashMap;

use serde::Serialize;
use volt_telemetry::histogram::Histogram;
use volt_telemetry::incident::Blame;
use volt_telemetry::routes::Route;
use volt_telemetry::snapshot::{Duty, Program, Snapshot, Worker};

/// How a worker spent the interval, as shares of it. The remainder to 1 is time in which the worker
/// did not run at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// In polls and between them.
    pub busy_ratio: f64,
    /// Searching for work.
    pub searching_ratio: f64,
    /// Parked on the futex.
    pub parked_ratio: f64,
    /// Parked in the I/O driver.
    pub driver_ratio: f64,
    /// Maintenance: timers, polls of the driver and statistics.
    pub maintenance_ratio: f64,
}

/// The quantiles of a histogram; times are `None` if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Their mean, ns.
    pub mean_ns: Option<u64>,
    /// Median, ns. Like the quantiles below, it is accurate to 3 %.
    pub p50_ns: Option<u64>,
    /// 90th percentile, ns.
    pub p90_ns: Option<u64>,
    /// 99th percentile, ns.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile, ns.
    pub p999_ns: Option<u64>,
    /// Largest value, ns.
    pub max_ns: Option<u64>,
}

/// One worker, from one snapshot to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerRates {
    /// Its index.
    pub index: u32,
    /// How it spent its time.
    #[serde(flatten)]
    pub shares: Shares,
    /// Polls per second. All fields that end in `_per_second` are the growth of a counter, divided
    /// by the interval.
    pub polls_per_second: f64,
    /// Ticks.
    pub ticks_per_second: f64,
    /// Ticks that ended because the budget was used up.
    pub budget_exhausted_per_second: f64,
    /// Forced yields.
    pub coop_yields_per_second: f64,
    /// Tasks run from the LIFO slot.
    pub lifo_hits_per_second: f64,
    /// Tasks that newer ones displaced from the slot.
    pub lifo_evictions_per_second: f64,
    /// Flushes of the slot at the cap.
    pub lifo_cap_flushes_per_second: f64,
    /// Overflows of the ring.
    pub overflows_per_second: f64,
    /// Attempts to steal from another worker.
    pub steal_attempts_per_second: f64,
    /// Attempts that stole tasks.
    pub steals_per_second: f64,
    /// Tasks taken from other workers.
    pub tasks_stolen_per_second: f64,
    /// Attempts lost in a race.
    pub steal_races_lost_per_second: f64,
    /// Tasks that other workers took from it.
    pub tasks_given_per_second: f64,
    /// Checks of the global queue by trigger; `None` if the program does not count them.
    pub global_checks_per_second: Option<GlobalCheckRates>,
    /// Local polls between two checks of the global queue, on average. `None` if there was no check
    /// between local polls. Compare it with the worker's `global_queue_interval`.
    pub polls_per_global_check: Option<f64>,
    /// Tasks that it took from the global queue.
    pub global_tasks_per_second: f64,
    /// Parks.
    pub parks_per_second: f64,
    /// Wake-ups by reason.
    pub unparks_per_second: UnparkRates,
    /// Workers that it woke.
    pub wakes_sent_per_second: f64,
    /// Its poll times in the interval.
    pub poll_time: Quantiles,
    /// Its schedule delays in the interval.
    pub schedule_delay: Quantiles,
    /// The share of the interval in which its thread was on a processor. `None` if the kernel does
    /// not report it.
    pub cpu_ratio: Option<f64>,
    /// The share of the interval in which its thread was runnable while the kernel ran other
    /// threads.
    pub run_delay_ratio: Option<f64>,
}

/// The tasks of one spawn location, from one snapshot to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LocationRates {
    /// Where they were spawned; see [`Blame`].
    pub spawned_at: String,
    /// Polls.
    pub polls_per_second: f64,
    /// Time in polls, as a number of workers: 1.5 is one worker and half of another.
    pub busy_workers: f64,
    /// Polls that became incidents.
    pub stalls_per_second: f64,
    /// Delay caused, as a number of tasks: how many other tasks waited behind polls of these at one
    /// time, on average.
    pub delayed_by_it: f64,
    /// Delay suffered, as a number of tasks: how many of these waited behind polls of other tasks
    /// at one time, on average.
    pub delayed: f64,
}

/// The requests of one HTTP route, from one snapshot to the next.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RouteRates {
    /// The method; see [`Route`].
    pub method: String,
    /// The path of the route.
    pub path: String,
    /// Requests that ended.
    pub requests_per_second: f64,
    /// Requests that were answered with a status of 500 or above.
    pub failed_per_second: f64,
    /// Time in polls of their handlers, as a number of workers.
    pub busy_workers: f64,
    /// Delay, as a number of tasks: how many tasks of its requests waited for a worker at one time,
    /// on average.
    pub delayed: f64,
    /// The time to the responses in the interval, without their bodies.
    pub duration: Quantiles,
}

/// Checks of the global queue per second, by trigger; see
/// [`GlobalChecks`](volt_telemetry::snapshot::GlobalChecks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GlobalCheckRates {
    /// The tuner's interval.
    pub interval: f64,
    /// The target latency.
    pub elapsed: f64,
    /// Nothing left to poll.
    pub empty: f64,
}

/// Wake-ups per second, by reason; see [`Unparks`](volt_telemetry::snapshot::Unparks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct UnparkRates {
    /// Woken by another thread.
    pub notified: f64,
    /// Park timeout.
    pub timeout: f64,
    /// I/O.
    pub io: f64,
    /// Timer.
    pub timer: f64,
    /// No known reason.
    pub spurious: f64,
}

/// One runtime, from one snapshot to the next.
///
/// ```
/// use volt_diagnosis::rates::Rates;
/// use volt_telemetry::{Snapshot, Worker};
/// let at = |at_ns, polls, busy_ns| {
///     let worker = Worker { polls, busy_ns, ..Worker::default() };
///     Snapshot { at_ns, workers: vec![worker], ..Snapshot::default() }
/// };
/// let rates = Rates::between(&at(0, 0, 0), &at(500_000_000, 40, 250_000_000)).unwrap();
/// assert_eq!(rates.polls_per_second, 80.0);
/// assert_eq!(rates.shares.busy_ratio, 0.5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// The time between the two snapshots, ns.
    pub interval_ns: u64,
    /// How the workers spent their time: the mean of the shares of all active workers.
    #[serde(flatten)]
    pub shares: Shares,
    /// Polls of all workers.
    pub polls_per_second: f64,
    /// Tasks spawned.
    pub spawned_per_second: f64,
    /// Tasks that ended in any way.
    pub ended_per_second: f64,
    /// Tasks that entered the global queue from outside the workers.
    pub injected_per_second: f64,
    /// Tasks that entered the global queue from full rings.
    pub overflowed_per_second: f64,
    /// Tasks stolen between workers.
    pub tasks_stolen_per_second: f64,
    /// Parks.
    pub parks_per_second: f64,
    /// Timers fired.
    pub timers_fired_per_second: f64,
    /// Polls of the kernel's ready list.
    pub driver_polls_per_second: f64,
    /// Readiness events.
    pub driver_events_per_second: f64,
    /// Jobs submitted to the blocking threads.
    pub blocking_submitted_per_second: f64,
    /// Polls that became incidents.
    pub incidents_per_second: f64,
    /// Poll times in the interval, all workers.
    pub poll_time: Quantiles,
    /// Schedule delays in the interval, all workers.
    pub schedule_delay: Quantiles,
    /// The histogram of [`poll_time`](Self::poll_time).
    #[serde(skip)]
    pub poll_time_histogram: Histogram,
    /// The histogram of [`schedule_delay`](Self::schedule_delay).
    #[serde(skip)]
    pub schedule_delay_histogram: Histogram,
    /// One for each worker of the later snapshot.
    pub workers: Vec<WorkerRates>,
    /// One for each spawn location of the later snapshot, in its order.
    pub locations: Vec<LocationRates>,
    /// One for each HTTP route of the later snapshot, in its order; empty if one of the snapshots
    /// lacks them.
    pub routes: Vec<RouteRates>,
}

impl Rates {
    /// Computes the rates from `earlier` to `later`. Returns `None` if they are not two snapshots
    /// of one runtime in this order, or if one lacks its workers. If one lacks histograms, those of
    /// the interval are empty.
    pub fn between(earlier: &Snapshot, later: &Snapshot) -> Option<Rates> {
        let is_same = earlier.runtime == later.runtime && earlier.started_at_ns == later.started_at_ns;
        let is_whole = |field| !earlier.lacks(field) && !later.lacks(field);
        if !is_same || later.at_ns <= earlier.at_ns || !is_whole("workers") {
            return None;
        }
        let over = Interval { ns: later.at_ns - earlier.at_ns };
        let unseen = Worker::default();
        let pairs = later.workers.iter().enumerate();
        let pairs = pairs.map(|(index, now)| (earlier.workers.get(index).unwrap_or(&unseen), now));
        let mut workers: Vec<_> = pairs.map(|(then, now)| over.worker(then, now)).collect();
        let mut poll_time_histogram = later.poll_time().since(&earlier.poll_time());
        if !is_whole("poll_time") {
            poll_time_histogram = Histogram::default();
            workers.iter_mut().for_each(|worker| worker.poll_time = Quantiles::default());
        }
        let mut schedule_delay_histogram = later.schedule_delay().since(&earlier.schedule_delay());
        if !is_whole("schedule_delay") {
            schedule_delay_histogram = Histogram::default();
            workers.iter_mut().for_each(|worker| worker.schedule_delay = Quantiles::default());
        }
        let mut routes = if is_whole("routes") { over.routes(&earlier.routes, &later.routes) } else { Vec::new() };
        if !is_whole("routes.duration") {
            routes.iter_mut().for_each(|route| route.duration = Quantiles::default());
        }
        let sum = |of: fn(&WorkerRates) -> f64| workers.iter().map(of).sum::<f64>();
        // An inactive spare worker sleeps all the time and would distort the mean.
        let active = || workers.iter().zip(&later.workers).filter(|(_, now)| now.duty != Duty::Off);
        let mean = |of: fn(&Shares) -> f64| {
            active().map(|(worker, _)| of(&worker.shares)).sum::<f64>() / active().count().max(1) as f64
        };
        Some(Rates {
            interval_ns: over.ns,
            shares: Shares {
                busy_ratio: mean(|shares| shares.busy_ratio),
                searching_ratio: mean(|shares| shares.searching_ratio),
                parked_ratio: mean(|shares| shares.parked_ratio),
                driver_ratio: mean(|shares| shares.driver_ratio),
                maintenance_ratio: mean(|shares| shares.maintenance_ratio),
            },
            polls_per_second: sum(|worker| worker.polls_per_second),
            spawned_per_second: over.rate(earlier.tasks.spawned, later.tasks.spawned),
            ended_per_second: over.rate(ended(earlier), ended(later)),
            injected_per_second: over.rate(earlier.global_queue.injected, later.global_queue.injected),
            overflowed_per_second: over.rate(earlier.global_queue.overflowed, later.global_queue.overflowed),
            tasks_stolen_per_second: sum(|worker| worker.tasks_stolen_per_second),
            parks_per_second: sum(|worker| worker.parks_per_second),
            timers_fired_per_second: over.rate(earlier.timers.fired, later.timers.fired),
            driver_polls_per_second: over.rate(earlier.driver.polls, later.driver.polls),
            driver_events_per_second: over.rate(earlier.driver.events, later.driver.events),
            blocking_submitted_per_second: over.rate(earlier.blocking.submitted, later.blocking.submitted),
            incidents_per_second: over.rate(earlier.incidents.total(), later.incidents.total()),
            poll_time: Quantiles::of(&poll_time_histogram),
            schedule_delay: Quantiles::of(&schedule_delay_histogram),
            poll_time_histogram,
            schedule_delay_histogram,
            locations: over.locations(&earlier.blame, &later.blame),
            routes,
            workers,
        })
    }

    /// Computes [`between`](Self::between) for every runtime of `later`, in its order, compared
    /// with the runtime of the same name in `earlier`.
    pub fn of_program(earlier: &Program, later: &Program) -> Vec<Option<Rates>> {
        let former = |now: &Snapshot| earlier.runtimes.iter().find(|then| then.runtime == now.runtime);
        let is_same = earlier.pid == later.pid;
        later
            .runtimes
            .iter()
            .map(|now| former(now).filter(|_| is_same).and_then(|then| Rates::between(then, now)))
            .collect()
    }
}

impl Quantiles {
    /// Computes the quantiles of `histogram`.
    pub fn of(histogram: &Histogram) -> Quantiles {
        let count = histogram.count();
        let mean_ns = histogram.sum_ns().checked_div(count);
        Quantiles {
            count,
            mean_ns,
            p50_ns: histogram.quantile_ns(0.5),
            p90_ns: histogram.quantile_ns(0.9),
            p99_ns: histogram.quantile_ns(0.99),
            p999_ns: histogram.quantile_ns(0.999),
            // A bucket has an error of 3 %, and the mean has none.
            max_ns: histogram.quantile_ns(1.0).max(mean_ns),
        }
    }
}

/// Returns the number of workers of the runtime, without spare workers.
pub fn worker_count(snapshot: &Snapshot) -> usize {
    snapshot.workers.iter().filter(|worker| !worker.is_spare).count()
}

/// Returns how many of `workers` (without spare workers) may search at the same time: half of them,
/// rounded up.
pub fn searchers_max(workers: usize) -> usize {
    workers.div_ceil(2)
}

/// Returns the number of tasks in the workers' local queues.
pub fn local_queue_len(snapshot: &Snapshot) -> u64 {
    snapshot.workers.iter().map(Worker::queued).fold(0, u64::saturating_add)
}

fn ended(snapshot: &Snapshot) -> u64 {
    let tasks = &snapshot.tasks;
    tasks.completed.saturating_add(tasks.cancelled).saturating_add(tasks.panicked)
}

/// The time between two snapshots; never 0.
#[derive(Clone, Copy)]
struct Interval {
    ns: u64,
}

impl Interval {
    fn rate(self, then: u64, now: u64) -> f64 {
        now.saturating_sub(then) as f64 * 1e9 / self.ns as f64
    }

    fn share(self, then_ns: u64, now_ns: u64) -> f64 {
        (now_ns.saturating_sub(then_ns) as f64 / self.ns as f64).min(1.0)
    }

    fn worker(self, then: &Worker, now: &Worker) -> WorkerRates {
        let rate = |of: fn(&Worker) -> u64| self.rate(of(then), of(now));
        let share = |of: fn(&Worker) -> u64| self.share(of(then), of(now));
        let grown = |of: fn(&Worker) -> u64| of(now).saturating_sub(of(then));
        let global_checks = then.global_checks.zip(now.global_checks);
        let (checks_then, checks_now) = global_checks.unwrap_or_default();
        let checks = checks_now.between_polls().saturating_sub(checks_then.between_polls());
        let check_polls = grown(|worker| worker.global_check_polls.unwrap_or(0));
        WorkerRates {
            index: now.index,
            shares: Shares {
                busy_ratio: share(|worker| worker.busy_ns),
                searching_ratio: share(|worker| worker.searching_ns),
                parked_ratio: share(|worker| worker.parked_ns),
                driver_ratio: share(|worker| worker.driver_ns),
                maintenance_ratio: share(|worker| worker.maintenance_ns),
            },
            polls_per_second: rate(|worker| worker.polls),
            ticks_per_second: rate(|worker| worker.ticks),
            budget_exhausted_per_second: rate(|worker| worker.budget_exhausted),
            coop_yields_per_second: rate(|worker| worker.coop_yields),
            lifo_hits_per_second: rate(|worker| worker.lifo_hits),
            lifo_evictions_per_second: rate(|worker| worker.lifo_evictions),
            lifo_cap_flushes_per_second: rate(|worker| worker.lifo_cap_flushes),
            overflows_per_second: rate(|worker| worker.overflows),
            steal_attempts_per_second: rate(|worker| worker.steal_attempts),
            steals_per_second: rate(|worker| worker.steals),
            tasks_stolen_per_second: rate(|worker| worker.tasks_stolen),
            steal_races_lost_per_second: rate(|worker| worker.steal_races_lost),
            tasks_given_per_second: rate(|worker| worker.tasks_given),
            global_checks_per_second: global_checks.map(|(then, now)| GlobalCheckRates {
                interval: self.rate(then.interval, now.interval),
                elapsed: self.rate(then.elapsed, now.elapsed),
                empty: self.rate(then.empty, now.empty),
            }),
            polls_per_global_check: (checks > 0).then(|| check_polls as f64 / checks as f64),
            global_tasks_per_second: rate(|worker| worker.global_tasks),
            parks_per_second: rate(|worker| worker.parks),
            unparks_per_second: UnparkRates {
                notified: rate(|worker| worker.unparks.notified),
                timeout: rate(|worker| worker.unparks.timeout),
                io: rate(|worker| worker.unparks.io),
                timer: rate(|worker| worker.unparks.timer),
                spurious: rate(|worker| worker.unparks.spurious),
            },
            wakes_sent_per_second: rate(|worker| worker.wakes_sent),
            poll_time: Quantiles::of(&now.poll_time.since(&then.poll_time)),
            schedule_delay: Quantiles::of(&now.schedule_delay.since(&then.schedule_delay)),
            cpu_ratio: then.cpu_ns.zip(now.cpu_ns).map(|(then_ns, now_ns)| self.share(then_ns, now_ns)),
            run_delay_ratio: then.run_delay_ns.zip(now.run_delay_ns).map(|(then, now)| self.share(then, now)),
        }
    }

    fn locations(self, then: &[Blame], now: &[Blame]) -> Vec<LocationRates> {
        let former: HashMap<&str, &Blame> = then.iter().map(|blame| (blame.spawned_at.as_str(), blame)).collect();
        let unseen = Blame::default();
        let of_location = |now: &Blame| {
            let then = former.get(now.spawned_at.as_str()).copied().unwrap_or(&unseen);
            let times = |then_ns: u64, now_ns: u64| now_ns.saturating_sub(then_ns) as f64 / self.ns as f64;
            LocationRates {
                spawned_at: now.spawned_at.clone(),
                polls_per_second: self.rate(then.polls, now.polls),
                busy_workers: times(then.busy_ns, now.busy_ns),
                stalls_per_second: self.rate(then.stalls, now.stalls),
                delayed_by_it: times(then.delay_caused_ns, now.delay_caused_ns),
                delayed: times(then.delay_suffered_ns, now.delay_suffered_ns),
            }
        };
        now.iter().map(of_location).collect()
    }

    fn routes(self, then: &[Route], now: &[Route]) -> Vec<RouteRates> {
        let former: HashMap<_, &Route> = then.iter().map(|route| ((&route.method, &route.path), route)).collect();
        let unseen = Route::default();
        let of_route = |now: &Route| {
            let then = former.get(&(&now.method, &now.path)).copied().unwrap_or(&unseen);
            let times = |then_ns: u64, now_ns: u64| now_ns.saturating_sub(then_ns) as f64 / self.ns as f64;
            RouteRates {
                method: now.method.clone(),
                path: now.path.clone(),
                requests_per_second: self.rate(then.ended(), now.ended()),
                failed_per_second: self.rate(then.failed, now.failed),
                busy_workers: times(then.busy_ns, now.busy_ns),
                delayed: times(then.delay_ns, now.delay_ns),
                duration: Quantiles::of(&now.duration.since(&then.duration)),
            }
        };
        now.iter().map(of_route).collect()
    }
}

#[cfg(test)]
mod tests;
