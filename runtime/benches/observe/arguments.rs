//! The options on the command line.

use crate::workloads::{WORKLOADS, Workload};

pub(crate) const USAGE: &str = "\
cargo bench -p volt-runtime --bench observe -- [OPTION…]

  --only NAME     only workloads whose names begin with it; may be given more than once
  --json          one JSON object a line instead of tables
  --markdown      tables for a page, with the command, the day and the machine
  --quick         fewer and shorter rounds, and fewer instructions counted
  --rounds N      turns that each program gets (default 11, with --quick 3)
  --workers N     threads each runtime is started with (default 1: what is asked is the cost of a poll)
  --volt          only Volt, with and without, and with a logger; the rest has to be built for minutes the first time
  --help          this
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
