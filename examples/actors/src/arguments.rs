//! The arguments of the benchmark's command line.

use std::time::Duration;

use crate::table::{NAMES, WORKLOADS};
use crate::workloads::Meter;

pub(crate) const USAGE: &str = "\
Compare actor libraries on the same workloads

Usage: actors [OPTIONS]

Options:
  --only WORKLOAD  Run only this workload; can be given several times
  --peer LIBRARY   Run only this library; can be given several times
  --rounds N       Number of rounds [default: 11]
  --workers N      Number of workers of each runtime [default: 2]
  --batches N      Exact number of batches per round, without warm-up
                   [default: as many as fit into 100 ms]
  --quick          Run one short round with 10,000 idle actors instead of 1,000,000
  --json           Print JSON

Example:
  actors --quick --peer volt";

const ROUND: Duration = Duration::from_millis(100);
const ROUNDS: usize = 11;
const WORKERS: usize = 2;
const IDLE: usize = 1_000_000;
const QUICK_IDLE: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Arguments {
    only: Vec<String>,
    peers: Vec<String>,
    pub(crate) is_json: bool,
    pub(crate) rounds: usize,
    pub(crate) meter: Meter,
}

impl Arguments {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let meter = Meter { workers: WORKERS, time: ROUND, batches: None, idle: IDLE };
        let mut parsed = Self { only: Vec::new(), peers: Vec::new(), is_json: false, rounds: ROUNDS, meter };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--json" => parsed.is_json = true,
                "--quick" => {
                    parsed.rounds = 1;
                    parsed.meter.time = Duration::ZERO;
                    parsed.meter.idle = QUICK_IDLE;
                }
                "--only" => {
                    let mut rows = WORKLOADS.iter().flat_map(|workload| workload.rows).map(|row| row.name);
                    parsed.only.push(known(&mut rows, value()?)?);
                }
                "--peer" => parsed.peers.push(known(&mut NAMES.into_iter(), value()?)?),
                "--rounds" => parsed.rounds = count(argument, value()?)?,
                "--workers" => parsed.meter.workers = count(argument, value()?)?,
                "--batches" => parsed.meter.batches = Some(count(argument, value()?)?),
                _ => return Err(format!("unknown option {argument}")),
            }
        }
        Ok(parsed)
    }

    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == row)
    }

    pub(crate) fn wants_peer(&self, peer: &str) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|wanted| wanted == peer)
    }
}

fn known(names: &mut dyn Iterator<Item = &'static str>, name: &str) -> Result<String, String> {
    let names: Vec<_> = names.collect();
    if names.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(format!("unknown name {name:?}; expected one of {}", names.join(", ")))
    }
}

fn count(option: &str, value: &str) -> Result<usize, String> {
    value
        .parse()
        .ok()
        .filter(|&count| count > 0)
        .ok_or_else(|| format!("{option} needs a number of at least 1, not {value:?}"))
}
