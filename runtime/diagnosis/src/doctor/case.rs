//! What rules examine: a runtime now, and what has happened to it since an earlier snapshot.
//!
//! Invariants. *Two snapshots of one runtime*: a [`Span`] exists only between two moments of the
//! same runtime, at least
//! [`INTERVAL_MIN_NS`] apart; rules that compare are not asked without one. *On duty at both*: what
//! is said about a worker's share of the time is said only of workers that were on duty at both
//! snapshots; a spare comes and goes.

use volt_telemetry::snapshot::{Duty, Snapshot, Worker};

use crate::rates::{Rates, WorkerRates};

/// Two snapshots that are closer together than this, ns, are one snapshot: of a shorter time rates
/// are noise.
pub const INTERVAL_MIN_NS: u64 = 100_000_000;
/// What waits for longer than this has slipped through the runtime's own net: two checks of the
/// sentinel at its default distance of 10 ms.
pub(super) const LATE_NS: u64 = 20_000_000;

/// A runtime, for all rules.
pub(super) struct Case<'a> {
    pub(super) now: &'a Snapshot,
    /// `None` after a single snapshot.
    pub(super) span: Option<Span<'a>>,
    /// When the snapshot before was, however close; `None` if there was none.
    pub(super) since_ns: Option<u64>,
}

impl<'a> Case<'a> {
    pub(super) fn of(before: &'a Snapshot, after: &'a Snapshot) -> Self {
        let is_before = before.started_at_ns == after.started_at_ns && before.at_ns < after.at_ns;
        Self { now: after, span: Span::between(before, after), since_ns: is_before.then_some(before.at_ns) }
    }
}

/// A runtime from one snapshot to the next.
pub(super) struct Span<'a> {
    pub(super) then: &'a Snapshot,
    pub(super) now: &'a Snapshot,
    pub(super) rates: Rates,
}

impl<'a> Span<'a> {
    fn between(then: &'a Snapshot, now: &'a Snapshot) -> Option<Self> {
        let rates = Rates::between(then, now).filter(|rates| rates.interval_ns >= INTERVAL_MIN_NS)?;
        Some(Self { then, now, rates })
    }

    /// How long it is.
    pub(super) fn interval_ns(&self) -> u64 {
        self.rates.interval_ns
    }

    /// `ns` as a share of it; above 1 if several threads add to it.
    pub(super) fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.interval_ns() as f64
    }

    /// `count` in it, as a rate.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.interval_ns() as f64
    }

    /// By how much a counter has grown.
    pub(super) fn grown(&self, of: impl Fn(&Snapshot) -> u64) -> u64 {
        of(self.now).saturating_sub(of(self.then))
    }

    /// Whether something is so at both snapshots.
    pub(super) fn at_both(&self, is_so: impl Fn(&Snapshot) -> bool) -> bool {
        is_so(self.then) && is_so(self.now)
    }

    /// The workers that were on duty at both snapshots.
    pub(super) fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        let rates = self.rates.workers.iter();
        let pairs = self.then.workers.iter().zip(&self.now.workers).zip(rates);
        pairs
            .map(|((then, now), rates)| Pair { then, now, rates })
            .filter(|pair| pair.then.duty != Duty::Off && pair.now.duty != Duty::Off)
    }

    /// By how much a counter of the workers has grown, over all of them.
    pub(super) fn grown_of_workers(&self, of: fn(&Worker) -> u64) -> u64 {
        self.grown(|snapshot| snapshot.workers.iter().map(of).fold(0, u64::saturating_add))
    }
}

/// A worker at both snapshots.
#[derive(Clone, Copy)]
pub(super) struct Pair<'s> {
    pub(super) then: &'s Worker,
    pub(super) now: &'s Worker,
    pub(super) rates: &'s WorkerRates,
}

impl Pair<'_> {
    pub(super) fn index(&self) -> u32 {
        self.now.index
    }

    pub(super) fn grown(&self, of: impl Fn(&Worker) -> u64) -> u64 {
        of(self.now).saturating_sub(of(self.then))
    }

    /// By how much a counter has grown that may be absent.
    pub(super) fn grown_if_known(&self, of: impl Fn(&Worker) -> Option<u64>) -> Option<u64> {
        Some(of(self.now)?.saturating_sub(of(self.then)?))
    }

    /// Tasks that waited in its queues at both snapshots, at least; its LIFO slot left out, from
    /// which others take only when it is stuck.
    pub(super) fn queue_len(&self) -> u32 {
        queue_len(self.then).min(queue_len(self.now))
    }

    /// The share of the time in which it slept.
    pub(super) fn asleep_ratio(&self) -> f64 {
        self.rates.shares.parked_ratio + self.rates.shares.driver_ratio
    }
}

/// Tasks in a worker's queues, its LIFO slot left out.
pub(super) fn queue_len(worker: &Worker) -> u32 {
    worker.ring_len.saturating_add(worker.batch_len).saturating_add(worker.inbox_len)
}

/// How long the poll that is going on has lasted; 0 if none is.
pub(super) fn poll_for_ns(worker: &Worker) -> u64 {
    worker.in_flight.as_ref().map_or(0, |poll| poll.for_ns)
}
