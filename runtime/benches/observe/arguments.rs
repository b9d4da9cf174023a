//! The options on the command line.

use crate::workloads::{WORKLOADS, Workload};

pub(crate) const USAGE: &str = "\
Measure the cost of counters and events, on Volt and on Tokio

Usage: cargo bench -p volt-runtime --bench observe -- [OPTIONS]

Options:
  --only NAME   Run only workloads whose names begin with NAME; can be given
                several times
  --volt        Measure only Volt: with and without counters, and with a logger.
                The other programs take minutes to build the first time
  --build       Build the programs, and measure nothing
  --quick       Run fewer and shorter rounds, and count fewer instructions
  --rounds N    Number of rounds [default: 11, with --quick 3]
  --workers N   Number of workers of each runtime [default: 1]
  --json        Print one JSON object per line instead of tables
  --markdown    Print one table in Markdown, with command, date and machine
  --help        Print this help

Example:
  cargo bench -p volt-runtime --bench observe -- --volt --quick --only yield
";

const ROUNDS: usize = 11;
const QUICK_ROUNDS: usize = 3;

/// The format of the output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Form {
    #[default]
    Table,
    Markdown,
    Json,
}

#[derive(Debug, Default)]
pub(crate) struct Arguments {
    only: Vec<String>,
    pub(crate) form: Form,
    pub(crate) quick: bool,
    pub(crate) is_volt_only: bool,
    pub(crate) is_build: bool,
    pub(crate) help: bool,
    pub(crate) rounds: usize,
    pub(crate) workers: usize,
}

impl Arguments {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self { workers: 1, ..Self::default() };
        let mut arguments = arguments.peekable();
        let mut rounds = None;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                // Cargo passes this to every benchmark.
                "--bench" => {}
                "--json" => parsed.form = Form::Json,
                "--markdown" => parsed.form = Form::Markdown,
                "--quick" => parsed.quick = true,
                "--volt" => parsed.is_volt_only = true,
                "--build" => parsed.is_build = true,
                "--help" | "-h" => parsed.help = true,
                "--only" => parsed.only.push(known(value()?)?),
                "--rounds" => rounds = Some(count("--rounds", &value()?)?),
                "--workers" => parsed.workers = count("--workers", &value()?)?,
                _ => return Err(format!("unknown option {argument}\n\n{USAGE}")),
            }
        }
        parsed.rounds = rounds.unwrap_or(if parsed.quick { QUICK_ROUNDS } else { ROUNDS });
        Ok(parsed)
    }

    /// Returns the selected workloads.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &'static Workload> {
        let is_wanted = |name: &str| self.only.is_empty() || self.only.iter().any(|prefix| name.starts_with(prefix));
        WORKLOADS.iter().filter(move |workload| is_wanted(workload.name))
    }
}

fn known(prefix: String) -> Result<String, String> {
    let mut names = WORKLOADS.iter().map(|workload| workload.name);
    if names.clone().any(|name| name.starts_with(&prefix)) {
        return Ok(prefix);
    }
    let all: Vec<_> = names.by_ref().collect();
    Err(format!("no workload's name begins with \"{prefix}\"; the workloads are: {}", all.join(", ")))
}

fn count(option: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("{option} needs a number from 1 up, not \"{value}\"")),
    }
}
