//! How long one round goes on, and what it found.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::quantile::quantile;

/// The fraction of a round's time that warms up and is not counted.
const WARM_UP: u32 = 5;
/// Batches counted at least, however long one takes.
const MIN_BATCHES: usize = 3;

/// See the header of this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// Threads each runtime is started with.
    pub(crate) workers: usize,
    /// Time for one round.
    time: Duration,
    /// Instead of the time: exactly so many batches.
    batches: Option<usize>,
    pub(crate) is_quick: bool,
    /// Batches cost what the process spends on processors, not what a batch says: other work on the
    /// machine hardly moves that.
    is_cpu: bool,
}

impl Meter {
    pub(crate) fn new(workers: usize, time: Duration, batches: Option<usize>, is_quick: bool, is_cpu: bool) -> Self {
        Self { workers, time, batches, is_quick, is_cpu }
    }

    /// Runs batches of `operations` for the round's time. A batch says how long it took; returns
    /// the median cost of an operation, ns.
    ///
    /// Of processor time the mean: the kernel counts that of a thread which goes on running, on
    /// another processor, at its next tick, so that a single batch may be told nothing, and the
    /// one after the tick too much.
    pub(crate) fn cost_ns(&self, operations: usize, batch: impl FnMut() -> Duration) -> Vec<f64> {
        let cost = |took: Duration| took.as_nanos() as f64 / operations as f64;
        if !self.is_cpu {
            return vec![quantile(&mut self.each(batch, cost), 0.5)];
        }
        let until = |_| cpu_time();
        let ends = self.each(batch, until);
        let [first, .., last] = ends[..] else { unreachable!("a round has {MIN_BATCHES} batches") };
        vec![cost(last - first) / (ends.len() - 1) as f64]
    }

    /// Repeats `batch` for the round's time, and gives what is made of each result once it is warm.
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

    /// How often something is done that is counted one by one; `full` unless quick or told
    /// otherwise.
    pub(crate) fn samples(&self, full: usize, quick: usize) -> usize {
        self.batches.unwrap_or(if self.is_quick { quick } else { full })
    }
}

/// Time that all threads of this process have spent on a processor, user and system.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
