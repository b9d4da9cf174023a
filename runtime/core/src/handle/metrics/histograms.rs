//! The histograms of durations, bucket by bucket. All have the same buckets, which cannot be set:
//! those of [`volt_telemetry::histogram`].

use std::ops::Range;
use std::time::Duration;

use volt_telemetry::histogram::{BUCKETS, bounds_of};

use super::RuntimeMetrics;
use crate::stats::counting;

impl RuntimeMetrics {
    /// Returns whether the durations of polls are counted. They always are, unless Volt was built
    /// with `--cfg volt_unobserved`.
    pub fn poll_time_histogram_enabled(&self) -> bool {
        counting::IS_ON
    }

    /// Returns the number of buckets of the histogram of poll durations.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let metrics = runtime.metrics();
    /// let buckets = metrics.poll_time_histogram_num_buckets();
    /// let polls: u64 = (0..buckets).map(|bucket| metrics.poll_time_histogram_bucket_count(0, bucket)).sum();
    /// assert_eq!(polls, 0);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn poll_time_histogram_num_buckets(&self) -> usize {
        BUCKETS
    }

    /// Returns the durations that a bucket of the histogram of poll durations counts. The last
    /// bucket also counts all longer ones.
    ///
    /// # Panics
    /// Panics if there is no such bucket.
    #[track_caller]
    pub fn poll_time_histogram_bucket_range(&self, bucket: usize) -> Range<Duration> {
        range_of(bucket)
    }

    /// Returns how many polls of a worker had a duration in the range of this bucket. A poll may be
    /// counted only when the worker's next poll begins. In a current-thread runtime, the polls of
    /// the future in `block_on` count, too.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers), or if there is no such
    /// bucket.
    #[track_caller]
    pub fn poll_time_histogram_bucket_count(&self, worker: usize, bucket: usize) -> u64 {
        self.cells(worker).poll_time.count(checked(bucket))
    }

    /// Returns whether the delays between the wake-up of a task and its poll are counted. They
    /// always are, unless Volt was built with `--cfg volt_unobserved`.
    pub fn schedule_latency_histogram_enabled(&self) -> bool {
        counting::IS_ON
    }

    /// Returns the number of buckets of the histogram of schedule delays.
    pub fn schedule_latency_histogram_num_buckets(&self) -> usize {
        BUCKETS
    }

    /// Returns the durations that a bucket of the histogram of schedule delays counts. The last
    /// bucket also counts all longer ones.
    ///
    /// # Panics
    /// Panics if there is no such bucket.
    #[track_caller]
    pub fn schedule_latency_histogram_bucket_range(&self, bucket: usize) -> Range<Duration> {
        range_of(bucket)
    }

    /// Returns how many polls of a worker began after a schedule delay in the range of this bucket.
    ///
    /// # Panics
    /// Panics if `worker` is not below [`num_workers`](Self::num_workers), or if there is no such
    /// bucket.
    #[track_caller]
    pub fn schedule_latency_histogram_bucket_count(&self, worker: usize, bucket: usize) -> u64 {
        self.cells(worker).schedule_delay.count(checked(bucket))
    }
}

#[track_caller]
fn range_of(bucket: usize) -> Range<Duration> {
    let (low, high) = bounds_of(checked(bucket));
    let high = if bucket == BUCKETS - 1 { u64::MAX } else { high };
    Duration::from_nanos(low)..Duration::from_nanos(high)
}

#[track_caller]
fn checked(bucket: usize) -> usize {
    assert!(bucket < BUCKETS, "bucket {bucket} does not exist: the histogram has {BUCKETS} buckets");
    bucket
}
