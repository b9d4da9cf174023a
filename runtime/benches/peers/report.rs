//! What is printed: a table for people, or one JSON object a line.
//!
//! The JSON keys: `workload`, `unit`; `volt`, `tokio`, `smol`: the medians, in that unit; `spread`: for each, the distance between the
//! quartiles of its rounds divided by its median; `best`: for each, its best round, which other work on the machine disturbed least;
//! `ratio_to_tokio`: Volt's median divided by Tokio's, below 1 is better; `target`: the greatest ratio that is aimed at, or, where
//! `target_is` says "absolute", the greatest value; `target_max`: a greatest value beside the ratio, where there is one; `is_met`, by the
//! medians. What was not measured or cannot be said (a ratio to 0) is null.

use std::fmt::Display;

use crate::arguments::Arguments;
use crate::meter::quantile;
use crate::runtimes::NAMES;

/// What a workload aims at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Volt's cost divided by Tokio's, at most.
    Ratio(f64),
    /// In the row's unit, at most.
    AtMost(f64),
    /// Both.
    Both { ratio: f64, at_most: f64 },
    /// Shown beside another row, and not judged.
    None,
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) target: Target,
}

/// What the rounds found for one row, a list a runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures([Vec<f64>; NAMES.len()]);

impl Figures {
    pub(crate) fn add(&mut self, runtime: usize, value: f64) {
        self.0[runtime].push(value);
    }

    fn quantile(&self, runtime: usize, share: f64) -> Option<f64> {
        let mut values = self.0[runtime].clone();
        (!values.is_empty()).then(|| quantile(&mut values, share))
    }

    fn median(&self, runtime: usize) -> Option<f64> {
        self.quantile(runtime, 0.5)
    }

    fn spread(&self, runtime: usize) -> Option<f64> {
        let (low, middle, high) = (self.quantile(runtime, 0.25)?, self.median(runtime)?, self.quantile(runtime, 0.75)?);
        (middle > 0.0).then(|| (high - low) / middle)
    }

    /// Volt's divided by Tokio's, of the medians (0.5) or of the best rounds (0).
    fn ratio(&self, share: f64) -> Option<f64> {
        let (volt, tokio) = (self.quantile(0, share)?, self.quantile(1, share)?);
        (tokio > 0.0).then(|| volt / tokio)
    }

    fn is_met(&self, target: Target) -> Option<bool> {
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

/// See the header of this file.
pub(crate) struct Report {
    is_json: bool,
}

impl Report {
    pub(crate) fn begin(arguments: &Arguments) -> Self {
        let is_json = arguments.json;
        if !is_json {
            println!(
                "{} workers, {} rounds; medians, in brackets the quartiles' distance; ratio = volt / tokio, best = of the best \
                 rounds; load {}\n",
                arguments.workers,
                arguments.rounds,
                load()
            );
            println!(
                "{:<22} {:<9} {:>16} {:>16} {:>16} {:>7} {:>7} {:>22}",
                "workload", "unit", NAMES[0], NAMES[1], NAMES[2], "ratio", "best", "target"
            );
        }
        Self { is_json }
    }

    pub(crate) fn row(&self, row: &Row, figures: &Figures) {
        if self.is_json { println!("{}", json(row, figures)) } else { println!("{}", line(row, figures)) }
    }

    pub(crate) fn end(self) {
        if !self.is_json {
            println!("\nload at the end {}", load());
        }
    }
}

fn line(row: &Row, figures: &Figures) -> String {
    let cell = |runtime| match (figures.median(runtime), figures.spread(runtime)) {
        (Some(median), Some(spread)) => format!("{} [{:>3.0}%]", number(median), spread * 100.0),
        (Some(median), None) => format!("{}       ", number(median)),
        (None, _) => "–".to_owned(),
    };
    let ratio = |share| figures.ratio(share).map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    let met = match figures.is_met(row.target) {
        Some(true) => " met",
        Some(false) => " MISSED",
        None => "",
    };
    format!(
        "{:<22} {:<9} {:>16} {:>16} {:>16} {:>7} {:>7} {:>22}",
        row.name,
        row.unit,
        cell(0),
        cell(1),
        cell(2),
        ratio(0.5),
        ratio(0.0),
        format!("{}{met}", target(row.target))
    )
}

/// With as many digits as mean something.
fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

/// For people.
pub(crate) fn target(target: Target) -> String {
    match target {
        Target::Ratio(ratio) => format!("≤ {ratio:.2}"),
        Target::AtMost(at_most) => format!("≤ {at_most} abs"),
        Target::Both { ratio, at_most } => format!("≤ {ratio:.2}, {at_most} abs"),
        Target::None => "–".to_owned(),
    }
}

fn json(row: &Row, figures: &Figures) -> String {
    let each = |of: &dyn Fn(usize) -> Option<f64>| {
        let pairs: Vec<_> =
            NAMES.iter().enumerate().map(|(index, name)| format!("\"{name}\":{}", or_null(of(index)))).collect();
        pairs.join(",")
    };
    let (aimed, kind, max) = match row.target {
        Target::Ratio(ratio) => (Some(ratio), "\"ratio\"", None),
        Target::AtMost(at_most) => (Some(at_most), "\"absolute\"", None),
        Target::Both { ratio, at_most } => (Some(ratio), "\"ratio\"", Some(at_most)),
        Target::None => (None, "null", None),
    };
    format!(
        "{{\"workload\":\"{}\",\"unit\":\"{}\",{},\"spread\":{{{}}},\"best\":{{{}}},\"ratio_to_tokio\":{},\"target\":{},\"target_is\":{kind},\
         \"target_max\":{},\"is_met\":{}}}",
        row.name,
        row.unit,
        each(&|runtime| figures.median(runtime)),
        each(&|runtime| figures.spread(runtime)),
        each(&|runtime| figures.quantile(runtime, 0.0)),
        or_null(figures.ratio(0.5)),
        or_null(aimed),
        or_null(max),
        or_null(figures.is_met(row.target)),
    )
}

fn or_null(value: Option<impl Display>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

/// The system's load averages, where it tells them.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<_> = text.split(' ').take(3).collect();
    averages.join(" ")
}
