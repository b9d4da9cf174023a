//! The order of polls in a runtime with a seed.
//!
//! A program has a race if its result depends on the order in which its tasks are polled. An
//! ordinary runtime polls them in nearly the same order each time, so the race shows once in a
//! million runs. In a runtime with a seed, the next task is chosen at random from all that are
//! ready. The random numbers are generated from the seed: another seed leads to another order, and
//! the same seed leads to the same order again.
//!
//! The only worker of such a runtime, the thread in `block_on`, calls [`Seeded::choose`] before
//! each poll (`worker/seeded`). A draw depends only on the seed, on the number of earlier draws and
//! on the tasks that are ready. It reads neither the clock of the program nor the ids of tasks,
//! which differ from run to run. Instead, each task gets an *ordinal*: its position in the order in
//! which tasks became ready for the first time.
//!
//! There are two *styles*, one of which is chosen from the seed:
//!
//! * *Even*: each ready task is equally likely.
//! * *Favour*: each task has a priority, which is a hash of its ordinal and of the *epoch*. The
//!   ready task with the highest priority is next. Each poll begins a new epoch with a probability
//!   between 1/4 and 1/64, which is chosen from the seed, too. So one task may run for many polls
//!   while another one waits. With even draws, such an order would need as many lucky draws in a
//!   row. Since epochs end, a task that yields in a loop does not keep the others waiting for ever.
//!
//! A race may also lie between two operations of one poll, which no other task can interrupt here,
//! since there is one worker. Therefore half of the polls have a small *cooperative budget*: up to
//! three operations on channels, locks and timers. The next operation then yields, as it would
//! after 128 operations in any runtime, and another task may be polled in between.
//!
//! The *fingerprint* is a hash over all draws: which tasks were ready, in the order in which they
//! were woken, which one was chosen, and at what time of the simulated clock. Two runs with the
//! same fingerprint polled their tasks in the same order.
//!
//! The lock is held only for a draw or a reading. Writers: the worker, and code that draws a number
//! by `draw`. Any thread may read.
//!
//! Source of *Favour*: Burckhardt and others, "A Randomized Scheduler with Probabilistic Guarantees
//! of Finding Bugs", ASPLOS 2010, with epochs instead of a fixed number of changes. Source of the
//! generator: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use volt_shim::Mutex;

/// Distinguishes the numbers that the program draws from those of the scheduler, so that one more
/// number for the program changes no later order by itself.
const PROGRAM_NUMBERS: u64 = 0x70_72_6f_67_72_61_6d;
/// The number of budgets of a poll that is to end early, from 0.
const SHORT_BUDGETS: u64 = 4;
/// The odd number next to 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// The least and the greatest expected length of an epoch, as powers of two.
const EPOCH_BITS: std::ops::RangeInclusive<u64> = 2..=6;

/// See the header of this file.
pub(crate) struct Seeded {
    seed: u64,
    /// When the simulated clock started, ns of that clock.
    began_at_ns: u64,
    poll_limit: u64,
    state: Mutex<State>,
}

struct State {
    style: Style,
    order: Numbers,
    program: Numbers,
    fingerprint: u64,
    polls: u64,
    /// By the id of the task. It has one entry for each task that was ever ready, so at most one
    /// per poll and ready task; the limit on polls bounds a run.
    ordinals: HashMap<u64, u64, BuildHasherDefault<IdHasher>>,
    /// Why the runtime cannot continue.
    stopped: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Even,
    Favour { epoch: u64, epoch_bits: u64 },
}

impl Seeded {
    pub(crate) fn new(seed: u64, poll_limit: u64, began_at_ns: u64) -> Self {
        let mut order = Numbers(seed);
        let style = match order.below(2) {
            0 => Style::Even,
            _ => {
                let choices = EPOCH_BITS.end() - EPOCH_BITS.start() + 1;
                Style::Favour { epoch: order.next(), epoch_bits: EPOCH_BITS.start() + order.below(choices) }
            }
        };
        let state = State {
            style,
            order,
            program: Numbers(mix(seed ^ PROGRAM_NUMBERS)),
            fingerprint: mix(seed.wrapping_add(GOLDEN)),
            polls: 0,
            ordinals: HashMap::default(),
            stopped: None,
        };
        Self { seed, began_at_ns, poll_limit, state: Mutex::new(state) }
    }

    /// Chooses one of the tasks that are ready, and returns its position. `ready` has their ids, in
    /// the order in which they were woken, and is not empty.
    pub(crate) fn choose(&self, ready: &[u64], now_ns: u64) -> usize {
        let mut state = self.state.lock();
        let State { style, order, ordinals, fingerprint, polls, .. } = &mut *state;
        let mut ordinal_of = |id: u64| {
            let next = ordinals.len() as u64;
            *ordinals.entry(id).or_insert(next)
        };
        let mut add = |value: u64| *fingerprint = mix(fingerprint.wrapping_add(GOLDEN) ^ value);
        for &id in ready {
            add(ordinal_of(id));
        }
        let chosen = match style {
            Style::Even => order.below(ready.len() as u64) as usize,
            Style::Favour { epoch, epoch_bits } => {
                if order.below(1 << *epoch_bits) == 0 {
                    *epoch = order.next();
                }
                let priority = |&(_, &id): &(usize, &u64)| mix(*epoch ^ mix(ordinal_of(id)));
                ready.iter().enumerate().max_by_key(priority).map_or(0, |(index, _)| index)
            }
        };
        add(chosen as u64);
        add(now_ns.saturating_sub(self.began_at_ns));
        *polls += 1;
        chosen
    }

    /// Draws the cooperative budget of the next poll: the usual one, or so few operations that the
    /// poll ends at one of its first `.await`s. Each second poll has the usual one, on average, so
    /// every task makes progress.
    pub(crate) fn draw_budget(&self, usual: u32) -> u32 {
        let mut state = self.state.lock();
        match state.order.below(2) {
            0 => usual,
            _ => usual.min(state.order.below(SHORT_BUDGETS) as u32),
        }
    }

    /// Draws which of `branches` a `select!` polls first: a part of the order.
    pub(crate) fn draw_branch(&self, branches: u64) -> u64 {
        self.state.lock().order.below(branches)
    }

    /// Returns the next number for the program.
    pub(crate) fn draw(&self) -> u64 {
        self.state.lock().program.next()
    }

    /// Returns the next number for the program, in `0..n`.
    pub(crate) fn draw_below(&self, n: u64) -> u64 {
        self.state.lock().program.below(n)
    }

    /// Returns the hash over all choices so far.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn fingerprint(&self) -> u64 {
        self.state.lock().fingerprint
    }

    /// Returns the limit on the number of polls if it was reached.
    pub(crate) fn reached_limit(&self) -> Option<u64> {
        (self.state.lock().polls >= self.poll_limit).then_some(self.poll_limit)
    }

    /// Stores why the runtime cannot continue, for `block_on`.
    pub(crate) fn stop(&self, reason: &str) {
        let mut state = self.state.lock();
        state.stopped = Some(format!("{reason} (seed {}, schedule {:016x})", self.seed, state.fingerprint));
    }

    /// Takes the reason stored by `stop`.
    pub(crate) fn take_stopped(&self) -> Option<String> {
        self.state.lock().stopped.take()
    }
}

/// SplitMix64. Neighbouring seeds give unrelated sequences.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Returns a number in `0..n`, or 0 for `n = 0`, by Lemire's multiply-shift.
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Hashes ids of tasks. The map is only searched, never iterated.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are ids")
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix(id);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NO_LIMIT: u64 = u64::MAX;

    fn choices(seeded: &Seeded, ids: &[u64], count: usize) -> Vec<usize> {
        (0..count).map(|_| seeded.choose(ids, 0)).collect()
    }

    fn style_of(seed: u64) -> Style {
        Seeded::new(seed, NO_LIMIT, 0).state.lock().style
    }

    #[test]
    fn the_same_seed_draws_the_same_order_whatever_the_ids() {
        for seed in 0..50 {
            let (one, other) = (Seeded::new(seed, NO_LIMIT, 0), Seeded::new(seed, NO_LIMIT, 0));
            assert_eq!(choices(&one, &[7, 8, 9], 100), choices(&other, &[70, 3, 900], 100));
            assert_eq!(one.fingerprint(), other.fingerprint());
            assert_eq!(one.draw(), other.draw());
        }
    }

    #[test]
    fn neighbouring_seeds_draw_different_orders() {
        let orders: BTreeSet<_> =
            (0..100).map(|seed| choices(&Seeded::new(seed, NO_LIMIT, 0), &[1, 2, 3, 4], 64)).collect();
        assert!(orders.len() > 95, "{} of 100", orders.len());
    }

    #[test]
    fn both_styles_occur_and_reach_every_task() {
        let styles = (0..100).filter(|&seed| style_of(seed) == Style::Even).count();
        assert!((30..70).contains(&styles), "{styles} of 100 seeds draw evenly");
        for seed in 0..20 {
            let seen: BTreeSet<_> = choices(&Seeded::new(seed, NO_LIMIT, 0), &[1, 2, 3], 2000).into_iter().collect();
            assert_eq!(seen.len(), 3, "seed {seed} never chooses a task that is always ready");
        }
    }

    #[test]
    fn the_fingerprint_covers_wake_order_choice_and_time() {
        let fingerprint = |rounds: &[(&[u64], u64)]| {
            let seeded = Seeded::new(4, NO_LIMIT, 0);
            for (ids, now_ns) in rounds {
                seeded.choose(ids, *now_ns);
            }
            seeded.fingerprint()
        };
        let usual = fingerprint(&[(&[1, 2], 0), (&[1, 2], 0)]);
        assert_eq!(usual, fingerprint(&[(&[1, 2], 0), (&[1, 2], 0)]));
        assert_ne!(usual, fingerprint(&[(&[1, 2], 0), (&[2, 1], 0)]), "woken in another order");
        assert_ne!(usual, fingerprint(&[(&[1, 2], 0), (&[1], 0)]), "fewer tasks are ready");
        assert_ne!(usual, fingerprint(&[(&[1, 2], 0), (&[1, 2], 5)]), "at another time");
    }

    #[test]
    fn numbers_for_the_program_do_not_change_the_order() {
        let (with, without) = (Seeded::new(3, NO_LIMIT, 0), Seeded::new(3, NO_LIMIT, 0));
        (0..10).for_each(|_| _ = with.draw());
        assert_eq!(choices(&with, &[1, 2, 3], 50), choices(&without, &[1, 2, 3], 50));
    }

    #[test]
    fn short_and_usual_budgets_occur() {
        let seeded = Seeded::new(5, NO_LIMIT, 0);
        let budgets: BTreeSet<_> = (0..200).map(|_| seeded.draw_budget(128)).collect();
        assert_eq!(budgets, BTreeSet::from([0, 1, 2, 3, 128]));
        let small: BTreeSet<_> = (0..200).map(|_| seeded.draw_budget(2)).collect();
        assert_eq!(small, BTreeSet::from([0, 1, 2]), "never more than the usual one");
    }

    #[test]
    fn the_limit_is_reached_after_as_many_polls() {
        let seeded = Seeded::new(1, 2, 0);
        seeded.choose(&[1], 0);
        assert_eq!(seeded.reached_limit(), None);
        seeded.choose(&[1], 0);
        assert_eq!(seeded.reached_limit(), Some(2));
    }
}
