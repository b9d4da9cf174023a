//! Measures the cost of counters and events: Volt as shipped, compared with the same code with
//! counting compiled out, and with Tokio under its own observers.
//!
//! ```text
//! cargo bench -p volt-runtime --bench observe                   all workloads, tables
//! cargo bench -p volt-runtime --bench observe -- --json         the same, one JSON object per line
//! cargo bench -p volt-runtime --bench observe -- --only yield --only baton
//! cargo bench -p volt-runtime --bench observe -- --quick        fewer and shorter rounds
//! cargo bench -p volt-runtime --bench observe -- --volt         only Volt: with and without, and with a logger
//! cargo bench -p volt-runtime --bench observe -- --build        builds the programs, and measures nothing
//! cargo bench -p volt-runtime --bench observe -- --markdown     the table of which the documents show parts
//! ```
//!
//! How it measures. Each subject is a separate program (`subjects`). It runs one round of one
//! workload of the benchmark `peers` and prints its cost: the processor time of this program, which
//! other work on the machine affects less than elapsed time. The subjects take turns, A B C A B C;
//! a figure is the median over the rounds. Instructions are counted by callgrind, if valgrind is
//! installed (`instructions`). The cost of observation is the difference between Volt with and
//! without it: in time and in instructions, per operation and per poll.
//!
//! By default there is one worker, since the question is the cost of a poll. With more workers, the
//! figures would depend on which worker finds work first. The main thread waits. So on an otherwise
//! idle machine the worker's processor time equals elapsed time, and an observer's own threads are
//! counted too.
//!
//! The ceiling is 20 ns per poll and 5 % of the worst workload, for everything that is on by
//! default. The verdict uses the medians of the times, and not their spread.

#[path = "../peers/machine.rs"]
mod machine;
#[path = "../peers/quantile.rs"]
mod quantile;
#[path = "../peers/workloads/sizes.rs"]
mod sizes;

mod subjects;
mod workloads;

mod arguments;
mod figures;
mod instructions;
mod report;

use std::process::ExitCode;

use arguments::{Arguments, USAGE};
use figures::Figures;
use report::Report;
use subjects::{NAMES, Subject, UNOBSERVED, VOLT};
use workloads::Workload;

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)) {
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        Ok(arguments) if arguments.help => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Ok(arguments) => run(&arguments),
    }
}

fn run(arguments: &Arguments) -> ExitCode {
    let (subjects, mut notes) = subjects::build(arguments.is_volt_only);
    let is_there = |index| subjects.iter().any(|subject| subject.index == index);
    if !is_there(VOLT) || !is_there(UNOBSERVED) {
        eprintln!("{}", notes.join("\n"));
        return ExitCode::FAILURE;
    }
    if arguments.is_build {
        notes.iter().for_each(|note| eprintln!("{note}"));
        return if notes.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let counted = instructions::availability();
    if let Err(error) = &counted {
        notes.push(format!("instructions are not counted, only times: {error}"));
    }
    let mut report = Report::begin(arguments, &notes);
    for workload in arguments.workloads() {
        let mut figures = time(workload, &subjects, arguments);
        if counted.is_ok() {
            count(workload, &subjects, arguments, &mut figures);
        }
        report.add(workload, figures);
    }
    report.end();
    ExitCode::SUCCESS
}

/// In turns: A, B, C, A, B, C, …
fn time(workload: &Workload, subjects: &[Subject], arguments: &Arguments) -> Figures {
    let mut figures = Figures::default();
    for round in 1..=arguments.rounds {
        for subject in subjects {
            progress(&format!("{:<20} round {round:<3} {}", workload.name, NAMES[subject.index]));
            if let Some(cost_ns) = subject.cost_ns(workload.name, arguments.workers, arguments.quick) {
                figures.add_cost(subject.index, cost_ns);
            }
        }
    }
    progress("");
    figures
}

fn count(workload: &Workload, subjects: &[Subject], arguments: &Arguments, figures: &mut Figures) {
    for subject in subjects.iter().filter(|subject| instructions::COUNTED.contains(&subject.index)) {
        progress(&format!("{:<20} instructions {}", workload.name, NAMES[subject.index]));
        if let Some(instructions) = instructions::count(subject, workload, arguments.quick) {
            figures.set_instructions(subject.index, instructions);
        }
    }
    progress("");
}

/// Prints progress to the error stream, not to the output.
fn progress(text: &str) {
    eprint!("\r{text:<60}\r");
}
