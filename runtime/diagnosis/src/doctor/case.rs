//! The input of the rules: a runtime now, and its changes since an earlier snapshot.
//!
//! # Invariants
//!
//! * *Two snapshots of one runtime*: a [`Span`] exists only between two snapshots of the same
//!   runtime that are at least [`INTERVAL_MIN_NS`] apart. Rules that compare two snapshots require
//!   one.
//! * *Active at both*: statements about a worker's share of the time only concern workers that were
//!   active at both snapshots, since spare workers come and go.

use volt_telemetry::snapshot::{Duty, Snapshot, Worker};

use crate::rates::{Rates, WorkerRates};

/// Two snapshots that are closer together than this, ns, count as one: over a shorter time, rates
/// are noise.
pub const INTERVAL_MIN_NS: u64 = 100_000_000;
/// A task that waits for longer than this was missed by the runtime's own supervision: two checks
/// of the sentinel at its default interval of 10 ms.
pub(super) const LATE_NS: u64 = 20_000_000;

/// The input for all rules.
pub(super) struct Case<'a> {
    pub(super) now: &'a Snapshot,
    /// `None` after a single snapshot.
    pub(super) span: Option<Span<'a>>,
    /// When the previous snapshot was taken, however recently; `None` if there was none.
    pub(super) since_ns: Option<u64>,
}

impl<'a> Case<'a> {
    pub(super) fn of(before: &'a Snapshot, after: &'a Snapshot) -> Self {
        let is_before = before.started_at_ns == after.started_at_ns && before.at_ns < after.at_ns;
        Self { now: after, span: Span::between(before, after), since_ns: is_before.then_some(before.at_ns) }
    }
}

/// A runtime between two snapshots.
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

    /// Returns whether no thread ran a current-thread runtime at its beginning or at its end.
    pub(super) fn is_undriven(&self) -> bool {
        self.then.is_undriven() || self.now.is_undriven()
    }

    /// Returns its length.
    pub(super) fn interval_ns(&self) -> u64 {
        self.rates.interval_ns
    }

    /// Returns `ns` as a share of the interval. It exceeds 1 if several threads contribute to it.
    pub(super) fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.interval_ns() as f64
    }

    /// Converts `count` in the interval to a rate.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.interval_ns() as f64
    }

    /// Returns the growth of a counter.
    pub(super) fn grown(&self, of: impl Fn(&Snapshot) -> u64) -> u64 {
        of(self.now).saturating_sub(of(self.then))
    }

    /// Returns whether a condition holds at both snapshots.
    pub(super) fn at_both(&self, is_so: impl Fn(&Snapshot) -> bool) -> bool {
        is_so(self.then) && is_so(self.now)
    }

    /// Returns the workers that were active at both snapshots.
    pub(super) fn pairs(&self) -> impl Iterator<Item = Pair<'_>> {
        let rates = self.rates.workers.iter();
        let pairs = self.then.workers.iter().zip(&self.now.workers).zip(rates);
        pairs
            .map(|((then, now), rates)| Pair { then, now, rates })
            .filter(|pair| pair.then.duty != Duty::Off && pair.now.duty != Duty::Off)
    }

    /// Returns the growth of a counter of the workers, summed over all of them.
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

    /// Returns the growth of a counter that may be absent.
    pub(super) fn grown_if_known(&self, of: impl Fn(&Worker) -> Option<u64>) -> Option<u64> {
        Some(of(self.now)?.saturating_sub(of(self.then)?))
    }

    /// Returns the lower number of tasks in its queues at the two snapshots. Excludes its LIFO
    /// slot, from which other workers take only when it is stuck.
    pub(super) fn queue_len(&self) -> u32 {
        queue_len(self.then).min(queue_len(self.now))
    }

    /// Returns the share of the time in which it was parked.
    pub(super) fn asleep_ratio(&self) -> f64 {
        self.rates.shares.parked_ratio + self.rates.shares.driver_ratio
    }
}

/// Returns the number of tasks in a worker's queues, excluding its LIFO slot.
pub(super) fn queue_len(worker: &Worker) -> u32 {
    worker.ring_len.saturating_add(worker.batch_len).saturating_add(worker.inbox_len)
}

/// Returns the duration of the current poll, or 0 if there is none.
pub(super) fn poll_for_ns(worker: &Worker) -> u64 {
    worker.in_flight.as_ref().map_or(0, |poll| poll.for_ns)
}
