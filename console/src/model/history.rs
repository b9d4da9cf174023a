//! What is kept of the snapshots that have gone by: for each runtime how delays and poll times were
//! spread, and what each worker did.
//!
//! Bounds: [`HISTORY_MAX`] moments; of a moment `2 * CLASSES` counts a runtime and 12 bytes a
//! worker: with 64 workers 400 kB, with 1024 (the most there can be) 5 MB. A runtime that is gone
//! takes its history with it.

use std::collections::VecDeque;

use volt_diagnosis::rates::Rates;
use volt_telemetry::histogram::{Histogram, bounds_of};
use volt_telemetry::snapshot::Snapshot;

/// Moments that are kept: one for each column of a wide terminal.
pub const HISTORY_MAX: usize = 400;
/// The classes of times end at powers of two: the first at 2^10 ns, a µs, the last but one at 2^28,
/// 268 ms; above that is the last.
pub const EDGE_POWERS: [usize; 2] = [10, 28];
/// How many there are.
pub const CLASSES: usize = EDGE_POWERS[1] - EDGE_POWERS[0] + 2;

/// What is counted in classes of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// From a task's wake-up to its poll.
    #[default]
    Delay,
    /// How long polls took.
    Poll,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Delay, Kind::Poll];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Delay => "schedule delay",
            Kind::Poll => "poll time",
        }
    }
}

/// Counts of one interval by class.
pub type Spread = [u32; CLASSES];

/// `histogram` in classes.
pub fn spread(histogram: &Histogram) -> Spread {
    let mut spread = [0; CLASSES];
    // The edges are bounds of buckets too, so that each bucket belongs to one class.
    for (bucket, count) in histogram.counts().iter().enumerate().filter(|(_, count)| **count > 0) {
        let power = (bounds_of(bucket).1 - 1).checked_ilog2().map_or(0, |power| power as usize + 1);
        let class = &mut spread[power.saturating_sub(EDGE_POWERS[0]).min(CLASSES - 1)];
        *class = u32::try_from(*count).unwrap_or(u32::MAX).saturating_add(*class);
    }
    spread
}

/// What a worker did in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Polls a second.
    pub polls: u32,
    /// Per cent of its time.
    pub busy: u8,
    /// Per cent of its time.
    pub searching: u8,
    /// Per cent of its time, in a park or in the driver.
    pub asleep: u8,
    /// Tasks in its queues at the end of the interval.
    pub queued: u32,
}

/// Of one runtime. `None` where there was no connection.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The runtime's name.
    pub name: String,
    /// Polls a second.
    pub polls: VecDeque<Option<u64>>,
    /// By [`Kind`].
    pub spreads: VecDeque<Option<[Spread; 2]>>,
    /// By the worker's index.
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

    /// The connection was lost.
    pub(super) fn break_off(&mut self) {
        push(&mut self.polls, None);
        push(&mut self.spreads, None);
        self.workers.iter_mut().for_each(|points| push(points, None));
    }

    /// How the times of a kind were spread, the latest first.
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
