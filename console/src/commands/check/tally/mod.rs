//! Sums up what a check has measured, and compares it with the limits.
//!
//! # Shape
//!
//! For each runtime, the tally has the sums of the growth of its histograms from one snapshot to
//! the next, by worker. A runtime that was built anew in between is therefore counted from its
//! start. For each spawn location, the tally has the longest poll, and the delay that all polls
//! caused.
//!
//! # Invariants
//!
//! *Exceeded means certainly exceeded*: a histogram has a resolution of 6 %, so polls in the bucket
//! that contains the limit do not count as exceeding it. Where an incident, the blame table or a
//! poll in flight has the longest poll, its exact duration is used. Polls next to a snapshot that
//! lacks histograms do not count. *Unfinished polls count*: a poll in flight counts with its
//! duration so far, and the oldest task of the global queue with its waiting time so far.
//! *Bounded*: at most `PLACES_MAX` spawn locations per runtime.

use std::collections::BTreeMap;

use volt_telemetry::Histogram;
use volt_telemetry::snapshot::{Program, Snapshot, Worker};

use super::limit::{Limit, Measure};
use crate::facts::incidents;

/// The maximum number of spawn locations that are kept per runtime.
const PLACES_MAX: usize = 1024;

/// The sums of all snapshots so far.
#[derive(Debug, Default)]
pub struct Tally {
    runtimes: Vec<OfRuntime>,
}

/// The sums of one runtime.
#[derive(Debug)]
struct OfRuntime {
    last: Snapshot,
    workers: BTreeMap<u32, OfWorker>,
    places: BTreeMap<String, Place>,
    /// The longest waiting time of the global queue's oldest task in any snapshot, ns.
    longest_wait_ns: u64,
    /// Whether a snapshot lacked the histograms because it was too large.
    is_cut: bool,
    /// Whether the latest snapshot has this runtime.
    is_there: bool,
}

#[derive(Clone, Debug, Default)]
struct OfWorker {
    polls: Histogram,
    delays: Histogram,
}

/// The polls of the tasks that were spawned at one location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The longest poll, ns; the duration so far if it is unfinished.
    pub longest_poll_ns: u64,
    /// How long other tasks waited behind polls of these tasks, ns, summed over the waiting tasks.
    pub delay_caused_ns: u64,
    /// The innermost line of the application's code in the longest poll, if an incident has it.
    pub line: Option<String>,
}

/// The result for one runtime and one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The runtime's name.
    pub runtime: String,
    /// The measure.
    pub measure: Measure,
    /// The limit that applies.
    pub limit: Limit,
    /// The number of polls or delays.
    pub count: u64,
    /// The measured time at the limit's quantile, ns; `None` if there were no measurements.
    pub measured_ns: Option<u64>,
    /// How many certainly exceeded the limit's time.
    pub over: u64,
    /// Whether the limit is exceeded.
    pub is_exceeded: bool,
    /// The workers on which the limit's time was exceeded: index, count, and the longest time in
    /// ns. The highest counts come first.
    pub workers: Vec<(u32, u64, u64)>,
    /// The spawn locations involved, the worst first: for polls, those whose polls exceeded the
    /// limit; for delays, those behind whose polls other tasks waited longest.
    pub places: Vec<(String, Place)>,
    /// Whether the limit cannot be judged because the program's snapshots were too large to include
    /// the histograms.
    pub is_cut: bool,
}

impl Tally {
    /// Adds the current state of the program. Polls before the first call do not count, except
    /// those in flight.
    pub fn take(&mut self, program: &Program) {
        let is_first = self.runtimes.is_empty();
        self.runtimes.iter_mut().for_each(|runtime| runtime.is_there = false);
        for now in &program.runtimes {
            match self.runtimes.iter_mut().find(|of| of.last.runtime == now.runtime) {
                Some(of) => of.take(now),
                None => {
                    let mut of = OfRuntime::new(&now.runtime);
                    // A runtime that was built since the watch began is counted from its start.
                    if is_first {
                        of.begin(now)
                    } else {
                        of.take(now)
                    }
                    self.runtimes.push(of);
                }
            }
        }
    }

    /// Returns the names of all runtimes in the snapshots.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.runtimes.iter().map(|of| of.last.runtime.as_str())
    }

    /// Returns the result of each runtime (or of `only`) for each limit, the exceeded limits first.
    pub fn judge(&self, only: Option<&str>, limits: &[(Measure, Limit)]) -> Vec<Verdict> {
        let runtimes = self.runtimes.iter().filter(|of| only.is_none_or(|name| of.last.runtime == name));
        let mut verdicts: Vec<_> =
            runtimes.flat_map(|of| limits.iter().map(|(measure, limit)| of.judge(*measure, *limit))).collect();
        verdicts.sort_by_key(|verdict| !verdict.is_exceeded);
        verdicts
    }
}

impl OfRuntime {
    fn new(name: &str) -> OfRuntime {
        let last = Snapshot { runtime: name.to_owned(), ..Snapshot::default() };
        let (workers, places) = (BTreeMap::new(), BTreeMap::new());
        OfRuntime { last, workers, places, longest_wait_ns: 0, is_cut: false, is_there: true }
    }

    /// Records the first snapshot of a runtime that existed before the watch began.
    fn begin(&mut self, now: &Snapshot) {
        self.note_what_goes_on(now);
        self.last = now.clone();
    }

    fn take(&mut self, now: &Snapshot) {
        let is_same = self.last.started_at_ns == now.started_at_ns && self.last.at_ns <= now.at_ns;
        let then = if is_same { std::mem::take(&mut self.last) } else { Snapshot::default() };
        self.is_there = true;
        // The growth since a snapshot without histograms is unknown.
        let workers: &[Worker] = if is_cut(&then) { &[] } else { &now.workers };
        for (index, worker) in workers.iter().enumerate() {
            let unseen = Worker::default();
            let before = then.workers.get(index).unwrap_or(&unseen);
            let of = self.workers.entry(worker.index).or_default();
            of.polls.merge(&worker.poll_time.since(&before.poll_time));
            of.delays.merge(&worker.schedule_delay.since(&before.schedule_delay));
        }
        self.note_blame(&then, now, is_same);
        self.note_what_goes_on(now);
        self.last = now.clone();
    }

    /// Records longest polls and delays caused, where they grew.
    fn note_blame(&mut self, then: &Snapshot, now: &Snapshot, is_same: bool) {
        let former: BTreeMap<_, _> = then.blame.iter().map(|blame| (blame.spawned_at.as_str(), blame)).collect();
        for blame in &now.blame {
            let (longest_ns, caused_ns) = match former.get(blame.spawned_at.as_str()) {
                Some(former) => (former.longest_poll_ns, former.delay_caused_ns),
                None if !is_same => (0, 0),
                // It has just entered the list, which has only the worst locations. Its earlier
                // values are unknown.
                None => (blame.longest_poll_ns, blame.delay_caused_ns),
            };
            if let Some(place) = self.place(&blame.spawned_at) {
                let more_ns = blame.delay_caused_ns.saturating_sub(caused_ns);
                place.delay_caused_ns = place.delay_caused_ns.saturating_add(more_ns);
                if blame.longest_poll_ns > longest_ns {
                    place.longest_poll_ns = place.longest_poll_ns.max(blame.longest_poll_ns);
                }
            }
        }
        let since_ns = if is_same { then.at_ns } else { 0 };
        for incident in &now.incidents.latest {
            let is_new = !incident.is_over || incident.began_at_ns.saturating_add(incident.for_ns) >= since_ns;
            if is_new && let Some(place) = self.place(&incident.spawned_at) {
                if incident.for_ns >= place.longest_poll_ns || place.line.is_none() {
                    place.line = incidents::line_within(incident, usize::MAX).or(place.line.take());
                }
                place.longest_poll_ns = place.longest_poll_ns.max(incident.for_ns);
            }
        }
    }

    fn note_what_goes_on(&mut self, now: &Snapshot) {
        self.is_cut |= is_cut(now);
        self.longest_wait_ns = self.longest_wait_ns.max(now.global_queue.oldest_age_ns.unwrap_or(0));
        for poll in now.workers.iter().filter_map(|worker| worker.in_flight.as_ref()) {
            if let Some(place) = self.place(&poll.spawned_at) {
                place.longest_poll_ns = place.longest_poll_ns.max(poll.for_ns);
            }
        }
    }

    fn place(&mut self, spawned_at: &str) -> Option<&mut Place> {
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(spawned_at) {
            return None;
        }
        Some(self.places.entry(spawned_at.to_owned()).or_default())
    }

    fn judge(&self, measure: Measure, limit: Limit) -> Verdict {
        let of_workers: Vec<_> = self.histograms(measure);
        let mut whole = Histogram::default();
        of_workers.iter().for_each(|(_, histogram)| whole.merge(histogram));
        if measure == Measure::Delay
            && self.is_there
            && let Some(waits_ns) = self.last.global_queue.oldest_age_ns
        {
            whole.record(waits_ns);
        }
        let exact_ns = match measure {
            Measure::Poll => self.places.values().map(|place| place.longest_poll_ns).max().unwrap_or(0),
            Measure::Delay => self.longest_wait_ns,
        };
        let limit_ns = limit.ns();
        let is_found = limit.is_for_each() && exact_ns > limit_ns;
        let bounds = whole.quantile_bounds_ns(limit.quantile);
        let is_exceeded = is_found || bounds.is_some_and(|(low, _)| low >= limit_ns);
        // The printed time must agree with the verdict where the bucket leaves both possible.
        let measured_ns = whole.quantile_ns(limit.quantile).map(|ns| match (limit.is_for_each(), is_exceeded) {
            (true, true) if exact_ns > 0 && bounds.is_some_and(|(low, _)| exact_ns >= low) => exact_ns,
            (_, true) => ns.max(limit_ns),
            (_, false) => ns.min(limit_ns),
        });
        // A worker's longest time must not exceed the longest of all, where that is known.
        let most_ns = measured_ns.filter(|_| limit.is_for_each()).unwrap_or(u64::MAX);
        let longest = |histogram: &Histogram| histogram.quantile_ns(1.0).unwrap_or(0).min(most_ns);
        let mut workers: Vec<_> = of_workers
            .iter()
            .map(|(index, histogram)| (*index, histogram.count_from(limit_ns), longest(histogram)))
            .filter(|(_, over, _)| *over > 0)
            .collect();
        workers.sort_by_key(|(index, over, _)| (std::cmp::Reverse(*over), *index));
        Verdict {
            runtime: self.last.runtime.clone(),
            measure,
            limit,
            count: whole.count(),
            measured_ns: measured_ns.or(is_found.then_some(exact_ns)),
            over: whole.count_from(limit_ns).max(u64::from(is_found)),
            is_exceeded,
            workers,
            places: if is_exceeded { self.places_behind(measure, limit_ns) } else { Vec::new() },
            is_cut: self.is_cut,
        }
    }

    /// Returns the histograms by worker. A poll in flight counts with its duration so far.
    fn histograms(&self, measure: Measure) -> Vec<(u32, Histogram)> {
        let of = |of: &OfWorker| match measure {
            Measure::Poll => of.polls.clone(),
            Measure::Delay => of.delays.clone(),
        };
        let mut all: BTreeMap<_, _> = self.workers.iter().map(|(index, worker)| (*index, of(worker))).collect();
        if measure == Measure::Poll && self.is_there {
            for worker in &self.last.workers {
                if let Some(poll) = &worker.in_flight {
                    all.entry(worker.index).or_default().record(poll.for_ns);
                }
            }
        }
        all.into_iter().collect()
    }

    fn places_behind(&self, measure: Measure, limit_ns: u64) -> Vec<(String, Place)> {
        let badness = |place: &Place| match measure {
            Measure::Poll if place.longest_poll_ns > limit_ns => place.longest_poll_ns,
            Measure::Poll => 0,
            Measure::Delay => place.delay_caused_ns,
        };
        let places = self.places.iter().filter(|(_, place)| badness(place) > 0);
        let mut places: Vec<_> = places.map(|(at, place)| (at.clone(), place.clone())).collect();
        places.sort_by_key(|(_, place)| std::cmp::Reverse(badness(place)));
        places
    }
}

/// Returns whether a snapshot lacks histograms, because it was too large.
fn is_cut(snapshot: &Snapshot) -> bool {
    ["poll_time", "schedule_delay", "workers"].into_iter().any(|field| snapshot.lacks(field))
}

#[cfg(test)]
mod tests;
