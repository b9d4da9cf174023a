//! The history of past snapshots: for each runtime, the distribution of delays and poll durations,
//! and what each worker did.
//!
//! Bounds: [`HISTORY_MAX`] moments are kept. Each takes `2 * CLASSES` counts per runtime and 16
//! bytes per worker, in total 0.5 MB with 64 workers, and 7 MB with 1024, the maximum. The history
//! of a runtime is dropped with the runtime.

use std::collections::VecDeque;

use volt_diagnosis::rates::Rates;
use volt_telemetry::histogram::{Histogram, bounds_of};
use volt_telemetry::snapshot::Snapshot;

/// The number of moments that are kept: one for each column of a wide terminal.
pub const HISTORY_MAX: usize = 400;
/// The range of the edges between the classes of times, as powers of two in ns. The lowest edge is
/// 2^10 ns (1 µs), and the highest 2^28 ns (268 ms); the last class is above it.
pub const EDGE_POWERS: [usize; 2] = [10, 28];
/// The number of classes.
pub const CLASSES: usize = EDGE_POWERS[1] - EDGE_POWERS[0] + 2;

/// A duration that is counted in classes of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The time from a task's wake-up to its poll.
    #[default]
    Delay,
    /// The duration of polls.
    Poll,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Kind; 2] = [Kind::Delay, Kind::Poll];

    /// Returns the name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Delay => "schedule delay",
            Kind::Poll => "poll duration",
        }
    }
}

/// The counts of one interval, by class.
pub type Spread = [u32; CLASSES];

/// Sums `histogram` up in classes.
pub fn spread(histogram: &Histogram) -> Spread {
    let mut spread = [0; CLASSES];
    // The edges are also bounds of buckets, so that each bucket belongs to one class.
    for (bucket, count) in histogram.counts().iter().enumerate().filter(|(_, count)| **count > 0) {
        let power = (bounds_of(bucket).1 - 1).checked_ilog2().map_or(0, |power| power as usize + 1);
        let class = &mut spread[power.saturating_sub(EDGE_POWERS[0]).min(CLASSES - 1)];
        *class = u32::try_from(*count).unwrap_or(u32::MAX).saturating_add(*class);
    }
    spread
}

/// The rates of a worker in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Polls per second.
    pub polls: u32,
    /// The busy time, in per cent.
    pub busy: u8,
    /// The time spent searching, in per cent.
    pub searching: u8,
    /// The time parked or in the driver, in per cent.
    pub asleep: u8,
    /// Tasks in its queues at the end of the interval.
    pub queued: u32,
}

/// The history of one runtime. `None` stands for a moment without a connection.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The runtime's name.
    pub name: String,
    /// Polls per second.
    pub polls: VecDeque<Option<u64>>,
    /// The distributions, by [`Kind`].
    pub spreads: VecDeque<Option<[Spread; 2]>>,
    /// The workers' points, by index.
    pub workers: Vec<VecDeque<Option<Point>>>,
}

impl History {
    pub(super) fn take(&mut self, runtime: &Snapshot, rates: &Rates) {
        push(&mut self.polls, Some(rates.polls_per_second as u64));
        let spreads = [spread(&rates.schedule_delay_histogram), spread(&rates.poll_time_histogram)];
        push(&mut self.spreads, Some(spreads));
        self.workers.resize_with(runtime.workers.len(), VecDeque::new);
        for ((points, worker), rates) in self.workers.iter_mut().zip(&runtime.workers).zip(&rates.workers) {
            let per_cent = |ratio: f64| (ratio * 100.0).round().clamp(0.0, 100.0) as u8;
            push(
                points,
                Some(Point {
                    polls: rates.polls_per_second as u32,
                    busy: per_cent(rates.shares.busy_ratio),
                    searching: per_cent(rates.shares.searching_ratio),
                    asleep: per_cent(rates.shares.parked_ratio + rates.shares.driver_ratio),
                    queued: u32::try_from(worker.queued()).unwrap_or(u32::MAX),
                }),
            );
        }
    }

    /// Records that the connection was lost.
    pub(super) fn break_off(&mut self) {
        push(&mut self.polls, None);
        push(&mut self.spreads, None);
        self.workers.iter_mut().for_each(|points| push(points, None));
    }

    /// Returns the distributions of a kind, the latest first.
    pub fn spreads_of(&self, kind: Kind) -> impl Iterator<Item = Option<&Spread>> {
        self.spreads.iter().rev().map(move |both| both.as_ref().map(|both| &both[kind as usize]))
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() == HISTORY_MAX {
        points.pop_front();
    }
    points.push_back(point);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_count_every_value_once_and_end_at_powers_of_two() {
        let mut histogram = Histogram::default();
        for ns in [5, 1_023, 1_024, 2_047, 268_435_455, 268_435_456, u64::MAX] {
            histogram.record(ns);
        }
        let spread = spread(&histogram);
        assert_eq!(spread.iter().sum::<u32>(), 7);
        assert_eq!((spread[0], spread[1], spread[CLASSES - 2], spread[CLASSES - 1]), (2, 2, 1, 2));
    }
}
