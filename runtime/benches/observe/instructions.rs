//! Counts instructions per operation with callgrind, which the load of the machine does not affect.
//!
//! A program is run twice, with few batches and with many, and with one worker. The difference of
//! the two counts, divided by that of the operations, excludes start and end. All threads of the
//! program count; kernel time does not.
//!
//! Random disturbances only increase a count. Under valgrind, and on a busy machine, the sentinel
//! may find a poll that has lasted too long, and reading its stack then costs a hundred million
//! instructions, once. So each length is run again until its two smallest counts agree, and the
//! smallest is used.
//!
//! Under valgrind one thread runs at a time, and time passes some fifty times as fast. The cycle
//! counter is the processor's own there too, and the processor still reports that it can be
//! trusted. So Volt's clock is calibrated as usual: a reading is four loads, an `rdtsc` that counts
//! as one instruction, and a multiplication. All spins in Volt have a bounded number of iterations,
//! so none runs for ever. Behaviour that depends on time (polling the driver, the interval of the
//! tuner) changes the counts by a few thousandths from run to run.

use std::process::{Child, Command, Stdio};

use crate::subjects::{Subject, UNOBSERVED, VOLT};
use crate::workloads::Workload;

const VALGRIND: &str = "valgrind";
/// The shorter run does the longer one's number of batches divided by this.
const SHORTER: usize = 5;
/// With `--quick`, the number of batches is divided by this.
const FEWER: usize = 4;
/// The two smallest counts agree if they differ by no more than this.
const AGREEMENT_RATIO: f64 = 0.005;
/// Maximum number of runs.
const MAX_RUNS: usize = 5;

/// Returns an error with the reason if there is no valgrind to count with.
pub(crate) fn availability() -> Result<(), String> {
    let tried = Command::new(VALGRIND).args(["--tool=callgrind", "--version"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{VALGRIND} fails: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{VALGRIND} cannot be started ({error}); on Debian: apt-get install valgrind")),
    }
}

/// The subjects whose instructions are counted: `.ci/instructions` counts those of Tokio, and those
/// of an observer on a separate thread mean nothing, since it reads all tasks now and then.
pub(crate) const COUNTED: [usize; 2] = [VOLT, UNOBSERVED];

/// Returns the instructions per operation of `workload`; `None` if they cannot be counted.
pub(crate) fn count(subject: &Subject, workload: &Workload, is_quick: bool) -> Option<f64> {
    let longer = if is_quick { (workload.batches / FEWER).max(2) } else { workload.batches };
    let shorter = (longer / SHORTER).max(1);
    let mut counts = [Vec::new(), Vec::new()];
    for _ in 0..MAX_RUNS {
        // Both at the same time: they do not disturb each other's counts.
        let runs = [shorter, longer].map(|batches| start(subject, workload, batches));
        for (counts, run) in counts.iter_mut().zip(runs) {
            counts.push(collected(run?)?);
            counts.sort_unstable_by(f64::total_cmp);
        }
        if counts.iter().all(|counts| do_agree(counts)) {
            break;
        }
    }
    let operations = (longer - shorter) * workload.operations;
    Some((counts[1][0] - counts[0][0]) / operations as f64)
}

/// Returns whether the two smallest counts agree.
fn do_agree(counts: &[f64]) -> bool {
    matches!(counts, [least, next, ..] if next - least <= least * AGREEMENT_RATIO)
}

fn start(subject: &Subject, workload: &Workload, batches: usize) -> Option<Child> {
    let mut command = Command::new(VALGRIND);
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&subject.program);
    subject.add_arguments(&mut command, workload.name, 1);
    command.args(["--batches", &batches.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()
}

/// Reads the count from the end of the output, such as `==11234== Collected : 50746535`.
fn collected(child: Child) -> Option<f64> {
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let (_, told) = text.split_once("Collected : ")?;
    output.status.success().then(|| told.split_whitespace().next()?.parse().ok()).flatten()
}
