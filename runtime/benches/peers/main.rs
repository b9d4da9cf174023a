//! Compares Volt with its alternatives: the same workload source on Volt, Tokio and smol, in turns,
//! on the same machine.
//!
//! ```text
//! cargo bench -p volt-runtime --bench peers                         every workload, a table
//! cargo bench -p volt-runtime --bench peers -- --json               the same, one JSON object per line
//! cargo bench -p volt-runtime --bench peers -- --only spawn --only baton_1
//! cargo bench -p volt-runtime --bench peers -- --quick              fewer and shorter rounds
//! cargo bench -p volt-runtime --bench peers -- --markdown           the table in RESULTS.md
//! cargo bench -p volt-runtime --bench peers -- --list               the names, and a description of each
//! ```
//!
//! How it measures. A workload runs once on each runtime, in turns (A B C A B C), for the given
//! number of rounds. Each time the runtime is started anew, with its own defaults and as many
//! workers as there are processors. A figure is the median over the rounds of the median over the
//! batches of a round. The spread is the distance between the quartiles over the rounds, divided by
//! the median. Other work on the machine affects the figures; since the runtimes take turns, it
//! affects the ratios less.
//!
//! For profilers: `--runtime volt --workers 1 --rounds 1 --batches 50` runs exactly that much,
//! without warm-up. The difference between the instructions of two such runs (callgrind), divided
//! by that of their operations, is the number of instructions per operation.
//!
//! For the cost of a logger: `--log info` installs one, of the kind that most programs have. The
//! benchmark `observe` runs with and without one in turns.
//!
//! By default, glibc returns memory at the top of its heap to the system and allocates it again in
//! the next batch. That would be half of the figure of some workloads. So the benchmark restarts
//! itself with `MALLOC_TRIM_THRESHOLD_` set, for all runtimes alike.

mod machine;
mod quantile;
mod runtimes;

mod child;
mod figures;
mod meter;
mod workloads;

mod arguments;
mod report;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;

use arguments::{Arguments, USAGE};
use figures::Figures;
use report::Report;
use workloads::{WORKLOADS, Workload};

/// glibc: free memory at the top of the heap beyond this is returned to the system.
const TRIM_VARIABLE: &str = "MALLOC_TRIM_THRESHOLD_";
/// More than any workload allocates.
const TRIM_BYTES: &str = "17179869184";

fn main() -> ExitCode {
    if std::env::var_os(TRIM_VARIABLE).is_none() {
        return start_again();
    }
    let arguments: Vec<String> = std::env::args_os().skip(1).map(lossy).collect();
    if let Some(code) = workloads::run_child(&arguments) {
        return code;
    }
    match Arguments::parse(&arguments) {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        Ok(arguments) if arguments.help => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(arguments) if arguments.list => {
            print!("{}", workloads::listing());
            ExitCode::SUCCESS
        }
        Ok(arguments) => {
            if let Some(level) = arguments.log {
                tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::sink).init();
            }
            // ORDERING: Relaxed; the runtimes are built later, on this thread.
            runtimes::volt::IS_RECORDED.store(arguments.is_recorded, Ordering::Relaxed);
            run(&arguments);
            ExitCode::SUCCESS
        }
    }
}

fn lossy(argument: OsString) -> String {
    argument.to_string_lossy().into_owned()
}

/// Runs the same command again with the allocator's setting, which the allocator reads before
/// `main`.
fn start_again() -> ExitCode {
    let error = std::env::current_exe()
        .map(|program| Command::new(program).args(std::env::args_os().skip(1)).env(TRIM_VARIABLE, TRIM_BYTES).exec());
    eprintln!("cannot start again with {TRIM_VARIABLE} set: {error:?}");
    ExitCode::FAILURE
}

fn run(arguments: &Arguments) {
    raise_file_limit();
    let mut report = Report::begin(arguments);
    for workload in WORKLOADS {
        if !workload.rows.iter().any(|row| arguments.wants(row.name)) {
            continue;
        }
        let figures = measure(workload, arguments);
        for (row, figures) in workload.rows.iter().zip(figures) {
            if arguments.wants(row.name) {
                report.row(row, &figures);
            }
        }
    }
    report.end();
}

/// In turns: A, B, C, A, B, C, … Returns one [`Figures`] per row of the workload.
fn measure(workload: &Workload, arguments: &Arguments) -> Vec<Figures> {
    let mut figures = vec![Figures::default(); workload.rows.len()];
    let meter = arguments.meter();
    for round in 0..arguments.rounds.min(workload.max_rounds) {
        for (peer, run) in workload.runs.iter().enumerate() {
            if !arguments.wants_runtime(peer) {
                continue;
            }
            print_progress(&format!(
                "{:<24} round {:<3} {:<8}",
                workload.rows[0].name,
                round + 1,
                runtimes::NAMES[peer]
            ));
            for (figures, value) in figures.iter_mut().zip(run(&meter)) {
                figures.add(peer, value);
            }
        }
    }
    print_progress("");
    figures
}

/// Prints progress on one line, which is rewritten. Prints nothing if the error stream is not a
/// terminal.
fn print_progress(text: &str) {
    use std::io::IsTerminal;
    if std::io::stderr().is_terminal() {
        eprint!("\r{text:<48}\r");
    }
}

/// Both ends of 512 connections are in this program, and many systems allow only 1024 open files by
/// default.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(error) = raised {
        eprintln!("the limit of open files stays at {:?}: {error}", limit.current);
    }
}
