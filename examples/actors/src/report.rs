//! Prints the results: a table for a page, or one JSON object per row.
//!
//! The JSON keys are `workload`, `unit`, `about`; for each library its `median`, `ratio` (Volt's
//! median, in its first form, divided by this one; below 1 is better), and the `spread` of the
//! ratio. Values that were not measured are omitted.

use std::fs;

use crate::arguments::Arguments;
use crate::machine;
use crate::quantile::quantile;
use crate::table::{NAMES, PEERS, Row};

/// The packages whose versions the page must name.
const PACKAGES: [&str; 5] = ["volt-runtime", "ractor", "kameo", "actix", "tokio"];

/// Prints the results. See the header of this file.
pub(crate) struct Report {
    is_json: bool,
    load: String,
}

impl Report {
    pub(crate) fn begin(arguments: &Arguments) -> Self {
        let load = machine::load();
        if !arguments.is_json {
            println!(
                "{}. {}; {}. {} workers for each library; {} rounds in turns, medians. Small: Volt's figure divided by the other's (its first column's), ± half the \
                 distance between the quartiles; below 1 is better.\n",
                machine::day_and_commit(),
                machine::machine(),
                versions(),
                arguments.meter.workers,
                arguments.rounds
            );
            println!("| workload | | unit | {} |\n|---|---|---|{}", NAMES.join(" | "), "---|".repeat(PEERS));
        }
        Self { is_json: arguments.is_json, load }
    }

    pub(crate) fn row(&self, row: &Row, figures: &[Vec<f64>; PEERS]) {
        let cells = figures.iter().enumerate().map(|(peer, values)| self.cell(peer, values, &figures[0]));
        let cells: Vec<_> = cells.collect();
        let Row { name, unit, about } = row;
        if self.is_json {
            let cells: String = cells.into_iter().flatten().map(|cell| format!(",{cell}")).collect();
            println!("{{\"workload\":\"{name}\",\"unit\":\"{unit}\",\"about\":\"{about}\"{cells}}}");
        } else {
            let cells: Vec<_> = cells.into_iter().map(|cell| cell.unwrap_or("–".to_owned())).collect();
            println!("| `{name}` | {about} | {unit} | {} |", cells.join(" | "));
        }
    }

    pub(crate) fn end(self) {
        if !self.is_json {
            let after = machine::load();
            println!("\nLoad of the machine, 1, 5 and 15 minutes: {} before, {after} after the bench.", self.load);
        }
    }

    fn cell(&self, peer: usize, values: &[f64], volt: &[f64]) -> Option<String> {
        let of = |values: &[f64], share| quantile(&mut values.to_vec(), share);
        let median = if values.is_empty() { return None } else { of(values, 0.5) };
        let ratios: Vec<f64> = volt.iter().zip(values).map(|(volt, other)| volt / other).collect();
        let ratio = (!ratios.is_empty()).then(|| (of(&ratios, 0.5), (of(&ratios, 0.75) - of(&ratios, 0.25)) / 2.0));
        Some(match (self.is_json, ratio) {
            (true, Some((ratio, spread))) => {
                format!("\"{}\":{{\"median\":{median:.1},\"ratio\":{ratio:.3},\"spread\":{spread:.3}}}", NAMES[peer])
            }
            (true, None) => format!("\"{}\":{{\"median\":{median:.1}}}", NAMES[peer]),
            (false, Some((ratio, spread))) if peer > 0 => format!("{median:.0} <sub>{ratio:.2} ± {spread:.2}</sub>"),
            (false, _) => format!("{median:.0}"),
        })
    }
}

/// Returns the versions from the lock file of this build.
fn versions() -> String {
    let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock")).unwrap_or_default();
    let version = |package: &&str| {
        let (_, entry) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
        entry.split_once('"').map(|(version, _)| format!("{package} {version}"))
    };
    PACKAGES.iter().filter_map(version).collect::<Vec<_>>().join(", ")
}
