//! Compares the programs of this package, and mini-redis, on Tokio and on Volt, and checks the
//! console's output about them. The script `compare` beside `Cargo.toml` builds the programs.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand, ValueEnum};
use strangers::proxy::raise_descriptor_limit;
use strangers::tls::{self, Error};

mod program;

mod cases;
mod check;
mod measure;
mod tools;

use cases::Case;

/// Compare programs on Tokio and on Volt
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Programs to run [default: all]
    #[arg(long, value_enum, global = true, value_delimiter = ',')]
    only: Vec<Case>,
    /// Programs not to run
    #[arg(long, value_enum, global = true, value_delimiter = ',')]
    skip: Vec<Case>,
}

#[derive(Subcommand)]
enum Command {
    /// Put the programs on both runtimes under load, in turns, and print a table
    Measure {
        /// Folder with the programs on Tokio
        #[arg(long)]
        tokio: PathBuf,
        /// Folder with the programs on Volt
        #[arg(long)]
        volt: PathBuf,
        /// Duration of a run, in seconds
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Number of runs of each program on each runtime
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Number of connections
        #[arg(long, default_value_t = 32)]
        connections: usize,
    },
    /// Put programs on both runtimes under the load of wrk and redis-benchmark, and print a table
    Tools {
        /// Folder with the programs on Tokio
        #[arg(long)]
        tokio: PathBuf,
        /// Folder with the programs on Volt
        #[arg(long)]
        volt: PathBuf,
        /// Duration of a run, in seconds; wrk rounds it up
        #[arg(long, default_value_t = 5.0)]
        seconds: f64,
        /// Number of runs of each program on each runtime
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Check that Volt's console and metrics show the tasks of the libraries
    Check {
        /// Folder with the programs on Volt
        #[arg(long)]
        volt: PathBuf,
        /// Volt's console
        #[arg(long)]
        console: PathBuf,
    },
}

/// A folder that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let Arguments { command, only, skip } = Arguments::parse();
    let cases = if only.is_empty() { Case::value_variants().to_vec() } else { only };
    let cases: Vec<_> = cases.into_iter().filter(|case| !skip.contains(case)).collect();
    if cases.is_empty() {
        return Err("all programs are skipped".into());
    }
    tls::install_provider();
    raise_descriptor_limit()?;
    let scratch = Scratch(std::env::temp_dir().join(format!("strangers-{}", std::process::id())));
    std::fs::create_dir(&scratch.0)?;
    run(command, &cases, &scratch.0).await
}

async fn run(command: Command, cases: &[Case], scratch: &Path) -> Result<(), Error> {
    match command {
        Command::Measure { tokio, volt, seconds, rounds, connections } => {
            let settings = measure::Settings { tokio: &tokio, volt: &volt, seconds, rounds };
            measure::measure(cases, &settings, connections, scratch).await
        }
        Command::Tools { tokio, volt, seconds, rounds } => {
            let settings = measure::Settings { tokio: &tokio, volt: &volt, seconds, rounds };
            tools::measure(cases, &settings, scratch).await
        }
        Command::Check { volt, console } => check::check(cases, &volt, &console, scratch).await,
    }
}
