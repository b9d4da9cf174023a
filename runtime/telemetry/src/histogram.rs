//! Log-linear histogram of durations in ns. The runtime's counters and all readers share its
//! layout.
//!
//! Each value below 16 has a separate bucket. Above that, every power of two is split into 16 equal
//! buckets, up to 2^40 ns (18 minutes). Larger values count in the last bucket. The bounds of a
//! bucket are at most 1/16 apart, so a quantile has an error of about 3 % at most. Powers of two
//! are bucket bounds, so a coarser histogram (Prometheus) is an exact sum of buckets.
//!
//! The layout is that of HdrHistogram (Gil Tene), with a fixed number of significant bits.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// log2 of the number of buckets per power of two.
const SUB_BITS: u32 = 4;
/// Number of buckets per power of two.
const SUB: usize = 1 << SUB_BITS;
/// Values of at least 2^`MAX_BITS` count in the last bucket.
const MAX_BITS: u32 = 40;
/// The number of buckets of a histogram.
pub const BUCKETS: usize = SUB + (MAX_BITS - SUB_BITS) as usize * SUB;

const _: () = assert!(bucket_of(u64::MAX) == BUCKETS - 1);
const _: () = assert!(bucket_of((1 << MAX_BITS) - 1) == BUCKETS - 1);
const _: () = assert!(bucket_of(15) == 15 && bucket_of(16) == 16);

/// Returns the bucket that counts `ns`.
///
/// ```
/// use volt_telemetry::histogram::{bounds_of, bucket_of};
/// let (low, high) = bounds_of(bucket_of(1_000));
/// assert!(low <= 1_000 && 1_000 < high);
/// ```
#[inline]
pub const fn bucket_of(ns: u64) -> usize {
    let bucket = unbounded_bucket_of(ns);
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// Returns the bucket of `ns` like [`bucket_of`], but with separate buckets for values above the
/// last one, up to bucket 975.
///
/// For callers that keep their own counters and pass them to [`Histogram::from_counts`].
#[inline]
pub const fn unbounded_bucket_of(ns: u64) -> usize {
    // Without a branch, because this runs for every poll. Below 16 the shift is 0 and the value is
    // its own bucket. Above, the shifted value lies between 16 and 31.
    let shift = 63 - (ns | SUB as u64).leading_zeros() - SUB_BITS;
    shift as usize * SUB + (ns >> shift) as usize
}

/// Returns the bounds of `bucket` in ns: the lower is inclusive, the upper exclusive.
///
/// The last bucket also counts all larger values.
pub const fn bounds_of(bucket: usize) -> (u64, u64) {
    if bucket < SUB {
        return (bucket as u64, bucket as u64 + 1);
    }
    let octave = (bucket - SUB) / SUB;
    let within = ((bucket - SUB) % SUB) as u64;
    let low = (SUB as u64 + within) << octave;
    (low, low + (1 << octave))
}

/// A histogram of durations: the counts per bucket, and the sum in ns.
///
/// Only non-empty buckets are sent on the wire.
///
/// ```
/// let mut h = volt_telemetry::Histogram::default();
/// for ns in [100, 200, 300, 400] {
///     h.record(ns);
/// }
/// assert_eq!(h.count(), 4);
/// assert!(h.quantile_ns(0.5).unwrap().abs_diff(200) < 10);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], sum_ns: 0 }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("sum_ns", &self.sum_ns)
            .field("p50_ns", &self.quantile_ns(0.5))
            .field("p99_ns", &self.quantile_ns(0.99))
            .finish()
    }
}

impl Histogram {
    /// Creates a histogram from counts per bucket. Counts past [`BUCKETS`] are added to the last
    /// bucket.
    pub fn from_counts(counts: impl IntoIterator<Item = u64>, sum_ns: u64) -> Self {
        let mut histogram = Self { sum_ns, ..Self::default() };
        for (bucket, count) in counts.into_iter().enumerate() {
            histogram.add(bucket, count);
        }
        histogram
    }

    fn add(&mut self, bucket: usize, count: u64) {
        let slot = &mut self.counts[bucket.min(BUCKETS - 1)];
        *slot = slot.saturating_add(count);
    }

    /// Records one value.
    pub fn record(&mut self, ns: u64) {
        self.add(bucket_of(ns), 1);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, &count) in other.counts.iter().enumerate() {
            self.add(bucket, count);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Returns the values recorded since `earlier`, a previous state of the same histogram.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then));
        Histogram { counts: counts.collect(), sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns) }
    }

    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the sum of the recorded values, in ns.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the counts per bucket, [`BUCKETS`] of them.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the `q`-quantile (0..=1) in ns, with an error of about 3 %; `None` if the histogram
    /// is empty.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        self.quantile_bounds_ns(q).map(|(low, high)| low + (high - low) / 2)
    }

    /// Returns the bounds in ns between which the `q`-quantile (0..=1) certainly lies; the upper is
    /// exclusive. A quantile in the last bucket may exceed its upper bound.
    ///
    /// Returns `None` if the histogram is empty. For callers that must not report more than is
    /// certain.
    pub fn quantile_bounds_ns(&self, q: f64) -> Option<(u64, u64)> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                return Some(bounds_of(bucket));
            }
        }
        None
    }

    /// Returns the number of values that were certainly at least `limit_ns`: those in buckets that
    /// begin at or above the limit.
    pub fn count_from(&self, limit_ns: u64) -> u64 {
        let from = self.counts.iter().enumerate().filter(|(bucket, _)| bounds_of(*bucket).0 >= limit_ns);
        from.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// Returns the number of values below `limit_ns`; exact if the limit is at most 16, or a power
    /// of two below 2^40.
    pub fn count_below(&self, limit_ns: u64) -> u64 {
        let inside = |bucket: usize| bounds_of(bucket).1 <= limit_ns;
        self.counts
            .iter()
            .enumerate()
            .take_while(|(bucket, _)| inside(*bucket))
            .map(|(_, count)| *count)
            .fold(0, u64::saturating_add)
    }
}

/// The wire form: the non-empty buckets.
#[derive(Serialize, Deserialize)]
struct Sparse {
    sum_ns: u64,
    /// (bucket, count)
    counts: Vec<(u32, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let counts = filled.map(|(bucket, count)| (bucket as u32, *count)).collect();
        Sparse { sum_ns: self.sum_ns, counts }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sparse = Sparse::deserialize(deserializer)?;
        let mut histogram = Histogram { sum_ns: sparse.sum_ns, ..Histogram::default() };
        for (bucket, count) in sparse.counts {
            histogram.add(bucket as usize, count);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_axis_without_gap_or_overlap() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, high) = bounds_of(bucket);
            assert_eq!(low, next, "bucket {bucket} starts where the one before ends");
            assert_eq!(bucket_of(low), bucket);
            assert_eq!(bucket_of(high - 1), bucket);
            next = high;
        }
        assert_eq!(next, 1 << MAX_BITS);
    }

    #[test]
    fn quantiles_are_within_four_per_cent() {
        let mut h = Histogram::default();
        let values: Vec<u64> = (1..=100_000).map(|i| i * 37).collect();
        values.iter().for_each(|v| h.record(*v));
        for q in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let exact = values[(q * values.len() as f64) as usize - 1];
            let got = h.quantile_ns(q).unwrap();
            assert!(got.abs_diff(exact) * 100 <= exact * 4, "q {q}: {got} is not near {exact}");
        }
    }

    #[test]
    fn quantiles_are_within_bounds_and_count_from_never_overcounts() {
        let mut h = Histogram::default();
        assert_eq!((h.quantile_bounds_ns(1.0), h.count_from(0)), (None, 0));
        [100, 49_900_000, 60_000_000].into_iter().for_each(|ns| h.record(ns));
        let (low, high) = h.quantile_bounds_ns(0.5).unwrap();
        assert!(low <= 49_900_000 && 49_900_000 < high, "{low}..{high}");
        // According to its bucket, 49.9 ms could be more than 50 ms.
        assert_eq!([1, 50_000_000, 70_000_000].map(|limit| h.count_from(limit)), [3, 1, 0]);
        assert_eq!(h.count_from(low), 2, "the bucket that begins there is in");
    }

    #[test]
    fn octave_limits_count_exactly() {
        let mut h = Histogram::default();
        for ns in [1_023, 1_024, 2_047, 2_048] {
            h.record(ns);
        }
        assert_eq!((h.count_below(1_024), h.count_below(2_048), h.count_below(4_096)), (1, 3, 4));
    }

    #[test]
    fn the_wire_form_round_trips_and_survives_foreign_buckets() {
        let mut h = Histogram::default();
        [3, 500, 1 << 50].into_iter().for_each(|ns| h.record(ns));
        let json = serde_json::to_string(&h).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), h);
        let foreign = r#"{"sum_ns":5,"counts":[[4000000000,7]]}"#;
        assert_eq!(serde_json::from_str::<Histogram>(foreign).unwrap().count(), 7);
    }
}
