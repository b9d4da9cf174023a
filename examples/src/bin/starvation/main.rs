//! Measures what tasks that block do to all other tasks, on Volt and on Tokio.
//!
//! As many tasks as there are workers block their thread for 300 ms of every 400 ms: they sleep,
//! wait for a mutex, or compute. Meanwhile, a thread outside the runtime sends one ping per
//! millisecond, a task that completes immediately. Each blocking task also spawns a child just
//! before it blocks, which goes into its worker's LIFO slot. The waiting times of pings and
//! children are the delays that a user of such a service would notice.
//!
//! ```text
//! cargo run --release --bin starvation -- --peer volt --block sleep
//! cargo run --release --bin starvation -- --peer tokio --block sleep
//! ```
//!
//! On Volt, observe it while it runs with `volt-console attach starvation`.

mod arguments;
mod load;
mod peer;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::arguments::{Arguments, PeerName};
use crate::load::Load;
use crate::report::Report;

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
