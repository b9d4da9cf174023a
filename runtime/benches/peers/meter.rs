//! The length of one round, and its figures.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::quantile::quantile;

/// The fraction of a round's time that warms up and is not counted.
const WARM_UP: u32 = 5;
/// Minimum number of batches that are counted, however long one takes.
const MIN_BATCHES: usize = 3;
/// Minimum number of batches that `--batches` sets with `--cpu`: processor time is measured from
/// the end of the first batch to that of the last.
pub(crate) const MIN_CPU_BATCHES: usize = 2;

/// See the header of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// Number of workers of each runtime.
    pub(crate) workers: usize,
    /// Duration of one round.
    time: Duration,
    /// Exactly this many batches instead of the duration.
    batches: Option<usize>,
    pub(crate) is_quick: bool,
    /// Measures batches by the processor time of the program instead of the time that a batch
    /// returns. Other work on the machine hardly affects that.
    is_cpu: bool,
}

impl Meter {
    pub(crate) fn new(workers: usize, time: Duration, batches: Option<usize>, is_quick: bool, is_cpu: bool) -> Self {
        Self { workers, time, batches, is_quick, is_cpu }
    }

    /// Runs batches of `operations` for the round's duration. A batch returns how long it took.
    /// Returns the median cost of an operation, ns.
    ///
    /// For processor time it returns the mean. The kernel updates the time of a thread that is
    /// running on another processor only at its next tick. So a single batch may measure nothing,
    /// and the batch after the tick too much.
    pub(crate) fn cost_ns(&self, operations: usize, batch: impl FnMut() -> Duration) -> Vec<f64> {
        let cost = |took: Duration| took.as_nanos() as f64 / operations as f64;
        if !self.is_cpu {
            return vec![quantile(&mut self.each(batch, cost), 0.5)];
        }
        let until = |_| cpu_time();
        let ends = self.each(batch, until);
        let [first, .., last] = ends[..] else { unreachable!("fewer than {MIN_CPU_BATCHES} batches") };
        vec![cost(last - first) / (ends.len() - 1) as f64]
    }

    /// Repeats `batch` for the round's duration, and returns the value that `make` creates from
    /// each result after the warm-up.
    pub(crate) fn each<T, U>(&self, mut batch: impl FnMut() -> T, mut make: impl FnMut(T) -> U) -> Vec<U> {
        if let Some(batches) = self.batches {
            return (0..batches).map(|_| make(batch())).collect();
        }
        let began = Instant::now();
        while {
            batch();
            began.elapsed() < self.time / WARM_UP
        } {}
        let mut results = Vec::new();
        while results.len() < MIN_BATCHES || began.elapsed() < self.time {
            results.push(make(batch()));
        }
        results
    }

    /// Returns the number of repetitions for samples that are taken one by one; `full` unless quick
    /// or set by an option.
    pub(crate) fn samples(&self, full: usize, quick: usize) -> usize {
        self.batches.unwrap_or(if self.is_quick { quick } else { full })
    }
}

/// Returns the processor time of all threads of this program, user and system.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
