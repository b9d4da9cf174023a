//! The options on the command line.

use std::time::Duration;

use tracing_subscriber::filter::LevelFilter;

use crate::meter::{MIN_CPU_BATCHES, Meter};
use crate::runtimes;
use crate::workloads;

pub(crate) const USAGE: &str = "\
Run the same workloads on Volt, Tokio and smol, and compare the results

Usage: cargo bench -p volt-runtime --bench peers -- [OPTIONS]

Options:
  --only NAME     Run only the workload NAME or, if there is none, those whose
                  names begin with NAME; can be given several times
  --quick         Run fewer and shorter rounds
  --rounds N      Number of rounds [default: 9, with --quick 3]
  --json          Print one JSON object per line instead of a table
  --markdown      Print a table in Markdown, with command, date and machine
  --list          List the workloads: names, units, targets and descriptions
  --help          Print this help

Options for profilers:
  --runtime NAME  Run only volt, tokio or smol; can be given several times
  --workers N     Number of workers [default: one for each processor]
  --batches N     Run exactly N batches per round, without warm-up
  --cpu           Measure the processor time of the program instead of elapsed
                  time, in workloads that are measured in batches; a round
                  needs at least 2 of them
  --recorded      Switch Volt's flight recorder on
  --log LEVEL     Install tracing-subscriber's fmt at LEVEL, which writes nothing

Example:
  cargo bench -p volt-runtime --bench peers -- --quick --only ping_pong
";

/// Duration of one round of one runtime, warm-up included.
const ROUND: Duration = Duration::from_millis(150);
const QUICK_ROUND: Duration = Duration::from_millis(60);
const ROUNDS: usize = 9;
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
    runtimes: Vec<usize>,
    pub(crate) form: Form,
    pub(crate) quick: bool,
    pub(crate) list: bool,
    pub(crate) help: bool,
    pub(crate) rounds: usize,
    pub(crate) workers: usize,
    batches: Option<usize>,
    is_cpu: bool,
    pub(crate) is_recorded: bool,
    pub(crate) log: Option<LevelFilter>,
}

impl Arguments {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut arguments = arguments.iter();
        let (mut rounds, mut workers) = (None, None);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                // Cargo passes this to every benchmark.
                "--bench" => {}
                "--json" => parsed.form = Form::Json,
                "--markdown" => parsed.form = Form::Markdown,
                "--quick" => parsed.quick = true,
                "--cpu" => parsed.is_cpu = true,
                "--recorded" => parsed.is_recorded = true,
                "--list" => parsed.list = true,
                "--help" | "-h" => parsed.help = true,
                "--only" => parsed.only.push(known(value()?)?),
                "--runtime" => parsed.runtimes.push(runtime(value()?)?),
                "--rounds" => rounds = Some(count(argument, value()?)?),
                "--workers" => workers = Some(count(argument, value()?)?),
                "--log" => parsed.log = Some(level(value()?)?),
                "--batches" => parsed.batches = Some(count(argument, value()?)?),
                _ => return Err(format!("unknown option {argument}\n\n{USAGE}")),
            }
        }
        if parsed.is_cpu && parsed.batches.is_some_and(|batches| batches < MIN_CPU_BATCHES) {
            return Err(format!(
                "--cpu needs at least --batches {MIN_CPU_BATCHES}: it measures from the end of the first batch on"
            ));
        }
        parsed.rounds = rounds.unwrap_or(if parsed.quick { QUICK_ROUNDS } else { ROUNDS });
        parsed.workers = workers.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Ok(parsed)
    }

    pub(crate) fn wants(&self, row: &str) -> bool {
        let is_meant = |name: &String| row == name || (row.starts_with(name.as_str()) && !is_whole(name));
        self.only.is_empty() || self.only.iter().any(is_meant)
    }

    pub(crate) fn wants_runtime(&self, index: usize) -> bool {
        self.runtimes.is_empty() || self.runtimes.contains(&index)
    }

    pub(crate) fn meter(&self) -> Meter {
        let time = if self.quick { QUICK_ROUND } else { ROUND };
        Meter::new(self.workers, time, self.batches, self.quick, self.is_cpu)
    }
}

fn is_whole(name: &str) -> bool {
    workloads::names().any(|whole| whole == name)
}

fn known(prefix: &str) -> Result<String, String> {
    if workloads::names().any(|name| name.starts_with(prefix)) {
        return Ok(prefix.to_owned());
    }
    let names: Vec<_> = workloads::names().collect();
    Err(format!("no workload's name begins with \"{prefix}\"; the workloads are: {}", names.join(", ")))
}

fn runtime(name: &str) -> Result<usize, String> {
    let index = runtimes::NAMES.iter().position(|known| *known == name);
    index.ok_or_else(|| format!("no runtime \"{name}\"; the runtimes are: {}", runtimes::NAMES.join(", ")))
}

fn level(text: &str) -> Result<LevelFilter, String> {
    text.parse().map_err(|_| format!("--log needs a level such as info or debug, not \"{text}\""))
}

fn count(option: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("{option} needs a number from 1 up, not \"{value}\"")),
    }
}
