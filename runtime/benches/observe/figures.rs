//! The figures of one workload, and their result: the cost of observation, and whether it stays
//! below the ceiling.

use crate::quantile::quantile;
use crate::subjects::{CLOCK_KEPT, LOGGED, NAMES, RECORDED, UNOBSERVED, VOLT};
use crate::workloads::Workload;

/// Ceiling for the cost of everything that is on by default: ns per poll,
pub(crate) const CEILING_NS: f64 = 20.0;
/// and as a fraction of the cost without it.
pub(crate) const CEILING_RATIO: f64 = 0.05;
/// Maximum cost of a workload with an ordinary logger installed, as a multiple of its cost without.
pub(crate) const LOGGED_MULTIPLE: f64 = 1.3;

/// The figures of one workload, by the places in [`NAMES`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    costs_ns: [Vec<f64>; NAMES.len()],
    instructions: [Option<f64>; NAMES.len()],
}

/// The difference between two subjects, per operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Difference {
    pub(crate) with: f64,
    pub(crate) without: f64,
}

impl Difference {
    pub(crate) fn absolute(self) -> f64 {
        self.with - self.without
    }

    pub(crate) fn ratio(self) -> f64 {
        self.absolute() / self.without
    }

    pub(crate) fn a_poll(self, workload: &Workload) -> f64 {
        self.absolute() / workload.polls
    }
}

impl Figures {
    pub(crate) fn add_cost(&mut self, subject: usize, cost_ns: f64) {
        self.costs_ns[subject].push(cost_ns);
    }

    pub(crate) fn set_instructions(&mut self, subject: usize, instructions: f64) {
        self.instructions[subject] = Some(instructions);
    }

    /// Returns the instructions per operation.
    pub(crate) fn instructions(&self, subject: usize) -> Option<f64> {
        self.instructions[subject]
    }

    /// Returns the cost with an ordinary logger, as a multiple of the cost without.
    pub(crate) fn logged_multiple(&self) -> Option<f64> {
        Some(self.cost_ns(LOGGED)? / self.cost_ns(VOLT)?)
    }

    /// Returns the median over the rounds, ns per operation.
    pub(crate) fn cost_ns(&self, subject: usize) -> Option<f64> {
        self.quantile(subject, 0.5)
    }

    /// Returns half the distance between the quartiles of the rounds, ns per operation.
    pub(crate) fn spread_ns(&self, subject: usize) -> Option<f64> {
        Some((self.quantile(subject, 0.75)? - self.quantile(subject, 0.25)?) / 2.0)
    }

    fn quantile(&self, subject: usize, share: f64) -> Option<f64> {
        let mut costs_ns = self.costs_ns[subject].clone();
        (!costs_ns.is_empty()).then(|| quantile(&mut costs_ns, share))
    }

    /// Returns the costs with and without observation, ns, each in its best round, which other work
    /// on the machine disturbed least.
    pub(crate) fn best_ns(&self) -> Option<Difference> {
        Some(Difference { with: self.quantile(VOLT, 0.0)?, without: self.quantile(UNOBSERVED, 0.0)? })
    }

    /// Returns the costs with and without observation, ns.
    pub(crate) fn observation_ns(&self) -> Option<Difference> {
        Some(Difference { with: self.cost_ns(VOLT)?, without: self.cost_ns(UNOBSERVED)? })
    }

    /// Returns the costs with and without observation, instructions.
    pub(crate) fn observation_instructions(&self) -> Option<Difference> {
        Some(Difference { with: self.instructions(VOLT)?, without: self.instructions(UNOBSERVED)? })
    }

    /// Returns the part of that cost that is for reading the clock, ns.
    pub(crate) fn clock_ns(&self) -> Option<Difference> {
        Some(Difference { with: self.cost_ns(CLOCK_KEPT)?, without: self.cost_ns(UNOBSERVED)? })
    }

    /// Returns the costs with and without the flight recorder, ns.
    pub(crate) fn recorder_ns(&self) -> Option<Difference> {
        Some(Difference { with: self.cost_ns(RECORDED)?, without: self.cost_ns(VOLT)? })
    }

    /// Returns whether the cost in time stays below both ceilings.
    pub(crate) fn is_met(&self, workload: &Workload) -> Option<bool> {
        let observation = self.observation_ns()?;
        Some(observation.a_poll(workload) <= CEILING_NS && observation.ratio() <= CEILING_RATIO)
    }
}
