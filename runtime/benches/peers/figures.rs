//! A row of the table: its target, the figures of the rounds, and the result.

use crate::quantile::quantile;
use crate::runtimes::NAMES;

/// The target of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Maximum of Volt's cost divided by Tokio's.
    Ratio(f64),
    /// Maximum in the row's unit.
    AtMost(f64),
    /// Both.
    Both { ratio: f64, at_most: f64 },
    /// For comparison with another row, without a target.
    None,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) target: Target,
    /// A description in a few words.
    pub(crate) about: &'static str,
}

/// Formats the target: the maximum ratio, and the maximum value with its unit.
pub(crate) fn target(row: &Row) -> String {
    let unit = row.unit;
    match row.target {
        Target::Ratio(ratio) => format!("≤ {ratio:.2}"),
        Target::AtMost(at_most) => format!("≤ {at_most} {unit}"),
        Target::Both { ratio, at_most } => format!("≤ {ratio:.2}, {at_most} {unit}"),
        Target::None => "–".to_owned(),
    }
}

/// The figures of one row, a list per runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures([Vec<f64>; NAMES.len()]);

impl Figures {
    pub(crate) fn add(&mut self, runtime: usize, value: f64) {
        self.0[runtime].push(value);
    }

    pub(crate) fn quantile(&self, runtime: usize, share: f64) -> Option<f64> {
        let mut values = self.0[runtime].clone();
        (!values.is_empty()).then(|| quantile(&mut values, share))
    }

    pub(crate) fn median(&self, runtime: usize) -> Option<f64> {
        self.quantile(runtime, 0.5)
    }

    pub(crate) fn spread(&self, runtime: usize) -> Option<f64> {
        let (low, middle, high) = (self.quantile(runtime, 0.25)?, self.median(runtime)?, self.quantile(runtime, 0.75)?);
        (middle > 0.0).then(|| (high - low) / middle)
    }

    /// Returns Volt's cost divided by Tokio's, for the medians (0.5) or for the best rounds (0).
    pub(crate) fn ratio(&self, share: f64) -> Option<f64> {
        let (volt, tokio) = (self.quantile(0, share)?, self.quantile(1, share)?);
        (tokio > 0.0).then(|| volt / tokio)
    }

    pub(crate) fn is_met(&self, target: Target) -> Option<bool> {
        let within = |ratio: f64| self.ratio(0.5).map(|found| found <= ratio);
        let below = |at_most: f64| self.median(0).map(|found| found <= at_most);
        match target {
            Target::Ratio(ratio) => within(ratio),
            Target::AtMost(at_most) => below(at_most),
            Target::Both { ratio, at_most } => Some(within(ratio)? && below(at_most)?),
            Target::None => None,
        }
    }
}
