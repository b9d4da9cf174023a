//! The effect of `Builder::park_spin` on the workloads of the benchmark `peers`: each setting
//! compared with the defaults.
//!
//! ```text
//! cargo bench -p volt-runtime --bench options                    every workload, a table for a page
//! cargo bench -p volt-runtime --bench options -- --only spawn    only names with this prefix; can be repeated
//! cargo bench -p volt-runtime --bench options -- --cpu           processor time of the program instead of time
//! cargo bench -p volt-runtime --bench options -- --rounds 5 --workers 1
//! ```
//!
//! How it measures. A workload runs once with each setting, in turns, each time on a new runtime,
//! for the given number of rounds. A setting's figure is the median over the rounds of its cost
//! divided by the cost of the defaults in the same round. So other load on the machine affects it
//! less. The figure is followed by half the distance between the quartiles of those ratios; a
//! deviation from 1 within that is no difference.

#[path = "../peers/machine.rs"]
mod machine;
#[path = "../peers/runtimes/peer.rs"]
mod peer;
#[path = "../peers/quantile.rs"]
mod quantile;

#[path = "../peers/meter.rs"]
mod meter;
mod subjects;
mod workloads;

/// The path at which the workloads expect the runtimes.
mod runtimes {
    pub(crate) use crate::peer;
}

use std::process::ExitCode;
use std::time::Duration;

use meter::Meter;
use quantile::quantile;
use subjects::{COUNT, NAMES};
use workloads::{WORKLOADS, Workload};

/// Duration of one round of one setting, warm-up included.
const ROUND: Duration = Duration::from_millis(150);
const ROUNDS: usize = 9;

/// The options on the command line.
struct Arguments {
    only: Vec<String>,
    rounds: usize,
    workers: usize,
    is_cpu: bool,
}

impl Arguments {
    fn parse() -> Result<Self, String> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let mut parsed = Self { only: Vec::new(), rounds: ROUNDS, workers, is_cpu: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            let count =
                |text: String| text.parse().ok().filter(|count| *count > 0).ok_or(format!("not a count: {text}"));
            match argument.as_str() {
                // Cargo passes this to every benchmark.
                "--bench" => {}
                "--cpu" => parsed.is_cpu = true,
                "--only" => parsed.only.push(value()?),
                "--rounds" => parsed.rounds = count(value()?)?,
                "--workers" => parsed.workers = count(value()?)?,
                _ => return Err(format!("unknown option {argument}: give --only, --rounds, --workers or --cpu")),
            }
        }
        Ok(parsed)
    }

    fn wants(&self, workload: &Workload) -> bool {
        let is_meant = |name: &String| workload.rows.iter().any(|(row, _)| row.starts_with(name.as_str()));
        self.only.is_empty() || self.only.iter().any(is_meant)
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!(
        "```text\n{}\n```\n\n{}. {}; {}. {} workers, {} rounds in turns, {}; load before {}.\n",
        machine::command("options"),
        machine::day_and_commit(),
        machine::machine(),
        machine::versions(&["volt-runtime"]),
        arguments.workers,
        arguments.rounds,
        if arguments.is_cpu { "processor time" } else { "time" },
        machine::load()
    );
    let heads: Vec<_> = NAMES.iter().map(|name| format!("`{name}`")).collect();
    println!("| workload | unit | {} |\n|---|---|{}", heads.join(" | "), "---|".repeat(COUNT));
    for workload in WORKLOADS.iter().filter(|workload| arguments.wants(workload)) {
        measure(workload, &arguments);
    }
    println!("\nLoad at the end {}.", machine::load());
    ExitCode::SUCCESS
}

/// Runs all rounds of a workload, and prints its rows.
fn measure(workload: &Workload, arguments: &Arguments) {
    let meter = Meter::new(arguments.workers, ROUND, None, false, arguments.is_cpu);
    // Indexed by row, by subject, by round.
    let mut values = vec![[const { Vec::new() }; COUNT]; workload.rows.len()];
    for _ in 0..arguments.rounds {
        for (subject, run) in workload.runs.iter().enumerate() {
            for (row, value) in run(&meter).into_iter().enumerate() {
                values[row][subject].push(value);
            }
        }
    }
    for ((name, unit), [defaults, others @ ..]) in workload.rows.iter().zip(&values) {
        let ratios = others.iter().map(|costs| {
            let mut ratios: Vec<_> = costs.iter().zip(defaults).map(|(cost, default)| cost / default).collect();
            let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(&mut ratios, share));
            format!("{middle:.2} ±{:.2}", (high - low) / 2.0)
        });
        let middle = quantile(&mut defaults.clone(), 0.5);
        let digits = if middle < 10.0 { 2 } else { 0 };
        println!("| `{name}` | {unit} | {middle:.digits$} | {} |", ratios.collect::<Vec<_>>().join(" | "));
    }
}
