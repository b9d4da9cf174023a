//! Compares Volt's processes with the actors of ractor, kameo and actix: the same workloads, in
//! turns, on the same machine.
//!
//! ```text
//! cargo run --release                      every workload, a table for a page
//! cargo run --release -- --json            the same, one JSON object per row
//! cargo run --release -- --quick           one short round, 10,000 idle processes: a check that it
//!                                          works, not a measurement
//! cargo run --release -- --only ring       one workload; may be given more than once
//! cargo run --release -- --peer volt       one library; may be given more than once
//! cargo run --release -- --rounds 5        turns that each library gets (default 11)
//! cargo run --release -- --workers 1       number of workers (default 2)
//! cargo run --release -- --batches 10      exactly this many batches per round, and no warm-up:
//!                                          for profilers
//! ```
//!
//! A workload runs on each library in turns (A B C D A B C D), for as many rounds as requested,
//! each time on a new runtime. A figure is the median over the rounds of the median over a round's
//! batches. A ratio is Volt's figure divided by that of the other library, computed for each round;
//! the median of these ratios is reported. A disturbance of the machine that lasts longer than a
//! turn therefore affects both libraries. The spread of a ratio is half the distance between the
//! quartiles.
//!
//! By default, glibc returns memory at the top of its heap to the system, and allocates it again in
//! the next batch. This is disabled for all libraries, as in `peers`.

#[path = "../../../runtime/benches/peers/machine.rs"]
#[expect(dead_code, reason = "the command and the versions are not those of a bench of the workspace")]
mod machine;
#[path = "../../../runtime/benches/peers/quantile.rs"]
mod quantile;

mod peer;
mod tally;

mod tokio_runtime;
mod volt_peer;

mod actix_peer;
mod function_form;
mod kameo_peer;
mod machine_form;
mod memory;
mod ractor_peer;
mod workloads;

mod table;

mod arguments;
mod report;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use actix_peer::Actix;
use arguments::{Arguments, USAGE};
use function_form::Functions;
use kameo_peer::Kameo;
use machine_form::Machines;
use ractor_peer::Ractor;
use report::Report;
use table::{NAMES, PEERS, WORKLOADS};
use volt_peer::Volt;

/// The glibc setting for how much free memory at the top of the heap is kept before it is returned
/// to the system.
const TRIM_VARIABLE: &str = "MALLOC_TRIM_THRESHOLD_";
/// More than any workload allocates.
const TRIM_BYTES: &str = "17179869184";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, peer, workers, count] = &arguments[..]
        && first == memory::CHILD
    {
        return child(peer, workers, count);
    }
    if std::env::var_os(TRIM_VARIABLE).is_none() {
        return start_again();
    }
    if arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help")) {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match Arguments::parse(&arguments) {
        Ok(arguments) => run(&arguments),
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn child(peer: &str, workers: &str, count: &str) -> ExitCode {
    let bytes_each: [fn(usize, usize) -> f64; PEERS] = [
        memory::bytes_each::<Volt<Machines>>,
        memory::bytes_each::<Volt<Functions>>,
        memory::bytes_each::<Ractor>,
        memory::bytes_each::<Kameo>,
        memory::bytes_each::<Actix>,
    ];
    let at = NAMES.iter().position(|name| *name == peer);
    let (Some(at), Ok(workers), Ok(count)) = (at, workers.parse(), count.parse()) else { return ExitCode::from(2) };
    println!("{}", bytes_each[at](workers, count));
    ExitCode::SUCCESS
}

/// Runs this command again with the allocator's setting, which the allocator reads before `main`.
fn start_again() -> ExitCode {
    let error = std::env::current_exe()
        .map(|program| Command::new(program).args(std::env::args_os().skip(1)).env(TRIM_VARIABLE, TRIM_BYTES).exec());
    eprintln!("cannot start again with {TRIM_VARIABLE} set: {error:?}");
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) {
    let report = Report::begin(arguments);
    for workload in WORKLOADS {
        if !workload.rows.iter().any(|row| arguments.wants(row.name)) {
            continue;
        }
        let mut figures = vec![[const { Vec::new() }; PEERS]; workload.rows.len()];
        for _ in 0..arguments.rounds.min(workload.max_rounds) {
            for (peer, run) in workload.runs.iter().enumerate().filter(|(peer, _)| arguments.wants_peer(NAMES[*peer])) {
                for (figures, value) in figures.iter_mut().zip(run(&arguments.meter)) {
                    figures[peer].push(value);
                }
            }
        }
        for (row, figures) in workload.rows.iter().zip(&figures) {
            report.row(row, figures);
        }
    }
    report.end();
}
