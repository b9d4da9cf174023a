//! What was found for one workload, and what follows: the cost of observation, and whether it stays
//! under the ceiling.

use crate::quantile::quantile;
use crate::subjects::{CLOCK_KEPT, LOGGED, NAMES, UNOBSERVED, VOLT};
use crate::workloads::Workload;

/// What all that is on by default may cost: ns a poll,
pub(crate) const CEILING_NS: f64 = 20.0;
/// and of what the same costs without.
pub(crate) const CEILING_RATIO: f64 = 0.05;
/// What a workload may cost with an ordinary logger installed, as a multiple of what it costs
/// without.
pub(crate) const LOGGED_MULTIPLE: f64 = 1.3;

/// Of one workload; by the places in [`NAMES`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    costs_ns: [Vec<f64>; NAMES.len()],
    instructions: [Option<f64>; NAMES.len()],
}

/// A difference between two subjects, an operation.
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

    /// Instructions an operation.
    pub(crate) fn instructions(&self, subject: usize) -> Option<f64> {
        self.instructions[subject]
    }

    /// With an ordinary logger, as a multiple of without.
    pub(crate) fn logged_multiple(&self) -> Option<f64> {
        Some(self.cost_ns(LOGGED)? / self.cost_ns(VOLT)?)
    }

    /// The median over the rounds, ns an operation.
    pub(crate) fn cost_ns(&self, subject: usize) -> Option<f64> {
        self.quantile(subject, 0.5)
    }

    /// Half the distance between the quartiles of the rounds, ns an operation.
    pub(crate) fn spread_ns(&self, subject: usize) -> Option<f64> {
        Some((self.quantile(subject, 0.75)? - self.quantile(subject, 0.25)?) / 2.0)
    }

    fn quantile(&self, subject: usize, share: f64) -> Option<f64> {
        let mut costs_ns = self.costs_ns[subject].clone();
        (!costs_ns.is_empty()).then(|| quantile(&mut costs_ns, share))
    }

    /// Observed and not, each in its best round, which other work on the machine disturbed least,
    /// ns.
    pub(crate) fn best_ns(&self) -> Option<Difference> {
        Some(Difference { with: self.quantile(VOLT, 0.0)?, without: self.quantile(UNOBSERVED, 0.0)? })
    }

    /// Observed and not, ns.
    pub(crate) fn observation_ns(&self) -> Option<Difference> {
        Some(Difference { with: self.cost_ns(VOLT)?, without: self.cost_ns(UNOBSERVED)? })
    }

    /// Observed and not, instructions.
    pub(crate) fn observation_instructions(&self) -> Option<Difference> {
        Some(Difference { with: self.instructions(VOLT)?, without: self.instructions(UNOBSERVED)? })
    }

    /// What of it is for reading the clock, ns.
    pub(crate) fn clock_ns(&self) -> Option<Difference> {
        Some(Difference { with: self.cost_ns(CLOCK_KEPT)?, without: self.cost_ns(UNOBSERVED)? })
    }

    /// What of it is for reading the clock, instructions.
    pub(crate) fn clock_instructions(&self) -> Option<Difference> {
        Some(Difference { with: self.instructions(CLOCK_KEPT)?, without: self.instructions(UNOBSERVED)? })
    }

    /// Whether the cost in time stays under both ceilings.
    pub(crate) fn is_met(&self, workload: &Workload) -> Option<bool> {
        let observation = self.observation_ns()?;
        Some(observation.a_poll(workload) <= CEILING_NS && observation.ratio() <= CEILING_RATIO)
    }
}
