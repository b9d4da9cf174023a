//! The command line.

use clap::{Parser, ValueEnum};

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Compare Volt with Tokio while tasks sleep on the workers
  starvation --peer volt --block sleep
  starvation --peer tokio --block sleep

  # Measure for 20 seconds and print the result as JSON
  starvation --block mutex --seconds 20 --json

  # Observe a run on Volt in the console, from another terminal
  volt-console attach starvation

Exit codes:
  0  The measurement is complete, whatever its result
  1  The measurement failed
  2  Invalid arguments";

/// Measure how long tasks wait while other tasks block their workers
///
/// As many tasks as workers block for 300 ms of every 400 ms. Meanwhile, a thread outside the
/// runtime spawns a short task (a ping) every millisecond, and each blocking task spawns a child
/// just before it blocks. Prints how long pings and children wait.
#[derive(Debug, Parser)]
#[command(max_term_width = 80, after_long_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Runtime to measure
    #[arg(long, value_enum, default_value_t = PeerName::Volt)]
    pub(crate) peer: PeerName,
    /// How the tasks block
    #[arg(long, value_enum, default_value_t = Block::Sleep)]
    pub(crate) block: Block,
    /// Number of workers, and of tasks that block (1 to 256)
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
    /// How long to run, in seconds (1 to 25)
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=25))]
    pub(crate) seconds: u64,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    Volt,
    Tokio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Block {
    /// In `std::thread::sleep`
    Sleep,
    /// On a `std::sync::Mutex` that another thread holds
    Mutex,
    /// In a loop that computes
    Spin,
    /// Not at all: measures the delay of the machine itself
    None,
}
