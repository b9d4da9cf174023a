//! How often a worker checks the global queue: a moving average of its poll time, and the interval
//! that follows from the average.
//!
//! A worker polls its own tasks first. It must still check the global queue often enough that tasks
//! there do not wait long, and seldom enough that the checks cost little. So `interval =
//! clamp(target / avg, min, max)` local polls lie between two checks. By default the target is 3 µs
//! and the bounds are 1 and 255: three polls of 1 µs lie between two checks, or one longer poll. A
//! target of 1 ms and bounds of 8 and 255 give the classic table: 255, 100, 20, 10 and 8 for polls
//! of 1, 10, 50, 100 and 1000 µs. `Core::due_check` applies the interval. It also checks when the
//! target time itself has passed, since polls may become longer than the average.
//!
//! `avg = w * sample + (1 - w) * avg`, once per tick, where the sample is the mean of the tick's
//! polls. A full tick has the weight `w = α`, and a tick of `n` polls `w = 1 − (1 − α)^(n /
//! budget)`. So each poll has the same weight, α / budget, in a tick of any length. One outlier of
//! 10 ms among polls of 10 µs reduces the interval of the table above from 100 to 56.
//!
//! Two simpler weights were rejected. Weighting each poll with α, `1 − (1 − α)^n`, discards
//! everything but the last tick: the same outlier reduces the interval to 11. Weighting each tick
//! with α, whatever its length, lets a tick of one poll count as much as one of 128: that outlier,
//! alone in its tick, reduces it to 1. The price of the chosen weight is that a new average takes
//! about 3,000 polls to settle; meanwhile the elapsed time bounds the wait.
//!
//! Only the worker that owns the tuner reads and writes it. Invariant: *Monotone*: slower polls
//! never lengthen the interval.

use crate::config::Config;

/// 1 in the fixed-point format of weights and of the average. It is fine enough that the weight of
/// a single poll, about a thousandth, does not round to zero, and that averages of up to 4 hours
/// fit.
const ONE: u64 = 1 << 20;

/// The average poll time and the interval of one worker: see the module documentation.
#[derive(Debug)]
pub(crate) struct Tuner {
    /// ns, in units of 1/ONE.
    avg: u64,
    interval: u32,
    min: u32,
    max: u32,
    target_ns: u64,
    /// `(1 − α)^(n / budget)` in units of 1/ONE, for n = 0..=budget.
    decay: Box<[u64]>,
}

impl Tuner {
    pub(crate) fn new(config: &Config) -> Self {
        let keep = 1.0 - f64::from(config.ewma_alpha_per_mille) / 1000.0;
        let budget = config.budget_per_tick;
        // One root and a product for each weight: a root for each would take longer than the rest
        // of a runtime's start.
        let of_one_poll = root(keep, budget);
        let mut weight = 1.0;
        let of_next = |_| {
            let of_this = weight;
            weight *= of_one_poll;
            (of_this * ONE as f64) as u64
        };
        let mut tuner = Self {
            avg: config.default_avg_task_ns.clamp(1, u64::MAX / ONE) * ONE,
            interval: 0,
            min: config.min_global_queue_interval,
            max: config.max_global_queue_interval,
            target_ns: config.target_global_queue_latency_ns,
            // The length is known in advance, so the table is allocated once.
            decay: (0..=budget).map(of_next).collect(),
        };
        tuner.interval = tuner.interval_for(tuner.avg_ns());
        tuner
    }

    /// Returns the moving average of the poll time in ns; at least 1.
    pub(crate) fn avg_ns(&self) -> u64 {
        (self.avg / ONE).max(1)
    }

    /// Returns how many local polls lie between two checks of the global queue.
    #[inline]
    pub(crate) fn interval(&self) -> u32 {
        self.interval
    }

    /// Adds a tick of `polls` polls that took `busy_ns` together.
    pub(crate) fn record(&mut self, polls: u32, busy_ns: u64) {
        if polls == 0 {
            return;
        }
        let old = self.decay[(polls as usize).min(self.decay.len() - 1)];
        let sample = u128::from(busy_ns) * u128::from(ONE) / u128::from(polls);
        let avg = (sample * u128::from(ONE - old) + u128::from(self.avg) * u128::from(old)) / u128::from(ONE);
        self.avg = u64::try_from(avg).unwrap_or(u64::MAX);
        self.interval = self.interval_for(self.avg_ns());
    }

    fn interval_for(&self, avg_ns: u64) -> u32 {
        let polls = self.target_ns / avg_ns;
        u32::try_from(polls).unwrap_or(u32::MAX).clamp(self.min, self.max)
    }
}

/// Returns the `degree`th root of a number from 0 to 1.
///
/// By bisection, since `f64::powf` would be the runtime's only use of the library `libm`, which
/// takes half a megabyte of a program's memory.
fn root(number: f64, degree: u32) -> f64 {
    let degree = i32::try_from(degree).unwrap_or(i32::MAX);
    let (mut below, mut above) = (0.0, 1.0);
    for _ in 0..f64::MANTISSA_DIGITS {
        let middle: f64 = (below + above) / 2.0;
        match middle.powi(degree) < number {
            true => below = middle,
            false => above = middle,
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::builder::Builder;

    fn tuner() -> Tuner {
        Tuner::new(Builder::new_multi_thread().config())
    }

    /// A target that spreads over many intervals.
    fn slow() -> Builder {
        Builder::new_multi_thread()
            .target_global_queue_latency(Duration::from_millis(1))
            .global_queue_interval_bounds(8, 255)
    }

    fn settled(mut tuner: Tuner, poll_ns: u64) -> Tuner {
        (0..400).for_each(|_| tuner.record(128, 128 * poll_ns));
        tuner
    }

    #[test]
    fn a_target_of_1_ms_and_8_to_255_give_the_classic_table() {
        let table = [(1_000, 255), (10_000, 100), (50_000, 20), (100_000, 10), (1_000_000, 8), (50_000_000, 8)];
        let tuner = || Tuner::new(slow().config());
        for (poll_ns, interval) in table {
            assert_eq!(settled(tuner(), poll_ns).interval(), interval, "polls of {poll_ns} ns");
        }
        assert_eq!(tuner().interval(), 20, "before anything was measured");
    }

    #[test]
    fn by_default_checks_are_3_us_apart_or_one_poll() {
        let table = [(1, 255), (100, 30), (1_000, 3), (1_400, 2), (3_000, 1), (10_000, 1), (1_000_000, 1)];
        for (poll_ns, interval) in table {
            assert_eq!(settled(tuner(), poll_ns).interval(), interval, "polls of {poll_ns} ns");
        }
        assert_eq!(tuner().interval(), 1, "before anything was measured");
    }

    #[test]
    fn one_outlier_in_a_full_tick_moves_the_interval_to_56() {
        let mut tuner = settled(Tuner::new(slow().config()), 10_000);
        assert_eq!(tuner.interval(), 100);
        tuner.record(128, 127 * 10_000 + 10_000_000);
        assert_eq!(tuner.interval(), 56);
    }

    #[test]
    fn a_poll_weighs_the_same_in_a_tick_of_any_length() {
        let (mut alone, mut in_crowd) = (settled(tuner(), 10_000), settled(tuner(), 10_000));
        alone.record(1, 10_000_000);
        in_crowd.record(128, 127 * 10_000 + 10_000_000);
        // 8 µs more: a 128th of a tenth of 10 ms.
        let moved_ns = [&alone, &in_crowd].map(|tuner| tuner.avg_ns() - 10_000);
        assert!(moved_ns.iter().all(|ns| (7_500..8_500).contains(ns)), "{moved_ns:?}");
    }

    #[test]
    fn many_short_ticks_move_the_average_as_one_full_tick_does() {
        let (mut one, mut many) = (tuner(), tuner());
        one.record(128, 128 * 1_000);
        (0..128).for_each(|_| many.record(1, 1_000));
        assert!(one.avg_ns().abs_diff(many.avg_ns()) <= 50, "{} {}", one.avg_ns(), many.avg_ns());
        assert!(one.avg_ns().abs_diff(45_100) <= 50, "a tenth is new: {}", one.avg_ns());
    }

    #[test]
    fn slower_polls_never_lengthen_the_interval() {
        let intervals: Vec<u32> = (0..40).map(|power| settled(tuner(), 1u64 << power).interval()).collect();
        assert!(intervals.is_sorted_by(|faster, slower| faster >= slower), "{intervals:?}");
    }

    #[test]
    fn extreme_samples_neither_overflow_nor_reach_zero() {
        let mut tuner = tuner();
        tuner.record(u32::MAX, u64::MAX);
        tuner.record(1, u64::MAX);
        assert!(tuner.interval() == 1 && tuner.avg_ns() > 1 << 40, "{tuner:?}");
        (0..1000).for_each(|_| tuner.record(128, 0));
        assert_eq!((tuner.avg_ns(), tuner.interval()), (1, 255));
    }

    /// Runs `check` on 200 random cases: a tuner, and ticks of (polls, ns per poll).
    fn for_random_ticks(check: impl Fn(Tuner, Vec<(u32, u64)>)) {
        for seed in 0..200 {
            let mut rng = crate::scheduler::core::rng::FastRand::new(seed, 0);
            let ticks = (0..1 + rng.below(300)).map(|_| {
                let magnitude = rng.below(30) as u32;
                (1 + rng.below(128) as u32, (1u64 << magnitude) + rng.below(1 << 20) as u64)
            });
            let ticks: Vec<_> = ticks.collect();
            check(tuner(), ticks);
        }
    }

    #[test]
    fn the_average_stays_between_the_extreme_samples() {
        for_random_ticks(|mut tuner, ticks| {
            let (mut low, mut high) = (tuner.avg_ns(), tuner.avg_ns());
            for (polls, poll_ns) in ticks {
                (low, high) = (low.min(poll_ns), high.max(poll_ns));
                tuner.record(polls, u64::from(polls) * poll_ns);
                assert!((low - 1..=high).contains(&tuner.avg_ns()), "{} is not in {low}..={high}", tuner.avg_ns());
                assert!((1..=255).contains(&tuner.interval()));
            }
        });
    }

    #[test]
    fn slower_polls_never_lengthen_the_global_queue_interval() {
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
    fn a_steady_load_replaces_earlier_ones_within_100_ticks() {
        for_random_ticks(|mut tuner, ticks| {
            for (polls, poll_ns) in ticks {
                tuner.record(polls, u64::from(polls) * poll_ns);
            }
            let before_ns = tuner.avg_ns();
            (0..100).for_each(|_| tuner.record(128, 128 * 10_000));
            // 0.9^100 is 1/40,000.
            let left_ns = before_ns / 30_000 + 1;
            assert!(tuner.avg_ns().abs_diff(10_000) <= left_ns, "{} after {before_ns}", tuner.avg_ns());
        });
    }

    #[test]
    fn a_root_is_that_of_the_standard_library() {
        for degree in [1, 2, 61, 128, 4096] {
            for number in [0.0, 0.001, 0.5, 0.9, 0.999, 1.0] {
                let expected = f64::powf(number, 1.0 / f64::from(degree));
                let found = root(number, degree);
                assert!((found - expected).abs() < 1e-15, "{number}, {degree}: {found}, {expected}");
            }
        }
    }
}
