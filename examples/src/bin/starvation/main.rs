//! What one kind of task that blocks does to all others, on Volt and on Tokio.
//!
//! As many tasks as there are workers block their thread for 300 ms of every 400 ms: asleep, waiting for a mutex, or computing. Beside them a
//! thread outside sends a ping a millisecond, a task that ends at once; and each blocker spawns a child just before it blocks, which lands in
//! its worker's LIFO slot. How long pings and children wait is what a user of such a service would feel.
//!
//!     cargo run --release --bin starvation -- --peer volt --block sleep
//!     cargo run --release --bin starvation -- --peer tokio --block sleep
//!
//! On Volt, observe it while it runs: `volt-console attach starvation`.

mod load;
mod peer;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::load::Load;
use crate::report::Report;

/// Tasks that block, and what pings beside them feel.
#[derive(Debug, Parser)]
#[command(about)]
struct Arguments {
    /// The runtime.
    #[arg(long, value_enum, default_value_t = PeerName::Volt)]
    peer: PeerName,
    /// How the tasks block.
    #[arg(long, value_enum, default_value_t = Block::Sleep)]
    block: Block,
    /// Worker threads, and tasks that block.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// How long it runs, seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=25))]
    seconds: u64,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PeerName {
    Volt,
    Tokio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Block {
    /// `std::thread::sleep`.
    Sleep,
    /// A `std::sync::Mutex` that another thread holds.
    Mutex,
    /// A loop that computes.
    Spin,
    /// Nobody blocks: what the machine itself does to a ping, below which no runtime comes.
    None,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let load = Load {
        block: arguments.block,
        workers: arguments.workers.into(),
        lasts: Duration::from_secs(arguments.seconds),
    };
    let measured = match arguments.peer {
        PeerName::Volt => peer::on_volt(&load),
        PeerName::Tokio => peer::on_tokio(&load),
    };
    match measured {
        Ok(measured) => {
            let report = Report::of(&arguments, measured);
            println!("{}", if arguments.json { report.to_json() } else { report.to_string() });
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("starvation: {error}");
            ExitCode::FAILURE
        }
    }
}
