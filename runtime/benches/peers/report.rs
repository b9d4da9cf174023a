//! The output: a table for a terminal, a table in Markdown (`--markdown`), or one JSON object per
//! line.
//!
//! The JSON keys:
//! * `workload`, `unit`;
//! * `volt`, `tokio`, `smol`: the medians, in that unit;
//! * `spread`: for each, the distance between the quartiles of its rounds divided by its median;
//! * `best`: for each, its best round, which other work on the machine disturbed least;
//! * `ratio_to_tokio`: Volt's median divided by Tokio's, below 1 is better;
//! * `target`: the maximum ratio, or, if `target_is` is "absolute", the maximum value;
//! * `target_max`: a maximum value in addition to the ratio, if there is one;
//! * `is_met`, by the medians.
//!
//! Values that were not measured or are undefined (a ratio to 0) are null.

use std::fmt::Display;

use crate::arguments::{Arguments, Form};
use crate::figures::{Figures, Row, Target, target};
use crate::machine;
use crate::runtimes::NAMES;

/// The packages whose versions a page has to name.
const PACKAGES: [&str; 6] = ["volt-runtime", "tokio", "async-executor", "async-io", "blocking", "hyper"];

/// See the header of this file.
pub(crate) struct Report {
    form: Form,
    load: String,
    /// The number of rows that met their target, and of rows with a target.
    met: (usize, usize),
}

impl Report {
    pub(crate) fn begin(arguments: &Arguments) -> Self {
        let load = machine::load();
        match arguments.form {
            Form::Json => {}
            Form::Table => println!(
                "{} workers, {} rounds; medians, in brackets the quartiles' distance; ratio = volt / tokio, best = of the best \
                 rounds; load {load}\n\n{:<22} {:<9} {:>16} {:>16} {:>16} {:>7} {:>7} {:>22}",
                arguments.workers,
                arguments.rounds,
                "workload",
                "unit",
                NAMES[0],
                NAMES[1],
                NAMES[2],
                "ratio",
                "best",
                "target"
            ),
            Form::Markdown => println!(
                "```text\n{}\n```\n\n{}. {}; {}. {} workers for each runtime, its defaults otherwise; {} rounds in turns, medians; ratio = \
                 Volt's cost divided by Tokio's, below 1 is better; ± half the distance between the quartiles of Volt's rounds.\n\n\
                 | workload | unit | Volt | Tokio | smol | ratio | target | |\n|---|---|---|---|---|---|---|---|",
                machine::command("peers"),
                machine::day_and_commit(),
                machine::machine(),
                machine::versions(&PACKAGES),
                arguments.workers,
                arguments.rounds
            ),
        }
        Self { form: arguments.form, load, met: (0, 0) }
    }

    pub(crate) fn row(&mut self, row: &Row, figures: &Figures) {
        if let Some(is_met) = figures.is_met(row.target) {
            self.met = (self.met.0 + usize::from(is_met), self.met.1 + 1);
        }
        match self.form {
            Form::Json => println!("{}", json(row, figures)),
            Form::Table => println!("{}", line(row, figures)),
            Form::Markdown => println!("{}", markdown(row, figures)),
        }
    }

    pub(crate) fn end(self) {
        let (met, judged) = self.met;
        let load = machine::load();
        match self.form {
            Form::Json => {}
            Form::Table => println!("\n{met} of {judged} targets met; load at the end {load}"),
            Form::Markdown => println!(
                "\n{met} of {judged} targets met. Load of the machine (1, 5, 15 minutes) before {}, after {load}: the bench's own \
                 included.",
                self.load
            ),
        }
    }
}

fn line(row: &Row, figures: &Figures) -> String {
    let cell = |runtime| match (figures.median(runtime), figures.spread(runtime)) {
        (Some(median), Some(spread)) => format!("{} [{:>3.0}%]", number(median), spread * 100.0),
        (Some(median), None) => format!("{}       ", number(median)),
        (None, _) => "–".to_owned(),
    };
    format!(
        "{:<22} {:<9} {:>16} {:>16} {:>16} {:>7} {:>7} {:>22}",
        row.name,
        row.unit,
        cell(0),
        cell(1),
        cell(2),
        ratio(figures, 0.5),
        ratio(figures, 0.0),
        format!("{} {}", target(row), verdict(row, figures))
    )
}

fn markdown(row: &Row, figures: &Figures) -> String {
    let cell = |runtime| figures.median(runtime).map_or("–".to_owned(), number);
    let spread = figures.spread(0).map_or(String::new(), |spread| format!(" ±{:.0} %", spread * 50.0));
    format!(
        "| `{}` | {} | {}{spread} | {} | {} | {} | {} | {} |",
        row.name,
        row.unit,
        cell(0),
        cell(1),
        cell(2),
        ratio(figures, 0.5),
        target(row),
        verdict(row, figures)
    )
}

fn ratio(figures: &Figures, share: f64) -> String {
    figures.ratio(share).map_or("–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn verdict(row: &Row, figures: &Figures) -> &'static str {
    match figures.is_met(row.target) {
        Some(true) => "met",
        Some(false) => "missed",
        None => "",
    }
}

/// Formats a value with its significant digits.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..0.1 => format!("{value:.4}"),
        ..10.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
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
