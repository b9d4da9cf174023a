//! How often to look at the global queue: a moving average of poll time, and the interval that follows from it.
//!
//! `avg = α·sample + (1 − α)·avg`, `interval = clamp(target / avg, min, max)`. A tick's sample is the mean of its polls and counts
//! as that many samples, `1 − (1 − α)^n`, so that one slow poll alone in its tick does not weigh as much as 128.
//!
//! Who writes, who reads: the worker that owns it. Invariant: *Monotone*: slower polls never lengthen the interval.
//!
//! Source: seed 000, "Adaptive Global Queue Interval", with the two corrections above; its samples include search and I/O, ours polls only.

use crate::config::Config;

/// Fractional bits of the weights.
const ONE: u64 = 1 << 16;

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Tuner {
    avg_ns: u64,
    interval: u32,
    min: u32,
    max: u32,
    target_ns: u64,
    /// `(1 − α)^n` in 1/ONE, for n = 0..=budget.
    decay: Box<[u64]>,
}

impl Tuner {
    pub(crate) fn new(config: &Config) -> Self {
        let keep = ONE - ONE * u64::from(config.ewma_alpha_per_mille) / 1000;
        let powers = std::iter::successors(Some(ONE), |power| Some(power * keep / ONE));
        let mut tuner = Self {
            avg_ns: config.default_avg_task_ns.max(1),
            interval: 0,
            min: config.min_global_queue_interval,
            max: config.max_global_queue_interval,
            target_ns: config.target_global_queue_latency_ns,
            decay: powers.take(config.budget_per_tick as usize + 1).collect(),
        };
        tuner.interval = tuner.interval_for(tuner.avg_ns);
        tuner
    }

    /// Moving average of poll time, ns; at least 1.
    pub(crate) fn avg_ns(&self) -> u64 {
        self.avg_ns
    }

    /// Polls between two looks at the global queue.
    pub(crate) fn interval(&self) -> u32 {
        self.interval
    }

    /// A tick of `polls` polls that took `busy_ns` together.
    pub(crate) fn record(&mut self, polls: u32, busy_ns: u64) {
        if polls == 0 {
            return;
        }
        let sample = busy_ns / u64::from(polls);
        let old = self.decay[(polls as usize).min(self.decay.len() - 1)];
        let avg = u128::from(sample) * u128::from(ONE - old) + u128::from(self.avg_ns) * u128::from(old);
        self.avg_ns = u64::try_from(avg / u128::from(ONE)).unwrap_or(u64::MAX).max(1);
        self.interval = self.interval_for(self.avg_ns);
    }

    fn interval_for(&self, avg_ns: u64) -> u32 {
        let polls = self.target_ns / avg_ns;
        u32::try_from(polls).unwrap_or(u32::MAX).clamp(self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;

    fn tuner() -> Tuner {
        Tuner::new(Builder::new_multi_thread().config())
    }

    fn settled_at(poll_ns: u64) -> Tuner {
        let mut tuner = tuner();
        (0..200).for_each(|_| tuner.record(128, 128 * poll_ns));
        tuner
    }

    #[test]
    fn the_interval_table_of_the_source_holds() {
        let table = [(1_000, 255), (10_000, 100), (50_000, 20), (100_000, 10), (1_000_000, 8), (50_000_000, 8)];
        for (poll_ns, interval) in table {
            assert_eq!(settled_at(poll_ns).interval(), interval, "polls of {poll_ns} ns");
        }
        assert_eq!(tuner().interval(), 20, "before anything was measured");
    }

    #[test]
    fn a_single_outlier_moves_the_average_by_its_weight_only() {
        let mut tuner = settled_at(10_000);
        tuner.record(1, 1_000_000);
        assert!(tuner.avg_ns().abs_diff(109_000) < 1_000, "10 % of 1 ms and 90 % of 10 µs: {}", tuner.avg_ns());
    }

    #[test]
    fn a_full_tick_weighs_as_much_as_its_polls() {
        let mut tuner = tuner();
        tuner.record(128, 128 * 1_000);
        assert!(tuner.avg_ns() < 1_100, "1 − 0.9^128 of the sample: {}", tuner.avg_ns());
    }

    #[test]
    fn slower_polls_never_lengthen_the_interval() {
        let intervals: Vec<u32> = (0..40).map(|power| settled_at(1u64 << power).interval()).collect();
        assert!(intervals.is_sorted_by(|faster, slower| faster >= slower), "{intervals:?}");
    }

    #[test]
    fn extreme_samples_neither_overflow_nor_reach_zero() {
        let mut tuner = tuner();
        tuner.record(u32::MAX, u64::MAX);
        tuner.record(1, u64::MAX);
        (0..1000).for_each(|_| tuner.record(128, 0));
        assert_eq!((tuner.avg_ns(), tuner.interval()), (1, 255));
    }

    /// Runs `check` on 200 random programs: a tuner, and ticks of (polls, ns a poll).
    fn for_random_ticks(check: impl Fn(Tuner, Vec<(u32, u64)>)) {
        for seed in 0..200 {
            let mut rng = crate::rng::FastRand::new(seed, 0);
            let ticks = (0..1 + rng.below(300)).map(|_| {
                let magnitude = rng.below(30) as u32;
                (1 + rng.below(128) as u32, (1u64 << magnitude) + rng.below(1 << 20) as u64)
            });
            let ticks: Vec<_> = ticks.collect();
            check(tuner(), ticks);
        }
    }

    #[test]
    fn the_average_stays_between_the_smallest_and_the_largest_sample() {
        for_random_ticks(|mut tuner, ticks| {
            let (mut low, mut high) = (tuner.avg_ns(), tuner.avg_ns());
            for (polls, poll_ns) in ticks {
                (low, high) = (low.min(poll_ns), high.max(poll_ns));
                tuner.record(polls, u64::from(polls) * poll_ns);
                assert!((low - 1..=high).contains(&tuner.avg_ns()), "{} is not in {low}..={high}", tuner.avg_ns());
                assert!((8..=255).contains(&tuner.interval()));
            }
        });
    }

    #[test]
    fn of_two_tuners_the_one_with_slower_polls_never_has_the_longer_interval() {
        for_random_ticks(|mut faster, ticks| {
            let mut slower = tuner();
            for (polls, poll_ns) in ticks {
                faster.record(polls, u64::from(polls) * poll_ns);
                slower.record(polls, u64::from(polls) * (poll_ns + poll_ns / 7));
                assert!(slower.avg_ns() >= faster.avg_ns());
                assert!(slower.interval() <= faster.interval());
            }
        });
    }

    #[test]
    fn whatever_came_before_a_steady_load_is_forgotten_within_a_hundred_polls() {
        for_random_ticks(|mut tuner, ticks| {
            for (polls, poll_ns) in ticks {
                tuner.record(polls, u64::from(polls) * poll_ns);
            }
            let before_ns = tuner.avg_ns();
            (0..100).for_each(|_| tuner.record(1, 10_000));
            // 0.9^100 is a forty-thousandth; a nanosecond is lost to rounding at each step.
            let left_ns = before_ns / 30_000 + 100;
            assert!(tuner.avg_ns().abs_diff(10_000) <= left_ns, "{} after {before_ns}", tuner.avg_ns());
        });
    }

    #[test]
    fn one_outlier_moves_the_average_by_a_tenth_of_itself_at_most() {
        for_random_ticks(|mut tuner, ticks| {
            for (polls, poll_ns) in ticks {
                tuner.record(polls, u64::from(polls) * poll_ns);
                let (mut with, before_ns) = (Tuner { decay: tuner.decay.clone(), ..tuner }, tuner.avg_ns());
                let outlier_ns = before_ns * 1_000;
                with.record(1, outlier_ns);
                assert!(with.avg_ns() <= before_ns + outlier_ns / 10 + 1);
            }
        });
    }
}
